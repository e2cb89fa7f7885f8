"""How the client itself did while it measured: its lag, its load, and whether it was the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence

from speccore import openloop
from speccore.formats import percent
from speccore.records import ClientHealth, StreamRecord
from speccore.times import percentile

from .asking import Exchange, Open, Plan
from .receive import EXACT_S, Stamps


def _first_data_at(exchange: Exchange) -> float | None:
    return next((s.at_s for s in exchange.segments if b"data:" in s.data), None)


def window(plan: Plan, exchanges: list[Exchange]) -> tuple[float, float] | None:
    """From the moment when all were decoding until the last request was sent. Open loop: from the first sent to the last."""
    if not exchanges:
        return None
    last_sent = exchanges[-1].sent_at
    if isinstance(plan, Open):
        return (exchanges[0].sent_at, last_sent) if last_sent > exchanges[0].sent_at else None
    moves = sorted(
        (moment, change)
        for e in exchanges
        if (first := _first_data_at(e)) is not None
        for moment, change in ((first, 1), (e.closed_at, -1))
    )
    decoding = 0
    for moment, change in moves:
        decoding += change
        if decoding == plan.concurrency:
            return (moment, last_sent) if last_sent > moment else None
    return None


def health_of_reads(
    exchanges: Sequence[Exchange], span: tuple[float, float] | None, cpu_share: float, rounds_s: Sequence[float]
) -> ClientHealth:
    """Of a load before its answers are parsed: each read counts as an event."""
    observed = None
    if span:
        begin, end = span
        observed = sum(max(0.0, min(e.closed_at, end) - max(e.sent_at, begin)) for e in exchanges) / (end - begin)
    lags = [(s.read_at_s - s.at_s, s.queued) for e in exchanges for s in e.segments]
    return _health(lags, [e.stamps for e in exchanges if e.segments]).model_copy(
        update={
            "cpu_share": cpu_share,
            "observed_concurrency": observed,
            "round_ms_p99": 1000 * percentile(rounds_s, 99) if rounds_s else None,
        }
    )


def health_of_records(records: Sequence[StreamRecord], *, measured: ClientHealth | None = None) -> ClientHealth:
    """Of parsed answers; ``measured`` is the load's own, for what no record tells."""
    lags = [(e.read_at_s - e.at_s if e.read_at_s is not None else 0.0, e.queued) for r in records for e in r.events]
    known = measured.model_dump(include={"cpu_share", "observed_concurrency", "round_ms_p99"}) if measured else {}
    return _health(lags, [r.stamps for r in records if r.events]).model_copy(update=known)


def _health(lags: Sequence[tuple[float, bool]], stamps: Sequence[Stamps]) -> ClientHealth:
    """``lags``: seconds from arrival to read of each event, and whether its arrival is only a bound."""
    by_kernel = bool(stamps) and all(s == "kernel" for s in stamps)
    ms = [1000 * lag for lag, _ in lags] if by_kernel else []
    return ClientHealth(
        n_events=len(lags),
        n_late=sum(lag > 1000 * EXACT_S for lag in ms),
        n_queued=sum(queued for _, queued in lags),
        lag_ms_p50=percentile(ms, 50) if ms else None,
        lag_ms_p99=percentile(ms, 99) if ms else None,
        lag_ms_max=max(ms, default=None),
        stamps="kernel" if by_kernel else "user",
    )


#: Above these the numbers are the client's, not the server's.
MOST_QUEUED = 0.01
MOST_CPU = 0.9
MOST_ROUND_MS = 1.0


def bottleneck(health: ClientHealth) -> str:
    """In words, if the client could not keep up with what it measured; else nothing."""
    queued = health.n_queued / health.n_events if health.n_events else 0.0
    if queued > MOST_QUEUED:
        return f"the client read {percent(queued, 1)} of the events so late that their arrival is only a bound (at most {percent(MOST_QUEUED)} may be)"
    if health.cpu_share is not None and health.cpu_share > MOST_CPU:
        return f"the client used {percent(health.cpu_share)} of a core: what it measured may be its own speed"
    if health.stamps == "user" and health.round_ms_p99 is not None and health.round_ms_p99 > MOST_ROUND_MS:
        return f"without the kernel's stamps an arrival is as late as the client's look at it, here up to {health.round_ms_p99:.1f} ms"
    return ""


def overload(exchanges: Sequence[Exchange]) -> str:
    """In words, if requests by the clock came faster than they were answered."""
    timed = [(e.scheduled_at, e.closed_at) for e in exchanges if e.scheduled_at is not None]
    return openloop.overload([at for at, _ in timed], [end for _, end in timed])
