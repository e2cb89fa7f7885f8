"""The requests of a trial along time as data for a drawing: sent, first token, last token, and what arrived between."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from speccore.measurement import Source
from speccore.records import RECORDS, StreamRecord
from speccore.times import Chunk, chunked

from specweb.results.thinning import thinned
from specweb.results.trial_series import Read

from .sources import source_url

#: At most so many requests and marks of chunks are drawn.
MOST_REQUESTS, MOST_MARKS = 1_000, 2_000
#: So many requests get a line each, where they ran one by one.
LINES = 40
MOST_ROWS = 200


@dataclass(frozen=True)
class _Request:
    line: int
    record: StreamRecord
    chunks: list[Chunk]

    @property
    def begins_s(self) -> float:
        due = self.record.scheduled_at_s
        return self.record.sent_at_s if due is None else min(due, self.record.sent_at_s)

    @property
    def ends_s(self) -> float:
        return max(self.record.closed_at_s, self.begins_s)


def stream_data(read: Read[StreamRecord], attempt_id: UUID, titles: Mapping[str, str]) -> dict[str, Any]:
    """``requests`` with their lanes and ``marks`` of chunks; or ``empty``, a sentence that says why there is nothing to draw."""
    requests = [_Request(line, r, chunked([e for e in r.events if e.tokens > 0 or e.uncounted])) for line, r in read.lines]
    if not requests:
        return {"empty": " ".join(["No request of this trial was recorded.", *read.notes(RECORDS)])}
    requests.sort(key=lambda r: (r.begins_s, r.line))
    lanes, most = lanes_of([(r.begins_s, r.ends_s) for r in requests])
    by_line = most == 1 and len(requests) <= LINES
    if by_line:
        lanes = list(range(len(requests)))
    placed = list(zip(lanes, requests, strict=True))
    drawn = thinned(placed, MOST_REQUESTS, lambda p: p[1].ends_s - p[1].begins_s)
    marks = [(c.at_s, lane, c.tokens) for lane, r in drawn for c in r.chunks[1:]]
    gaps = {(lane, b.at_s): b.at_s - a.at_s for lane, r in drawn for a, b in zip(r.chunks, r.chunks[1:], strict=False)}
    kept = thinned(marks, MOST_MARKS, lambda m: gaps.get((m[1], m[0]), 0.0))
    return {
        "by_line": by_line,
        "n_lanes": max(lanes) + 1,
        "requests": [_row(r, lane, attempt_id, titles) for lane, r in drawn],
        "marks": [[round(at, 5), lane, tokens] for at, lane, tokens in kept],
        "notes": [_said(requests, most), *_left_out(len(requests), len(drawn), len(marks), len(kept)), *read.notes(RECORDS)],
        "table": _table(requests, titles),
    }


def lanes_of(spans: Sequence[tuple[float, float]]) -> tuple[list[int], int]:
    """For each span, in order of their begins, the lowest lane that is free then; and how many overlap at the most."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []  # (end, lane)
    lanes, n = [], 0
    for begin, end in spans:
        while busy and busy[0][0] <= begin:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, n = n, n + 1
        lanes.append(lane)
        heapq.heappush(busy, (end, lane))
    return lanes, n


def _row(r: _Request, lane: int, attempt_id: UUID, titles: Mapping[str, str]) -> dict[str, Any]:
    record, first, last = r.record, None, None
    if bearing := [e for e in record.events if e.tokens > 0 or e.uncounted]:
        first, last = bearing[0].at_s, bearing[-1].at_s
    return {
        "line": r.line,
        "lane": lane,
        "item": record.item if record.turn is None else f"{record.item}, turn {record.turn}",
        "work": titles.get(record.point, record.point),
        "warmup": record.warmup,
        "failure": record.failure or (f"status {record.status}" if record.status != 200 else ""),
        "due": _rounded(record.scheduled_at_s),
        "sent": _rounded(record.sent_at_s),
        "first": _rounded(first),
        "last": _rounded(last),
        "closed": _rounded(record.closed_at_s),
        "tokens": sum(c.tokens for c in r.chunks),
        "href": source_url(attempt_id, Source(file=RECORDS, line=r.line)),
    }


def _rounded(at_s: float | None) -> float | None:
    return None if at_s is None else round(at_s, 5)


def _said(requests: Sequence[_Request], most: int) -> str:
    n, warm = len(requests), sum(r.record.warmup for r in requests)
    told = f"{n:,} request{'' if n == 1 else 's'}" + (f", {warm:,} of them warm-up" if warm else "")
    return f"{told}; " + ("one at a time." if most == 1 else f"at most {most:,} under way at once.")


def _left_out(n: int, n_drawn: int, n_marks: int, n_kept: int) -> list[str]:
    found = []
    if n_drawn < n:
        found.append(f"{n_drawn:,} of {n:,} requests are drawn: of each stretch of them the quickest and the slowest.")
    if n_kept < n_marks:
        found.append(f"{n_kept:,} of {n_marks:,} arrivals are marked: of each stretch of them those after the least and the longest gap.")
    return found


def _table(requests: Sequence[_Request], titles: Mapping[str, str]) -> dict[str, Any]:
    rows = []
    for r in requests[:MOST_ROWS]:
        row = _row(r, 0, UUID(int=0), titles)
        times = [row[k] for k in ("sent", "first", "last")]
        name = row["item"] + (" (warm-up)" if row["warmup"] else "")
        rows.append([name, row["work"], *("" if t is None else f"{t:,.3f}" for t in times), str(row["tokens"]), row["failure"]])
    more = len(requests) - len(rows)
    return {
        "heads": ["request", "work", "sent, s", "first token, s", "last token, s", "tokens", "failure"],
        "words": [1, 6],
        "rows": rows,
        "more": f"and {more:,} more, in {RECORDS}" if more else "",
    }
