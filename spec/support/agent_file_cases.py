"""Reading files, whole, in ranges and as streams."""
import base64
import os
import random
import socket
import tempfile
import time

from agent_client import Agent, b64, equal, keys, plain_agent, put, refused


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


def test_read_more_than_a_reply_holds(program):
    with Agent(program) as a:
        limit = ((512 << 20) - 4096) // 4 * 3
        with open(a.path("f"), "wb") as f:
            f.truncate(limit + 1)
        r = a.call("read-file", {"path": "f", "encoding": "base64"})
        assert r["error"].startswith(f"read_file_too_large: {limit + 1} bytes in one reply, limit {limit}; "), r
        os.truncate(a.path("f"), limit)
        with a.open("read-file", {"path": "f", "encoding": "base64"}) as c:
            header = c.sock.recv(9)
            equal(header[8:], b"\n")
            assert 512 << 20 >= int(header[:8], 16) > limit // 3 * 4


def test_text_keeps_nobody_waiting(program):
    """Whatever the bytes are, others are served while they are made text; and a slow reader gets it all."""
    with Agent(program) as a:
        size = 8 << 20
        kinds = {"nul": (b"\0", "\0"), "bad": (b"\xff", "\ufffd"), "text": (b"hello \xc3\xa4\n", "hello ä\n")}
        for name, (raw, shown) in kinds.items():
            n = size // len(raw)
            put(a.path(name), raw * n)
            with a.open("read-file", {"path": name}) as c:
                worst, end = 0, time.monotonic() + 1
                while time.monotonic() < end:
                    start = time.monotonic()
                    a.call("healthz")
                    worst = max(worst, time.monotonic() - start)
                # A loop that made the text itself held them for over a second; the bound leaves room for a busy machine.
                assert worst < (2 if a.sanitized else 0.6), f"{name}: a healthz took {worst:.3f} s"
                reply = c.frame()
                equal((reply["sizeBytes"], reply["encoding"], reply["content"] == shown * n), (len(raw) * n, "utf8", True))
                c.expect_end()


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
