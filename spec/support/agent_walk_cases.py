"""Walking and listing by the native operation."""
import base64
import os
import time

from agent_client import Agent, equal, frame, plain_agent, wait_until


def name_of(path):
    return base64.b64decode(path["base64"]) if isinstance(path, dict) else path


def walk(a, root=".", **body):
    """(entries, last frame)"""
    frames = a.stream("walk", {"root": root, **body})
    entries = []
    for frame in frames[:-1]:
        equal(frame["type"], "entries")
        assert 0 < len(frame["entries"]) <= 256
        entries += frame["entries"]
    return entries, frames[-1]


def names(a, pattern=None, **body):
    """Paths below the workspace, sorted by us; the walk has to end well."""
    entries, last = walk(a, **({"pattern": pattern} if pattern is not None else {}), **body)
    equal(last["type"], "done")
    return sorted(os.path.relpath(name_of(e[0]), a.workspace) for e in entries)


def tree(a, *paths):
    for path in paths:
        full = a.path(path)
        os.makedirs(full if path.endswith("/") else os.path.dirname(full), exist_ok=True)
        if not path.endswith("/"):
            with open(full, "w") as f:
                f.write(path)


TREE = ("a.txt", "b.md", ".hidden", "src/main.c", "src/lib/x.c", "src/lib/deep/y.c", "src/.git/config", "docs/", "src/a.txt")


def test_entries(program):
    with Agent(program) as a:
        tree(a, "dir/file")
        os.chmod(a.path("dir/file"), 0o4711)
        os.utime(a.path("dir/file"), ns=(0, 1_600_000_000_123_456_789))
        (entry,), last = walk(a, "dir")
        equal(entry[:4], [a.path("dir/file"), 8, "file", 0o4711])
        assert abs(entry[4] - 1_600_000_000_123.4567) < 0.01, entry
        equal(last, {"type": "done", "visited": 1})
        equal(walk(a, a.path("dir"))[0], [entry])
        raw = os.fsencode(a.workspace) + b"/dir/\xff"
        with open(raw, "w"):
            pass
        equal({name_of(e[0]) for e in walk(a, "dir")[0]}, {raw, a.path("dir/file")})


def test_patterns(program):
    with Agent(program) as a:
        tree(a, *TREE)
        plain = ["a.txt", "b.md", "src/a.txt", "src/lib/deep/y.c", "src/lib/x.c", "src/main.c"]
        equal(names(a), plain)
        equal(names(a, "**/*"), plain)
        equal(names(a, includeHidden=True), sorted(plain + [".hidden", "src/.git/config"]))
        equal(names(a, "*"), ["a.txt", "b.md"])
        equal(names(a, "**/*.c"), ["src/lib/deep/y.c", "src/lib/x.c", "src/main.c"])
        equal(names(a, "src/*.c"), ["src/main.c"])
        equal(names(a, "src/lib/x.c"), ["src/lib/x.c"])
        equal(names(a, "{a,b}.*"), ["a.txt", "b.md"])
        equal(names(a, "src/**/deep/*"), ["src/lib/deep/y.c"])
        equal(names(a, ".hid*"), [".hidden"])
        equal(names(a, "src/.git/*"), ["src/.git/config"])
        equal(names(a, "docs"), [])
        equal(names(a, "nothing/*"), [])
        equal(names(a, "a.txt/*"), [])
        equal(names(a, "./a.txt"), ["a.txt"])
        equal(names(a, "*.txt", root="src"), ["src/a.txt"])
        equal(names(a, "a.txt", root="src/a.txt"), ["src/a.txt"])
        equal(names(a, "*.c", root="src/a.txt"), [])
        for bad in ("", "/x", "../x", "a/../b", 7, {}):
            (f,) = a.stream("walk", {"root": ".", "pattern": bad})
            assert f["error"].startswith("walk_invalid_pattern: "), f


