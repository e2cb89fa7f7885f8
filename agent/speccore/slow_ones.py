"""How slow the slow requests of both arms of a comparison are: p95 and p99 of what a person waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from . import openloop
from .measurement import AttemptMeasurement, TailLine, Withheld, WithheldTail, value_of
from .pairs import BlockPairs, used_probes
from .spec import Point
from .tails import LEAST_PROBES, tail

#: Metrics of a probe, in the order of the page.
_OF_A_PROBE = ("ttft_any_s", "e2e_s", "token_latency_ms")


def tail_lines(
    baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement], blocks: Sequence[BlockPairs], point: Point
) -> list[TailLine | WithheldTail]:
    """Both percentiles of each metric for both sides; the time for equal work only where requests ran one at a time.

    By the clock, none that counts from when a request was due if an engine fell behind.
    """
    behind = openloop.overloaded([*baseline, *arm], point)
    found: list[TailLine | WithheldTail] = []
    sides: tuple[tuple[Literal["arm", "baseline"], Sequence[AttemptMeasurement]], ...] = (("arm", arm), ("baseline", baseline))
    for side, attempts in sides:
        trials = {metric: [_values(a, point.key, metric) for a in attempts] for metric in _OF_A_PROBE}
        if point.concurrency == 1:
            trials["equal_work_s"] = [[m.right_s if side == "arm" else m.left_s for m in b.matched] for b in blocks]
        for metric, values in trials.items():
            why = behind.withheld if behind and metric != "token_latency_ms" else ""
            found += [_line(side, metric, quantile, values, why) for quantile in LEAST_PROBES]
    return found


def _values(attempt: AttemptMeasurement, point: str, metric: str) -> list[float]:
    return [v for p in used_probes([attempt], point) if (v := value_of(getattr(p, metric))) is not None]


def _line(
    side: Literal["arm", "baseline"], metric: str, quantile: float, trials: Sequence[Sequence[float]], withheld: str
) -> TailLine | WithheldTail:
    """``withheld``: why nothing of it is shown, however many probes there are."""
    if withheld:
        return WithheldTail(side=side, metric=metric, quantile=quantile, withheld=withheld)
    found = tail(trials, quantile)
    if isinstance(found, Withheld):
        return WithheldTail(side=side, metric=metric, quantile=quantile, withheld=found.withheld)
    return TailLine(
        side=side,
        metric=metric,
        quantile=quantile,
        value=found.estimate,
        low=found.low,
        high=found.high,
        n_probes=found.n_probes,
        n_trials=found.n_trials,
        note=found.high_withheld,
    )
