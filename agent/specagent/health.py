"""How the client itself did while it measured: its lag, its load, and whether it was the bottleneck."""

from __future__ import annotations

import bisect
import math

from speccore.records import ClientHealth

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


def health_of_reads(exchanges: list[Exchange], span: tuple[float, float] | None, cpu_share: float) -> ClientHealth:
    observed = None
    if span:
        begin, end = span
        observed = sum(max(0.0, min(e.closed_at, end) - max(e.sent_at, begin)) for e in exchanges) / (end - begin)
    lags = [(s.read_at_s - s.at_s, s.queued) for e in exchanges for s in e.segments]
    stamps: Stamps = "kernel" if exchanges and all(e.stamps == "kernel" for e in exchanges) else "user"
    return client_health(lags, stamps, cpu_share=cpu_share, observed_concurrency=observed)


def client_health(
    lags: list[tuple[float, bool]], stamps: Stamps, *, cpu_share: float | None = None, observed_concurrency: float | None = None
) -> ClientHealth:
    """``lags``: seconds from arrival to read of each event, and whether its arrival is only a bound."""
    known = sorted(1000 * lag for lag, _ in lags) if stamps == "kernel" else []

    def at(share: float) -> float | None:
        return known[min(len(known) - 1, math.ceil(share * len(known)) - 1)] if known else None

    return ClientHealth(
        n_events=len(lags),
        n_late=sum(lag > 1000 * EXACT_S for lag in known),
        n_queued=sum(queued for _, queued in lags),
        lag_ms_p50=at(0.5),
        lag_ms_p99=at(0.99),
        lag_ms_max=at(1.0),
        cpu_share=cpu_share,
        observed_concurrency=observed_concurrency,
        stamps=stamps,
    )


def overload(exchanges: list[Exchange]) -> str:
    """In words, if requests in flight kept growing: later requests then wait for earlier ones, and no latency is steady.

    Compared are the second and the third third of the requests; the first fills the server.
    """
    starts = sorted(e.scheduled_at for e in exchanges if e.scheduled_at is not None)
    ends = sorted(e.closed_at for e in exchanges)
    third = len(starts) // 3
    if third < 4:
        return ""
    waiting = [i + 1 - bisect.bisect_right(ends, at) for i, at in enumerate(starts)]
    middle, last = sum(waiting[third : 2 * third]) / third, sum(waiting[-third:]) / third
    if last <= 1.25 * middle + 2 * math.sqrt(middle) / math.sqrt(third) + 1:
        return ""
    return f"requests came faster than they were answered: {middle:.1f} were in flight in the middle of the run, {last:.1f} at its end"
