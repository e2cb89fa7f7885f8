"""Requests at a given concurrency or rate: one thread, 1 to 256 connections, and a hot path that only receives and keeps.

Nothing is parsed before the last answer has ended. With several answers at once the loop looks at its sockets every
millisecond instead of at each segment: the kernel has stamped them, and the engine keeps the processor.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import select
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from speccore.records import StreamRecord, TextRecord

from .answers import record_of
from .asking import MOST_AT_ONCE, Closed, End, Exchange, LoadResult, Open, Plan, Request, Target
from .health import health_of_reads, overload, window
from .priority import before_others
from .receive import Receiver, Segment, Stamps, receiver

__all__ = ["Closed", "Exchange", "LoadResult", "Open", "Plan", "Request", "Target", "records_of", "run_load"]

ReceiverOf = Callable[[socket.socket], Receiver]

#: How often a silent connection looks at its deadline, and the loop at ``stop``.
_LOOK_S = 0.25
_CONNECT_S = 5.0
#: Of one answer: the longest that can be asked for, with an event for each token, has half of it.
MOST_BYTES = 256 << 20
_KEPT_OF_TOO_LONG = 100  # reads; nobody looks through more of what is no answer
#: With as many answers at once the loop rests between looks.
_REST_FROM = 4
_REST_S = 0.0009


def run_load(
    target: Target,
    requests: Iterable[Request],
    plan: Plan,
    *,
    timeout_s: float,
    stall_s: float | None = None,
    stop: threading.Event | None = None,
    receiver: ReceiverOf = receiver,
) -> LoadResult:
    """Asks, reads every answer to its end, and returns the bytes with their arrivals. Never raises for what the server does.

    ``timeout_s`` bounds each answer, ``stall_s`` the silence within it. Raises OSError if the host's name means nothing.
    """
    with _no_collection(), before_others():
        return _Loop(target, requests, plan, timeout_s, stall_s, stop or threading.Event(), receiver).run()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """A garbage collection inside a probe would look like a slow token."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_CONNECTING, _SHAKING_HANDS, _SENDING, _RECEIVING = range(4)
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class _Watch:
    """Which connections have something to do. epoll by itself where it is: the library's selector costs a tenth of a read."""

    def __init__(self) -> None:
        self._flights: dict[int, _Flight] = {}
        self._epoll = select.epoll() if hasattr(select, "epoll") else None
        self._selector = None if self._epoll else selectors.DefaultSelector()

    def close(self) -> None:
        (self._epoll or self._selector).close()  # type: ignore[union-attr]

    def ready(self, timeout_s: float) -> list[_Flight]:
        if self._epoll:
            flights = self._flights
            return [flights[fd] for fd, _ in self._epoll.poll(timeout_s)]
        assert self._selector
        return [key.data for key, _ in self._selector.select(timeout_s)]

    def begin(self, flight: _Flight, events: int) -> None:
        if self._epoll:
            self._flights[flight.sock.fileno()] = flight
            self._epoll.register(flight.sock, self._mask(events))
        elif self._selector:
            self._selector.register(flight.sock, events, flight)

    def change(self, flight: _Flight, events: int) -> None:
        if self._epoll:
            self._epoll.modify(flight.sock, self._mask(events))
        elif self._selector:
            self._selector.modify(flight.sock, events, flight)

    def end(self, flight: _Flight) -> None:
        """Before its socket is closed."""
        if self._epoll:
            if self._flights.pop(flight.sock.fileno(), None):
                self._epoll.unregister(flight.sock)
        elif self._selector:
            with contextlib.suppress(KeyError):
                self._selector.unregister(flight.sock)

    @staticmethod
    def _mask(events: int) -> int:
        return (select.EPOLLIN if events & _READ else 0) | (select.EPOLLOUT if events & _WRITE else 0)


class _Flight:
    """One request under way."""

    __slots__ = (
        "began_at",
        "connected_at",
        "n_bytes",
        "n_counted",
        "out",
        "path",
        "payload",
        "receiver",
        "request",
        "scheduled_at",
        "sent_at",
        "sock",
        "state",
    )

    def __init__(self, request: Request, path: str, payload: bytes, scheduled_at: float | None, sock: socket.socket, now: float) -> None:
        self.request, self.path, self.payload, self.scheduled_at, self.sock = request, path, payload, scheduled_at, sock
        self.began_at = self.connected_at = self.sent_at = now
        self.state = _CONNECTING
        self.out = b""
        self.receiver: Receiver | None = None
        self.n_bytes = self.n_counted = 0

    def is_too_long(self, came: list[Segment]) -> bool:
        """Counts what came since it was asked last."""
        self.n_bytes += sum(len(s.data) for s in came[self.n_counted :])
        self.n_counted = len(came)
        return self.n_bytes > MOST_BYTES

    def exchange(self, end: End, error: str, now: float) -> Exchange:
        came = self.receiver.segments() if self.receiver else []
        came = came[:_KEPT_OF_TOO_LONG] if self.n_bytes > MOST_BYTES else came
        stamps: Stamps = self.receiver.stamps if self.receiver else "user"
        said = error or (self.receiver.error if self.receiver else "")
        return Exchange(
            self.request, self.path, self.payload, self.scheduled_at, self.connected_at, self.sent_at, now, came, stamps, end, said
        )


