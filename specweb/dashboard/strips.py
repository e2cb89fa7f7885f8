"""The answers at the top of an experiment page: one strip for each kind of work, all on one small log axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Number, Withheld
from speccore.spec import ExperimentSpec, Point

from . import formats
from .comparison_table import Cell, NumbersUrl, point_title, speedup_cell


@dataclass(frozen=True)
class StripMark:
    """An arm in a strip's small plot; positions in its viewBox, rounded to a tenth."""

    mode: str
    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    chosen: bool


@dataclass(frozen=True)
class Strip:
    """The answer for one kind of work. ``key`` is its point's."""

    key: str
    title: str
    detail: str
    word: str
    arm: str
    mode: str
    sentence: str
    speedup: Cell
    cost: str
    marks: list[StripMark]
    ticks: list[tuple[float, str]]
    band: tuple[float, float]  # x and width of the margin
    one: float
    next_step: str = ""


#: Verdicts that name an arm to run; the others say that none is worth it.
_WITH_ARM = ("keep", "shorten")
_PLOT_WIDTH = 260.0
_PLOT_PAD = 12.0
_PLOT_TOP, _PLOT_BODY = 3.0, 26.0


def strips(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[Strip]:
    """One answer for each point, with all its arms on one small axis that all strips share."""
    scale = _log_scale(analysis.comparisons, spec.margin)
    result = []
    for point in spec.points:
        answer = next((a for a in analysis.answers if a.get("point") == point.key), None)
        here = [c for c in analysis.comparisons if c.point == point.key]
        if answer is None or not here:
            continue
        result.append(_strip(spec, point, answer, here, titles, url, scale))
    return result


def _strip(
    spec: ExperimentSpec,
    point: Point,
    answer: Mapping[str, object],
    here: list[ComparisonResult],
    titles: Mapping[str, str],
    url: NumbersUrl,
    scale: Callable[[float], float],
) -> Strip:
    title, detail = point_title(point, titles)
    word = str(answer.get("word", ""))
    named = next((c for c in here if c.arm == answer.get("arm")), None)
    shown = named or _best(here)
    left, right = scale(1 / (1 + spec.margin)), scale(1 + spec.margin)
    return Strip(
        key=point.key,
        title=title,
        detail=detail,
        word=word,
        arm=shown.arm if word in _WITH_ARM else "",
        mode=shown.mode,
        sentence=_beside_ratio(shown),
        speedup=speedup_cell(shown.speedup, url(shown.arm, shown.point, "speedup")),
        cost=_cost(spec, shown) if word in _WITH_ARM else f"{'at best, ' if isinstance(shown.speedup, Interval) else ''}with {shown.arm}",
        marks=_strip_marks(here, scale, shown),
        ticks=[(round(scale(t), 1), f"{t:g}×") for t in _strip_ticks(scale)],
        band=(left, round(right - left, 1)),
        one=scale(1.0),
        next_step=shown.verdict.next_step,
    )


def _beside_ratio(c: ComparisonResult) -> str:
    """The verdict's sentence without its first part where that only says again what stands beside it."""
    if isinstance(c.speedup, Interval) and c.speedup.withheld == c.verdict.sentence:
        return ""
    first, _, rest = c.verdict.sentence.partition("; ")
    repeats = isinstance(c.speedup, Interval) and first.startswith(formats.ratio(c.speedup.estimate)) and first.endswith("baseline's speed")
    return rest if repeats else c.verdict.sentence


def _best(here: list[ComparisonResult]) -> ComparisonResult:
    """The arm with the highest estimate, to stand beside an answer that recommends none."""
    return max(here, key=lambda c: c.speedup.estimate if isinstance(c.speedup, Interval) else 0.0)


def _cost(spec: ExperimentSpec, c: ComparisonResult) -> str:
    """What the arm costs beside time: memory and context."""
    parts = []
    if isinstance(c.memory_bill_bytes, Number):
        parts.append(f"{formats.signed_size(c.memory_bill_bytes.value)} memory")
    if c.context_lost_tokens:
        parts.append(f"{c.context_lost_tokens:,} tokens of context lost")
    elif c.context_lost_tokens == 0:
        parts.append(f"{spec.engine.context:,} context kept")
    if c.slots_lost:
        parts.append(f"{c.slots_lost} slots lost")
    if c.kv_tokens_lost and c.kv_tokens_lost > 0:
        parts.append(f"{c.kv_tokens_lost:,.0f} tokens of KV cache lost")
    return " · ".join(parts)


def _strip_marks(here: list[ComparisonResult], scale: Callable[[float], float], shown: ComparisonResult) -> list[StripMark]:
    """The arms one below the other, the one that the answer names drawn last, on top."""
    marks = []
    for i, c in enumerate(here):
        if isinstance(c.speedup, Withheld):
            continue
        s = c.speedup
        known = s.low is not None and s.high is not None
        marks.append(
            StripMark(
                mode=c.mode,
                x=scale(s.estimate),
                y=round(_PLOT_TOP + (i + 0.5) * _PLOT_BODY / len(here), 1),
                low=scale(s.low or 0) if known else None,
                high=scale(s.high or 0) if known else None,
                title=f"{c.arm} {formats.ratio(s.estimate)}" + (f" ({formats.ratio_range(s.low or 0, s.high or 0)})" if known else ""),
                chosen=c is shown,
            )
        )
    return sorted(marks, key=lambda m: m.chosen)


def _log_scale(comparisons: Iterable[ComparisonResult], margin: float) -> Callable[[float], float]:
    """Position of a ratio on an axis that holds every estimate and interval, log and never narrower than ⅔ to 1.5."""
    values = [1 / 1.5, 1.5, 1 + margin, 1 / (1 + margin)]
    for c in comparisons:
        if isinstance(c.speedup, Interval):
            values += [v for v in (c.speedup.estimate, c.speedup.low, c.speedup.high) if v]
    low, high = math.log(max(min(values), 1e-3)), math.log(min(max(values), 1e3))

    def place(ratio: float) -> float:
        share = (math.log(max(ratio, 1e-3)) - low) / (high - low)
        return round(_PLOT_PAD + min(max(share, 0.0), 1.0) * (_PLOT_WIDTH - 2 * _PLOT_PAD), 1)

    return place


def _strip_ticks(scale: Callable[[float], float]) -> list[float]:
    """1× and as many round ratios as fit with 34 units between them."""
    kept = [1.0]
    for tick in (0.5, 2.0, 3.0, 0.25, 5.0, 0.7, 1.5, 10.0, 0.1):
        x = scale(tick)
        if _PLOT_PAD < x < _PLOT_WIDTH - _PLOT_PAD and all(abs(x - scale(k)) >= 34 for k in kept):
            kept.append(tick)
    return sorted(kept)
