"""Requests by the clock: what came in their time, and whether the engine kept up with them.

Latency counts from the moment at which a request was due, so that a client or a queue that held it back is part of what its
sender waits. Where requests keep coming faster than they are answered, each waits longer than the one before: latency then
measures how long the run was, and is withheld.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Sequence

from . import window
from .measurement import AttemptMeasurement, LoadMeasurement, Withheld
from .spec import ExperimentSpec, Point

OVERLOADED = "overloaded"
#: With fewer requests in each half nothing is said.
LEAST_HALF = 4
#: Of the time in which requests came, so much longer may the last ones take than a quick one.
LONGER = 0.2


def overload(due: Sequence[float], ended: Sequence[float]) -> str:
    """In words, if requests came faster than they were answered: later ones then wait for earlier ones, and no latency is steady.

    ``due`` and ``ended``: for each request the moments at which it was due and at which its answer ended. Two signs, since
    each misses cases: how long the last ones waited, and requests in flight that kept growing. By simulation, of 24 requests
    to a place that answers one after another: at half of what it bears one run of a hundred is told, at 1.6 times as much
    four of five, at twice as much nearly all.
    """
    return _waiting(due, ended) or _growing(due, ended)


def _waiting(due: Sequence[float], ended: Sequence[float]) -> str:
    """The last quarter of requests must not have waited a good part of the run longer than a quick answer takes."""
    took = [end - at for at, end in sorted(zip(due, ended, strict=True))]
    quarter = len(took) // 4
    if len(took) < 2 * LEAST_HALF:
        return ""
    quick, last, span = sorted(took)[quarter], statistics.median(took[-quarter:]), max(due) - min(due)
    if last - quick <= LONGER * span:
        return ""
    return f"requests came faster than they were answered: of the last ones half took over {last:.2f} s, a quick one {quick:.2f} s, in a run of {span:.1f} s"


def _growing(due: Sequence[float], ended: Sequence[float]) -> str:
    """Compared are the two halves of the requests that came after the first answer had ended; those before fill the server.

    The halves must differ by more than chance would make them (in flight are a Poisson number of requests, at best).
    """
    ends = sorted(ended)
    waiting = [i + 1 - answered for i, at in enumerate(sorted(due)) if (answered := bisect.bisect_right(ends, at))]
    half = len(waiting) // 2
    if half < LEAST_HALF:
        return ""
    early, late = sum(waiting[:half]) / half, sum(waiting[half:]) / (len(waiting) - half)
    if late <= 1.25 * early + 2 * math.sqrt(early):
        return ""
    return f"requests came faster than they were answered: {early:.1f} were in flight in the run's first half, {late:.1f} in its second"


def loads(spec: ExperimentSpec, records: window.Lines) -> list[LoadMeasurement]:
    """What each point with a rate shows, in the experiment's order; points without a record are left out."""
    found = []
    for point in spec.points:
        own = [(line, r) for line, r in records if r.point == point.key and not r.warmup]
        if point.rate_per_s is not None and own:
            found.append(load_of(point.key, point.rate_per_s, own))
    return found


def load_of(point: str, rate_per_s: float, records: window.Lines) -> LoadMeasurement:
    """All requests of one point with a rate. The window is from the first that was due to the last."""
    due = [window.began_s(r) for _, r in records]
    ended = [r.closed_at_s for _, r in records]
    span: tuple[float, float] | Withheld = (min(due), max(due))
    if min(due) == max(due):
        span = Withheld(withheld="no two requests were due at different times", reason_code="no_window")
    return LoadMeasurement(
        point=point,
        concurrency=1,
        n_requests=len(records),
        window_s=span if isinstance(span, tuple) else None,
        tokens_per_s=window.rate_in(records, span),
        observed_concurrency=window.in_flight(records, span),
        rate_per_s=rate_per_s,
        observed_rate_per_s=window.number((len(records) - 1) / (span[1] - span[0]), "requests after the first ÷ seconds", records, span)
        if isinstance(span, tuple)
        else span,
        overloaded=overload(due, ended) or _unknown(due, ended),
    )


def _unknown(due: Sequence[float], ended: Sequence[float]) -> str:
    """In words, if too few came after the first answer to see whether the engine keeps up: that is no sign that it does."""
    after = sum(at >= min(ended) for at in due)
    if after >= 2 * LEAST_HALF:
        return ""
    return f"{after} of {len(due)} requests came after the first answer had ended, too few to see whether the engine keeps up"


def fault(load: LoadMeasurement | None) -> str:
    """Why latency at a rate is no steady number in this start; empty if it is one."""
    if load is None:
        return "no request was sent by the clock"
    return load.overloaded


def load_at(attempt: AttemptMeasurement, point: str) -> LoadMeasurement | None:
    return next((load for load in attempt.loads if load.point == point), None)


def overloaded(attempts: Sequence[AttemptMeasurement], point: Point) -> Withheld | None:
    """What stands in the place of latencies at a rate, if any of the starts did not keep up; None if all did, or no rate was asked for.

    One start is enough: to leave out the starts that fell behind would leave those that were lucky.
    """
    if point.rate_per_s is None:
        return None
    for attempt in attempts:
        if why := fault(load_at(attempt, point.key)):
            return Withheld(withheld=f"overloaded: {attempt.trial}: {why}; {remedy(point.rate_per_s)}", reason_code=OVERLOADED)
    return None


def remedy(rate_per_s: float) -> str:
    return f"lower the rate, now {rate_per_s:g} a second, or take more probes"
