"""Writing files, whole and in parts: the old one or the new one, never a piece."""
import base64
import hashlib
import os
import random
import stat
import tempfile
import threading
import time

from agent_client import Agent, b64, content, equal, frame, keys, part, put, refused, TEMP, wait_until


def parts_left(folder):
    return [name for name in os.listdir(folder) if name.startswith(TEMP)]


def test_write_whole(program):
    with Agent(program) as a:
        boot = a.call("reserve-execution")["guestBootId"]
        old = os.umask(0o022)
        os.umask(old)
        r = a.call("write-file", {"path": "new/deep/a.txt", "content": "hällo\0", "encoding": "utf8"})
        equal(r, {"ok": True, "guestBootId": boot, "bytesWritten": 7})
        keys(r, "ok", "guestBootId", "bytesWritten")
        equal(content(a.path("new/deep/a.txt")), "hällo\0".encode())
        equal(stat.S_IMODE(os.stat(a.path("new/deep/a.txt")).st_mode), 0o666 & ~old)
        raw = bytes(range(256)) * 3
        equal(a.call("write-file", {"path": "b", "content": b64(raw), "encoding": "base64"})["bytesWritten"], len(raw))
        equal(content(a.path("b")), raw)
        for n in range(5):  # every padding, and without it
            a.call("write-file", {"path": "b", "content": b64(raw[:n]).rstrip("="), "encoding": "base64"})
            equal(content(a.path("b")), raw[:n])
        equal(a.call("write-file", {"path": "empty", "content": ""})["bytesWritten"], 0)
        equal(content(a.path("empty")), b"")
        a.call("write-file", {"path": "number", "content": 5})
        equal(content(a.path("number")), b"5")
        # In another order of keys, and with the token and more around it.
        with a.connect() as c:
            c.sock.sendall(frame(b'{"body":{"content":"aGk=","more":[{}],"encoding":"base64","path":"order"},"x":1,"op":"write-file"}'))
            equal(c.frame()["ok"], True)
        equal(content(a.path("order")), b"hi")
        equal(parts_left(a.workspace), [])


def test_write_replaces(program):
    with Agent(program) as a:
        put(a.path("tool"), b"old", 0o4751)
        inode = os.stat(a.path("tool")).st_ino
        held = open(a.path("tool"), "rb")
        a.call("write-file", {"path": "tool", "content": "new"})
        equal(content(a.path("tool")), b"new")
        equal(stat.S_IMODE(os.stat(a.path("tool")).st_mode), 0o4751)
        assert os.stat(a.path("tool")).st_ino != inode
        equal(held.read(), b"old")  # who has it open sees the old one
        held.close()
        put(a.path("readonly"), b"old", 0o400)
        equal(a.call("write-file", {"path": "readonly", "content": "new"})["ok"], True)
        equal(stat.S_IMODE(os.stat(a.path("readonly")).st_mode), 0o400)
        # Through links that stay inside: the target is replaced, the link stays.
        os.mkdir(a.path("d"))
        put(a.path("d/target"), b"old", 0o640)
        os.symlink("d/target", a.path("rel"))
        os.symlink(a.path("d/target"), a.path("abs"))
        os.symlink(a.path("d"), a.path("dir"))
        for i, path in enumerate(("rel", "abs", "dir/target")):
            equal(a.call("write-file", {"path": path, "content": str(i)})["ok"], True)
            equal(content(a.path("d/target")), str(i).encode())
            equal(stat.S_IMODE(os.stat(a.path("d/target")).st_mode), 0o640)
        assert os.path.islink(a.path("rel")) and os.path.islink(a.path("abs"))
        # A link that leads to nothing is a file of its own.
        os.symlink("nothing/at/all", a.path("dangling"))
        equal(a.call("write-file", {"path": "dangling", "content": "x"})["ok"], True)
        assert not os.path.islink(a.path("dangling")) and not os.path.exists(a.path("nothing"))
        os.symlink("missing", a.path("dangling2"))
        equal(a.call("write-file", {"path": "dangling2", "content": "x"})["ok"], True)
        assert not os.path.islink(a.path("dangling2")) and not os.path.exists(a.path("missing"))


