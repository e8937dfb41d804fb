"""The jail around the files: links that stay inside, links that leave, and an attacker who swaps them."""
import os
import subprocess
import threading
import time

from agent_client import Agent, content, equal, part, put, refused, TEMP


def test_links_inside(program):
    with Agent(program) as a:
        os.makedirs(a.path("d/e"))
        put(a.path("d/e/f"), b"x")
        links = {"rel": "d/e/f", "abs": a.path("d/e/f"), "updown": "d/../d/e/../e/f", "absdir": a.path("d"),
                 "d/up": "../d/e/f", "d/e/absup": a.path("d") + "//./e/f", "chain": "rel2", "rel2": "abs",
                 "self": a.workspace, "dots": a.path("d/..")}
        for name, target in links.items():
            os.symlink(target, a.path(name))
        for path in ("rel", "abs", "updown", "absdir/e/f", "d/up", "d/e/absup", "chain", "self/rel", "self/self/abs",
                     "absdir/e/../e/f", "dots/rel"):
            equal(a.call("read-file", {"path": path}).get("content"), "x")
            equal(a.call("write-file", {"path": path, "content": "x"})["ok"], True)
        for i in range(41):
            os.symlink("d/e/f" if i == 0 else a.path(f"l{i - 1}"), a.path(f"l{i}"))
        equal(a.call("read-file", {"path": "l39"})["content"], "x")
        equal(a.call("read-file", {"path": "l40"})["code"], "ELOOP")
        # The workspace by another name.
        os.symlink(a.workspace, a.workspace + "-alias")
        with Agent(program, workspace=a.workspace + "-alias") as b:
            equal(b.call("read-file", {"path": "abs"})["content"], "x")
            os.symlink(a.workspace + "-alias/d/e/f", a.path("by-alias"))
            equal(b.call("read-file", {"path": "by-alias"})["content"], "x")
        refused(a.call("read-file", {"path": "by-alias"}), "symlink escapes the workspace")


def test_links_outside(program):
    with Agent(program) as a:
        outside = os.path.join(a.place, "ws-neighbour")
        os.makedirs(outside)
        put(os.path.join(outside, "f"), b"secret")
        os.mkdir(a.path("d"))
        links = {"abs": outside + "/f", "rel": "../ws-neighbour/f", "dir": outside, "up": "..", "root": "/",
                 "d/far": "../../ws-neighbour/f", "back": "../ws/../ws-neighbour/f", "absback": a.workspace + "/../ws-neighbour/f",
                 "fd": "/proc/self/cwd", "environ": "/proc/self/environ"}
        for name, target in links.items():
            os.symlink(target, a.path(name))
        for path in ("abs", "rel", "dir/f", "up/ws-neighbour/f", "root/etc/passwd", "d/far", "back", "absback", "fd",
                     "fd/x", "environ"):
            refused(a.call("read-file", {"path": path}), "symlink escapes the workspace")
            refused(a.call("write-file", {"path": path, "content": "y"}), "symlink escapes the workspace")
            (f,) = a.stream("walk", {"root": path})
            equal(f["type"], "error")
        equal(content(os.path.join(outside, "f")), b"secret")
        equal(os.listdir(outside), ["f"])


SWAP = """
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
end = time.monotonic() + float(sys.argv[2])
os.chdir(sys.argv[1])
while time.monotonic() < end:
    for _ in range(100):  # AT_FDCWD, RENAME_EXCHANGE
        if libc.renameat2(-100, b"d", -100, b"link", 2) != 0:
            sys.exit(f"renameat2: {ctypes.get_errno()}")
"""


def test_rename_race(program):
    """An attacker swaps a directory and a link to the outside for ten seconds: nothing is read there and nothing written."""
    seconds = 10
    with Agent(program) as a:
        outside = os.path.join(a.place, "outside")
        os.makedirs(os.path.join(outside, "sub"))
        os.makedirs(a.path("d/sub"))
        for name in ("f", "sub/f"):  # what only the outside has would be found by a walk
            put(os.path.join(outside, name), b"SECRET")
            put(a.path("d/" + name), b"inside")
        os.symlink(outside, a.path("link"))
        put(os.path.join(outside, "only-outside"))
        before = {name: content(os.path.join(outside, name)) for name in ("f", "sub/f")}
        attackers = [subprocess.Popen(["python3", "-c", SWAP, a.workspace, str(seconds)])]
        counts, wrong = {"read": 0, "refused": 0, "written": 0}, []

        def attack(n):
            end = time.monotonic() + seconds - 0.5
            i = 0
            while time.monotonic() < end:
                i += 1
                r = a.call("read-file", {"path": ("d/f", "d/sub/f")[i % 2]})
                if r["ok"]:
                    counts["read"] += 1
                    if r["content"] == "SECRET":
                        wrong.append("a secret was read")
                else:
                    counts["refused"] += 1
                r = a.call("write-file", {"path": f"d/sub/new-{n}-{i % 20}", "content": "x"})
                counts["written" if r["ok"] else "refused"] += 1
                r = a.call("write-file", part(f"d/{TEMP}{n}-{i % 20}.part", b"x", final=i % 3 == 0, renameTo=f"d/made/{n}-{i % 20}"))
                counts["written" if r["ok"] else "refused"] += 1
                a.call("write-file", {"path": f"d/{TEMP}{n}-{i % 20}.part", "content": "", "part": {"discard": True}})
                for f in a.stream("walk", {"root": "d"}):
                    for entry in f.get("entries", ()):
                        if "only-outside" in entry[0]:
                            wrong.append("the walk was outside")
        threads = [threading.Thread(target=attack, args=(n,)) for n in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for p in attackers:
            equal(p.wait(), 0)
        equal(wrong, [])
        assert counts["read"] > 50 and counts["written"] > 50 and counts["refused"] > 5, counts
        equal({name: content(os.path.join(outside, name)) for name in ("f", "sub/f")}, before)
        equal((sorted(os.listdir(outside)), os.listdir(os.path.join(outside, "sub"))), (["f", "only-outside", "sub"], ["f"]))
