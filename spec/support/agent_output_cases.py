"""A command's output and its stdin: exact, bounded, and at the pace of the slower side."""
import base64
import os
import random
import time

from agent_client import Agent, alive, equal, frame, wait_until

# ---- output ----

def test_output_is_exact(program):
    data = random.Random(1).randbytes(64 * 1024)
    with Agent(program) as a:
        with open(a.path("data"), "wb") as f:
            f.write(data)
        out, err, result = a.sh("cat data; cat data >&2", encoding="base64")
        equal((out == data, err == data, result["exitCode"]), (True, True, 0))
        for n in (1, 2, 3, 65535, 65536):
            equal(a.execute("head", "-c", str(n), "data", encoding="base64")[0], data[:n])


def test_text_output(program):
    with Agent(program) as a:
        equal(a.sh("printf 'no newline'")[0], "no newline")
        equal(a.sh(r"""printf 'a\0b\001\\%s' '"'""")[0], "a\0b\x01\\\"")
        equal(a.sh(r"printf '\303'; sleep 0.1; printf '\244'")[0], "ä")  # in two reads, one character
        equal(a.sh(r"printf 'x\303'")[0], "x�")
        equal(a.sh(r"printf '\377\376a\360\237\230'")[0], "��a�")
        text = "äöü€𝄞" * 30000
        with open(a.path("text"), "w") as f:
            f.write(text)
        equal(a.execute("cat", "text")[0] == text, True)


def test_output_limit(program):
    with Agent(program) as a:
        out, err, result = a.sh("printf 0123456789; printf abc >&2; touch ran", maxOutputBytes=4)
        equal((out, err), ("0123", "abc"))
        equal((result["stdoutTruncated"], result["stderrTruncated"]), (True, False))
        assert os.path.exists(a.path("ran"))
        out, _, result = a.sh("printf x", maxOutputBytes=-1)
        equal((out, result["stdoutTruncated"]), ("", True))
        for default in (0, None, "x"):
            out, _, result = a.sh("printf x", maxOutputBytes=default)
            equal((out, result["stdoutTruncated"]), ("x", False))
        out, _, result = a.sh("head -c 5000000 /dev/zero", maxOutputBytes="1000000", encoding="base64")
        equal((len(out), result["stdoutTruncated"], result["exitCode"]), (1000000, True, 0))


def test_slow_reader_of_200_mib(program):
    """The command waits for its reader; the agent holds next to nothing."""
    with Agent(program) as a:
        size = 32 if a.sanitized else 200
        a.sh("true")
        before, total = a.memory("VmRSS"), 0
        with a.open("execute", {"command": "head", "args": ["-c", str(size << 20), "/dev/zero"], "encoding": "base64",
                                "maxOutputBytes": size << 19}) as c:
            time.sleep(0.5)  # nobody reads
            a.check_growth(before, 8 << 10, "VmRSS")
            while True:
                frame = c.frame()
                if frame["type"] != "stdout_delta":
                    break
                total += len(frame["data"]) // 4 * 3 - frame["data"].count("=")
            equal((frame["exitCode"], frame["stdoutTruncated"]), (0, True))
            equal(total, size << 19)  # the limit; the rest was read and dropped
        a.check_growth(before, 8 << 10)


def test_output_whose_reader_is_gone_is_dropped(program):
    with Agent(program) as a:
        c = a.open("execute", {"command": "sh", "args": ["-c", "head -c 50000000 /dev/zero; touch done"]})
        c.frame()
        c.close()
        wait_until(lambda: os.path.exists(a.path("done")), 10, "the command's end")


def test_a_stalled_reader_holds_up_nobody_else(program):
    with Agent(program) as a, a.open("execute", {"command": "cat", "args": ["/dev/zero"]}):
        time.sleep(0.3)
        for _ in range(20):
            start = time.monotonic()
            equal(a.sh("echo x")[0], "x\n")
            assert time.monotonic() - start < 1


def test_pipes_that_stay_open(program):
    with Agent(program) as a:
        start = time.monotonic()
        name = a.reserve()
        out, _, result = a.sh("sleep 600 & echo $!", executionId=name)
        took = time.monotonic() - start
        equal((result["exitCode"], result["pipesOpen"]), (0, True))
        assert 0.2 < took < 1.5, took
        pid = int(out)
        assert alive(pid)
        equal(a.call("healthz")["ok"], True)  # a background process fences nothing
        # The leader's group and the tree are one here; the process is in both.
        equal(a.call("signal-execution", {"executionId": name, "signal": "SIGTERM"})["delivered"], True)
        wait_until(lambda: not alive(pid))
        wait_until(lambda: a.call("signal-execution", {"executionId": name, "signal": "SIGTERM"})["delivered"] is False)


def test_background_without_pipes_is_no_reason_to_wait(program):
    with Agent(program) as a:
        start = time.monotonic()
        out, _, result = a.sh("setsid sleep 600 >/dev/null 2>&1 & echo $!")
        assert "pipesOpen" not in result and time.monotonic() - start < 0.2 + 0.8, result
        pid = int(out)
        assert alive(pid)
        equal(a.call("healthz")["ok"], True)
    wait_until(lambda: not alive(pid))  # it lived as long as the agent


