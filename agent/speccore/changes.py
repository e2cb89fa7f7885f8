"""Whether a series of runs has changed for good: a step or a drift that lasts, told from noise and from single odd runs.

The method is that of Hunter (now Apache Otava): change points as in E-divisive (Matteson & James, *JASA* 109, 2014), with
Student's t-test in place of its permutations and a smallest change that matters (Fleming et al., *Hunter: Using Change Point
Detection to Hunt for Performance Regressions*, ICPE 2023, arXiv:2301.03034). Here the test is asked anew at each run, on a
look-back window, so that what was once said never changes when later runs come.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from scipy.special import stdtr, stdtrit

from .measurement import Withheld

#: Runs of the state before that are compared, the newest; fewer than the least say nothing.
MOST_BEFORE, LEAST_BEFORE = 20, 5
#: Runs in which a change must show itself; each of them lies on its side, so that a single odd run is never one.
LEAST_AFTER, MOST_AFTER = 3, 8
#: Of each test. Very many are asked of one series, most of the same runs; `make bench-watch` shows what becomes of it in all.
P_VALUE = 1e-5
#: Runs farther from the median than so many (robust) standard deviations count as if they lay there; fewer runs have no such scale.
WINSORIZED_AT, LEAST_WINSORIZED = 4.0, 8
MAD_TO_SD = 1.4826
#: A line explains what happened better than a step if it leaves less than this share of the step's squares.
DRIFT_LEAVES = 0.8


@dataclass(frozen=True)
class Run:
    """One run's number, higher being better, with its 95 % interval if it has one. ``value`` None: it has no number.

    ``counts`` False: it was invalid. ``build`` names what may have changed; ``key`` is the caller's own.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    build: str = ""
    key: str = ""
    counts: bool = True

    @property
    def usable(self) -> bool:
        return self.counts and self.value is not None and math.isfinite(self.value) and self.value > 0


@dataclass(frozen=True)
class Level:
    """A geometric mean of ``n`` runs, or the ratio of two, with its 95 % interval."""

    estimate: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Change:
    """A change between two runs that follow each other. ``before`` and ``after`` are geometric means of the runs on each side.

    ``change`` is after ÷ before with its interval. ``found_at`` is the run with which it was found.
    """

    better: bool
    shape: str  # "step" or "drift"
    before: Level
    after: Level
    change: Level
    p: float
    before_keys: tuple[str, ...]
    after_keys: tuple[str, ...]
    last_before: str  # key of the last run before it …
    first_after: str  # … and of the first one after it
    found_at: str
    build_before: str
    build_after: str


def changes(runs: Sequence[Run], *, smallest: float = 0.02) -> list[Change] | Withheld:
    """All changes for good in a series, oldest first. ``smallest``: less than this share of the value before is none.

    A run without a number and one that doesn't count are left out. Withheld where there are too few runs to say anything.
    """
    used = [r for r in runs if r.usable]
    least = LEAST_BEFORE + LEAST_AFTER
    if len(used) < least:
        return Withheld(withheld=f"needs {least} valid runs, has {len(used)}", reason_code="too_few")
    logs = [math.log(r.value) for r in used if r.value is not None]
    spread = [_own_variance(r) for r in used]
    least_step = math.log1p(smallest)
    found, start = [], 0
    for end in range(least, len(used) + 1):
        best = _best_split(logs, spread, start, end, least_step)
        if best is not None:
            split, p = best
            found.append(_change(used, logs, spread, max(start, split - MOST_BEFORE), split, end, p))
            start = split
    return found


def _own_variance(run: Run) -> float:
    """Of a run's logarithm, from its own interval; 0 if it has none."""
    if run.low is None or run.high is None or not 0 < run.low <= run.high or not math.isfinite(run.high):
        return 0.0
    return float(((math.log(run.high) - math.log(run.low)) / (2 * 1.96)) ** 2)


def _best_split(logs: list[float], spread: list[float], start: int, end: int, least_step: float) -> tuple[int, float] | None:
    """The likeliest change that the newest runs show, with its p; None if they show none."""
    best: tuple[int, float] | None = None
    for n_after in range(LEAST_AFTER, MOST_AFTER + 1):
        split = end - n_after
        first = max(start, split - MOST_BEFORE)
        if split - first < LEAST_BEFORE:
            break
        before, after = _winsorized(logs[first:split]), logs[split:end]
        level = fmean(before)
        step = fmean(after) - level
        # Each run after it lies beyond the middle between both states: one or two odd ones move a mean, and are no state.
        if abs(step) < least_step or any((x - level) * math.copysign(1, step) < abs(step) / 2 for x in after):
            continue
        error, df = _error(before, after, spread[first:end])
        p = 2 * float(stdtr(df, -abs(step) / error)) if error > 0 else 0.0
        if p < P_VALUE and (best is None or p < best[1]):
            best = split, p
    return best


def _winsorized(xs: list[float]) -> list[float]:
    """With what lies far out drawn in, so that one odd run before neither hides a change nor makes one."""
    if len(xs) < LEAST_WINSORIZED:
        return xs
    middle = median(xs)
    reach = WINSORIZED_AT * MAD_TO_SD * median(abs(x - middle) for x in xs)
    return [min(max(x, middle - reach), middle + reach) for x in xs] if reach > 0 else xs


def _error(before: list[float], after: list[float], own: list[float]) -> tuple[float, int]:
    """Standard error of the difference of both means and its degrees of freedom.

    The runs' own intervals are a floor: a few runs that happen to agree are no more certain than each of them allows.
    """
    df = len(before) + len(after) - 2
    squares = _squares(before) + _squares(after)
    variance = max(squares / df, fmean(own))
    return math.sqrt(variance * (1 / len(before) + 1 / len(after))), df


def _squares(xs: Sequence[float]) -> float:
    middle = fmean(xs)
    return sum((x - middle) ** 2 for x in xs)


def _change(used: list[Run], logs: list[float], spread: list[float], first: int, split: int, end: int, p: float) -> Change:
    before, after = _winsorized(logs[first:split]), logs[split:end]
    step = fmean(after) - fmean(before)
    error, df = _error(before, after, spread[first:end])
    reach = float(stdtrit(df, 0.975)) * error
    sd = error / math.sqrt(1 / len(before) + 1 / len(after))
    return Change(
        better=step > 0,
        shape=_shape(logs[first:split], after),
        before=_interval(fmean(before), float(stdtrit(df, 0.975)) * sd / math.sqrt(len(before)), len(before)),
        after=_interval(fmean(after), float(stdtrit(df, 0.975)) * sd / math.sqrt(len(after)), len(after)),
        change=_interval(step, reach, len(after)),
        p=p,
        before_keys=tuple(r.key for r in used[first:split]),
        after_keys=tuple(r.key for r in used[split:end]),
        last_before=used[split - 1].key,
        first_after=used[split].key,
        found_at=used[end - 1].key,
        build_before=used[split - 1].build,
        build_after=used[split].build,
    )


def _interval(middle: float, reach: float, n: int) -> Level:
    return Level(estimate=math.exp(middle), low=math.exp(middle - reach), high=math.exp(middle + reach), n=n)


def _shape(before: list[float], after: list[float]) -> str:
    """Whether a line through the window explains it clearly better than a step."""
    ys = [*before, *after]
    xs = [i - (len(ys) - 1) / 2 for i in range(len(ys))]
    slope = sum(x * y for x, y in zip(xs, ys, strict=True)) / sum(x * x for x in xs)
    middle = fmean(ys)
    line = sum((y - middle - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return "drift" if line < DRIFT_LEAVES * (_squares(before) + _squares(after)) else "step"