class _Loop:
    def __init__(
        self,
        target: Target,
        requests: Iterable[Request],
        plan: Plan,
        timeout_s: float,
        stall_s: float | None,
        stop: threading.Event,
        receiver_of: ReceiverOf,
    ) -> None:
        self._target, self._plan, self._stop, self._receiver_of = target, plan, stop, receiver_of
        self._timeout_s, self._stall_s = timeout_s, stall_s
        self._requests = iter(requests)
        self._address = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)[0]
        self._tls = ssl.create_default_context() if target.tls else None
        self._watch = _Watch()
        self._flights: set[_Flight] = set()
        self._done: list[Exchange] = []
        self._rounds_s: list[float] = []  # how long each kept the loop from its sockets
        self._may_rest = True  # with the kernel's stamps it doesn't matter when the loop looks
        self._began_at = time.monotonic()
        self._arrivals = self._due_times()
        self._next_due: float | None = next(self._arrivals, None)
        self._looked_at = self._began_at

    def _due_times(self) -> Iterator[float]:
        """When the next request may be sent; a closed loop's are due at once, whenever there is room."""
        plan, began = self._plan, self._began_at
        if isinstance(plan, Open):
            yield from (began + t for _, t in zip(range(plan.n) if plan.n is not None else iter(int, 1), plan.times()))
            return
        for _ in range(plan.n) if plan.n is not None else iter(int, 1):
            if plan.duration_s is not None and time.monotonic() >= began + plan.duration_s:
                return
            yield began

    def run(self) -> LoadResult:
        cpu_s = time.thread_time()
        with contextlib.closing(self._watch):
            self._start_due(time.monotonic())
            while self._flights or (self._next_due is not None and not self._stop.is_set()):
                ready = self._watch.ready(self._patience())
                woke_at = time.monotonic()
                for flight in ready:
                    self._step(flight)
                now = time.monotonic()
                if ready:
                    self._rounds_s.append(now - woke_at)
                if now - self._looked_at > _LOOK_S:
                    self._look(now)
                self._start_due(now)
                if self._may_rest and ready and len(self._flights) >= _REST_FROM:
                    time.sleep(_REST_S)
        ended_at = time.monotonic()
        cpu_s = time.thread_time() - cpu_s
        return self._result(cpu_s / max(ended_at - self._began_at, 1e-9))

    def _patience(self) -> float:
        """How long the loop may sleep. It stops short of a request that is due, since a selector wakes late by up to a millisecond."""
        if isinstance(self._plan, Closed) or self._next_due is None or len(self._flights) >= MOST_AT_ONCE:
            return _LOOK_S
        left = self._next_due - time.monotonic()
        if left > 0.0015:
            return min(_LOOK_S, left - 0.001)
        if left > 0:
            time.sleep(left)
        return 0.0

    # --- requests begin ---

    def _start_due(self, now: float) -> None:
        most = self._plan.concurrency if isinstance(self._plan, Closed) else MOST_AT_ONCE
        while self._next_due is not None and self._next_due <= now and len(self._flights) < most and not self._stop.is_set():
            request = next(self._requests, None)
            if request is None:
                self._next_due = None
                return
            self._start(request, self._next_due if isinstance(self._plan, Open) else None)
            self._next_due = next(self._arrivals, None)

    def _start(self, request: Request, scheduled_at: float | None) -> None:
        family, kind, protocol, _, address = self._address
        payload = json.dumps(request.body).encode()
        sock = socket.socket(family, kind, protocol)
        flight = _Flight(request, request.path or self._target.path, payload, scheduled_at, sock, time.monotonic())
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._flights.add(flight)
        self._watch.begin(flight, _WRITE)
        try:
            sock.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._finish(flight, "refused", error.strerror or str(error))

    # --- one step of one request ---

    def _step(self, flight: _Flight) -> None:
        if flight.state == _RECEIVING:
            assert flight.receiver
            if not flight.receiver.read():
                self._finish(flight, "closed")
            return
        try:
            if flight.state == _CONNECTING:
                self._connected(flight)
            if flight.state == _SHAKING_HANDS and not self._shake_hands(flight):
                return
            if flight.state == _SENDING:
                self._send(flight)
        except OSError as error:  # ssl.SSLError is one
            self._finish(flight, "refused", error.strerror or str(error))

    def _connected(self, flight: _Flight) -> None:
        if code := flight.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            raise OSError(code, _words(code))
        if self._tls is None:
            self._ready_to_send(flight)
            return
        self._watch.end(flight)
        flight.sock = self._tls.wrap_socket(flight.sock, server_hostname=self._target.host, do_handshake_on_connect=False)
        self._watch.begin(flight, _READ | _WRITE)
        flight.state = _SHAKING_HANDS

    def _shake_hands(self, flight: _Flight) -> bool:
        assert isinstance(flight.sock, ssl.SSLSocket)
        try:
            flight.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._watch.change(flight, _READ)
            return False
        except ssl.SSLWantWriteError:
            self._watch.change(flight, _WRITE)
            return False
        self._watch.change(flight, _WRITE)
        self._ready_to_send(flight)
        return True

    def _ready_to_send(self, flight: _Flight) -> None:
        flight.connected_at = flight.sent_at = time.monotonic()
        flight.receiver = self._receiver_of(flight.sock)
        self._may_rest = self._may_rest and flight.receiver.stamps == "kernel"
        flight.out = request_head(self._target, flight.path, len(flight.payload)) + flight.payload
        flight.state = _SENDING

    def _send(self, flight: _Flight) -> None:
        """The engine can't begin before the last byte. Its write may return late (on loopback the reader's work can run
        inside it, or before us on the same core), so the stamp is taken just before."""
        try:
            while len(flight.out) > 1:
                flight.out = flight.out[flight.sock.send(flight.out[:-1]) :]
            flight.sent_at = time.monotonic()
            flight.sock.send(flight.out)
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            return
        except (BrokenPipeError, ConnectionResetError):
            pass  # a server that has closed already answers by the end of the stream
        flight.out = b""
        flight.state = _RECEIVING
        self._watch.change(flight, _READ)

    # --- requests end ---

    def _finish(self, flight: _Flight, end: End, error: str = "") -> None:
        self._flights.discard(flight)
        self._watch.end(flight)
        flight.sock.close()
        self._done.append(flight.exchange(end, error, time.monotonic()))

    def _look(self, now: float) -> None:
        """Ends what takes too long, what is silent too long, and everything if told to stop."""
        self._looked_at = now
        stopped = self._stop.is_set()
        for flight in list(self._flights):
            came = flight.receiver.segments() if flight.receiver else []
            if stopped:
                self._finish(flight, "stopped")
            elif flight.state in (_CONNECTING, _SHAKING_HANDS) and now - flight.began_at > _CONNECT_S:
                self._finish(flight, "refused", f"no connection within {_CONNECT_S:g} s")
            elif flight.is_too_long(came):
                self._finish(flight, "too long", f"more than {MOST_BYTES >> 20} MiB came for one request")
            elif came and now - came[-1].read_at_s > _LOOK_S and _is_whole(came):
                self._finish(flight, "closed")  # the server keeps the connection although it was asked to close it
            elif now - flight.sent_at > self._timeout_s:
                self._finish(flight, "timeout")
            elif self._stall_s is not None and now - (came[-1].read_at_s if came else flight.sent_at) > self._stall_s:
                self._finish(flight, "stalled")

    def _result(self, cpu_share: float) -> LoadResult:
        exchanges = sorted(self._done, key=lambda e: e.sent_at)
        span = window(self._plan, exchanges)
        return LoadResult(
            exchanges=exchanges,
            health=health_of_reads(exchanges, span, cpu_share, self._rounds_s),
            window=span,
            began_at=self._began_at,
            overloaded=overload(exchanges) if isinstance(self._plan, Open) else "",
        )


