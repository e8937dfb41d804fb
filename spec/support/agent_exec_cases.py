"""Executions: what docs/protocol.md and the published protocol say of reserve, execute, cancel and signal."""
import base64
import json
import os
import random
import re
import signal
import threading
import time

from agent_client import Agent, alive, execution_id, wait_until

ID = re.compile(r"^exec_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


def equal(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def keys(value, *want):
    equal(list(value), list(want))


def error_of(frames):
    """The one frame of a failed stream."""
    equal(len(frames), 1)
    equal(frames[0]["type"], "error")
    return frames[0]["error"]


# ---- reserve ----

def test_reserve_without_a_name(program):
    with Agent(program) as a:
        before = time.time() * 1000
        r = a.call("reserve-execution")
        keys(r, "ok", "guestBootId", "protocolVersion", "executionId", "leaseExpiresAt")
        assert r["ok"] is True and r["protocolVersion"] == 2 and ID.match(r["executionId"]), r
        assert isinstance(r["leaseExpiresAt"], int) and 29000 < r["leaseExpiresAt"] - before < 32000, r
        equal(a.call("reserve-execution", {})["guestBootId"], r["guestBootId"])


def test_reserve_with_a_name(program):
    with Agent(program) as a:
        name = execution_id()
        r = a.call("reserve-execution", {"executionId": name})
        keys(r, "ok", "guestBootId", "protocolVersion", "executionId", "leaseExpiresAt", "state")
        equal((r["executionId"], r["state"]), (name, "reserved"))
        again = a.call("reserve-execution", {"executionId": name})
        equal(again["state"], "reserved")
        assert abs(again["leaseExpiresAt"] - r["leaseExpiresAt"]) < 100, "a lease is not extended by asking"
        a.sh("true", executionId=name)
        equal(a.call("reserve-execution", {"executionId": name})["state"], "terminal")
        for bad in ("", "exec_", name + "0", name[:-1], "exec_" + "0" * 36, name[5:], 7, None,
                    "exec_3b0f6c1a-2d44-6e0b-9c1e-5a7f00d1e2c3", "exec_3b0f6c1a-2d44-4e0b-7c1e-5a7f00d1e2c3"):
            equal(a.call("reserve-execution", {"executionId": bad}), {"ok": False, "error": "invalid_execution_id"})
        upper = "exec_" + name[5:].upper()
        equal(a.call("reserve-execution", {"executionId": upper})["state"], "reserved")


def test_lease_expires(program):
    with Agent(program, env={"NAMZU_AGENT_EXECUTION_LEASE_TTL_MS": "80"}) as a:
        name = a.reserve()
        time.sleep(0.12)
        equal(error_of(a.stream("execute", {"executionId": name, "command": "true"})), "unknown_execution")


def test_ended_records_expire(program):
    with Agent(program, env={"NAMZU_AGENT_EXECUTION_TERMINAL_TTL_MS": "80"}) as a:
        name = a.reserve()
        a.sh("true", executionId=name)
        equal(a.call("cancel-execution", {"executionId": name})["state"], "completed")
        time.sleep(0.12)
        equal(a.call("cancel-execution", {"executionId": name})["error"], "unknown_execution")


def test_capacity(program):
    with Agent(program, env={"NAMZU_AGENT_MAX_TRACKED_EXECUTIONS": "2"}) as a:
        first, second = a.reserve(), a.reserve()
        equal(a.call("reserve-execution"), {"ok": False, "error": "execution_capacity"})
        a.sh("true", executionId=first)
        third = a.reserve()  # in the place of the ended one
        equal(a.call("cancel-execution", {"executionId": first})["error"], "unknown_execution")
        a.sh("true", executionId=second)
        a.sh("true", executionId=third)


# ---- execute: the checks ----

def test_checks_of_execute(program):
    with Agent(program, env={"NAMZU_SANDBOX_MAX_TIMEOUT_MS": "5000"}) as a:
        name = a.reserve()

        def refused(text, code=None, **body):
            frames = a.stream("execute", body)
            equal(error_of(frames), text)
            equal(frames[0].get("code"), code)

        for command in (None, "", 7, [], {"base64": ""}):
            refused("missing_command", command=command)
        refused("missing_command")
        timeout = ("invalid_timeout: timeoutMs must be a finite number in (0, 5000] (NAMZU_SANDBOX_MAX_TIMEOUT_MS)")
        refused("invalid_execution_id", command="true", executionId="exec_7")
        refused("retain_requires_execution_id", command="true", retainOutput=True)
        for cwd in ("/", "..", "/etc", a.workspace + "x", "a/../.."):
            refused("invalid_cwd: path escapes the workspace", command="true", cwd=cwd, executionId=name)
        for value in (0, -1, 5001, "x", None, False, [], "0x10g", 1e300):
            refused(timeout, command="true", timeoutMs=value, executionId=name)
        refused("unknown_execution", command="true", executionId=execution_id())
        refused("invalid_stdin: stdin must be a string, and not together with stdinStream", command="true", stdin="x",
                stdinStream=True, executionId=name)
        refused("invalid_wait: wait must be \"exit\" or \"pipes\"", command="true", wait="never", executionId=name)
        refused("invalid_args: args[1] holds a NUL byte", command="true", args=["a", "b\0c"], executionId=name)
        refused("invalid_env: 'A=B' is no name of a variable", command="true", env={"A=B": "c"}, executionId=name)
        # None of these has spent the reservation.
        out, _, result = a.sh("echo here", executionId=name, timeoutMs="4000")
        equal((out, result["exitCode"]), ("here\n", 0))
        refused("execution_not_reserved: terminal", command="true", executionId=name)


def test_missing_programs(program):
    with Agent(program) as a:
        with open(a.path("plain"), "w") as f:
            f.write("no program")
        os.mkdir(a.path("dir"))
        for command, name in (("no-such-program", "ENOENT"), ("/no/such/program", "ENOENT"), (a.path("plain"), "EACCES"),
                              (a.path("dir"), "EACCES"), ("./plain", "EACCES")):
            start = time.monotonic()
            frames = a.stream("execute", {"command": command, "env": {"PATH": "/usr/bin:/bin"}})
            equal(frames, [{"type": "error", "error": f"spawn {command} {name}", "code": name}])
            assert time.monotonic() - start < 1
        name = a.reserve()
        a.stream("execute", {"command": "no-such-program", "executionId": name, "env": {"PATH": "/usr/bin:/bin"}})
        r = a.call("cancel-execution", {"executionId": name})
        equal((r["ok"], r["state"], r["started"], r["error"]), (True, "failed", False, "spawn no-such-program ENOENT"))


def test_a_missing_program_whose_name_is_no_text(program):
    with Agent(program) as a:
        name, command = a.reserve(), {"base64": base64.b64encode(b"no-\xff").decode()}
        equal(error_of(a.stream("execute", {"command": command, "executionId": name, "env": {"PATH": "/bin"}})), "spawn no-\ufffd ENOENT")
        equal(a.call("cancel-execution", {"executionId": name})["error"], "spawn no-\ufffd ENOENT")


def test_unknown_operation(program):
    with Agent(program) as a:
        equal(a.call("no-such-op"), {"ok": False, "error": "unknown_op: no-such-op"})


# ---- execute: results ----

def test_result_key_order(program):
    with Agent(program) as a:
        with a.open("execute", {"command": "sh", "args": ["-c", "echo hi; exit 3"]}) as c:
            equal(c.raw_frame(), b'{"type":"stdout_delta","data":"hi\\n"}')
            raw = c.raw_frame()
            assert re.fullmatch(rb'{"type":"result","exitCode":3,"timedOut":false,"durationMs":\d+,"stdoutTruncated":false,'
                                rb'"stderrTruncated":false}', raw), raw
            equal(c.raw_frame(), b"")
            c.expect_end()
        with a.open("execute", {"command": "sh", "args": ["-c", "kill -KILL $$"]}) as c:
            raw = c.raw_frame()
            assert re.fullmatch(rb'{"type":"result","exitCode":-1,"timedOut":false,"durationMs":\d+,"signal":"SIGKILL",'
                                rb'"stdoutTruncated":false,"stderrTruncated":false}', raw), raw


def test_exit_codes_and_signals(program):
    with Agent(program) as a:
        for code in (0, 1, 2, 3, 64, 126, 127, 128, 129, 143, 200, 254, 255):
            equal(a.sh(f"exit {code}")[2]["exitCode"], code)
        for name in ("HUP", "INT", "QUIT", "ABRT", "USR1", "SEGV", "PIPE", "ALRM", "TERM", "KILL", "SYS"):
            result = a.sh(f"ulimit -c 0; kill -{name} $$")[2]
            equal((result["exitCode"], result["signal"]), (-1, "SIG" + name))


def test_cwd(program):
    with Agent(program) as a:
        equal(a.sh("pwd -P")[0], os.path.realpath(a.workspace) + "\n")
        equal(a.sh("pwd -P", cwd="new/deep")[0], os.path.realpath(a.path("new/deep")) + "\n")
        equal(a.sh("pwd -P", cwd=a.path("new"))[0], os.path.realpath(a.path("new")) + "\n")
        with open(a.path("file"), "w"):
            pass
        frames = a.stream("execute", {"command": "true", "cwd": "file"})
        equal(frames, [{"type": "error", "error": f"mkdir_failed: ENOTDIR: not a directory, mkdir '{a.path('file')}'",
                        "code": "ENOTDIR"}])
        raw = os.fsencode(a.workspace) + b"/\xff\xfe"
        out, _, _ = a.sh("pwd -P", cwd={"base64": base64.b64encode(raw).decode()}, encoding="base64")
        assert out.endswith(b"/\xff\xfe\n"), out
        os.symlink("/usr", a.path("link"))  # where a command stands is no secret from it
        equal(a.sh("pwd -P", cwd="link")[0], "/usr\n")


def test_workspace_is_made(program):
    with Agent(program) as a:
        a.call("healthz")
        os.rmdir(a.workspace)
        equal(a.sh("pwd -P")[0], os.path.realpath(os.path.dirname(a.workspace)) + "/ws\n")
        for _ in range(2):  # a body that has to be put aside, though where it was to wait is gone
            a.sh('rm -rf "$PWD" && mkdir "$PWD"')
            equal(a.call("write-file", {"path": "large", "content": "x" * 3_000_000})["ok"], True)
        a.sh('rm -rf "$PWD"')
        equal(a.call("write-file", {"path": "small", "content": "x"})["ok"], True)


def test_environment(program):
    with Agent(program, env={"KEPT": "1", "NAMZU_AGENT_FOO": "secret", "NAMZU_SANDBOX_BAR": "x", "NAMZU_OTHER": "y"}) as a:
        def env(**body):
            out, _, result = a.execute("env", "-0", encoding="base64", **body)
            equal(result["exitCode"], 0)
            return dict(entry.split(b"=", 1) for entry in out.split(b"\0")[:-1])
        e = env()
        equal((e[b"KEPT"], e[b"NAMZU_OTHER"]), (b"1", b"y"))
        assert not [k for k in e if k.startswith((b"NAMZU_AGENT_", b"NAMZU_SANDBOX_"))], e
        e = env(env={"KEPT": "2", "NAMZU_AGENT_FOO": "mine", "EMPTY": "", "N": 5, "T": True, "Ü": "ä"})
        equal((e[b"KEPT"], e[b"NAMZU_AGENT_FOO"], e[b"EMPTY"], e[b"N"], e[b"T"], e["Ü".encode()]),
              (b"2", b"mine", b"", b"5", b"true", "ä".encode()))
        raw = {"base64": base64.b64encode(b"\xff\x01").decode()}
        e = env(env=[["A", raw], [raw, "b"], ["C", "1"], ["C", "2"], ["KEPT", "3"]])
        equal((e[b"A"], e[b"\xff\x01"], e[b"C"], e[b"KEPT"]), (b"\xff\x01", b"b", b"2", b"3"))
        for bad in ([["A"]], ["A"], [["A", "b", "c"]], {"A": [1]}, {"": "x"}, [["A\0", "x"]], {"A": "x\0"}):
            assert error_of(a.stream("execute", {"command": "true", "env": bad})).startswith("invalid_env: "), bad
        # The command is searched on its own PATH.
        with open(a.path("tool"), "w") as f:
            f.write("#!/bin/sh\necho found\n")
        os.chmod(a.path("tool"), 0o755)
        equal(a.execute("tool", env={"PATH": a.workspace})[0], "found\n")


def test_arguments(program):
    with Agent(program) as a:
        raw = b"\xff\x80 \n"
        out, _, _ = a.execute("printf", "%s|", "", "ä", {"base64": base64.b64encode(raw).decode()}, 7, encoding="base64")
        equal(out, b"|" + "ä".encode() + b"|" + raw + b"|7|")
        equal(a.stream("execute", {"command": "echo", "args": "not an array"})[0]["data"], "\n")
        many = [str(i) for i in range(20000)]
        out, _, _ = a.execute("printf", "%s,", *many)
        equal(out, ",".join(many) + ",")


def test_the_child_starts_clean(program):
    """No descriptor, no mask and no disposition of the agent's gets through."""
    with Agent(program) as a:
        out, _, _ = a.sh("ls /proc/self/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; ps -o pid=,pgid=,sid= -p $$")
        lines = out.split()
        equal(lines[:4], ["0", "1", "2", "3"])  # 3 is ls's own
        status = dict(zip(lines[4::2], lines[5::2]))
        equal(int(status["SigBlk:"], 16), 0)
        equal(int(status["SigIgn:"], 16), 0)
        pid, pgid, sid = lines[-3:]
        equal((pid, pid), (pgid, sid))


def test_rlimits(program):
    with Agent(program, options=["--rlimit", "nofile=77", "--rlimit", "fsize=4096", "--rlimit", "cpu=100"]) as a:
        equal(a.sh("ulimit -n; ulimit -Hn; ulimit -t")[0], "77\n77\n100\n")
        equal(a.sh("head -c 8192 /dev/zero > big; wc -c < big; rm big")[0], "4096\n")
        equal(a.call("write-file", {"path": "large", "content": "x" * 8192})["ok"], True)
        with open(f"/proc/{a.pid}/limits") as f:
            assert re.search(r"Max file size +unlimited", f.read())


def test_descriptors_are_as_the_agent_was_started(program):
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Agent(program) as a:
        equal(a.sh("ulimit -n; ulimit -Hn")[0].split(), [str(soft), str(hard)])


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
            a.check_growth(before, 4 << 10, "VmRSS")
            while True:
                frame = c.frame()
                if frame["type"] != "stdout_delta":
                    break
                total += len(frame["data"]) // 4 * 3 - frame["data"].count("=")
            equal((frame["exitCode"], frame["stdoutTruncated"]), (0, True))
            equal(total, size << 19)  # the limit; the rest was read and dropped
        a.check_growth(before, 4 << 10)


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
        equal((result["timedOut"], result["exitCode"]), (True, 0))
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


# ---- the end: timeout, cancel, signals ----

TREE = """
trap '' TERM
sleep 600 & echo $! > {0}.bg
setsid sh -c 'trap "" TERM HUP; echo $$ > {0}.sid; sleep 600 & echo $! > {0}.sid2; wait' </dev/null >/dev/null 2>&1 &
(setsid sh -c 'sleep 600 & echo $! > {0}.double' &)
while [ ! -s {0}.sid2 ] || [ ! -s {0}.double ]; do sleep 0.02; done
echo $$ > {0}.leader
wait; sleep 600
"""


def pids(a, prefix):
    found = {}
    for end in ("bg", "sid", "sid2", "double", "leader"):
        with open(a.path(f"{prefix}.{end}")) as f:
            found[end] = int(f.read())
    return found


def test_timeout_ends_the_whole_tree(program):
    with Agent(program) as a:
        start = time.monotonic()
        name = a.reserve()
        _, _, result = a.sh(TREE.format("t"), timeoutMs=1000, executionId=name)
        took = time.monotonic() - start
        equal((result["timedOut"], result["exitCode"], result["signal"]), (True, -1, "SIGKILL"))
        assert 1.2 < took < 4, took  # the time and the grace
        assert result["durationMs"] >= 1000
        for what, pid in pids(a, "t").items():
            assert not alive(pid), what
        equal(a.call("cancel-execution", {"executionId": name})["state"], "completed")
        equal(a.sh("echo usable")[0], "usable\n")


def test_timeout_of_one_that_obeys(program):
    with Agent(program) as a:
        start = time.monotonic()
        _, _, result = a.sh("exec sleep 600", timeoutMs=200)
        equal((result["timedOut"], result["exitCode"], result["signal"]), (True, -1, "SIGTERM"))
        assert time.monotonic() - start < 1.2
        out, _, result = a.sh("trap 'echo bye; exit 7' TERM; while :; do sleep 0.05; done", timeoutMs=300)
        equal((out, result["timedOut"], result["exitCode"]), ("bye\n", True, 7))


def test_two_trees_and_one_timeout(program):
    with Agent(program) as a:
        results = {}

        def run(prefix, timeout):
            results[prefix] = a.sh(TREE.format(prefix), timeoutMs=timeout)[2]
        threads = [threading.Thread(target=run, args=args) for args in (("one", 1500), ("two", 6000))]
        for t in threads:
            t.start()
        threads[0].join()
        for what, pid in pids(a, "one").items():
            assert not alive(pid), what
        for what, pid in pids(a, "two").items():
            assert alive(pid), what
        threads[1].join()
        for what, pid in pids(a, "two").items():
            assert not alive(pid), what
        equal([results[p]["timedOut"] for p in ("one", "two")], [True, True])


def test_cancel(program):
    with Agent(program) as a:
        name = a.reserve()
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", TREE.format("c")]}) as c:
            wait_until(lambda: os.path.exists(a.path("c.leader")), 10)
            tree = pids(a, "c")
            equal(error_of(a.stream("execute", {"command": "true", "executionId": name})), "execution_not_reserved: running")
            replies = []

            def cancel():
                replies.append(a.call("cancel-execution", {"executionId": name}))
            others = [threading.Thread(target=cancel) for _ in range(3)]
            for t in others:
                t.start()
            for t in others:
                t.join()
            for pid in tree.values():
                assert not alive(pid)
            r = replies[0]
            equal(replies[1:], [r, r])
            keys(r, "ok", "guestBootId", "state", "started", "result")
            equal((r["ok"], r["state"], r["started"]), (True, "cancelled", True))
            keys(r["result"], "exitCode", "timedOut", "durationMs", "signal", "stdoutTruncated", "stderrTruncated")
            equal((r["result"]["exitCode"], r["result"]["signal"], r["result"]["timedOut"]), (-1, "SIGKILL", False))
            equal(c.rest(), [{"type": "result", **r["result"]}])
        equal(a.call("cancel-execution", {"executionId": name}), r)


def test_cancel_of_what_is_not_running(program):
    with Agent(program) as a:
        boot = a.call("reserve-execution")["guestBootId"]
        for bad in (None, "", 7, "exec_x"):
            equal(a.call("cancel-execution", {"executionId": bad}), {"ok": False, "error": "invalid_execution_id"})
        equal(a.call("cancel-execution"), {"ok": False, "error": "invalid_execution_id"})
        equal(a.call("cancel-execution", {"executionId": execution_id()}),
              {"ok": False, "guestBootId": boot, "error": "unknown_execution"})
        name = a.reserve()
        want = {"ok": True, "guestBootId": boot, "state": "cancelled", "started": False,
                "result": {"exitCode": 1, "timedOut": False, "durationMs": 0, "stdoutTruncated": False,
                           "stderrTruncated": False}}
        for _ in range(2):
            got = a.call("cancel-execution", {"executionId": name})
            equal(got, want)
            keys(got, *want)
        equal(error_of(a.stream("execute", {"command": "true", "executionId": name})), "execution_not_reserved: terminal")
        name = a.reserve()
        a.sh("exit 9", executionId=name)
        got = a.call("cancel-execution", {"executionId": name})
        equal((got["state"], got["started"], got["result"]["exitCode"]), ("completed", True, 9))


def test_cancel_with_a_stalled_reader(program):
    """The confirmation does not wait for a reader that will never read."""
    with Agent(program) as a:
        name = a.reserve()
        with a.open("execute", {"executionId": name, "command": "cat", "args": ["/dev/zero"]}):
            time.sleep(0.3)
            start = time.monotonic()
            r = a.call("cancel-execution", {"executionId": name})
            equal((r["state"], r["result"]["signal"]), ("cancelled", "SIGTERM"))
            assert time.monotonic() - start < 2


def test_cancel_races_with_the_start(program):
    with Agent(program) as a:
        for _ in range(60):
            name = a.reserve()
            with a.open("execute", {"executionId": name, "command": "sleep", "args": ["100"], "cwd": "x"}) as c:
                r = a.call("cancel-execution", {"executionId": name})
                frames = c.rest()
            equal((r["ok"], r["state"]), (True, "cancelled"))
            if r["started"]:
                equal((len(frames), frames[0]["type"], frames[0]["exitCode"]), (1, "result", -1))
            else:
                assert frames[0].get("error") in ("execution_cancelled", "execution_not_reserved: terminal"), frames


def test_grace(program):
    with Agent(program, env={"NAMZU_AGENT_CANCEL_GRACE_MS": "0"}) as a:
        start = time.monotonic()
        result = a.sh("trap '' TERM; while :; do sleep 1; done", timeoutMs=100)[2]
        equal(result["signal"], "SIGKILL")
        assert time.monotonic() - start < 1.2


def test_signals(program):
    with Agent(program) as a:
        def sig(**body):
            return a.call("signal-execution", body)
        name = a.reserve()
        equal(sig(executionId="x", signal="SIGTERM"), {"ok": False, "error": "invalid_execution_id"})
        equal(sig(executionId=execution_id(), signal="SIGTERM"), {"ok": False, "error": "unknown_execution"})
        equal(sig(executionId=name, signal="SIGNO"), {"ok": False, "error": "invalid_signal"})
        equal(sig(executionId=name), {"ok": False, "error": "invalid_signal"})
        equal(sig(executionId=name, signal="SIGTERM"), {"ok": False, "error": "execution_not_running: reserved"})
        script = ("trap '' USR1 USR2; sleep 100 >/dev/null 2>&1 & trap 'echo usr1' USR1; trap 'echo usr2; exit 4' USR2; "
                  "echo ready; while :; do wait; done")
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", script]}) as c:
            equal(c.frame()["data"], "ready\n")
            r = sig(executionId=name, signal="SIGUSR1")
            keys(r, "ok", "guestBootId", "delivered")
            equal(r["delivered"], True)
            equal(c.frame()["data"], "usr1\n")
            sig(executionId=name, signal="SIGUSR2")
            equal(c.frame()["data"], "usr2\n")
            equal(c.frame()["exitCode"], 4)
        wait_until(lambda: sig(executionId=name, signal="SIGTERM")["delivered"] is False)


def test_signal_of_a_tree(program):
    with Agent(program) as a:
        name = a.reserve()
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", TREE.format("s")]}) as c:
            wait_until(lambda: os.path.exists(a.path("s.leader")), 10)
            tree = pids(a, "s")
            a.call("signal-execution", {"executionId": name, "signal": "SIGTERM"})  # ignored, and not for other groups
            time.sleep(0.1)
            assert alive(tree["leader"]) and alive(tree["sid"]) and alive(tree["double"])
            a.call("signal-execution", {"executionId": name, "signal": "SIGKILL", "tree": True})
            equal(c.rest()[-1]["signal"], "SIGKILL")
        for pid in tree.values():
            wait_until(lambda p=pid: not alive(p))


def test_a_killed_keeper(program):
    """A command that kills what keeps it: its outcome is unknown, and no answer says otherwise."""
    with Agent(program, quiet=False) as a:
        name = a.reserve()
        frames = a.stream("execute", {"executionId": name, "command": "sh", "args": ["-c", "kill -KILL $PPID; sleep 2"]})
        assert error_of(frames).startswith("execution_lost: "), frames
        equal(a.call("healthz")["ok"], True)
        r = a.call("cancel-execution", {"executionId": name})
        keys(r, "ok", "guestBootId", "error", "message")
        equal((r["ok"], r["error"]), (False, "cancellation_unconfirmed"))
        # The fence, as published.
        h = a.call("healthz")
        keys(h, "ok", "protocolVersion", "features", "retiring")
        equal((h["ok"], h["retiring"]), (False, True))
        for op in ("reserve-execution", "execute", "read-file", "walk"):
            equal(a.call(op, {}), {"ok": False, "error": "agent_retiring"})
        equal(a.call("no-such-op")["ok"], False)
        equal(a.call("cancel-execution", {"executionId": name})["error"], "cancellation_unconfirmed")


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
            a.check_growth(before, 4 << 10, "VmRSS")
            c.sock.settimeout(30)


# ---- the rest ----

def test_started(program):
    with Agent(program) as a:
        frames = a.stream("execute", {"command": "sh", "args": ["-c", "echo $$"], "started": True})
        keys(frames[0], "type", "pid")
        equal((frames[0]["type"], str(frames[0]["pid"]) + "\n"), ("started", frames[1]["data"]))


def test_many_at_once(program):
    """16 at a time, 256 in all, with descriptors for 16."""
    with Agent(program, nofile=16 * 7 + 32) as a:
        wrong = []

        def run(n):
            for i in range(16):
                out, err, result = a.sh(f"echo {n}-{i}; echo e{n}-{i} >&2; exit {n}")
                if (out, err, result.get("exitCode")) != (f"{n}-{i}\n", f"e{n}-{i}\n", n):
                    wrong.append((n, i, out, err, result))
        threads = [threading.Thread(target=run, args=(n,)) for n in range(16)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        equal(wrong, [])


def test_no_zombies(program):
    with Agent(program) as a:
        a.sh("for i in $(seq 200); do (setsid sh -c 'sleep 0.05' &) ; done")
        time.sleep(0.6)

        def children():
            with open(f"/proc/{a.pid}/task/{a.pid}/children") as f:
                return f.read().split()
        wait_until(lambda: not children(), 5, "the end of every child")


def busy(a):
    """Clock ticks of the processor that the agent has used."""
    with open(f"/proc/{a.pid}/stat") as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))


def test_out_of_descriptors(program):
    """It refuses by name or lets wait, does not spin, and goes on when there are some again."""
    with Agent(program, nofile=36) as a:
        held, answers = [], []
        while not answers or answers[-1]["type"] == "started":  # the first few have room, and one is told that there is none
            held.append(a.open("execute", {"command": "sleep", "args": ["100"], "started": True, "timeoutMs": 2500}))
            answers.append(held[-1].frame())
        assert len(answers) > 1 and "EMFILE" in str(answers[-1]), answers
        held += [a.open("read-file", {"path": "x"}) for _ in range(40)]
        time.sleep(0.3)
        before = busy(a)
        time.sleep(0.5)
        assert busy(a) - before < 20, "it spins"
        for c in held:
            c.close()
        wait_until(lambda: a.sh("echo alive")[0] == "alive\n", 15)
