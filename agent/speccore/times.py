"""Durations of one request from the arrivals of its events: times to first token, pace, gaps between chunks, latency by token.

A *chunk* is what arrives within 1 ms of its first event: engines send several tokens together under speculation, in one
event or in several. An event that the kernel had joined with later bytes (``queued``) has an upper bound for its
arrival; gaps next to such a chunk are left out.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .measurement import Maybe, Number, Source, Withheld
from .records import RECORDS, StreamEvent, StreamRecord

#: Events that arrive within this of a chunk's first belong to the chunk.
CHUNK_S = 0.001
#: With fewer chunks for each token than this, the latency of single tokens can't be told from a stream.
LEAST_BATCH_RATIO = 0.8
_ROUNDING_S = 1e-9
#: Makes a number from its value and what it was computed from.
_Make = Callable[[float, str], Number]


@dataclass(frozen=True)
class Chunk:
    """``at_s`` is the arrival of its first event; ``marked``: an upper bound."""

    at_s: float
    tokens: int
    marked: bool


@dataclass(frozen=True)
class Times:
    """Durations of one request, and what arrived first."""

    n_chunks: int
    n_first: int
    n_queued_events: int
    ttft_any_s: Maybe
    ttft_content_s: Maybe
    e2e_s: Maybe
    decode_tokens_per_s: Maybe
    batch_ratio: Maybe
    chunk_gap_ms_p50: Maybe
    chunk_gap_ms_p95: Maybe
    token_latency_ms: Maybe
    token_latency_ms_p50: Maybe
    token_latency_ms_p95: Maybe
    peak_tokens_per_s: Maybe


def probe_times(record: StreamRecord, line: int) -> Times:
    """All durations of the record at ``line`` of its file."""
    bearing = [e for e in record.events if e.tokens > 0 or e.uncounted]
    if not bearing:
        return Times(0, 0, 0, *[_no_arrivals(record)] * 11)
    if any(b.at_s < a.at_s - CHUNK_S for a, b in itertools.pairwise(bearing)):  # less is jitter between two clocks
        return Times(0, 0, 0, *[Withheld(withheld="the arrivals of this record run backwards", reason_code="not_in_order")] * 11)
    chunks = chunked(bearing)
    content = next((e for e in bearing if e.kind != "reasoning"), None)

    def number(value: float, field: str) -> Number:
        return Number(value=value, source=Source(file=RECORDS, line=line, field=field))

    def since_sent(at_s: float, field: str) -> Maybe:
        if at_s < record.sent_at_s:
            return Withheld(withheld="it arrived before the request was stamped as sent: the stamp came late", reason_code="client_late")
        if record.scheduled_at_s is not None:  # by the clock: who sent it waits from the moment at which it was due
            return number(at_s - record.scheduled_at_s, f"{field} − scheduled_at_s")
        return number(at_s - record.sent_at_s, f"{field} − sent_at_s")

    bound = " (an upper bound)" if bearing[0].queued else ""
    return Times(
        n_chunks=len(chunks),
        n_first=chunks[0].tokens,
        n_queued_events=sum(e.queued for e in record.events),
        ttft_any_s=since_sent(bearing[0].at_s, f"first events[].at_s{bound}"),
        ttft_content_s=since_sent(content.at_s, "first content events[].at_s")
        if content
        else Withheld(withheld="the answer has no content beside its reasoning", reason_code="no_content"),
        e2e_s=since_sent(bearing[-1].at_s, "last events[].at_s"),
        **_paces(chunks, bearing, number, total_known=record.final.get("tokens_predicted") is not None),
    )


def chunked(bearing: Sequence[StreamEvent]) -> list[Chunk]:
    """The chunks of events that bear tokens, in order of arrival."""
    chunks: list[Chunk] = []
    for event in bearing:
        if chunks and event.at_s - chunks[-1].at_s <= CHUNK_S + _ROUNDING_S:
            began = chunks[-1]
            chunks[-1] = Chunk(began.at_s, began.tokens + event.tokens, began.marked or event.queued)
        else:
            chunks.append(Chunk(event.at_s, event.tokens, event.queued))
    return chunks


_PACES = (
    "decode_tokens_per_s",
    "batch_ratio",
    "chunk_gap_ms_p50",
    "chunk_gap_ms_p95",
    "token_latency_ms",
    "token_latency_ms_p50",
    "token_latency_ms_p95",
    "peak_tokens_per_s",
)


def _paces(chunks: Sequence[Chunk], bearing: Sequence[StreamEvent], number: _Make, *, total_known: bool) -> dict[str, Maybe]:
    """What needs more than one chunk: by metric id."""
    one = Withheld(withheld="one arrival: no speed can be told from it", reason_code="one_arrival")
    found: dict[str, Maybe] = dict.fromkeys(_PACES, one)
    uncounted = any(e.uncounted for e in bearing)
    said = "tokens of the first chunk are not known" if total_known else "the server reported no token count"
    unknown = Withheld(withheld=said, reason_code="no_client_count")
    if uncounted:
        found |= dict.fromkeys(_PACES, unknown)
    elif chunks:
        found["batch_ratio"] = number(len(chunks) / sum(c.tokens for c in chunks), "chunks ÷ tokens")
    if len(chunks) < 2:
        return found
    gaps = [(b.at_s - a.at_s, b.tokens) for a, b in itertools.pairwise(chunks) if not (a.marked or b.marked)]
    found |= _gap_percentiles([gap for gap, _ in gaps], len(chunks) - 1, number)
    if uncounted:
        return found
    # The last event ends the decoding, though its chunk began up to a millisecond earlier.
    seconds, tokens = bearing[-1].at_s - chunks[0].at_s, sum(c.tokens for c in chunks[1:])
    found["decode_tokens_per_s"] = number(tokens / seconds, "tokens after the first chunk ÷ seconds after it")
    found["token_latency_ms"] = number(1000 * seconds / tokens, "ms after the first chunk ÷ tokens after it")
    found |= _token_percentiles(gaps, len(chunks) / sum(c.tokens for c in chunks), number)
    found["peak_tokens_per_s"] = _peak(chunks, seconds, number)
    return found


def _gap_percentiles(gaps: Sequence[float], n: int, number: _Make) -> dict[str, Maybe]:
    if not gaps:
        marked = Withheld(withheld="every gap lies beside an arrival that is an upper bound", reason_code="queued")
        return {"chunk_gap_ms_p50": marked, "chunk_gap_ms_p95": marked}
    of = f"{len(gaps)} of {n} gaps between chunks"
    return {f"chunk_gap_ms_p{q}": number(1000 * percentile(gaps, q), f"p{q} of {of}") for q in (50, 95)}


def _token_percentiles(gaps: Sequence[tuple[float, int]], batch_ratio: float, number: _Make) -> dict[str, Maybe]:
    """Each token of a chunk waited the chunk's gap ÷ its tokens; withheld where most tokens came in company."""
    names = {q: f"token_latency_ms_p{q}" for q in (50, 95)}
    by_token = [gap / tokens for gap, tokens in gaps for _ in range(tokens)]
    if batch_ratio < LEAST_BATCH_RATIO:
        said = f"{batch_ratio:.2f} chunks for each token, below {LEAST_BATCH_RATIO}: single tokens' latency can't be told from this stream"
        return dict.fromkeys(names.values(), Withheld(withheld=said, reason_code="tokens_batched"))
    if not by_token:
        return dict.fromkeys(names.values(), Withheld(withheld="no gap between exact arrivals", reason_code="queued"))
    return {name: number(1000 * percentile(by_token, q), f"p{q} over {len(by_token)} tokens") for q, name in names.items()}


