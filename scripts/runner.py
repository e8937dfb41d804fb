"""Runs one program of the test suite: in a session of its own, with a deadline, its output in a file (so that a child that
keeps the pipe open cannot hold the suite up), and with a look at the processes that it left behind."""
import ctypes
import os
import re
import signal
import subprocess
import tempfile
import time

PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE = 2.0  # seconds in which what a program started may still end
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: ")


def become_subreaper():
    """Orphans of a test come to us, where they can be seen."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _children():
    found = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as f:
            found += [int(pid) for pid in f.read().split()]
    return found


def _name(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return f.read().replace(b"\0", b" ").decode(errors="replace").strip() or "(ended)"
    except OSError:
        return "(ended)"


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            return f.read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def _reap_leftovers():
    """Waits for orphans that are about to end; kills and names those that are not."""
    deadline = time.monotonic() + LEFTOVER_GRACE
    named = []
    while True:
        alive = []
        for pid in _children():
            if _state(pid) == "Z":
                os.waitpid(pid, 0)
            else:
                alive.append(pid)
        if not alive:
            return named
        if time.monotonic() > deadline:
            named += [f"{pid} {_name(pid)}" for pid in alive]
            for pid in alive:
                try:
                    os.kill(pid, signal.SIGKILL)
                except PermissionError:  # root's, and we are not
                    return named
                os.waitpid(pid, 0)
        time.sleep(0.01)


class Outcome:
    """How a program ended: `trouble` is empty or says what was wrong with the way it did."""

    def __init__(self, status, output, seconds, trouble):
        self.status, self.output, self.seconds, self.trouble = status, output, seconds, trouble


def run(command, timeout, cwd=None, env=None, leftovers=True):
    begin = time.monotonic()
    trouble = []
    with tempfile.TemporaryFile() as out:
        try:
            child = subprocess.Popen(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                     stderr=subprocess.STDOUT, start_new_session=True)
        except OSError as failure:
            return Outcome(127, "", 0.0, [f"cannot be started: {failure}"])
        try:
            status = child.wait(timeout)
        except BaseException as stop:
            os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
            if not isinstance(stop, subprocess.TimeoutExpired):
                raise
            trouble.append(f"did not end within {timeout:.0f} s and was killed")
        if leftovers:
            trouble += [f"left a process behind: {name}" for name in _reap_leftovers()]
        out.seek(0)
        output = out.read().decode(errors="replace")
    if status < 0 and not trouble:
        trouble.append(f"died of {signal.Signals(-status).name}")
    if SANITIZER.search(output):
        trouble.append("a sanitizer spoke")
    return Outcome(status, output, time.monotonic() - begin, trouble)