def test_visits_are_counted(program):
    """Plain names in front of a pattern are looked up: one visit each."""
    with Agent(program) as a:
        tree(a, *TREE)
        for i in range(50):
            tree(a, f"many{i}")
        equal(walk(a, pattern="src/lib/*.c")[1], {"type": "done", "visited": 2 + 2})
        equal(walk(a, pattern="src/lib/x.c")[1]["visited"], 2 + 2)
        equal(walk(a, pattern="no/such/x.c")[1], {"type": "done", "visited": 1})
        equal(walk(a, pattern="many1")[1]["visited"], 55)


def test_limits(program):
    with Agent(program) as a:
        for i in range(1000):
            tree(a, f"d/f{i:04}")
        entries, last = walk(a, "d", maxEntries=700)
        equal((len(entries), last["type"]), (700, "done"))
        entries, last = walk(a, "d", maxVisitedEntries=999)
        equal(last["type"], "error")
        equal(last["code"], "ERR_FILE_WALK_LIMIT")
        assert last["error"].startswith("walk_limit: "), last
        entries, last = walk(a, "d", maxVisitedEntries=1000)
        equal((len(entries), last), (1000, {"type": "done", "visited": 1000}))
        equal(walk(a, "d", maxEntries=5, maxVisitedEntries=100)[1]["type"], "done")
        equal(len(names(a, maxDepth=1)), 0)
        equal(len(names(a, maxDepth=2)), 1000)
        equal(len(names(a, "d/*", maxDepth=1)), 0)
        for key in ("maxDepth", "maxEntries", "maxVisitedEntries"):
            for bad in (0, -1, 1.5, "5", True, []):
                (f,) = a.stream("walk", {"root": ".", key: bad})
                equal(f["error"], f"walk_invalid_limit: {key} must be a positive safe integer")


def test_sorted(program):
    with Agent(program) as a:
        tree(a, *(f"d/{n}/{m}" for n in ("b", "a", "c") for m in ("z", "y", "x")), "d/aa", "d/bb", "d/Z")
        entries, _ = walk(a, "d", sorted=True)
        equal([os.path.relpath(e[0], a.path("d")) for e in entries],
              ["Z", "a/x", "a/y", "a/z", "aa", "b/x", "b/y", "b/z", "bb", "c/x", "c/y", "c/z"])
        for i in range(3000):
            tree(a, f"many/{i * 7919 % 3000:04}")
        entries, last = walk(a, "many", sorted=True)
        equal([os.path.basename(e[0]) for e in entries], [f"{i:04}" for i in range(3000)])
        equal(last["visited"], 3000)


def test_list(program):
    with Agent(program) as a:
        tree(a, "d/.hidden", "d/sub/x", "d/file")
        os.symlink("nowhere", a.path("d/link"))
        os.mkfifo(a.path("d/fifo"))
        entries, last = walk(a, "d", list=True)
        equal([(os.path.basename(e[0]), e[2]) for e in entries],
              [(".hidden", "file"), ("fifo", "other"), ("file", "file"), ("link", "symlink"), ("sub", "directory")])
        equal(last, {"type": "done", "visited": 5})
        os.symlink("d", a.path("alias"))
        equal(walk(a, "alias", list=True)[0][0][0], a.path("alias/.hidden"))
        equal(walk(a, "d/sub", list=True, maxEntries=1)[1]["type"], "done")
        os.mkdir(a.path("empty"))
        equal(walk(a, "empty", list=True), ([], {"type": "done", "visited": 0}))
        for root in ("d/file", "d/fifo"):
            (f,) = a.stream("walk", {"root": root, "list": True})
            equal((f["type"], f["error"], f["code"]),
                  ("error", f"ENOTDIR: not a directory, scandir '{a.path(root)}'", "ENOTDIR"))


def test_roots_that_fail(program):
    with Agent(program) as a:
        os.symlink("/etc", a.path("out"))
        for root, error, code in (("no", f"ENOENT: no such file or directory, open '{a.path('no')}'", "ENOENT"),
                                  ("/etc", "path escapes the workspace", None), ("out", "symlink escapes the workspace", None),
                                  ("", "missing_root", None), (None, "missing_root", None)):
            for more in ({}, {"list": True}):
                (f,) = a.stream("walk", {"root": root, **more})
                equal(f, {"type": "error", "error": error, **({"code": code} if code else {})})


