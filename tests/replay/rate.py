"""The replay server at speed: a process of its own that streams tokens at a set rate to hundreds of clients and stamps each write.

``python -m tests.replay.rate --stamps F`` prints ``{"port": …}`` and serves until its standard input ends or it is told to
stop; then it writes F: one entry for each streamed answer, with the monotonic moment right before each event was written.
"""

from __future__ import annotations

import argparse
import contextlib
import heapq
import itertools
import json
import os
import select
import signal
import socket
import struct
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .answers import Shape, events, head, shape_of, small_reply, tail, whole

_SO_TIMESTAMPING = 37  # not in the socket module; linux/net_tstamp.h
_RX_SOFTWARE = (1 << 3) | (1 << 4)
_WRITES_A_TURN = 64  # of one stream without a rate, before the others have their turn


@dataclass
class Answer:
    """One streamed answer. ``asked_at``: the kernel's arrival of the request's last byte; ``began_at``: when it was read."""

    path: str
    asked_tokens: int
    shape: Shape
    asked_at: float
    began_at: float
    stamps: array[float] = field(default_factory=lambda: array("d"))
    done: bool = False


@dataclass
class Connection:
    sock: socket.socket
    received: bytes = b""
    answer: Answer | None = None
    chunks: list[bytes] = field(default_factory=list)  # of the answer: one for each event, then the tail
    n_due: int = 0  # chunks whose time has come
    n_sent: int = 0
    unsent: bytes = b""  # the rest of a chunk that the socket took in part
    watched: int = select.EPOLLIN