def test_writes_that_fail(program):
    with Agent(program) as a:
        os.mkdir(a.path("dir"))
        os.mkfifo(a.path("fifo"))
        put(a.path("file"))
        os.symlink("/tmp/nsbx-outside-target", a.path("out"))
        os.symlink("/tmp", a.path("outdir"))
        os.symlink("loop", a.path("loop"))
        for body in ({}, {"path": "x"}, {"content": "x"}, {"path": "", "content": "x"}, {"path": "x", "content": None}):
            refused(a.call("write-file", body), "missing_path_or_content")
        cases = (
            ("dir", "EISDIR: illegal operation on a directory, open '{}'", "EISDIR"),
            (".", "EISDIR: illegal operation on a directory, open '{}'", "EISDIR"),
            ("fifo", "write_file_not_a_regular_file", None),
            ("file/x", "ENOTDIR: not a directory, open '{}'", "ENOTDIR"),
            ("loop", "ELOOP: too many symbolic links encountered, open '{}'", "ELOOP"),
            ("n" * 256, "ENAMETOOLONG: name too long, open '{}'", "ENAMETOOLONG"),
            ("out", "symlink escapes the workspace", None),
            ("outdir/x", "symlink escapes the workspace", None),
            ("outdir/new/x", "symlink escapes the workspace", None),
            ("../x", "path escapes the workspace", None),
            ("/etc/x", "path escapes the workspace", None),
        )
        for path, error, code in cases:
            full = path if path.startswith("/") else os.path.normpath(a.path(path))
            refused(a.call("write-file", {"path": path, "content": "y"}), error.format(full), code)
        assert not os.path.exists("/tmp/nsbx-outside-target") and not os.path.exists("/tmp/new")
        equal(parts_left(a.workspace), [])
        for part in (7, "x", [], True):
            refused(a.call("write-file", {"path": "x", "content": "y", "part": part}), "write_part_invalid_shape")
        equal(a.call("write-file", {"path": "x", "content": "y", "part": None})["ok"], True)


def test_long_names(program):
    with Agent(program) as a:
        for name in ("n" * 255, "n" * 200, "ä" * 127, "€" * 85):
            equal(a.call("write-file", {"path": name, "content": "x"})["ok"], True)
            equal(content(a.path(name)), b"x")
        equal(parts_left(a.workspace), [])


def test_a_reader_never_sees_a_piece(program):
    with Agent(program) as a:
        size, seen, stop = 100_000, set(), threading.Event()
        a.call("write-file", {"path": "f", "content": "0" * size})

        def look():
            while not stop.is_set():
                data = content(a.path("f"))
                seen.add((len(data), len(set(data))))
        t = threading.Thread(target=look)
        t.start()
        for i in range(15):
            a.call("write-file", {"path": "f", "content": str(i % 10) * size})
        stop.set()
        t.join()
        equal(seen, {(size, 1)})


def test_parts(program):
    with Agent(program) as a:
        boot = a.call("reserve-execution")["guestBootId"]
        data = random.Random(5).randbytes(1_000_003)
        put(a.path("target"), b"old", 0o751)
        temp = TEMP + "1f0a2b3c-0000-4000-8000-00000000abcd-target.part"
        at = 0
        for n in (6, 1, 300_000, 0, 400_000):
            r = a.call("write-file", part(temp, data[at:at + n], offset=at, final=False))
            at += n
            equal(r, {"ok": True, "guestBootId": boot, "bytesWritten": n, "sizeBytes": at})
            keys(r, "ok", "guestBootId", "bytesWritten", "sizeBytes")
        equal(content(a.path("target")), b"old")
        r = a.call("write-file", part(temp, data[at:], offset=at, final=True, renameTo="target"))
        equal((r["ok"], r["sizeBytes"]), (True, len(data)))
        equal(content(a.path("target")) == data, True)
        equal(stat.S_IMODE(os.stat(a.path("target")).st_mode), 0o751)
        equal(parts_left(a.workspace), [])
        # One part that is all, into directories that are not there yet.
        equal(a.call("write-file", part("t/" + temp, b"x", final=True, renameTo=a.path("u/v/w")))["ok"], True)
        equal(content(a.path("u/v/w")), b"x")
        # Offset 0 begins anew.
        for text in (b"longer", b"new"):
            a.call("write-file", part(temp, text))
        equal(content(a.path(temp)), b"new")


