"""Files: reads, writes whole and in parts, and the jail around them."""
import base64
import hashlib
import os
import random
import socket
import stat
import subprocess
import tempfile
import threading
import time

from agent_client import Agent, frame, plain_agent, wait_until

TEMP = ".namzu-write-"


def equal(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def keys(value, *want):
    equal(list(value), list(want))


def b64(data):
    return base64.b64encode(data).decode()


def put(path, data=b"", mode=None):
    with open(path, "wb") as f:
        f.write(data)
    if mode is not None:
        os.chmod(path, mode)


def content(path):
    with open(path, "rb") as f:
        return f.read()


def parts_left(folder):
    return [name for name in os.listdir(folder) if name.startswith(TEMP)]


def refused(reply, error, code=None):
    equal(reply, {"ok": False, "error": error, **({"code": code} if code else {})})


def streamed(frames):
    """The bytes of a read-file-stream that is whole."""
    equal((frames[0]["type"], frames[-1]["type"]), ("meta", "end"))
    data = b"".join(base64.b64decode(f["data"], validate=True) for f in frames[1:-1])
    equal((len(data), len(data)), (frames[-1]["bytesSent"], frames[0]["length"]))
    return data


# ---- read-file ----

def test_read_whole(program):
    with Agent(program) as a:
        put(a.path("a.txt"), "hällo\0\n".encode())
        boot = a.call("reserve-execution")["guestBootId"]
        r = a.call("read-file", {"path": "a.txt"})
        equal(r, {"ok": True, "guestBootId": boot, "content": "hällo\0\n", "sizeBytes": 8, "encoding": "utf8"})
        r = a.call("read-file", {"path": a.path("a.txt"), "encoding": "base64"})
        equal(r, {"ok": True, "guestBootId": boot, "content": b64("hällo\0\n".encode()), "sizeBytes": 8,
                  "encoding": "base64"})
        put(a.path("empty"))
        equal(a.call("read-file", {"path": "empty", "encoding": "base64"})["content"], "")
        equal(a.call("read-file", {"path": "empty"})["content"], "")
        put(a.path("bad"), b"a\xffb\xc3")
        equal(a.call("read-file", {"path": "bad"})["content"], "a�b�")
        data = random.Random(2).randbytes(5_000_001)
        put(a.path("big"), data)
        equal(base64.b64decode(a.call("read-file", {"path": "big", "encoding": "base64"})["content"]) == data, True)
        text = "äöü€𝄞\n" * 400_000
        put(a.path("text"), text.encode())
        equal(a.call("read-file", {"path": "text"})["content"] == text, True)
        equal(a.call("read-file", {"path": {"base64": b64(b"a.txt")}})["ok"], True)
        put(os.fsencode(a.workspace) + b"/\xff", b"odd")
        equal(a.call("read-file", {"path": {"base64": b64(b"\xff")}})["content"], "odd")


def test_read_ranges(program):
    with Agent(program, env={"NAMZU_AGENT_READ_FILE_RANGE_BYTES": "1000"}) as a:
        data = random.Random(3).randbytes(5000)
        put(a.path("f"), data)

        def read(**body):
            return a.call("read-file", {"path": "f", "encoding": "base64", **body})
        r = read(offset=10, length=20)
        equal(set(r), {"ok", "guestBootId", "content", "sizeBytes", "encoding", "offset", "bytesRead"})
        equal((base64.b64decode(r["content"]), r["sizeBytes"], r["offset"], r["bytesRead"]), (data[10:30], 5000, 10, 20))
        equal(base64.b64decode(read(offset=4990, length=1000)["content"]), data[4990:])
        equal(base64.b64decode(read(offset=4000)["content"]), data[4000:])
        equal(base64.b64decode(read(length=7)["content"]), data[:7])
        for past in (5000, 5001, 2**53 - 1):
            r = read(offset=past)
            equal((r["ok"], r["content"], r["bytesRead"], r["sizeBytes"]), (True, "", 0, 5000))
        r = read(offset=4999, length=1001)  # the wish is judged
        assert r["error"].startswith("read_file_range_too_large: 1001 bytes requested, limit 1000 "
                                     "(NAMZU_AGENT_READ_FILE_RANGE_BYTES). "), r
        assert read(offset=3999)["error"].startswith("read_file_range_too_large: 1001 bytes requested"), r
        for bad in (-1, 1.5, "1", None, True, 2**53):
            assert read(offset=bad)["error"].startswith("read_file_invalid_offset: "), bad
            assert read(length=bad)["error"].startswith("read_file_invalid_length: "), bad
        equal(read(offset=3.0, length=1)["offset"], 3)
        for body in ({"offset": 0}, {"length": 1}, {"offset": 0, "encoding": "utf8"}):
            r = a.call("read-file", {"path": "f", **body})
            assert r["error"].startswith("read_file_range_requires_base64: "), r


def test_reads_that_fail(program):
    with Agent(program) as a:
        os.mkdir(a.path("dir"))
        os.mkfifo(a.path("fifo"))
        os.symlink("nowhere", a.path("dangling"))
        os.symlink("loop", a.path("loop"))
        os.symlink("/etc/passwd", a.path("out"))
        os.symlink("../../../../etc", a.path("outdir"))
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(a.path("socket"))
        put(a.path("file"))
        outside = "symlink escapes the workspace"
        cases = (
            ("none", "ENOENT: no such file or directory, open '{}'", "ENOENT"),
            ("none/x", "ENOENT: no such file or directory, open '{}'", "ENOENT"),
            ("dangling", "ENOENT: no such file or directory, open '{}'", "ENOENT"),
            ("file/x", "ENOTDIR: not a directory, open '{}'", "ENOTDIR"),
            ("loop", "ELOOP: too many symbolic links encountered, open '{}'", "ELOOP"),
            ("loop/x", "ELOOP: too many symbolic links encountered, open '{}'", "ELOOP"),
            ("socket", "ENXIO: no such device or address, open '{}'", "ENXIO"),
            ("n" * 300, "ENAMETOOLONG: name too long, open '{}'", "ENAMETOOLONG"),
            ("out", outside, None),
            ("outdir/passwd", outside, None),
            ("outdir", outside, None),
            ("../x", "path escapes the workspace", None),
            ("/etc/passwd", "path escapes the workspace", None),
            ("a/../../x", "path escapes the workspace", None),
        )
        for path, error, code in cases:
            full = path if path.startswith("/") else a.path(path)
            refused(a.call("read-file", {"path": path}), error.format(full), code)
            frames = a.stream("read-file-stream", {"path": path})
            equal(frames, [{"type": "error", "error": error.format(full), **({"code": code} if code else {})}])
        refused(a.call("read-file", {"path": "dir"}), "EISDIR: illegal operation on a directory, read", "EISDIR")
        refused(a.call("read-file", {"path": "."}), "EISDIR: illegal operation on a directory, read", "EISDIR")
        refused(a.call("read-file", {"path": "fifo"}), "read_file_not_a_regular_file")
        for path in ("dir", "fifo", "."):
            equal(a.stream("read-file-stream", {"path": path}),
                  [{"type": "error", "error": "read_file_stream_not_a_regular_file"}])
        for body in ({}, {"path": ""}, {"path": None}):
            refused(a.call("read-file", body), "missing_path")
            equal(a.stream("read-file-stream", body), [{"type": "error", "error": "missing_path"}])
        assert a.call("read-file", {"path": 7})["error"].startswith("invalid_path: ")
        assert a.call("read-file", {"path": "a\0b"})["error"].startswith("invalid_path: ")
        r = a.call("read-file", {"path": "/" + "x" * 5000})
        equal(r["code"], "ENAMETOOLONG")
        # A name that is no text, in an error that is.
        r = a.call("read-file", {"path": {"base64": b64(b"\xff\xfe")}})
        equal(r["error"], f"ENOENT: no such file or directory, open '{a.path('��')}'")
        equal(a.sh("echo usable")[0], "usable\n")


def test_unreadable_file(program):
    with plain_agent(program) as a:
        put(a.path("secret"), b"x", 0o600 if os.geteuid() == 0 else 0)
        refused(a.call("read-file", {"path": "secret"}), f"EACCES: permission denied, open '{a.path('secret')}'", "EACCES")
        os.mkdir(a.path("closed"), 0o555)
        for path in ("closed/x", "closed/new/x"):
            refused(a.call("write-file", {"path": path, "content": "y"}), f"EACCES: permission denied, open '{a.path(path)}'",
                    "EACCES")


def test_files_that_tell_no_size(program):
    with Agent(program, env={"NAMZU_SANDBOX_READ_ROOTS": "/proc"}) as a:
        with open("/proc/version") as f:
            want = f.read()
        r = a.call("read-file", {"path": "/proc/version"})
        equal((r["content"], r["sizeBytes"]), (want, len(want)))
        r = a.call("read-file", {"path": "/proc/version", "encoding": "base64", "offset": 6, "length": 7})
        equal((base64.b64decode(r["content"]), r["sizeBytes"], r["bytesRead"]), (want[6:13].encode(), len(want), 7))
        equal(streamed(a.stream("read-file-stream", {"path": "/proc/version", "offset": 2})), want[2:].encode())


def test_more_roots(program):
    with tempfile.TemporaryDirectory() as other:
        put(os.path.join(other, "f"), b"there")
        for env, reads, writes in (("READ", True, False), ("WRITE", False, True)):
            with Agent(program, env={f"NAMZU_SANDBOX_{env}_ROOTS": f" {other} ::{other}"}) as a:
                r = a.call("read-file", {"path": os.path.join(other, "f")})
                equal(r["ok"], reads)
                r = a.call("write-file", {"path": os.path.join(other, "g"), "content": "x"})
                equal(r["ok"], writes)
                # A relative path is the workspace's alone.
                refused(a.call("read-file", {"path": os.path.relpath(os.path.join(other, "f"), a.workspace)}),
                        "path escapes the workspace")


# ---- read-file-stream ----

def test_stream(program):
    with Agent(program) as a:
        data = random.Random(4).randbytes(3_000_001)
        put(a.path("f"), data)
        frames = a.stream("read-file-stream", {"path": "f"})
        keys(frames[0], "type", "sizeBytes", "offset", "length")
        keys(frames[-1], "type", "bytesSent")
        equal(frames[0], {"type": "meta", "sizeBytes": len(data), "offset": 0, "length": len(data)})
        equal(streamed(frames) == data, True)
        assert all(len(f["data"]) <= 349528 for f in frames[1:-1])
        for offset, length in ((0, 0), (0, 1), (1, 262144), (262143, 262145), (3_000_000, 5), (3_000_001, 1), (9_000_000, 9)):
            frames = a.stream("read-file-stream", {"path": "f", "offset": offset, "length": length})
            equal(streamed(frames), data[offset:offset + length])
            equal((frames[0]["offset"], frames[0]["sizeBytes"]), (offset, len(data)))
        equal(streamed(a.stream("read-file-stream", {"path": "f", "offset": 2_999_990})), data[-11:])
        put(a.path("empty"))
        equal(streamed(a.stream("read-file-stream", {"path": "empty"})), b"")
        for bad in (-1, 1.5, "1", None):
            for what in ("offset", "length"):
                (f,) = a.stream("read-file-stream", {"path": "f", what: bad})
                assert f["error"].startswith(f"read_file_invalid_{what}: "), f


def test_stream_chunk(program):
    with Agent(program, env={"NAMZU_AGENT_READ_FILE_STREAM_CHUNK_BYTES": "1000"}) as a:
        put(a.path("f"), b"x" * 10_500)
        frames = a.stream("read-file-stream", {"path": "f"})
        equal(streamed(frames), b"x" * 10_500)
        equal(len(frames), 2 + 11)


def test_stream_of_a_gigabyte_is_flat(program):
    with Agent(program) as a:
        size = (48 if a.sanitized else 1024) << 20
        with open(a.path("f"), "wb") as f:
            f.truncate(size)
        a.stream("read-file-stream", {"path": "f", "length": 1 << 20})
        before, total = a.memory("VmHWM"), 0
        with a.open("read-file-stream", {"path": "f"}) as c:
            time.sleep(0.3)  # a reader that is slow at first
            c.frame()
            while True:
                payload = c.raw_frame()
                if not payload.startswith(b'{"type":"data"'):
                    break
                total += (len(payload) - 25) * 3 // 4 - payload[-4:].count(b"=")
        assert size <= total < size + 9, total
        a.check_growth(before, 4 << 10)


def test_stream_of_a_file_that_shrinks(program):
    with Agent(program) as a:
        with open(a.path("f"), "wb") as f:
            f.truncate(64 << 20)
        with a.open("read-file-stream", {"path": "f"}) as c:
            time.sleep(0.2)
            os.truncate(a.path("f"), 8 << 20)
            frames = c.rest()
        sent = sum(len(base64.b64decode(f["data"])) for f in frames[1:-1])
        equal((frames[-1]["type"], frames[-1]["bytesSent"]), ("end", sent))
        assert sent < frames[0]["length"]


def test_stream_to_nobody(program):
    """A host that goes leaves no descriptor open."""
    with Agent(program, nofile=40) as a:
        with open(a.path("f"), "wb") as f:
            f.truncate(1 << 30)
        for _ in range(50):
            a.open("read-file-stream", {"path": "f"}).close()
            with a.open("read-file-stream", {"path": "f"}) as c:
                c.frame()
        frames = a.stream("read-file-stream", {"path": "f", "length": 5})
        equal(streamed(frames), b"\0" * 5)


# ---- write-file ----

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


def part(path, data, **options):
    return {"path": path, "content": b64(data), "encoding": "base64", "part": options}


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


# ---- the jail ----

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
