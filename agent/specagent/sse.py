"""HTTP and server-sent events taken off the bytes of an answer, each event with the arrival of the segment that completed it.

All of it works on bytes after the answer's end: a segment may be cut anywhere, also inside a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

import h11
from speccore.engines.arrival import Arrival

from .receive import Segment

Part = tuple[Arrival, bytes]
_BROKE_OFF = "the connection closed before the answer's end"
_MOST_HEAD_BYTES = 1 << 16
_SIZE_LINE = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(?:;[^\r\n]*)?")
_MOST_SIZE_LINE = 4096


@dataclass(frozen=True)
class Response:
    """An answer taken apart: body parts with the arrival of the segment that brought each."""

    status: int  # 0: nothing that is HTTP came
    headers: dict[str, str] = field(default_factory=dict)  # names in lower case
    parts: list[Part] = field(default_factory=list)
    problem: str = ""  # '' if the answer is whole

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    def text(self) -> str:
        return b"".join(data for _, data in self.parts).decode("utf-8", "replace")


def parse_response(segments: Iterable[Segment], t0: float = 0.0) -> Response:
    """HTTP framing taken off; arrivals count from ``t0``. The head is h11's; the body's framing is ours, being most of the work."""
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MOST_HEAD_BYTES)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Connection", "close")]))
    connection.send(h11.EndOfMessage())
    rest = ((Arrival(at_s - t0, read_at_s - t0, queued), data) for at_s, read_at_s, queued, data in segments)
    try:
        for at, data in rest:
            connection.receive_data(data)
            event = connection.next_event()
            while isinstance(event, h11.InformationalResponse):
                event = connection.next_event()
            if isinstance(event, h11.Response):
                headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
                return _with_body(event.status_code, headers, chain([(at, connection.trailing_data[0])], rest))
        connection.receive_data(b"")
        connection.next_event()
    except h11.RemoteProtocolError as error:
        return Response(0, problem=str(error))
    return Response(0, problem=_BROKE_OFF)


def _with_body(status: int, headers: dict[str, str], raw: Iterable[Part]) -> Response:
    coding = headers.get("transfer-encoding", "").lower()
    if coding == "chunked":
        parts, problem = _chunked(raw)
    elif coding:
        parts, problem = [], f"transfer-encoding {coding!r} is not understood"
    elif "content-length" in headers:
        parts, problem = _counted(raw, int(headers["content-length"]))
    else:
        parts, problem = [(at, data) for at, data in raw if data], ""
    return Response(status, headers, parts, problem)


def _counted(raw: Iterable[Part], length: int) -> tuple[list[Part], str]:
    parts: list[Part] = []
    for at, data in raw:
        if data[:length]:
            parts.append((at, data[:length]))
        length -= len(data)
        if length <= 0:
            return parts, ""
    return parts, _BROKE_OFF if length > 0 else ""


def _chunked(raw: Iterable[Part]) -> tuple[list[Part], str]:
    """Chunked coding (RFC 9112, 7.1) taken off. What follows the last chunk's size line are trailers, which nobody needs."""
    parts: list[Part] = []
    pending, left, after_chunk = b"", 0, False  # bytes not used yet; bytes of the chunk still to come; its line end is next
    for at, data in raw:
        if not (pending or left or after_chunk) and (whole := _one_chunk(data)):
            parts.append((at, whole))
            continue
        data, pending, start = pending + data, b"", 0
        came: list[bytes] = []
        while start < len(data):
            if left:
                piece = data[start : start + left]
                came.append(piece)
                start += len(piece)
                left -= len(piece)
                after_chunk = not left
                continue
            end = data.find(b"\n", start)
            if end < 0:
                pending = data[start:]
                if len(pending) > _MOST_SIZE_LINE:
                    return _kept(parts, at, came), "the chunk of an answer has no size"
                break
            line = data[start:end].removesuffix(b"\r")
            start = end + 1
            if after_chunk and not line:
                after_chunk = False
                continue
            if after_chunk or not _SIZE_LINE.fullmatch(line):
                return _kept(parts, at, came), f"the chunk of an answer has no size but {line[:40]!r}"
            left = int(line.split(b";")[0], 16)
            if not left:
                return _kept(parts, at, came), ""
        _kept(parts, at, came)
    return parts, _BROKE_OFF


def _one_chunk(data: bytes) -> bytes:
    """The chunk, if the data is one and no more, as mostly; else nothing."""
    end = data.find(b"\r\n", 0, 10)
    if end < 1 or not data[:end].isalnum() or data[-2:] != b"\r\n":
        return b""
    try:
        size = int(data[:end], 16)
    except ValueError:
        return b""
    return data[end + 2 : -2] if size == len(data) - end - 4 else b""


def _kept(parts: list[Part], at: Arrival, came: list[bytes]) -> list[Part]:
    if came:
        parts.append((at, b"".join(came)))
    return parts


def sse_events(parts: Iterable[Part]) -> list[tuple[Arrival, str]]:
    """The data of each server-sent event with the arrival of the part that completed it.

    Comments and other fields are left out; what no blank line ends is no event, and a line ends with CR, LF or both
    (https://html.spec.whatwg.org/multipage/server-sent-events.html).
    """
    events: list[tuple[Arrival, str]] = []
    pending, lines, after_cr = b"", [], False  # a line that has no end yet; data lines of the event that is being read
    for at, data in parts:
        if after_cr and data[:1] == b"\n":  # the second half of a line end
            data = data[1:]
        after_cr = data[-1:] == b"\r"
        pending += data
        if b"\r" in pending:
            pending = pending.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *whole, pending = pending.split(b"\n")
        for line in whole:
            if line[:5] == b"data:":
                lines.append(line[6:] if line[5:6] == b" " else line[5:])
            elif line == b"data":
                lines.append(b"")
            elif not line and lines:
                events.append((at, b"\n".join(lines).decode("utf-8", "replace")))
                lines = []
    return events
