"""How slow the slow requests are, as the numbers page shows it: p95 and p99 of both arms, or what they lack. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speccore.measurement import TailLine, WithheldTail
from speccore.metrics import METRICS
from speccore.tails import LEAST_PROBES

from .comparison_table import Cell


@dataclass(frozen=True)
class TailRow:
    """One side's percentiles of a metric; ``first`` begins the metric."""

    name: str
    unit: str
    definition: str
    side: str
    cells: list[Cell]
    first: bool


HEADS = [f"p{100 * quantile:g}" for quantile in LEAST_PROBES]


def tail_rows(tails: Sequence[TailLine | WithheldTail], arm: str, baseline: str) -> list[TailRow]:
    found = {(t.metric, t.quantile, t.side): t for t in tails}
    metrics = [m for m in ("ttft_any_s", "equal_work_s", "e2e_s", "token_latency_ms") if any(t.metric == m for t in tails)]
    return [
        TailRow(
            name=METRICS[metric].name,
            unit=METRICS[metric].unit,
            definition=METRICS[metric].definition,
            side=name,
            cells=[_cell(found.get((metric, q, side))) for q in LEAST_PROBES],
            first=side == "arm",
        )
        for metric in metrics
        for side, name in (("arm", arm), ("baseline", baseline))
    ]


def _cell(t: TailLine | WithheldTail | None) -> Cell:
    if t is None:
        return Cell()
    if isinstance(t, WithheldTail):
        short = t.withheld.partition(" ")[2]  # the column says which percentile
        return Cell(f"withheld: {short}", title=t.withheld, withheld=True)
    show = METRICS[t.metric].show
    high = show(t.high) if t.high is not None else "?"
    title = f"over {t.n_probes} probes in {t.n_trials} starts, 95 % interval" + (f"; {t.note}" if t.note else "")
    return Cell(show(t.value), note=f"{show(t.low)}–{high}", title=title)