def test_links_are_not_followed(program):
    with Agent(program) as a:
        tree(a, "d/f")
        os.symlink("d", a.path("link"))
        os.symlink("f", a.path("d/flink"))
        os.symlink("..", a.path("d/up"))
        equal(names(a), ["d/f"])
        equal(names(a, "link/*"), [])
        equal(names(a, "d/flink"), [])


def test_deep_trees(program):
    """Deeper than any number of descriptors; as deep as a path can name."""
    with Agent(program, nofile=80) as a:
        depth = 600
        path = a.workspace
        for i in range(depth):
            path = os.path.join(path, "d")
            os.mkdir(path)
            if i % 50 == 0:
                for name in ("a", "z"):
                    with open(os.path.join(path, name), "w"):
                        pass
        a.call("healthz")
        for more in ({}, {"sorted": True}):
            equal(len(names(a, **more)), 2 * depth // 50)
        equal(len(names(a, "**/z")), depth // 50)
        # One name more than a path can hold is told, not left out.
        here = os.open(a.workspace, os.O_RDONLY)
        for _ in range(3000):
            try:
                os.mkdir("e", dir_fd=here)
            except FileExistsError:
                pass
            there = os.open("e", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = there
        os.close(here)
        entries, last = walk(a, "e")
        equal((last["type"], last["code"]), ("error", "ENAMETOOLONG"))
        a.sh("rm -rf e d")


def test_a_large_directory_is_streamed(program):
    """A slow reader holds the walk up, and not the agent."""
    with Agent(program) as a:
        n = 20000 if a.sanitized else 60000
        os.mkdir(a.path("d"))
        for i in range(n):
            os.mknod(a.path(f"d/file-with-a-rather-long-name-{i:06}"))
        a.call("healthz")
        before = a.memory("VmHWM")
        with a.open("walk", {"root": "d", "maxVisitedEntries": n}) as c:
            time.sleep(0.5)
            start = time.monotonic()
            equal(a.sh("echo x")[0], "x\n")
            assert time.monotonic() - start < 1
            frames = c.rest()
        equal(sum(len(f.get("entries", ())) for f in frames), n)
        a.check_growth(before, 4 << 10)


def test_leaving_early(program):
    """A host that goes ends the walk there, and nothing stays open."""
    with Agent(program, nofile=64) as a:
        for i in range(100):
            tree(a, *(f"d{i}/e/f{j}" for j in range(20)))
        for _ in range(100):
            with a.open("walk", {"root": "."}) as c:
                c.frame()
            a.open("walk", {"root": "."}).close()
        equal(len(names(a)), 2000)


def test_a_tree_that_changes(program):
    with Agent(program) as a:
        script = "i=0; while [ $i -lt 2000 ]; do mkdir -p t/$i/x; echo > t/$i/x/f; rm -rf t/$((i - 5)); i=$((i + 1)); done"
        with a.open("execute", {"command": "sh", "args": ["-c", script]}) as c:
            wait_until(lambda: os.path.exists(a.path("t")))
            for _ in range(100):
                entries, last = walk(a, "t")
                equal(last["type"], "done")
            c.close()
        a.sh("rm -rf t")


def test_unreadable_directory(program):
    with plain_agent(program) as a:
        tree(a, "d/closed/x", "d/f")
        os.chmod(a.path("d/closed"), 0o700 if os.geteuid() == 0 else 0)
        (*_, last) = a.stream("walk", {"root": "d"})
        equal(last, {"type": "error", "error": f"EACCES: permission denied, opendir '{a.path('d/closed')}'", "code": "EACCES"})
        equal(walk(a, "d", list=True)[1], {"type": "done", "visited": 2})
        os.chmod(a.path("d/closed"), 0o755)
