"""Runs one program of the test suite: in a session and a temporary directory of its own, with a deadline, its output in a
file (so that a child that keeps the pipe open cannot hold the suite up), and with a look at the processes that it left."""
import ctypes
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LEFTOVER_GRACE = 5.0  # seconds in which what a program started may still end
SANITIZER = re.compile(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error: ")


def _prctl(option, value):
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def become_subreaper():
    """Orphans of what this process runs come to it, where they can be seen."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def contain():
    """For a process that only runs programs for another: it has its own orphans, and ends with its parent."""
    def stop(*_):
        raise KeyboardInterrupt
    become_subreaper()
    signal.signal(signal.SIGTERM, stop)
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _children():
    found = []
    for task in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{task}/children", encoding="ascii") as f:
            found += [int(pid) for pid in f.read().split()]
    return found


def name_of(pid):
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
            named += [f"{pid} {name_of(pid)}" for pid in alive]
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


def _remove(folder):
    def again(function, path, _):  # a test left a directory that it may not enter
        os.chmod(os.path.dirname(path), 0o700)
        if os.path.isdir(path) and not os.path.islink(path):
            os.chmod(path, 0o700)
            shutil.rmtree(path, ignore_errors=True)
        else:
            function(path)
    shutil.rmtree(folder, onerror=again)


def _wait(child, timeout, trouble):
    try:
        return child.wait(timeout)
    except BaseException as stop:
        os.killpg(child.pid, signal.SIGKILL)
        status = child.wait()
        if not isinstance(stop, subprocess.TimeoutExpired):
            raise
        trouble.append(f"did not end within {timeout:.0f} s and was killed")
        return status


def run(command, timeout, deadline=None, cwd=None, env=None, leftovers=True):
    """`deadline` is a time of time.monotonic that ends it before its own timeout does."""
    begin = time.monotonic()
    if deadline is not None:
        timeout = min(timeout, deadline - begin)
        if timeout <= 0:
            return Outcome(124, "", 0.0, ["was not run: the suite's time is over"])
    trouble = []
    folder = tempfile.mkdtemp(prefix="nsbx-")
    os.chmod(folder, 0o1777)  # whoever the program becomes
    try:
        with tempfile.TemporaryFile() as out:
            try:
                child = subprocess.Popen(command, cwd=cwd, env={**(env or os.environ), "TMPDIR": folder},
                                         stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                                         start_new_session=True)
            except OSError as failure:
                return Outcome(127, "", 0.0, [f"cannot be started: {failure}"])
            status = _wait(child, timeout, trouble)
            if leftovers:
                trouble += [f"left a process behind: {name}" for name in _reap_leftovers()]
            out.seek(0)
            output = out.read().decode(errors="replace")
    finally:
        _remove(folder)
    if status < 0 and not trouble:
        trouble.append(f"died of {signal.Signals(-status).name}")
    if SANITIZER.search(output):
        trouble.append("a sanitizer spoke")
    return Outcome(status, output, time.monotonic() - begin, trouble)
