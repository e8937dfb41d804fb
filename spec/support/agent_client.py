"""A plain client of the published protocol, and a way to start the real agent. Shares no code with the project: what it
checks is what is on the wire."""
import base64
import contextlib
import fcntl
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid

TIMEOUT = 30
TEMP = ".namzu-write-"  # how temporary files begin


class WireError(Exception):
    """The guest broke a rule of the protocol."""


def frame(value):
    payload = value if isinstance(value, bytes) else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return b"%08x\n" % len(payload) + payload


class Conn:
    """One connection, one operation."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(TIMEOUT)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, value):
        self.sock.sendall(frame(value))

    def _fill(self, n):
        while len(self.buffer) < n:
            piece = self.sock.recv(1 << 20)
            if not piece:
                return False
            self.buffer += piece
        return True

    def raw_frame(self):
        """The payload of the next frame, b"" for a terminator, None at a clean end."""
        if not self._fill(1):
            return None
        if not self._fill(9):
            raise WireError(f"the end inside a header: {self.buffer!r}")
        header, self.buffer = self.buffer[:9], self.buffer[9:]
        if header[8:] != b"\n" or header[:8] != b"%08x" % int(header[:8], 16):
            raise WireError(f"no header: {header!r}")
        n = int(header[:8], 16)
        if not self._fill(n):
            raise WireError(f"the end inside a frame of {n} bytes after {len(self.buffer)}")
        payload, self.buffer = self.buffer[:n], self.buffer[n:]
        return payload

    def frame(self):
        payload = self.raw_frame()
        return json.loads(payload) if payload else payload

    def rest(self):
        """All frames up to the terminator, which has to be there, and then the end."""
        frames = []
        while True:
            value = self.frame()
            if value is None:
                raise WireError(f"the end without a terminator after {frames[-2:]}")
            if value == b"":
                break
            frames.append(value)
        self.expect_end()
        return frames

    def expect_end(self):
        more = self.raw_frame()
        if more is not None:
            raise WireError(f"a frame after the last: {more!r}")

    def gone(self, timeout=TIMEOUT):
        """True when the guest closes or resets within the time."""
        self.sock.settimeout(timeout)
        try:
            while self.sock.recv(1 << 16):
                pass
            return True
        except socket.timeout:
            return False
        except ConnectionError:
            return True


def high(fd):
    """The same descriptor under a number that is in nobody's way."""
    other = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20)
    os.close(fd)
    return other


def keep_three_taken():
    """So that subprocess has nothing of its own there when a child is to be given its descriptor 3."""
    try:
        os.fstat(3)
    except OSError:
        null = os.open(os.devnull, os.O_RDONLY)
        if null != 3:
            os.dup2(null, 3, inheritable=False)
            os.close(null)


