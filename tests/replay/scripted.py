"""The replay server for exact cases: each segment of a script is one write to the socket at its millisecond."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: How the body is framed. "close": its end is the end of the connection. "chunked": each segment is one HTTP chunk.
#: "length": Content-Length says how much comes. "raw": the segments are all that is sent, the response's head too.
Framing = Literal["close", "chunked", "length", "raw"]

#: What follows the last segment. "close": FIN. "reset": RST. "hold": the connection stays open and silent.
End = Literal["close", "reset", "hold"]

_SPIN_S = 0.0005  # sleeping is too coarse for the last stretch


@dataclass(frozen=True)
class Script:
    """What one connection gets: (milliseconds after the request's last byte, bytes) of each write, and how it ends."""

    segments: Sequence[tuple[float, bytes]]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    framing: Framing = "close"
    end: End = "close"
    head_at_ms: float | None = 0.0  # None: the head travels with the first segment
    whole: bool = True  # chunked: the last chunk is followed by the terminator, in the same write
    length: int | None = None  # of framing "length": promised bytes, if not those that are sent

    @classmethod
    def of_case(cls, case: Mapping[str, Any], **more: Any) -> Script:
        """From an entry of ``tests/logs/streams.json``: segments are [milliseconds, content, "text" or "hex"]."""
        segments = [(float(at), bytes.fromhex(data) if kind == "hex" else data.encode()) for at, data, kind in case["segments"]]
        return cls(segments, status=case["status"], headers=case["headers"], **more)

    def writes(self) -> list[tuple[float, bytes]]:
        """(milliseconds, bytes) of each write to the socket, the head and the framing included."""
        bodies = [(at, self._framed(data, last=i == len(self.segments) - 1)) for i, (at, data) in enumerate(self.segments)]
        if self.framing == "raw":
            return bodies
        if self.head_at_ms is None and bodies:
            (at, data), *rest = bodies
            return [(at, self._head() + data), *rest]
        return [(self.head_at_ms or 0.0, self._head()), *bodies]

    def _framed(self, data: bytes, *, last: bool) -> bytes:
        if self.framing != "chunked":
            return data
        return b"%x\r\n%s\r\n" % (len(data), data) + (b"0\r\n\r\n" if last and self.whole else b"")

    def _head(self) -> bytes:
        headers = {"Content-Type": "text/event-stream"} | dict(self.headers)
        if self.framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif self.framing == "length":
            headers["Content-Length"] = str(sum(len(data) for _, data in self.segments) if self.length is None else self.length)
        else:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {self.status} Replayed", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")


@dataclass
class Played:
    """One exchange by the server's monotonic clock. ``wrote_at[i]`` was taken right before write i of ``script.writes()``."""

    script: Script
    path: str
    headers: dict[str, str]  # names in lower case
    body: Any  # of the request: JSON if it is any, else bytes
    asked_at: float  # the request's last byte was read; the script's milliseconds count from here
    wrote_at: list[float] = field(default_factory=list)
    broken: str = ""  # the client went away before the script's end
    done: bool = False

    @property
    def segments_at(self) -> list[float]:
        """When each of the script's own segments was written, without a head in a write of its own."""
        alone = self.script.framing != "raw" and (self.script.head_at_ms is not None or not self.script.segments)
        return self.wrote_at[1:] if alone else self.wrote_at

    @property
    def lateness_ms(self) -> list[float]:
        """How much later than the script each write was."""
        return [1000 * (at - self.asked_at) - due for at, (due, _) in zip(self.wrote_at, self.script.writes())]


class ReplayServer:
    """``with ReplayServer(script) as server``: plays on ``server.port``; the n-th request gets the n-th script, later ones the last.

    A function of (path, request body) can choose instead. Each connection has a thread and serves one request.
    """

    def __init__(self, script: Script | Iterable[Script] | Callable[[str, Any], Script]) -> None:
        self._choose = script if callable(script) else None
        self._scripts = [] if callable(script) else [script] if isinstance(script, Script) else list(script)
        self.played: list[Played] = []  # in the order in which requests were complete
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> ReplayServer:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._accepter = threading.Thread(target=self._accept, name="replay-accept")
        self._accepter.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepter.join(10)
        self._listener.close()
        for thread in self._threads:
            thread.join(10)

    def wait(self, n: int = 1, timeout_s: float = 10.0) -> list[Played]:
        """The first n exchanges once they are over. Raises TimeoutError if they aren't in time."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            with self._lock:
                if len(self.played) >= n and all(p.done for p in self.played[:n]):
                    return self.played[:n]
            time.sleep(0.002)
        raise TimeoutError(f"{n} exchanges wanted, {sum(p.done for p in self.played)} over after {timeout_s:g} s")

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,), name="replay-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(0.2)  # so that a silent client can't hold the server's end
            request = _read_request(connection, self._over)
            if request is None:
                return
            path, headers, body = request
            asked_at = time.monotonic()
            with self._lock:
                script = self._choose(path, body) if self._choose else self._scripts[min(len(self.played), len(self._scripts) - 1)]
                played = Played(script, path, headers, body, asked_at)
                self.played.append(played)
            connection.settimeout(10)
            try:
                self._play(connection, played)
            except OSError as error:
                played.broken = error.strerror or str(error)
            finally:
                played.done = True
                if script.end == "hold":
                    self._over.wait()

    def _play(self, connection: socket.socket, played: Played) -> None:
        for due_ms, data in played.script.writes():
            if not self._sleep_until(played.asked_at + due_ms / 1000):
                return
            played.wrote_at.append(time.monotonic())
            connection.sendall(data)
        if played.script.end == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _sleep_until(self, due: float) -> bool:
        """False if the server ended before."""
        if (left := due - time.monotonic() - _SPIN_S) > 0 and self._over.wait(left):
            return False
        while time.monotonic() < due:
            time.sleep(0)
        return True


def _read_request(connection: socket.socket, over: threading.Event) -> tuple[str, dict[str, str], Any] | None:
    """(path, headers, body), or None if the client left or the server ended first."""
    got = b""
    wanted: int | None = None
    while wanted is None or len(got) < wanted:
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            if over.is_set():
                return None
            continue
        except OSError:
            return None
        if not data:
            return None
        got += data
        if wanted is None and (head_end := got.find(b"\r\n\r\n")) >= 0:
            first, *lines = got[:head_end].decode("latin-1").split("\r\n")
            headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
            wanted = head_end + 4 + int(headers.get("content-length", "0"))
    raw = got[head_end + 4 :]
    try:
        body = json.loads(raw)
    except ValueError:
        body = raw
    return first.split(" ")[1], headers, body
