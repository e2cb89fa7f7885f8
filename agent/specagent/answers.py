"""The bytes of an exchange as evidence: its record with all arrivals, and its text."""

from __future__ import annotations

import hashlib
from typing import Any

from speccore.canonical import sha256_of
from speccore.engines.shapes import ParsedStream
from speccore.records import StreamRecord, TextRecord

from .asking import Exchange
from .sse import Response, parse_response, sse_events


def record_of(exchange: Exchange, dialect: Any, *, t0: float) -> tuple[StreamRecord, TextRecord]:
    """Never raises for what the server sent: the record says it. Times count from ``t0``."""
    request = exchange.request
    response = parse_response(exchange.segments, t0)
    streams = response.status == 200 and "text/event-stream" in response.content_type
    parsed: ParsedStream = dialect.stream_events(sse_events(response.parts) if streams else [])
    failure, message = _failure(exchange, response, streams, parsed)
    record = StreamRecord(
        probe=request.probe,
        warmup=request.warmup,
        ahead=request.ahead,
        point=request.point,
        item=request.item,
        seed=request.seed,
        path=exchange.path,
        request_sha256=hashlib.sha256(exchange.payload).hexdigest(),
        connected_at_s=exchange.connected_at - t0,
        scheduled_at_s=None if exchange.scheduled_at is None else exchange.scheduled_at - t0,
        sent_at_s=exchange.sent_at - t0,
        closed_at_s=exchange.closed_at - t0,
        status=response.status,
        stamps=exchange.stamps,
        events=parsed.events,
        final=parsed.final,
        generation_settings=parsed.generation_settings,
        ids_sha256=sha256_of([i for ids in parsed.ids for i in ids]) if any(parsed.ids) else "",
        failure=failure,
        failure_message=message,
    )
    return record, TextRecord(probe=request.probe, request=request.body, texts=parsed.texts, ids=parsed.ids)


def _failure(exchange: Exchange, response: Response, streams: bool, parsed: ParsedStream) -> tuple[str, str]:
    """(code, message) of what went wrong, the most telling first; ('', '') if nothing did."""
    last_read_at = exchange.segments[-1].read_at_s if exchange.segments else exchange.sent_at
    if exchange.end == "stopped":
        return "probe_failed", "the agent was told to stop"
    if exchange.end == "refused":
        return "probe_failed", f"no connection: {exchange.error}"
    if exchange.end == "too long":
        return "probe_failed", exchange.error
    if exchange.end in ("timeout", "stalled"):
        waited = exchange.closed_at - exchange.sent_at
        return "probe_stalled", f"no end after {waited:.1f} s, the last byte came {exchange.closed_at - last_read_at:.1f} s before"
    if response.status == 0:
        return "probe_failed", f"no answer: {exchange.error or response.problem}"
    if response.status != 200:
        return "probe_failed", f"HTTP {response.status}: {response.text().strip()[:300]}"
    if not streams:
        return "probe_failed", f"the answer is no event stream but {response.content_type or 'of no type'}: {response.text().strip()[:200]}"
    if parsed.failure:
        return parsed.failure, parsed.failure_message
    if response.problem or exchange.error:
        return "probe_failed", f"the answer broke off: {exchange.error or response.problem}"
    return "", ""
