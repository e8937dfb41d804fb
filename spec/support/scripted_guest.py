#!/usr/bin/env python3
"""A guest that does as it is told, for tests of the host side: plain sockets, no code shared with the project.

    scripted_guest.py LOG [SOCKET] < SCRIPT     (listens on the unix socket, or is given a listening one as descriptor 3;
                                                 "ready" on stdout when it serves)

SCRIPT is a JSON object:
  features   what healthz advertises (default: all that the host knows)
  version    protocolVersion of healthz and reservations (default 2)
  ops        {op: [conversation, …]}: the first connection with that op gets the first conversation, and so on; the last
             one repeats. An op that is not named gets the built-in answer.
A conversation is a list of steps, after the request has been read:
  {"send": value}    a frame; the string "$id" in it is the execution's id
  {"raw": text}      bytes as they are (latin-1)
  {"end": true}      the terminator
  {"fin": true}      a clean end of our direction; then what comes is read until the peer's end
  {"rst": true}      the connection is reset (tcp) or dropped
  {"sleep": s}       a pause
  {"silence": true}  nothing more, until the peer goes
  {"expect": n}      n more frames are read from the host (and logged)
  {"flood": n}       n bytes of stdout in base64 deltas of 48 KiB, as fast as the host takes them
  {"drip": type}     one data frame of one byte and a pause of 50 ms
  {"blast": value}   the frame a thousand times at once
  {"trickle": [value, s]}  the frame once in 20 ms, for s seconds
  {"builtin": true}  the built-in answer
Each step may have "repeat": n.
LOG gets one JSON line for every frame from the host: {"op":…, "body":…} or {"frame":…}, with long strings replaced by
{"sha256":…, "length":…} of their base64-decoded bytes.
"""
import base64
import hashlib
import json
import os
import socket
import struct
import sys
import threading
import uuid

FEATURES = ["write-file-parts", "read-file-stream", "guest-boot-id", "exec-bytes", "exec-wait", "exec-stdin",
            "exec-started", "signal-execution", "walk", "byte-strings"]
BOOT_ID = str(uuid.uuid4())


class Gone(Exception):
    """The peer is not there any more."""