def test_parts_that_fail(program):
    with Agent(program) as a:
        temp = TEMP + "x.part"
        os.mkdir(a.path("dir"))
        os.symlink("/tmp/nsbx-outside-temp", a.path(TEMP + "link.part"))
        os.symlink("/tmp", a.path("outdir"))

        def write(path=temp, data=b"abc", **options):
            return a.call("write-file", part(path, data, **options))
        refused(write(offset=9), "write_part_offset_mismatch: temp file is absent, part starts at offset 9")
        equal(write()["ok"], True)
        refused(write(offset=9), "write_part_offset_mismatch: temp file is 3 bytes, part starts at offset 9")
        refused(write(offset=2), "write_part_offset_mismatch: temp file is 3 bytes, part starts at offset 2")
        equal(content(a.path(temp)), b"abc")  # and is left for the discard
        refused(a.call("write-file", {"path": temp, "part": {}}), "missing_path_or_content")
        refused(a.call("write-file", {"part": {}, "content": "x"}), "missing_path_or_content")
        for bad, text in ((-1, "-1"), (1.5, "1.5"), ("0", '"0"'), (None, "null"), (True, "true"), ([1], "[1]")):
            refused(write(offset=bad), f"write_part_invalid_offset: {text}")
        refused(write(offset=3, final=True), "write_part_missing_rename_target")
        refused(write(offset=3, final=True, renameTo="../x"), "path escapes the workspace")
        refused(write(offset=3, final=True, renameTo="outdir/x"), "symlink escapes the workspace")
        refused(write(offset=3, final=True, renameTo="dir"), f"EISDIR: illegal operation on a directory, open '{a.path('dir')}'",
                "EISDIR")
        refused(write(path="../" + temp), "path escapes the workspace")
        refused(write(path="outdir/" + temp), "symlink escapes the workspace")
        refused(write(path=TEMP + "link.part"), "symlink escapes the workspace")
        assert not os.path.exists("/tmp/nsbx-outside-temp")
        refused(write(path="dir"), f"EISDIR: illegal operation on a directory, open '{a.path('dir')}'", "EISDIR")
        # Nothing of all that was written.
        equal(write(offset=3, data=b"d", final=True, renameTo="done")["sizeBytes"], 4)
        equal(content(a.path("done")), b"abcd")