class Agent:
    """The program under test, with a workspace of its own. After the with block it has ended well and said nothing bad."""

    def __init__(self, program, token=None, env=None, options=(), listen="unix", workspace=None, wrap=(), pass_fds=(),
                 lifeline=False, expect_exit=0, quiet=True, nofile=None, image=None):
        """`nofile`: what it may have open at a time. A leak shows when that is used up: nobody but root may look and count."""
        self.token, self.listen, self.expect_exit, self.quiet = token, listen, expect_exit, quiet
        with open(image or program, "rb") as f:  # `image`: where the program is for us, when `wrap` gives it another name
            image = f.read()
        self.sanitized = b"__asan_init" in image or b"__tsan_init" in image  # its memory is the sanitizer's, and its time too
        self.place = tempfile.mkdtemp(prefix="nsbx-agent-")
        self.workspace = workspace or os.path.join(self.place, "ws")
        os.makedirs(self.workspace, exist_ok=True)
        self.address = os.path.join(self.place, "sock")
        self.stderr_path = os.path.join(self.place, "stderr")
        environ = {k: v for k, v in os.environ.items() if not k.startswith(("NAMZU_",))}
        environ["NAMZU_SANDBOX_WORKSPACE"] = self.workspace
        if token:
            environ["NAMZU_AGENT_BIND_TOKEN"] = token
        listener = None
        if listen == "unix":
            environ["NAMZU_AGENT_UNIX_PATH"] = self.address
        elif listen == "tcp":
            probe = socket.socket()
            probe.bind(("127.0.0.1", 0))
            self.address = probe.getsockname()[1]
            probe.close()
            environ["NAMZU_AGENT_TCP_PORT"] = str(self.address)
        elif listen == "inherited":
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.address)
            listener.listen(64)
            keep_three_taken()
            environ["NAMZU_AGENT_VSOCK_PORT"] = "1024"
        if self.sanitized:
            environ["ASAN_OPTIONS"] = environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1:detect_leaks=1"
        environ.update(env or {})
        self.lifeline = None
        command = [*wrap, program, *options]
        extra = list(pass_fds)
        if lifeline:
            read_end, self.lifeline = os.pipe()
            read_end = high(read_end)
            command += ["--lifeline-fd", str(read_end)]
            extra.append(read_end)
        fd = listener.fileno() if listener else None

        def prepare():
            if fd is not None:
                os.dup2(fd, 3, inheritable=True)
            if nofile:
                resource.setrlimit(resource.RLIMIT_NOFILE, (nofile, nofile))
        if listener:
            extra = [f for f in extra if f != 3] + [3]
        with open(self.stderr_path, "wb") as err:
            self.process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=err, preexec_fn=prepare, pass_fds=extra)
        if listener:
            listener.close()
        if lifeline:
            os.close(read_end)
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        try:
            self.stop()
            if kind is None:
                self.check_end()
            elif self.stderr():
                print("       the agent said: " + self.stderr()[-2000:])
        finally:
            shutil.rmtree(self.place, ignore_errors=True)

    def check_end(self):
        said = self.stderr()
        if self.process.returncode != self.expect_exit:
            raise AssertionError(f"the agent ended with {self.process.returncode}: {said}")
        if "Sanitizer" in said or "runtime error" in said or (self.quiet and said):
            raise AssertionError(f"the agent said: {said}")

    def stderr(self):
        with open(self.stderr_path, errors="replace") as f:
            return f.read()

    def stop(self, timeout=20):
        if self.lifeline is not None:
            os.close(self.lifeline)
            self.lifeline = None
        elif self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the agent did not end") from None

    def path(self, *parts):
        return os.path.join(self.workspace, *parts)

    def connect(self):
        """Waits for the listener of a program that has just been started."""
        deadline = time.monotonic() + 10
        while True:
            sock = socket.socket(socket.AF_INET if self.listen == "tcp" else socket.AF_UNIX)
            try:
                sock.connect(("127.0.0.1", self.address) if self.listen == "tcp" else self.address)
                return Conn(sock)
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise
                time.sleep(0.005)

    def open(self, op, body=None, **more):
        """Sends a request in the published order of keys."""
        request = {"op": op}
        if body is not None:
            request["body"] = body
        token = more.pop("token", self.token)
        if token is not None:
            request["token"] = token
        conn = self.connect()
        conn.send(request)
        return conn

    def call(self, op, body=None, **more):
        """A control operation: one reply, the end."""
        with self.open(op, body, **more) as conn:
            reply = conn.frame()
            if not isinstance(reply, dict):
                raise WireError(f"no reply to {op}: {reply!r}")
            conn.expect_end()
            return reply

    def stream(self, op, body=None, **more):
        with self.open(op, body, **more) as conn:
            return conn.rest()

    def reserve(self):
        reply = self.call("reserve-execution")
        assert reply["ok"] is True, reply
        return reply["executionId"]

    def execute(self, command, *args, **body):
        """(stdout, stderr, result) as text, or as bytes with encoding="base64". The result is the last frame."""
        frames = self.stream("execute", {"command": command, "args": list(args), **body})
        return self.gather(frames, body.get("encoding") == "base64")

    def sh(self, script, **body):
        return self.execute("/bin/sh", "-c", script, **body)

    @staticmethod
    def gather(frames, raw=False):
        out = {"stdout_delta": [], "stderr_delta": []}
        for value in frames[:-1]:
            if value["type"] in out:
                out[value["type"]].append(base64.b64decode(value["data"], validate=True) if raw else value["data"])
        empty = b"" if raw else ""
        return empty.join(out["stdout_delta"]), empty.join(out["stderr_delta"]), frames[-1]

    def memory(self, field):
        """VmRSS, VmHWM or the like, in KiB."""
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise AssertionError(f"no {field}")

    def check_growth(self, before, limit, field="VmHWM"):
        """In KiB, exactly for a program as it is released; a sanitized one only shows what is out of all proportion."""
        grown = self.memory(field) - before
        limit = limit * 6 + (32 << 10) if self.sanitized else limit
        assert grown <= limit, f"{field} grew by {grown} KiB, limit {limit}"



@contextlib.contextmanager
def plain_agent(program, **options):
    """An agent that is not root whoever we are: one who may not read everything."""
    place = tempfile.mkdtemp(prefix="nsbx-plain-")
    try:
        os.chmod(place, 0o777)
        copy = shutil.copy(program, os.path.join(place, "agent"))
        os.chmod(copy, 0o755)
        workspace = os.path.join(place, "ws")
        os.mkdir(workspace)
        os.chmod(workspace, 0o777)
        wrap = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] if os.geteuid() == 0 else []
        with Agent(copy, wrap=wrap, workspace=workspace, listen="tcp", token="t", **options) as agent:
            yield agent
    finally:
        shutil.rmtree(place, ignore_errors=True)


def execution_id():
    return f"exec_{uuid.uuid4()}"


def wait_until(condition, seconds=5, what="it"):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not come about in {seconds} s")
        time.sleep(0.01)


def alive(pid):
    """A process that is there and no zombie."""
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


# ---- what cases say ----

def equal(got, want):
    assert got == want, f"{got!r} is not {want!r}"


def keys(value, *want):
    """The members, in the order in which they were written."""
    equal(list(value), list(want))


def error_of(frames):
    """The text of a stream that failed: its one frame."""
    equal((len(frames), frames[0]["type"]), (1, "error"))
    return frames[0]["error"]


def refused(reply, error, code=None):
    """A control operation that failed, with this and nothing else."""
    equal(reply, {"ok": False, "error": error, **({"code": code} if code else {})})


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


def part(path, data, **options):
    """The body of a write-file that is one part."""
    return {"path": path, "content": b64(data), "encoding": "base64", "part": options}
