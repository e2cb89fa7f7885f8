"""Requests that ran together: the window in which as many as asked for were at work, and what came in it.

The window begins when all of them are decoding for the first time and ends when the last waiting request is sent. Before
it the engine fills up, after it the load thins out; neither says how fast it is under that load.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .measurement import LoadMeasurement, Maybe, Number, Source, Withheld
from .records import RECORDS, StreamRecord
from .spec import ExperimentSpec

#: (line of the record in its file, record)
Lines = Sequence[tuple[int, StreamRecord]]


def loads(spec: ExperimentSpec, records: Lines) -> list[LoadMeasurement]:
    """What each point with several requests at once shows, in the experiment's order; points without a record are left out."""
    found = []
    for point in spec.points:
        own = [(line, r) for line, r in records if r.point == point.key and not r.warmup]
        if point.concurrency > 1 and own:
            found.append(load_of(point.key, point.concurrency, own))
    return found


def load_of(point: str, concurrency: int, records: Lines) -> LoadMeasurement:
    """All requests of one load, none of them left out."""
    span = window_of([r for _, r in records], concurrency)
    return LoadMeasurement(
        point=point,
        concurrency=concurrency,
        n_requests=len(records),
        window_s=span if isinstance(span, tuple) else None,
        tokens_per_s=rate_in(records, span),
        observed_concurrency=in_flight(records, span),
    )


def window_of(records: Sequence[StreamRecord], concurrency: int) -> tuple[float, float] | Withheld:
    """(begin, end) on the records' clock, or why there is none."""
    decoding = most = 0
    for moment, change in sorted(_moves(records)):
        decoding += change
        most = max(most, decoding)
        if decoding == concurrency:
            end = max(r.sent_at_s for r in records)
            if moment < end:
                return moment, end
            said = f"no request was waiting any more when all {concurrency} were decoding for the first time"
            return Withheld(withheld=said, reason_code="no_window")
    said = f"never were {concurrency} requests decoding at once, {most} at most"
    return Withheld(withheld=said, reason_code="no_window")


def _moves(records: Sequence[StreamRecord]) -> Iterator[tuple[float, int]]:
    """When requests begin and cease to decode; an answer that came all at once never does."""
    for record in records:
        at = [e.at_s for e in record.events if e.tokens or e.uncounted]
        if at and at[0] < at[-1]:
            yield at[0], 1
            yield at[-1], -1


def began_s(record: StreamRecord) -> float:
    """When a request's waiting began: by the clock, when it was due."""
    return record.sent_at_s if record.scheduled_at_s is None else record.scheduled_at_s


def rate_in(records: Lines, span: tuple[float, float] | Withheld) -> Maybe:
    if isinstance(span, Withheld):
        return span
    begin, end = span
    came = [e for _, r in records for e in r.events if begin < e.at_s <= end]
    if any(e.uncounted for e in came):
        return Withheld(withheld="the engine didn't say how many tokens some events in the window bear", reason_code="no_client_count")
    tokens = sum(e.tokens for e in came)
    if not tokens:
        return Withheld(withheld=f"no token came in the window of {end - begin:.3f} s", reason_code="no_tokens")
    return number(tokens / (end - begin), f"{tokens} tokens ÷ {end - begin:.3f} s", records, span)


def in_flight(records: Lines, span: tuple[float, float] | Withheld) -> Maybe:
    if isinstance(span, Withheld):
        return span
    begin, end = span
    in_flight_s = sum(max(0.0, min(r.closed_at_s, end) - max(began_s(r), begin)) for _, r in records)
    return number(in_flight_s / (end - begin), "seconds in flight ÷ seconds", records, span)


def number(value: float, formula: str, records: Lines, span: tuple[float, float]) -> Number:
    field = f"{formula}, from second {span[0]:.3f} to {span[1]:.3f}, over {len(records)} requests from this line on"
    return Number(value=value, source=Source(file=RECORDS, line=min(line for line, _ in records), field=field))