def test_wait_for_pipes(program):
    with Agent(program) as a:
        out, _, result = a.sh("(sleep 0.6; echo late) & echo early", wait="pipes")
        equal((out, result["exitCode"], result["timedOut"]), ("early\nlate\n", 0, False))
        assert "pipesOpen" not in result
        start = time.monotonic()
        out, _, result = a.sh("sleep 600 & echo $!", wait="pipes", timeoutMs=400)
        equal((result["timedOut"], result["exitCode"], result["signal"]), (True, -1, "SIGTERM"))
        assert time.monotonic() - start < 3
        assert not alive(int(out))


def test_what_is_in_the_pipe_at_the_end_arrives(program):
    """The leader ends while its reader is slow: nothing that it wrote is lost."""
    with Agent(program) as a:
        with a.open("execute", {"command": "sh", "args": ["-c", "head -c 3000000 /dev/zero; sleep 100 &"],
                                "encoding": "base64"}) as c:
            time.sleep(1.5)
            frames = c.rest()
        out, _, result = a.gather(frames, raw=True)
        equal((len(out), result["pipesOpen"], result["stdoutTruncated"]), (3000000, True, False))


def test_a_background_flood_does_not_keep_the_result(program):
    with Agent(program) as a:
        start = time.monotonic()
        _, _, result = a.sh("yes & echo $! > pid", encoding="base64")
        took = time.monotonic() - start
        equal(result["pipesOpen"], True)
        assert took < 3, took
        with open(a.path("pid")) as f:
            assert alive(int(f.read()))
        equal(a.sh("kill $(cat pid); echo done")[0], "done\n")


# ---- stdin ----

def test_stdin_text(program):
    with Agent(program) as a:
        equal(a.execute("cat", stdin="hällo\0\n")[0], "hällo\0\n")
        equal(a.execute("cat", stdin="")[0], "")
        equal(a.execute("wc", "-c")[0].strip(), "0")  # without: /dev/null
        equal(a.sh("readlink /proc/self/fd/0")[0], "/dev/null\n")
        big = "0123456789abcdef" * (8 << 16)
        equal(a.execute("wc", "-c", stdin=big)[0].strip(), str(len(big)))
        equal(a.execute("cat", stdin=big[:3000000])[0] == big[:3000000], True)


def test_stdin_nobody_reads(program):
    with Agent(program) as a:
        big = "x" * (4 << 20)
        for _ in range(3):
            out, _, result = a.sh("echo no thanks", stdin=big)
            equal((out, result["exitCode"]), ("no thanks\n", 0))
        _, _, result = a.sh("exec <&-; sleep 0.3; echo still here", stdin=big)
        equal(result["exitCode"], 0)
        _, _, result = a.sh("sleep 600", stdin=big, timeoutMs=300)
        equal(result["timedOut"], True)


def stdin_frame(data):
    return {"type": "stdin", "data": base64.b64encode(data).decode()}


def test_stdin_stream(program):
    with Agent(program) as a:
        with a.open("execute", {"command": "cat", "stdinStream": True, "encoding": "base64"}) as c:
            for piece in (b"one", b"\xff\0", b"three\n"):
                c.send(stdin_frame(piece))
                equal(base64.b64decode(c.frame()["data"]), piece)
            c.send({"type": "stdin_end"})
            equal(c.rest()[-1]["exitCode"], 0)
        # A lost connection is the end of it, and of nothing else.
        c = a.open("execute", {"command": "sh", "args": ["-c", "cat > got; touch end"], "stdinStream": True})
        c.send(stdin_frame(b"left"))
        wait_until(lambda: os.path.exists(a.path("got")) and os.path.getsize(a.path("got")) == 4)
        c.close()
        wait_until(lambda: os.path.exists(a.path("end")))
        # A command that ends first.
        with a.open("execute", {"command": "true", "stdinStream": True}) as c:
            equal(c.rest()[-1]["exitCode"], 0)


def test_stdin_stream_of_one_that_closed_it(program):
    """The host is told, once; what comes after that is dropped, and the rest goes its way."""
    with Agent(program) as a:
        script = "exec <&-; echo ready; while ! [ -e go ]; do sleep 0.01; done; echo on; exit 5"
        with a.open("execute", {"command": "sh", "args": ["-c", script], "stdinStream": True}) as c:
            equal(c.frame(), {"type": "stdout_delta", "data": "ready\n"})
            for _ in range(40):
                c.send(stdin_frame(b"x" * 48000))
            equal(c.frame(), {"type": "stdin_closed"})
            c.send(stdin_frame(b"more"))
            c.send({"type": "stdin_end"})
            with open(a.path("go"), "w"):
                pass
            frames = c.rest()
            equal((len(frames), frames[0], frames[1]["exitCode"]), (2, {"type": "stdout_delta", "data": "on\n"}, 5))
        # Who gave it whole did not ask to be told.
        frames = a.stream("execute", {"command": "sh", "args": ["-c", "exec <&-; sleep 0.2"], "stdin": "x" * 1_000_000})
        equal([f["type"] for f in frames], ["result"])


def test_stdin_stream_waits_for_the_command(program):
    """What the command does not read stays with the host."""
    with Agent(program) as a:
        a.sh("true")
        before = a.memory("VmRSS")
        with a.open("execute", {"command": "sh", "args": ["-c", "sleep 1; wc -c"], "stdinStream": True}) as c:
            piece, sent = stdin_frame(b"x" * 48000), 0
            c.sock.settimeout(0.3)
            try:
                while True:
                    c.send(piece)
                    sent += 1
                    assert sent < 1000, "nobody stopped the flood"
            except TimeoutError:
                pass
            a.check_growth(before, 8 << 10, "VmRSS")
            c.sock.settimeout(30)
