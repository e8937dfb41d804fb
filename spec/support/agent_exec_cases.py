"""Reserving and running commands: what is checked, what a command gets, and what its result says."""
import base64
import os
import re
import time

from agent_client import Agent, equal, error_of, execution_id, keys


ID = re.compile(r"^exec_[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")


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
        for number, name in ((32, "SIG32"), (33, "SIG33"), (34, "SIGRTMIN"), (49, "SIGRTMIN+15"), (50, "SIGRTMAX-14"), (64, "SIGRTMAX")):
            equal(a.sh(f"kill -{number} $$")[2]["signal"], name)


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
