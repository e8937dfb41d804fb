"""The agent as a program: start, listeners, the door, hostile peers, the duties of a PID 1, and the end."""
import json
import os
import random
import signal
import socket
import subprocess
import tempfile
import threading
import time

from agent_client import Agent, alive, equal, frame, plain_agent, wait_until

FEATURES = ["write-file-parts", "read-file-stream", "guest-boot-id", "exec-bytes", "exec-wait", "exec-stdin", "exec-started",
            "signal-execution", "walk", "byte-strings"]


def fails_to_start(program, *options, text, env=None, **popen):
    """Exit status 1, one line on stderr, at once."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("NAMZU_")}
    environ.update(env or {})
    p = subprocess.run([program, *options], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20,
                       **popen)
    equal((p.returncode, p.stdout), (1, ""))
    assert text in p.stderr, f"{text!r} is not in {p.stderr!r}"
    return p.stderr


# ---- the start ----

def test_healthz_to_the_byte(program):
    with Agent(program) as a, a.connect() as c:
        c.sock.sendall(b'00000010\n{"op":"healthz"}')
        equal(c.raw_frame(), ('{"ok":true,"protocolVersion":2,"features":%s}' % json.dumps(FEATURES, separators=(",", ":"))).encode())
        c.expect_end()


def test_nothing_to_listen_on(program):
    said = fails_to_start(program, text="NAMZU_AGENT_UNIX_PATH")
    assert "NAMZU_AGENT_VSOCK_PORT" in said and "NAMZU_AGENT_TCP_PORT" in said, said
    fails_to_start(program, text="NAMZU_AGENT_UNIX_PATH", env={"NAMZU_AGENT_UNIX_PATH": "", "NAMZU_AGENT_TCP_PORT": ""})


def test_wrong_settings(program):
    tcp = {"NAMZU_AGENT_TCP_PORT": "0", "NAMZU_AGENT_BIND_TOKEN": "t"}
    for port in ("x", "-1", "65536", "1.5", "99999999999999999999"):
        fails_to_start(program, env={**tcp, "NAMZU_AGENT_TCP_PORT": port},
                       text="NAMZU_AGENT_TCP_PORT must be an integer in [0, 65535]")
    with tempfile.TemporaryDirectory() as place:
        unix = {"NAMZU_AGENT_UNIX_PATH": place + "/s"}
        fails_to_start(program, env={**unix, "NAMZU_AGENT_BIND_TOKEN": ""}, text="NAMZU_AGENT_BIND_TOKEN")
        for bad in ("0", "-1", "x", "1.5", "9007199254740992", "5 "):
            for name in ("NAMZU_AGENT_MAX_TRACKED_EXECUTIONS", "NAMZU_SANDBOX_MAX_TIMEOUT_MS", "NAMZU_AGENT_MAX_FRAME_BYTES"):
                fails_to_start(program, env={**unix, name: bad}, text=f"{name} must be a positive safe integer\n")
        fails_to_start(program, env={**unix, "NAMZU_AGENT_CANCEL_GRACE_MS": "-1"},
                       text="NAMZU_AGENT_CANCEL_GRACE_MS must be a non-negative safe integer\n")
        equal(os.listdir(place), [])  # found before there is a socket
    for env in ({}, {"NAMZU_AGENT_REQUIRE_TOKEN": ""}):
        fails_to_start(program, env={"NAMZU_AGENT_TCP_PORT": "0", **env}, text="NAMZU_AGENT_BIND_TOKEN")
    fails_to_start(program, env={"NAMZU_AGENT_UNIX_PATH": "/no/such/dir/s"}, text="/no/such/dir/s")
    fails_to_start(program, env={"NAMZU_AGENT_VSOCK_PORT": "1"}, text="descriptor 3", close_fds=True)


def test_options(program):
    for option, text in (("--help", "usage: nsbx-agent"), ("--version", "nsbx-agent ")):
        p = subprocess.run([program, option], capture_output=True, text=True, timeout=20)
        equal((p.returncode, p.stderr), (0, ""))
        assert p.stdout.startswith(text), p.stdout
    fails_to_start(program, "--nonsense", text="usage: nsbx-agent")
    fails_to_start(program, "argument", text="argument")
    for bad in ("nofile", "nofile=", "nofile=x", "nofile=-1", "core=1", "=1"):
        fails_to_start(program, "--rlimit", bad, text=f"--rlimit {bad}: want NAME=N")
    for bad in ("x", "-1", ""):
        fails_to_start(program, "--lifeline-fd", bad, text="--lifeline-fd")
    with tempfile.TemporaryDirectory() as place:
        env = {"NAMZU_AGENT_UNIX_PATH": place + "/s", "NAMZU_SANDBOX_WORKSPACE": place}
        fails_to_start(program, "--lifeline-fd", "77", text="--lifeline-fd 77", env=env)
        fails_to_start(program, "--as-pid-1", text="--as-pid-1", env=env)


def test_precedence_of_listeners(program):
    with tempfile.TemporaryDirectory() as place:
        with Agent(program, listen="inherited", env={"NAMZU_AGENT_TCP_PORT": "0"}) as a:
            equal(a.call("healthz")["ok"], True)
        with Agent(program, env={"NAMZU_AGENT_VSOCK_PORT": "1", "NAMZU_AGENT_TCP_PORT": "x"}) as a:
            equal(a.call("healthz")["ok"], True)
        stale = os.path.join(place, "stale")
        for _ in range(2):  # the second one finds what the first one left
            with Agent(program, env={"NAMZU_AGENT_UNIX_PATH": stale}) as a:
                a.address = stale
                equal(a.call("healthz")["ok"], True)


def test_a_workspace_that_is_not_there(program):
    with Agent(program, env={"NAMZU_SANDBOX_WORKSPACE": "/proc/no/such"}) as a:
        equal(a.call("healthz")["ok"], True)
        equal(a.call("read-file", {"path": "x"})["code"], "ENOENT")
        equal(a.call("write-file", {"path": "x", "content": "y"})["code"], "ENOENT")
        (f,) = a.stream("execute", {"command": "true"})
        assert f["error"].startswith("mkdir_failed: ENOENT"), f


# ---- the door ----

def test_token(program):
    with Agent(program, token="s3cret", listen="tcp") as a:
        no = {"ok": False, "error": "unauthorized"}
        for token in (None, "", "s3cre", "s3cret ", "S3CRET", 7, "x" * 600):
            for op in ("reserve-execution", "execute", "read-file", "no-such-op"):
                request = {"op": op, "body": {}} if token is None else {"op": op, "body": {}, "token": token}
                with a.connect() as c:
                    c.send(request)
                    equal(c.frame(), no)
                    c.expect_end()
        with a.connect() as c:  # and for healthz it is not asked
            c.send({"op": "healthz"})
            equal(c.frame()["ok"], True)
        equal(a.sh("echo in")[0], "in\n")
        for request in ({"token": "s3cret", "op": "reserve-execution"}, {"body": {}, "token": "s3cret", "op": "reserve-execution"}):
            with a.connect() as c:
                c.send(request)
                equal(c.frame()["ok"], True)


def test_trust_on_first_use(program):
    with Agent(program, env={"NAMZU_AGENT_REQUIRE_TOKEN": "1"}) as a:
        equal(a.call("reserve-execution"), {"ok": False, "error": "unauthorized"})
        equal(a.call("reserve-execution", token="")["ok"], False)
        equal(a.call("reserve-execution", token="first")["ok"], True)
        equal(a.call("reserve-execution", token="second")["ok"], False)
        equal(a.call("reserve-execution", token="first")["ok"], True)


def test_a_token_without_need_is_ignored(program):
    with Agent(program) as a:
        equal(a.call("reserve-execution", token="whatever")["ok"], True)


def test_the_token_is_nowhere_to_be_found(program):
    secret = "tok-%08x-xyz" % random.getrandbits(32)
    with Agent(program, token=secret) as a:
        a.call("healthz")
        out = a.sh(f"env; cat /proc/{a.pid}/environ /proc/$PPID/environ /proc/{a.pid}/cmdline 2>/dev/null | tr '\\0' '\\n'")[0]
        assert secret not in out
        if os.geteuid() == 0:
            with open(f"/proc/{a.pid}/environ", "rb") as f:
                environ = f.read()
            assert secret.encode() not in environ and b"NAMZU_SANDBOX_WORKSPACE" in environ


def test_nobody_of_the_same_user_looks_in(program):
    with plain_agent(program) as a:
        a.call("healthz")
        script = """
        for pid in {0} $PPID; do
            for f in environ mem maps fd/0 fdinfo root cwd; do
                head -c 1 /proc/$pid/$f >/dev/null 2>&1 && echo "$pid/$f"
                ls -l /proc/$pid/fd >/dev/null 2>&1 && echo "$pid/fd is listed"
            done
        done; echo done"""
        equal(a.sh(script.format(a.pid))[0], "done\n")


def test_hostile_first_bytes(program):
    for token in (None, "t"):
        with Agent(program, token=token, listen="tcp" if token else "unix") as a:
            for data in (b"00000000\n", b"0000000g\n{}", b"000000002\n", b"\n" * 9, b"GET / HTTP/1.1\r\n\r\n", b"00000002\n[]"[:-1] + b"}",
                         b"00000004\nnull", b"00000003\n{}x", b"00000002\n\xff\xfe", b"00000008\n" + b'{"op":1', b"-0000001\n{"):
                with a.connect() as c:
                    c.sock.sendall(data)
                    c.sock.shutdown(socket.SHUT_WR)
                    c.sock.settimeout(15)
                    try:
                        got = c.sock.recv(1000)
                    except ConnectionError:
                        got = b""
                    assert got == b"" or got[9:].startswith((b'{"ok":false,"error":"un')), (data, got)
            equal(a.call("healthz")["ok"], True)


def test_frames_at_the_limit(program):
    env = {"NAMZU_AGENT_MAX_FRAME_BYTES": "2000000", "NAMZU_AGENT_MAX_PREAUTH_FRAME_BYTES": "1000"}
    with Agent(program, token="t", env=env) as a:
        for n, refusal in ((1000, "unauthorized"), (1001, "frame_too_large: announced 1001 bytes, limit 1000 "
                                                    "(NAMZU_AGENT_MAX_PREAUTH_FRAME_BYTES)")):
            with a.connect() as c:
                head = b'{"op":"read-file","body":{"path":"'
                tail = b'"}}'
                c.sock.sendall(b"%08x\n" % n + head + b"x" * (n - len(head) - len(tail)) + tail)
                equal(c.frame(), {"ok": False, "error": refusal})
                c.expect_end()
    with Agent(program, env=env) as a:
        for n, ok in ((2_000_000, True), (2_000_001, False)):
            head = b'{"op":"write-file","body":{"path":"f","content":"'
            with a.connect() as c:
                c.sock.sendall(b"%08x\n" % n + head + b"x" * (n - len(head) - 3))
                if ok:
                    c.sock.sendall(b'"}}')
                    equal(c.frame()["ok"], True)
                else:
                    equal(c.frame(), {"ok": False, "error": "frame_too_large: announced 2000001 bytes, limit 2000000 "
                                      "(NAMZU_AGENT_MAX_FRAME_BYTES)"})


def test_slow_strangers_are_cut(program):
    env = {"NAMZU_AGENT_PREAUTH_IDLE_TIMEOUT_MS": "200", "NAMZU_AGENT_PREAUTH_DEADLINE_MS": "600"}
    with Agent(program, token="t", env=env) as a:
        with a.connect() as c:
            start = time.monotonic()
            assert c.gone()
            assert 0.15 < time.monotonic() - start < 1.5
        with a.connect() as c:  # a byte now and then does not help for ever
            start = time.monotonic()
            try:
                for byte in frame({"op": "healthz"})[:-1] * 3:
                    c.sock.sendall(bytes([byte]))
                    time.sleep(0.1)
            except ConnectionError:
                pass
            assert 0.5 < time.monotonic() - start < 2.5


def test_64_hostile_strangers(program):
    """Each with an 8 MiB frame of what is most expensive to parse, as far as it gets: no more than 40 MiB in all."""
    with Agent(program, token="t", listen="tcp") as a:
        a.call("healthz")
        before = a.memory("VmHWM")
        size = 8 << 20
        bodies = (b'{"op":"execute","body":{"args":[' + b'"",' * (size // 3), b'{"op":"execute","body":{"env":{' + b'"a":{},' * (size // 7),
                  b'{"op":"write-file","body":{"content":"' + b"\\u0041" * (size // 6), b"[" * size, b'{"a":' * (size // 5),
                  b'{"op":"execute","body":[' + b"1," * (size // 2), b'{"op":"execute","body":"' + b"x" * size,
                  b'{"body":{"stdin":"' + b"x" * size)
        conns, threads = [], []

        def pour(c, data):
            try:
                c.sock.sendall(b"%08x\n" % size + data[:size - 1])
            except OSError:
                pass  # refused while we were still talking
        for i in range(64):
            c = a.connect()
            conns.append(c)
            threads.append(threading.Thread(target=pour, args=(c, bodies[i % len(bodies)])))
        for t in threads:
            t.start()
        deadline = time.monotonic() + 8
        while any(t.is_alive() for t in threads) and time.monotonic() < deadline:
            equal(a.call("healthz")["protocolVersion"], 2) if False else None
            time.sleep(0.1)
        peak = a.memory("VmHWM")
        for c in conns:
            try:
                c.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for t in threads:
            t.join()
        for c in conns:
            c.close()
        a.check_growth(before, 40 << 10)
        assert peak
        wait_until(lambda: a.call("reserve-execution").get("ok") is True, 15)


def test_random_bytes(program):
    rng = random.Random(7)
    seeds = [{"op": op, "body": body} for op, body in (
        ("execute", {"command": "true", "args": ["a"], "env": {"A": "b"}, "timeoutMs": 50}), ("read-file", {"path": "x", "encoding": "base64"}),
        ("write-file", {"path": "f", "content": "aGk=", "encoding": "base64", "part": {"offset": 0}}),
        ("walk", {"root": ".", "pattern": "**/*", "maxDepth": 3}), ("cancel-execution", {"executionId": "exec_"}),
        ("signal-execution", {"executionId": "exec_", "signal": "SIGTERM"}), ("read-file-stream", {"path": "f", "offset": 1}))]
    values = [None, True, 0, -1, 1e308, 1.5, "", "x", "\0", "😀", [], {}, [[]], {"base64": "/w=="}, {"base64": 1}, 2**53, "../x", "/"]
    with Agent(program) as a:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            request = json.loads(json.dumps(rng.choice(seeds)))
            if rng.random() < 0.7:
                request["body"][rng.choice(list(request["body"]))] = rng.choice(values)
            data = bytearray(frame(request))
            if rng.random() < 0.3:
                for _ in range(rng.randint(1, 4)):
                    data[rng.randrange(9 if rng.random() < 0.2 else len(data))] = rng.randrange(256)
            with a.connect() as c:
                c.sock.settimeout(0.2)
                try:
                    c.sock.sendall(data)
                    if rng.random() < 0.5:
                        c.sock.shutdown(socket.SHUT_WR)
                    if rng.random() < 0.8:
                        c.sock.recv(1 << 16)
                except (OSError, ValueError):
                    pass
        equal(a.call("healthz")["ok"], True)


def test_descriptors_come_back(program):
    """Requests that are given up at any byte leave nothing open."""
    with Agent(program, nofile=64) as a:
        requests = [frame({"op": op, "body": {"path": "f", "root": ".", "command": "sleep", "args": ["0.01"], "content": "x"}})
                    for op in ("execute", "read-file", "read-file-stream", "walk", "reserve-execution", "healthz", "write-file")]
        rng = random.Random(8)
        for _ in range(400):
            request = rng.choice(requests)
            with a.connect() as c:
                c.sock.sendall(request[:rng.choice((0, 5, 9, 20, len(request)))])
        wait_until(lambda: a.call("healthz")["ok"], 15)


# ---- size ----

def test_footprint(program):
    """Of the program as it is released."""
    with Agent(program) as a:
        a.call("healthz")
        if a.sanitized:
            print("       a sanitized program has no footprint to speak of; the static one is measured")
            return
        a.sh("true")
        time.sleep(0.3)
        rss = a.memory("VmRSS")
        with tempfile.TemporaryDirectory() as place:
            copy = os.path.join(place, "stripped")
            subprocess.run(["strip", "-o", copy, program], check=True)
            size = os.path.getsize(copy)
        print(f"       idle: {rss} KiB; stripped: {size} bytes")
        assert rss <= 3 << 10 and size <= 3_000_000, (rss, size)


# ---- the end ----

def test_sigterm_when_nothing_runs(program):
    """Within 0.2 s, idle connections or not; the best of three, since the machine has other things to do too."""
    times = []
    for _ in range(3):
        with Agent(program) as a:
            a.call("healthz")
            with a.connect(), a.connect() as half:
                half.sock.sendall(b"0000")
                start = time.monotonic()
                a.process.send_signal(signal.SIGTERM)
                equal(a.process.wait(10), 0)
                times.append(time.monotonic() - start)
    assert min(times) < (1 if a.sanitized else 0.2), times


def test_sigterm_ends_what_runs(program):
    with Agent(program) as a:
        name = a.reserve()
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", "echo $$; setsid sleep 600 & exec sleep 600"]}) as c, \
                a.open("execute", {"command": "cat", "args": ["/dev/zero"]}):
            pid = int(c.frame()["data"])
            a.sh("setsid sleep 600 >/dev/null 2>&1 & echo $! > bg")
            with open(a.path("bg")) as f:
                background = int(f.read())
            a.process.send_signal(signal.SIGTERM)
            frames = c.rest()
            equal((frames[-1]["type"], frames[-1]["signal"]), ("result", "SIGTERM"))
            equal(a.process.wait(10), 0)
        assert not alive(pid) and not alive(background)


def test_sigterm_while_work_is_under_way(program):
    for _ in range(5):
        with Agent(program) as a:
            with open(a.path("f"), "wb") as f:
                f.truncate(1 << 30)
            conns = [a.open("read-file-stream", {"path": "f"}), a.open("walk", {"root": "."}), a.connect()]
            conns[2].sock.sendall(frame({"op": "write-file", "body": {"path": "g", "content": "x" * 3_000_000}})[:2_500_000])
            conns[0].frame()
            a.process.send_signal(signal.SIGTERM)
            equal(a.process.wait(10), 0)
            for c in conns:
                c.close()
            equal([n for n in os.listdir(a.workspace) if n != "f"], [])


def test_shutdown_deadline(program):
    """What cannot be ended in time does not keep the agent."""
    env = {"NAMZU_AGENT_SHUTDOWN_DEADLINE_MS": "400", "NAMZU_AGENT_CANCEL_GRACE_MS": "20000"}
    with Agent(program, env=env, quiet=False) as a:
        with a.open("execute", {"command": "sh", "args": ["-c", "trap '' TERM; echo $$; while :; do sleep 1; done"]}) as c:
            pid = int(c.frame()["data"])
            start = time.monotonic()
            a.process.send_signal(signal.SIGTERM)
            a.process.send_signal(signal.SIGTERM)
            equal(a.process.wait(10), 0)
            assert time.monotonic() - start < 3
        wait_until(lambda: not alive(pid))


def test_lifeline(program):
    with Agent(program, lifeline=True) as a:
        with a.open("execute", {"command": "sh", "args": ["-c", "setsid sleep 600 >/dev/null 2>&1 & echo $! $$; exec sleep 600"]}) as c:
            tree = [int(pid) for pid in c.frame()["data"].split()]
            os.close(a.lifeline)
            a.lifeline = None
            equal(a.process.wait(10), 0)
        for pid in tree:
            assert not alive(pid)


# ---- PID 1 ----

def pid_1(program, **options):
    wrap = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if os.geteuid() != 0:
        wrap[1:1] = ["--user", "--map-root-user"]
    return Agent(program, wrap=wrap, options=["--as-pid-1"], **options)


def inner_pid(a):
    with open(f"/proc/{a.pid}/task/{a.pid}/children") as f:
        return int(f.read().split()[0])


def end_pid_1(a):
    os.kill(inner_pid(a), signal.SIGTERM)
    equal(a.process.wait(10), 0)


def test_pid_1_reaps_strangers(program):
    with pid_1(program, quiet=False) as a:
        equal(a.sh("readlink /proc/1/exe >/dev/null; cat /proc/1/comm")[0][:10], os.path.basename(program)[:10])
        # The keeper is killed; its orphans are PID 1's now, and end as such.
        (f,) = a.stream("execute", {"command": "sh", "args": ["-c", "(sleep 0.3; exit 3) & (sleep 0.3) & kill -KILL $PPID; sleep 0.2"]})
        assert f["error"].startswith("execution_lost"), f
        time.sleep(0.8)
        out = a.sh("for s in /proc/[0-9]*/stat; do cat $s 2>/dev/null; done; true")[0]
        zombies = [line for line in out.splitlines() if line.rsplit(")", 1)[1].split()[0] == "Z"]
        equal(zombies, [])
        equal(a.sh("exit 5")[2]["exitCode"], 5)  # and no status of ours is lost to that
        end_pid_1(a)


def test_pid_1_is_not_killed_from_inside(program):
    with pid_1(program) as a:
        segv = "" if a.sanitized else "kill -SEGV 1;"  # a sanitizer's handler would not be impressed by being PID 1
        out, _, result = a.sh(f"kill -KILL 1; {segv} kill -STOP 1; kill -INT 1; kill -HUP 1; kill -TERM 1; echo still here")
        equal((out, result["exitCode"]), ("still here\n", 0))
        equal(a.sh("sleep 0.3; echo still here")[0], "still here\n")
        end_pid_1(a)  # from outside it is heard


def test_pid_1_and_the_lifeline(program):
    with pid_1(program, lifeline=True) as a:
        with a.open("execute", {"command": "sh", "args": ["-c", "trap '' TERM HUP; setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 1; done' & "
                                                         "echo up; while :; do sleep 1; done"]}) as c:
            equal(c.frame()["data"], "up\n")
            agent = inner_pid(a)
            start = time.monotonic()
            os.close(a.lifeline)
            a.lifeline = None
            equal(a.process.wait(10), 0)
            assert time.monotonic() - start < (3 if a.sanitized else 1)
        assert not alive(agent)


def test_pid_1_ends_everything_on_sigterm(program):
    with pid_1(program) as a:
        a.sh("setsid sleep 600 >/dev/null 2>&1 & setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 &")
        start = time.monotonic()
        end_pid_1(a)
        assert time.monotonic() - start < 3


def test_an_empty_image(program):
    """Nothing in it but the agent: no shell, no library, no /proc, no /tmp, no /etc; the root is not writable."""
    with open(program, "rb") as f:
        if b"/lib64/ld-linux" in f.read():
            print("       this program needs a loader and libraries; the static one is tried")
            return
    with tempfile.TemporaryDirectory() as ws:
        os.chmod(ws, 0o777)
        for more in (["--dev", "/dev", "--proc", "/proc"], []):
            wrap = ["bwrap", "--unshare-all", "--as-pid-1", "--die-with-parent", "--ro-bind", program, "/agent", *more, "--bind", ws, "/w",
                    "--remount-ro", "/", "--clearenv", "--setenv", "NAMZU_AGENT_VSOCK_PORT", "1", "--setenv",
                    "NAMZU_SANDBOX_WORKSPACE", "/w", "--chdir", "/"]
            with Agent("/agent", image=program, wrap=wrap, listen="inherited", options=["--as-pid-1"], workspace=ws, lifeline=True) as a:
                equal(a.call("healthz")["ok"], True)
                out, err, result = a.execute("/agent", "--version")
                equal((out[:11], err, result["exitCode"]), ("nsbx-agent ", "", 0))
                out, err, result = a.execute("/agent", "--no-such-option")
                equal((out, err[:7], result["exitCode"]), ("", "/agent:", 1))
                (f,) = a.stream("execute", {"command": "sh"})
                equal(f["error"], "spawn sh ENOENT")
                equal(a.call("write-file", {"path": "d/f", "content": "x" * 3_000_000})["ok"], True)
                equal(a.call("read-file", {"path": "/w/d/f"})["sizeBytes"], 3_000_000)
                frames = a.stream("walk", {"root": "/w"})
                equal(([e[:3] for e in frames[0]["entries"]], frames[1]["type"]), ([["/w/d/f", 3_000_000, "file"]], "done"))
                # A command that has to be killed: an agent that nobody talks to. Without /proc too.
                start = time.monotonic()
                env = {"NAMZU_AGENT_UNIX_PATH": "/w/s", "NAMZU_SANDBOX_WORKSPACE": "/w"}
                result = a.stream("execute", {"command": "/agent", "env": env, "timeoutMs": 300})[-1]
                equal((result["timedOut"], result["exitCode"], result["signal"]), (True, -1, "SIGTERM"))  # it heard it
                assert time.monotonic() - start < 3