def test_a_part_in_flight(program):
    with Agent(program) as a:
        temp = TEMP + "flight.part"
        os.mkdir(a.path("d"))
        os.symlink("d", a.path("e"))
        body = b64(b"x" * 12_000_000)
        answers = []

        def write(path):
            answers.append(a.call("write-file", {"path": path, "content": body, "encoding": "base64", "part": {"offset": 0}}))
        threads = [threading.Thread(target=write, args=(p,)) for p in ("d/" + temp, "e/" + temp, "d/" + temp)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        good = [r for r in answers if r["ok"]]
        bad = [r for r in answers if not r["ok"]]
        assert good, answers
        for r in bad:
            refused(r, "write_part_in_flight")
        equal(os.path.getsize(a.path("d/" + temp)), 12_000_000)


def test_discard(program):
    with Agent(program) as a:
        temp = TEMP + "a b.part"
        put(a.path(temp), b"x")
        gone = {"ok": True, "discarded": True}

        def discard(path):
            return a.call("write-file", {"path": path, "content": "", "part": {"discard": True}})
        equal(discard(temp), gone)
        assert not os.path.exists(a.path(temp))
        equal(discard(temp), gone)
        equal(discard("no/such/dir/" + temp), gone)
        assert not os.path.exists(a.path("no"))
        put(a.path(TEMP + "\n.part"), b"x")
        equal(discard(TEMP + "\n.part"), gone)
        put(a.path("precious"), b"x")
        os.symlink("precious", a.path(TEMP + "link.part"))
        for path in ("precious", TEMP + ".part", TEMP + "x", "x.part", TEMP + "link.part", "."):
            refused(discard(path), "write_part_not_a_temp_file")
        refused(discard("../" + temp), "path escapes the workspace")
        equal(content(a.path("precious")), b"x")


def test_a_write_whose_host_goes(program):
    with Agent(program) as a:
        put(a.path("f"), b"old")
        request = frame({"op": "write-file", "body": {"path": "f", "content": "x" * 5_000_000}})
        for cut in (20, 1_000_000, 4_999_000):
            c = a.connect()
            c.sock.sendall(request[:cut])
            c.close()
        time.sleep(0.3)
        equal(content(a.path("f")), b"old")
        equal(parts_left(a.workspace), [])
        for _ in range(10):  # whole, but nobody waits: done or not, never in between
            c = a.connect()
            c.sock.sendall(request)
            c.close()
        wait_until(lambda: not parts_left(a.workspace))
        assert content(a.path("f")) in (b"old", b"x" * 5_000_000)


def test_write_of_256_mib_is_flat(program):
    """The largest frame there is: the agent grows by at most 4 MiB."""
    with Agent(program) as a:
        a.call("write-file", {"path": "small", "content": b64(b"x" * 3_000_000), "encoding": "base64"})
        before = a.memory("VmHWM")
        piece = b64(random.Random(6).randbytes(3 << 18))
        count = 40 if a.sanitized else 255
        head = b'{"op":"write-file","body":{"path":"big","content":"'
        tail = b'","encoding":"base64"}}'
        with a.connect() as c:
            c.sock.sendall(b"%08x\n" % (len(head) + count * len(piece) + len(tail)) + head)
            digest = hashlib.sha256()
            for _ in range(count):
                c.sock.sendall(piece.encode())
                digest.update(base64.b64decode(piece))
            c.sock.sendall(tail)
            r = c.frame()
        equal((r["ok"], r["bytesWritten"]), (True, count * (3 << 18)))
        a.check_growth(before, 4 << 10)
        with open(a.path("big"), "rb") as f:
            equal(hashlib.file_digest(f, "sha256").hexdigest(), digest.hexdigest())
        equal(parts_left(a.workspace), [])


def test_full_disk(program):
    """A file system of 1 MiB in a mount namespace of its own."""
    with tempfile.TemporaryDirectory() as place:
        wrap = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=1m none "$0" && exec "$@"', place]
        if os.geteuid() != 0:
            wrap[1:1] = ["-U", "-r"]
        with Agent(program, wrap=wrap, workspace=place, listen="tcp", token="t") as a:
            a.call("write-file", {"path": "f", "content": "old"})
            for size in (900_000, 3_000_000):  # in memory, and spooled
                for i in range(2):
                    r = a.call("write-file", {"path": "f", "content": "x" * size})
                    if not r["ok"]:
                        refused(r, "ENOSPC: no space left on device, write", "ENOSPC")
                        break
                else:
                    raise AssertionError("1 MiB holds more than it should")
            equal(a.sh("ls -A")[0], "f\n")  # no temporary file is left
            first = a.call("read-file", {"path": "f"})["content"]
            assert first == "old" or first == "x" * 900_000
            r = a.call("write-file", part(TEMP + "p.part", b"x" * 800_000))
            refused(r, "ENOSPC: no space left on device, write", "ENOSPC")
            equal(a.call("write-file", {"path": TEMP + "p.part", "content": "", "part": {"discard": True}})["ok"], True)
            a.sh("head -c 2000000 /dev/zero > more")
            refused(a.call("write-file", {"path": "f", "content": "y" * 5000}), "ENOSPC: no space left on device, write", "ENOSPC")
            _, _, result = a.sh("rm -f more")
            equal(result["exitCode"], 0)
            equal(a.call("write-file", {"path": "f", "content": "usable"})["ok"], True)


def test_read_only_workspace(program):
    with tempfile.TemporaryDirectory() as place:
        wrap = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o ro none "$0" && exec "$@"', place]
        if os.geteuid() != 0:
            wrap[1:1] = ["-U", "-r"]
        with Agent(program, wrap=wrap, workspace=place, listen="tcp", token="t") as a:
            refused(a.call("write-file", {"path": "f", "content": "x"}),
                    f"EROFS: read-only file system, open '{place}/f'", "EROFS")
            refused(a.call("write-file", {"path": "d/f", "content": "x"}),
                    f"EROFS: read-only file system, open '{place}/d/f'", "EROFS")
            refused(a.call("write-file", {"path": "f", "content": "x" * 3_000_000}),
                    "EROFS: read-only file system, write", "EROFS")
            equal(a.sh("pwd -P")[0], os.path.realpath(place) + "\n")
            (f,) = a.stream("execute", {"command": "true", "cwd": "new"})
            equal(f["error"], f"mkdir_failed: EROFS: read-only file system, mkdir '{place}/new'")
