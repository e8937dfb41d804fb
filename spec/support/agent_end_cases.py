"""The end of commands: by timeout, by cancel, by signals, and with many of them."""
import os
import threading
import time

from agent_client import Agent, alive, equal, error_of, execution_id, keys, wait_until

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
        equal((out, result["timedOut"], result["exitCode"], result["signal"]), ("bye\n", True, -1, "SIGTERM"))


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


def lost(a, script, **body):
    """A command that ends what keeps it: an execution that failed, within a second, and an agent that goes on."""
    name = a.reserve()
    start = time.monotonic()
    frames = a.stream("execute", {"executionId": name, "command": "sh", "args": ["-c", script], **body})
    assert error_of(frames[-1:]).startswith("execution_lost: "), frames
    took = time.monotonic() - start
    r = a.call("cancel-execution", {"executionId": name})
    keys(r, "ok", "guestBootId", "state", "started", "error")
    equal((r["state"], r["started"]), ("failed", True))
    equal(a.call("signal-execution", {"executionId": name, "signal": "SIGTERM"})["delivered"], False)
    equal(a.call("healthz")["ok"], True)
    equal(a.sh("exit 7")[2]["exitCode"], 7)
    return took


def test_a_killed_keeper(program):
    with Agent(program, quiet=False) as a:
        assert lost(a, "echo $$ > leader; setsid sleep 1.5 & echo $! > other; kill -KILL $PPID; exec sleep 100") < 1
        wait_until(lambda: not alive(int(open(a.path("leader")).read())), what="the leader's end")
        other = int(open(a.path("other")).read())
        assert alive(other), "a process in the background is no concern of the execution's any more"
        wait_until(lambda: not alive(other))
        # The leader has ended and its result is known: it counts.
        equal(a.sh("k=$PPID; (sleep 0.1; kill -KILL $k; sleep 0.3) & exit 4")[2]["exitCode"], 4)


def test_a_killed_keeper_while_it_ends(program):
    """The cancel and the stream say the same."""
    with Agent(program, quiet=False) as a:
        name = a.reserve()
        script = "trap 'kill -KILL $PPID; exec sleep 100' TERM; echo ready; while :; do sleep 0.05; done"
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", script]}) as c:
            equal(c.frame()["data"], "ready\n")
            start = time.monotonic()
            equal(a.call("cancel-execution", {"executionId": name})["state"], "failed")
            # TERM ends the shell's sleep too, and some shells say so.
            frames = [frame for frame in c.rest() if frame["type"] != "stderr_delta"]
            assert error_of(frames).startswith("execution_lost: ")
            assert time.monotonic() - start < 1.2
        equal(a.call("healthz")["ok"], True)


def test_a_stopped_keeper(program):
    """One that is stopped again whenever it is woken can end nothing; it is given up in the time that there is for an end."""
    env = {"NAMZU_AGENT_CANCEL_GRACE_MS": "100", "NAMZU_AGENT_CANCEL_CONFIRM_TIMEOUT_MS": "500"}
    with Agent(program, quiet=False, env=env) as a:
        equal(a.sh("kill -STOP $PPID; sleep 100", timeoutMs=200)[2]["timedOut"], True)  # stopped once: it is woken
        stopper = "trap '' TERM; k=$PPID; while :; do kill -STOP $k; done"
        assert lost(a, stopper, timeoutMs=200) < 3


def test_an_end_that_is_not_confirmed(program):
    """The fence, as published."""
    env = {"NAMZU_AGENT_CANCEL_GRACE_MS": "2000", "NAMZU_AGENT_CANCEL_CONFIRM_TIMEOUT_MS": "100"}
    with Agent(program, quiet=False, env=env) as a:
        name = a.reserve()
        with a.open("execute", {"executionId": name, "command": "sh", "args": ["-c", "trap '' TERM; echo; while :; do sleep 0.1; done"]}) as c:
            c.frame()
            r = a.call("cancel-execution", {"executionId": name})
            keys(r, "ok", "guestBootId", "error", "message")
            equal((r["ok"], r["error"]), (False, "cancellation_unconfirmed"))
            h = a.call("healthz")
            keys(h, "ok", "protocolVersion", "features", "retiring")
            equal((h["ok"], h["retiring"]), (False, True))
            for op in ("reserve-execution", "execute", "read-file", "walk"):
                equal(a.call(op, {}), {"ok": False, "error": "agent_retiring"})
            equal(a.call("no-such-op")["ok"], False)
            equal(a.call("cancel-execution", {"executionId": name})["error"], "cancellation_unconfirmed")
            equal(c.rest()[-1]["signal"], "SIGKILL")
        equal(a.call("cancel-execution", {"executionId": name})["state"], "cancelled")


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