def _words(code: int) -> str:
    return os.strerror(code)


_LAST_CHUNK = re.compile(rb"(^|\r\n)0\r\n\r\n$")


def _is_whole(came: list[Segment]) -> bool:
    """Whether the framing says that the answer has ended. Only chunked answers and short ones are looked at."""
    tail = b"".join(s.data for s in came[-3:])
    if _LAST_CHUNK.search(tail):
        return True
    if len(came) > 8 or not (match := _LENGTH.search(b"".join(s.data for s in came))):
        return False
    return len(b"".join(s.data for s in came)) >= match.end() + int(match[1])


_LENGTH = re.compile(rb"\r\ncontent-length: *(\d{1,12})\r\n(?:[^\r\n]+\r\n)*\r\n", re.IGNORECASE)


def request_head(target: Target, path: str, length: int) -> bytes:
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}:{target.port}"]
    lines += [f"{name}: {value}" for name, value in target.headers.items()]
    lines += ["Content-Type: application/json", f"Content-Length: {length}", "Accept: text/event-stream", "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1")


def records_of(result: LoadResult, dialect: Any) -> list[tuple[StreamRecord, TextRecord]]:
    """Each exchange as evidence, in the order of sending. Times count from the load's start.

    ``dialect``: a module with ``stream_events``, of :mod:`speccore.engines`.
    """
    with _no_collection():  # it would look through all that has been made, again and again
        return [record_of(exchange, dialect, t0=result.began_at) for exchange in result.exchanges]