def _peak(chunks: Sequence[Chunk], seconds: float, number: _Make) -> Maybe:
    """The largest of equal parts of the decoding time, so it is never below the mean (a sliding window may be)."""
    parts = math.floor(seconds)
    if parts < 1:
        return Withheld(withheld=f"decoding took {seconds:.2f} s, under the second that a peak is taken over", reason_code="too_short")
    counts: Counter[int] = Counter()
    for chunk in chunks[1:]:
        part = math.ceil((chunk.at_s - chunks[0].at_s) / seconds * parts) - 1
        counts[min(max(part, 0), parts - 1)] += chunk.tokens
    return number(max(counts.values()) / (seconds / parts), f"most tokens in one of {parts} equal parts ÷ its seconds")


def percentile(values: Sequence[float], q: float) -> float:
    """Nearest rank: the smallest value that at least q % of the values don't exceed."""
    if not values:
        raise ValueError("no values to take a percentile of")
    return sorted(values)[max(math.ceil(q / 100 * len(values)), 1) - 1]


def possible(times: Times, prompt_ms: float | None, eval_ms: float | None) -> Times:
    """Withholds durations shorter than the engine's own time for the same work: the client stamped the request late.

    A busy machine may stop the client between writing the request and looking at the clock.
    """
    if prompt_ms is None:
        return times
    return replace(
        times,
        ttft_any_s=_at_least(times.ttft_any_s, prompt_ms),
        ttft_content_s=_at_least(times.ttft_content_s, prompt_ms),
        e2e_s=_at_least(times.e2e_s, prompt_ms + (eval_ms or 0.0)),
    )


def _at_least(duration: Maybe, engine_ms: float) -> Maybe:
    if isinstance(duration, Withheld) or duration.value >= engine_ms / 1000 - CHUNK_S:
        return duration
    said = f"the client measured {1000 * duration.value:.1f} ms, the engine needed {engine_ms:.1f} ms: the request was stamped late"
    return Withheld(withheld=said, reason_code="client_late")


def _no_arrivals(record: StreamRecord) -> Withheld:
    if (record.final.get("tokens_predicted") or 0) > 0:
        return Withheld(withheld="the engine didn't say which events bear tokens", reason_code="no_client_count")
    return Withheld(withheld="no token came", reason_code="no_tokens")