class RateServer:
    """One thread, epoll and a heap of due moments."""

    def __init__(self, *, rate: float, tokens_per_event: int, first_ms: float, stop_after: int | None, pieces: Sequence[str]) -> None:
        self.period_s = tokens_per_event / rate if rate else 0.0  # 0: as fast as the client takes it
        self.tokens_per_event, self.first_s, self.stop_after, self.pieces = tokens_per_event, first_ms / 1000, stop_after, pieces
        self.answers: list[Answer] = []
        self._chunks: dict[Shape, list[bytes]] = {}
        self._connections: dict[int, Connection] = {}
        self._due: list[tuple[float, int, Connection, Answer]] = []  # (moment, tie breaker, whose, which)
        self._ties = itertools.count()
        self._epoll = select.epoll()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self._listener.setblocking(False)
        with contextlib.suppress(OSError):  # accepted sockets inherit it; without it the moment of reading has to do
            self._listener.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPING, _RX_SOFTWARE)
        self._epoll.register(self._listener.fileno(), select.EPOLLIN)
        self.port: int = self._listener.getsockname()[1]

    def serve(self, control: int) -> None:
        """Until ``control`` (a file descriptor) ends."""
        self._epoll.register(control, select.EPOLLIN | select.EPOLLHUP)
        listening = self._listener.fileno()
        while True:
            for fd, flags in self._epoll.poll(self._patience()):
                if fd == control:
                    if not os.read(control, 4096):
                        return
                elif fd == listening:
                    self._accept()
                elif connection := self._connections.get(fd):
                    self._serve_ready(connection, flags)
            self._send_due()

    def _patience(self) -> float:
        """Seconds for which epoll may wait. It counts whole milliseconds, rounded up: the last stretch is slept here."""
        if not self._due:
            return 1.0
        left = self._due[0][0] - time.monotonic()
        if left > 0.002:
            return left - 0.001
        if left > 0:
            time.sleep(left)
        return 0.0

    def _accept(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                sock, _ = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._connections[sock.fileno()] = Connection(sock)
                self._epoll.register(sock.fileno(), select.EPOLLIN)

    def _serve_ready(self, connection: Connection, flags: int) -> None:
        try:
            if flags & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                self._receive(connection)
            if flags & select.EPOLLOUT:
                self._send(connection)
        except OSError:
            self._drop(connection)

    def _drop(self, connection: Connection) -> None:
        if self._connections.pop(connection.sock.fileno(), None):
            self._epoll.unregister(connection.sock.fileno())
            connection.sock.close()

    def _receive(self, connection: Connection) -> None:
        try:
            data, controls, _, _ = connection.sock.recvmsg(1 << 16, 256)
        except BlockingIOError:
            return
        if not data:
            self._drop(connection)
            return
        now = time.monotonic()
        connection.received += data
        at = now
        for level, kind, value in controls:
            if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPING:
                seconds, nanoseconds = struct.unpack_from("qq", value)
                at = min(now, seconds + nanoseconds / 1e9 - (time.time() - now)) if seconds else now
        while connection.answer is None and (request := _take_request(connection)):
            self._reply(connection, *request, at)

    def _reply(self, connection: Connection, path: str, body: Any, asked_at: float) -> None:
        began_at = time.monotonic()
        if not path.endswith("/completions"):
            connection.sock.sendall(_json_response(*small_reply(path, body, self.pieces)))
            return
        shape = shape_of(path, body, self.tokens_per_event, self.stop_after)
        if not body.get("stream"):
            connection.sock.sendall(_json_response(200, whole(shape, self.pieces)))
            return
        if shape not in self._chunks:
            self._chunks[shape] = [*events(shape, self.pieces), tail(shape)]
        asked = int(body.get("max_completion_tokens") or body.get("max_tokens") or 0)
        connection.answer = Answer(path, asked, shape, asked_at, began_at)
        connection.chunks, connection.n_due, connection.n_sent = self._chunks[shape], 0, 0
        self.answers.append(connection.answer)
        connection.sock.sendall(head())
        self._schedule(connection, connection.answer)

    def _schedule(self, connection: Connection, answer: Answer) -> None:
        """The next event, by the answer's own beginning, so that lateness doesn't add up."""
        moment = answer.began_at + self.first_s + connection.n_due * self.period_s
        heapq.heappush(self._due, (moment, next(self._ties), connection, answer))

    def _send_due(self) -> None:
        due, now = self._due, time.monotonic()
        while due and due[0][0] <= now:
            _, _, connection, answer = heapq.heappop(due)
            if connection.answer is not answer or connection.sock.fileno() < 0:
                continue  # the client has left
            connection.n_due += 1
            if self.period_s and connection.n_due < answer.shape.n_events:
                self._schedule(connection, answer)
            else:
                connection.n_due = len(connection.chunks)  # the tail follows the last event at once
            if not connection.watched & select.EPOLLOUT:
                try:
                    self._send(connection)
                except OSError:
                    self._drop(connection)

    def _send(self, connection: Connection) -> None:
        """Writes what is due: one write for each event."""
        answer, sock, n_events = connection.answer, connection.sock, len(connection.chunks) - 1
        if answer is None:
            return
        last = min(connection.n_due, connection.n_sent + _WRITES_A_TURN)
        while connection.unsent or connection.n_sent < last:
            data = connection.unsent or connection.chunks[connection.n_sent]
            stamp = time.monotonic()
            try:
                n = sock.send(data)
            except BlockingIOError:
                self._watch(connection, select.EPOLLIN | select.EPOLLOUT)
                return
            if not connection.unsent:
                if connection.n_sent < n_events:
                    answer.stamps.append(stamp)
                connection.n_sent += 1
            connection.unsent = data[n:] if n < len(data) else b""
        if connection.n_sent == len(connection.chunks):
            answer.done, connection.answer = True, None
            self._watch(connection, select.EPOLLIN)
        elif connection.n_sent < connection.n_due:
            self._watch(connection, select.EPOLLIN | select.EPOLLOUT)
        else:
            self._watch(connection, select.EPOLLIN)

    def _watch(self, connection: Connection, flags: int) -> None:
        if connection.watched != flags:
            connection.watched = flags
            self._epoll.modify(connection.sock.fileno(), flags)

    def stamps(self) -> list[dict[str, Any]]:
        return [
            {"path": a.path, "asked_tokens": a.asked_tokens, "asked_at": a.asked_at, "began_at": a.began_at, "done": a.done}
            | {"first_s": self.first_s, "period_s": self.period_s, "stamps": a.stamps.tolist()}
            | asdict(a.shape)
            for a in self.answers
        ]


def _take_request(connection: Connection) -> tuple[str, Any] | None:
    """(path, body) of a whole request at the front of what was received."""
    head_end = connection.received.find(b"\r\n\r\n")
    if head_end < 0:
        return None
    first, *lines = connection.received[:head_end].split(b"\r\n")
    length = next((int(line[15:]) for line in lines if line[:15].lower() == b"content-length:"), 0)
    end = head_end + 4 + length
    if len(connection.received) < end:
        return None
    raw, connection.received = connection.received[head_end + 4 : end], connection.received[end:]
    try:
        body = json.loads(raw) if raw else {}
    except ValueError:
        body = {}
    return first.split(b" ")[1].decode("latin-1").partition("?")[0], body


def _json_response(status: int, data: Any) -> bytes:
    body = json.dumps(data).encode()
    return b"HTTP/1.1 %d Replayed\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.replay.rate", description=__doc__)
    parser.add_argument("--stamps", type=Path, required=True, help="file to write the sender's own stamps to, as JSON")
    parser.add_argument("--rate", type=float, default=50.0, help="tokens per second and stream; 0: as fast as the client takes them")
    parser.add_argument("--tokens-per-event", type=int, default=1)
    parser.add_argument("--first-ms", type=float, default=100.0, help="from the request to the first event")
    parser.add_argument("--stop-after", type=int, help="the model ends by itself after so many tokens")
    parser.add_argument("--pieces", type=Path, help="JSON list of the tokens' texts, taken in turn")
    parser.add_argument("--core", type=int, help="the CPU core to stay on")
    args = parser.parse_args()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    pieces = json.loads(args.pieces.read_text()) if args.pieces else [f" w{i}" for i in range(100)]
    server = RateServer(
        rate=args.rate, tokens_per_event=args.tokens_per_event, first_ms=args.first_ms, stop_after=args.stop_after, pieces=pieces
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: sys.exit(0))
    print(json.dumps({"port": server.port}), flush=True)
    try:
        server.serve(sys.stdin.fileno())
    finally:
        args.stamps.write_text(json.dumps(server.stamps()))


if __name__ == "__main__":
    main()