def shorten(value):
    """Long base64 strings as their digest, so that the log stays readable."""
    if isinstance(value, dict):
        return {k: shorten(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shorten(v) for v in value]
    if isinstance(value, str) and len(value) > 200:
        try:
            data = base64.b64decode(value, validate=True)
        except ValueError:
            data = value.encode()
        return {"sha256": hashlib.sha256(data).hexdigest(), "length": len(data)}
    return value


class Guest:
    def __init__(self, script, log):
        self.script = script
        self.log_file = log
        self.lock = threading.Lock()
        self.seen = {}
        self.files = {}

    def log(self, entry):
        with self.lock:
            self.log_file.write(json.dumps(entry) + "\n")
            self.log_file.flush()

    def conversation(self, op):
        told = self.script.get("ops", {}).get(op)
        if not told:
            return [{"builtin": True}]
        with self.lock:
            n = self.seen.get(op, 0)
            self.seen[op] = n + 1
        return told[min(n, len(told) - 1)]


class Connection:
    def __init__(self, guest, sock):
        self.guest = guest
        self.sock = sock
        self.id = ""

    def read_exactly(self, n):
        parts = []
        while n:
            data = self.sock.recv(min(n, 1 << 20))
            if not data:
                raise Gone()
            parts.append(data)
            n -= len(data)
        return b"".join(parts)

    def read_frame(self):
        head = self.read_exactly(9)
        assert head[8:] == b"\n", head
        n = int(head[:8], 16)
        if self.sock.family == socket.AF_INET and n > 8388608:
            self.send({"ok": False, "error": "frame_too_large: announced %d bytes" % n})
            raise Gone()
        return json.loads(self.read_exactly(n))

    def send(self, value):
        payload = json.dumps(value).replace("$id", self.id).encode()
        self.sock.sendall(b"%08x\n" % len(payload) + payload)

    def end(self):
        self.sock.sendall(b"00000000\n")

    def drain(self):
        while self.sock.recv(1 << 16):
            pass

    def fin(self):
        self.sock.shutdown(socket.SHUT_WR)
        self.drain()

    def rst(self):
        if self.sock.family == socket.AF_INET:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        raise Gone()

    def serve(self):
        try:
            request = self.read_frame()
            op, body = request["op"], request.get("body", {})
            self.id = body.get("executionId", "")
            self.guest.log({"op": op, "body": shorten(body), "token": request.get("token")})
            for step in self.guest.conversation(op):
                self.step(step, op, body)
        except (Gone, OSError):
            pass
        finally:
            self.sock.close()

    def step(self, step, op, body):
        (kind, value), = ((k, v) for k, v in step.items() if k != "repeat")
        for _ in range(step.get("repeat", 1)):
            self.act(kind, value, op, body)

    def act(self, kind, value, op, body):
        if kind == "send":
            self.send(value)
        elif kind == "raw":
            self.sock.sendall(value.encode("latin-1"))
        elif kind == "end":
            self.end()
        elif kind == "fin":
            self.fin()
        elif kind == "rst":
            self.rst()
        elif kind == "sleep":
            threading.Event().wait(value)
        elif kind == "silence":
            self.drain()
        elif kind == "expect":
            for _ in range(value):
                self.guest.log({"frame": shorten(self.read_frame())})
        elif kind == "flood":
            block = base64.b64encode(bytes(range(256)) * 192).decode()
            for _ in range(value // 49152):
                self.send({"type": "stdout_delta", "data": block})
        elif kind == "drip":
            self.send({"type": value, "data": "eA=="})
            threading.Event().wait(0.05)
        elif kind == "trickle":
            for _ in range(int(value[1] * 50)):
                self.send(value[0])
                threading.Event().wait(0.02)
        elif kind == "blast":
            payload = json.dumps(value).encode()
            self.sock.sendall((b"%08x\n" % len(payload) + payload) * 1000)
        elif kind == "builtin":
            getattr(self, "op_" + op.replace("-", "_"), self.op_unknown)(body)
        else:
            raise ValueError(kind)

    # ---- the built-in answers ----

    def reply(self, **members):
        self.send(members)
        self.fin()

    def op_unknown(self, body):
        self.reply(ok=False, error="unknown_op: something")

    def op_healthz(self, body):
        script = self.guest.script
        self.reply(ok=True, protocolVersion=script.get("version", 2), features=script.get("features", FEATURES))

    def op_reserve_execution(self, body):
        self.reply(ok=True, guestBootId=BOOT_ID, protocolVersion=self.guest.script.get("version", 2),
                   executionId="exec_" + str(uuid.uuid4()), leaseExpiresAt=1.5e12)

    def op_cancel_execution(self, body):
        self.reply(ok=True, guestBootId=BOOT_ID, state="cancelled", started=True,
                   result={"exitCode": -1, "timedOut": False, "durationMs": 5, "signal": "SIGTERM",
                           "stdoutTruncated": False, "stderrTruncated": False})

    def op_signal_execution(self, body):
        self.reply(ok=True, guestBootId=BOOT_ID, delivered=True)

    def op_execute(self, body):
        if body.get("started"):
            self.send({"type": "started", "pid": 42})
        data = "hello\n"
        if body.get("encoding") == "base64":
            data = base64.b64encode(data.encode()).decode()
        self.send({"type": "stdout_delta", "data": data})
        self.send({"type": "result", "exitCode": 0, "timedOut": False, "durationMs": 3})
        self.end()
        self.fin()

    def op_write_file(self, body):
        files, path, part = self.guest.files, body["path"], body.get("part")
        data = base64.b64decode(body["content"])
        if part and part.get("discard"):
            files.pop(path, None)
            return self.reply(ok=True, discarded=True)
        if not part:
            files[path] = data
            return self.reply(ok=True, guestBootId=BOOT_ID, bytesWritten=len(data))
        old = files.get(path, b"") if part["offset"] else b""
        if len(old) != part["offset"]:
            return self.reply(ok=False, error="write_part_offset_mismatch: temp file is %d bytes" % len(old))
        files[path] = old + data
        size = len(files[path])
        if part.get("final"):
            files[part["renameTo"]] = files.pop(path)
        return self.reply(ok=True, guestBootId=BOOT_ID, bytesWritten=len(data), sizeBytes=size)

    def op_read_file(self, body):
        data = self.guest.files.get(body["path"])
        if data is None:
            return self.reply(ok=False, error="ENOENT: no such file or directory, open '%s'" % body["path"])
        return self.reply(ok=True, guestBootId=BOOT_ID, content=base64.b64encode(data).decode(), sizeBytes=len(data),
                          encoding="base64")

    def op_read_file_stream(self, body):
        data = self.guest.files.get(body["path"])
        if data is None:
            self.send({"type": "error", "error": "ENOENT: no such file or directory, open '%s'" % body["path"]})
            self.end()
            return self.fin()
        offset = body.get("offset", 0)
        part = data[offset:]
        if "length" in body:
            part = part[:body["length"]]
        self.send({"type": "meta", "sizeBytes": len(data), "offset": offset, "length": len(part)})
        for at in range(0, len(part), 262144):
            self.send({"type": "data", "data": base64.b64encode(part[at:at + 262144]).decode()})
        self.send({"type": "end", "bytesSent": len(part)})
        self.end()
        return self.fin()


def main():
    if len(sys.argv) > 2:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(sys.argv[2])
        listener.listen(64)
    else:
        listener = socket.socket(fileno=3)
    guest = Guest(json.load(sys.stdin), open(sys.argv[1], "w", encoding="utf-8"))
    os.write(1, b"ready\n")
    while True:
        sock, _ = listener.accept()
        threading.Thread(target=Connection(guest, sock).serve, daemon=True).start()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        os._exit(0)
