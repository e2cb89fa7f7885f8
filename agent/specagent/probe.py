"""One timed request: a fresh loopback connection, a receive loop that only stamps and keeps, everything else after the end."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import h11
from speccore.canonical import sha256_of
from speccore.protocol import ProbePlan, WarmupPlan
from speccore.records import StreamRecord, TextRecord
from speccore.spec import Point

from .ready import LOOPBACK

_RECV_BYTES = 1 << 16
_TICK_S = 0.5  # how often a silent connection looks at its deadline

End = Literal["closed", "timeout", "stopped"]


@dataclass(frozen=True)
class Reception:
    """What came: (monotonic arrival, bytes) of each read, and how it ended."""

    segments: list[tuple[float, bytes]]
    end: End
    closed_at: float
    error: str = ""


class Receiver:
    """Reads an answer to its end. The loop does nothing but receive and append."""

    def read(self, sock: socket.socket, deadline: float, stop: threading.Event) -> Reception:
        segments: list[tuple[float, bytes]] = []
        append, recv, clock = segments.append, sock.recv, time.monotonic
        sock.settimeout(_TICK_S)
        while True:
            try:
                data = recv(_RECV_BYTES)
            except TimeoutError:
                data = None
            except OSError as error:
                return Reception(segments, "closed", clock(), error.strerror or str(error))
            now = clock()
            if data:
                append((now, data))
            elif data is not None:
                return Reception(segments, "closed", now)
            if now > deadline:
                return Reception(segments, "timeout", now)
            if stop.is_set():
                return Reception(segments, "stopped", now)


@dataclass(frozen=True)
class Exchange:
    connected_at: float
    sent_at: float
    reception: Reception


def exchange(port: int, path: str, body: bytes, timeout_s: float, stop: threading.Event, receiver: Receiver) -> Exchange:
    """Sends one POST and reads the answer. Raises OSError if no connection can be had."""
    head = _request_head(port, path, body)
    with socket.create_connection((LOOPBACK, port), timeout=5) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected_at = time.monotonic()
        sock.settimeout(timeout_s)
        request = head + body
        with _no_collection():
            sent_at = connected_at
            # a server that has closed already answers by the end of the stream
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(request[:-1])
                # The engine can't begin before the last byte. Its write may return late (on loopback the reader's work
                # can run inside it, or before us on the same core), so the stamp is taken just before.
                sent_at = time.monotonic()
                sock.sendall(request[-1:])
            reception = receiver.read(sock, sent_at + timeout_s, stop)
    return Exchange(connected_at, sent_at, reception)


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


@dataclass(frozen=True)
class Response:
    """An answer taken apart: body parts with the arrival of the segment that brought each."""

    status: int  # 0: nothing that is HTTP came
    content_type: str
    parts: list[tuple[float, bytes]]
    problem: str  # '' if the answer is whole

    def text(self) -> str:
        return b"".join(data for _, data in self.parts).decode("utf-8", "replace")


def parse_response(segments: list[tuple[float, bytes]]) -> Response:
    """HTTP framing taken off, segment by segment."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Connection", "close")]))
    connection.send(h11.EndOfMessage())
    status, content_type, parts = 0, "", []
    last = segments[-1][0] if segments else 0.0
    try:
        for at, data in [*segments, (last, b"")]:
            connection.receive_data(data)
            while True:
                event = connection.next_event()
                if isinstance(event, h11.Response):
                    status = event.status_code
                    content_type = dict(event.headers).get(b"content-type", b"").decode("latin-1")
                elif isinstance(event, h11.Data):
                    parts.append((at, bytes(event.data)))
                elif isinstance(event, h11.EndOfMessage):
                    return Response(status, content_type, parts, "")
                elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed) or event is h11.PAUSED:
                    break
    except h11.RemoteProtocolError as error:
        return Response(status, content_type, parts, str(error))
    return Response(status, content_type, parts, "the connection closed before the answer's end")


def sse_events(parts: list[tuple[float, bytes]]) -> list[tuple[float, str]]:
    """The data of each server-sent event with the arrival of the part that completed it.

    Works on bytes: a character may be split over two parts. Comments and other fields are left out; what no blank
    line ends is no event (https://html.spec.whatwg.org/multipage/server-sent-events.html).
    """
    events: list[tuple[float, str]] = []
    lines: list[bytes] = []  # data lines of the event that is being read
    pending = b""
    for at, data in parts:
        pending += data
        *whole, pending = pending.split(b"\n")
        for raw in whole:
            line = raw.removesuffix(b"\r")
            if not line:
                if lines:
                    events.append((at, b"\n".join(lines).decode("utf-8", "replace")))
                lines = []
            elif line.startswith(b"data:"):
                lines.append(line[5:].removeprefix(b" "))
    return events


@dataclass(frozen=True)
class Probed:
    record: StreamRecord
    text: TextRecord
    end: End


def run_probe(
    dialect: ModuleType,
    port: int,
    plan: ProbePlan | WarmupPlan,
    point: Point,
    prompt: str,
    *,
    t0: float,
    timeout_s: float,
    stop: threading.Event,
    receiver: Receiver,
    prefix_cache: bool = False,
) -> Probed:
    """Asks once and records. Never raises for what the engine does: the record says it. Times count from ``t0``."""
    path, body = dialect.request(prompt, point, plan.seed, prefix_cache=prefix_cache)
    payload = json.dumps(body).encode()
    began = time.monotonic()
    try:
        got = exchange(port, path, payload, timeout_s, stop, receiver)
    except OSError as error:
        got = Exchange(began, began, Reception([], "closed", time.monotonic(), f"no connection: {error.strerror or error}"))
    reception = got.reception
    response = parse_response(reception.segments)
    streams = response.status == 200 and "text/event-stream" in response.content_type
    parsed = dialect.stream_events([(at - t0, data) for at, data in sse_events(response.parts)] if streams else [])
    failure, message = _failure(reception, response, streams, parsed, timeout_s)
    record = StreamRecord(
        probe=plan.id,
        warmup=isinstance(plan, WarmupPlan),
        point=plan.point,
        item=plan.item,
        seed=plan.seed,
        path=path,
        request_sha256=hashlib.sha256(payload).hexdigest(),
        connected_at_s=got.connected_at - t0,
        sent_at_s=got.sent_at - t0,
        closed_at_s=reception.closed_at - t0,
        status=response.status,
        events=parsed.events,
        final=parsed.final,
        generation_settings=parsed.generation_settings,
        ids_sha256=sha256_of([i for ids in parsed.ids for i in ids]) if any(parsed.ids) else "",
        failure=failure,
        failure_message=message,
    )
    return Probed(record, TextRecord(probe=plan.id, request=body, texts=parsed.texts, ids=parsed.ids), reception.end)


def _failure(reception: Reception, response: Response, streams: bool, parsed: Any, timeout_s: float) -> tuple[str, str]:
    """(code, message) of what went wrong, the most telling first; ('', '') if nothing did."""
    if reception.end == "stopped":
        return "probe_failed", "the agent was told to stop"
    if reception.end == "timeout":
        silent = reception.closed_at - (reception.segments[-1][0] if reception.segments else reception.closed_at - timeout_s)
        return "probe_stalled", f"no end after {timeout_s:g} s, the last byte came {silent:.1f} s before"
    if response.status == 0:
        return "probe_failed", f"no answer: {reception.error or response.problem}"
    if response.status != 200:
        return "probe_failed", f"HTTP {response.status}: {response.text().strip()[:300]}"
    if not streams:
        return "probe_failed", f"the answer is no event stream but {response.content_type or 'of no type'}: {response.text().strip()[:200]}"
    if parsed.failure:
        return parsed.failure, parsed.failure_message
    if response.problem:
        return "probe_failed", f"the answer broke off: {reception.error or response.problem}"
    return "", ""


def _request_head(port: int, path: str, body: bytes) -> bytes:
    lines = (
        f"POST {path} HTTP/1.1",
        f"Host: {LOOPBACK}:{port}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Accept: text/event-stream",
        "Connection: close",
        "",
        "",
    )
    return "\r\n".join(lines).encode("ascii")
