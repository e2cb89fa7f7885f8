"""Statistics of paired blocks: ratios with intervals, drift, noise floor, and how many blocks a question needs.

Everything is in natural logarithms of a ratio baseline ÷ arm until it is shown. The unit of replication is the block
(one server start of each arm), never the probe: see Kalibera & Jones, *Rigorous benchmarking in reasonable time* (2013).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from .measurement import Interval, Withheld

CONFIDENCE = 0.95
MIN_BLOCKS = 3
MIN_BLOCKS_FOR_DRIFT = 4  # a line through fewer blocks leaves less than two degrees of freedom
MIN_AA_CONTRASTS = 10
#: Drift is believed at a fifth of the interval's own error (p < 0.01 beside 95 %). The estimate depends on this belief, and
#: what passes by chance has too narrow an interval: at p < 0.05 intervals of 5 noisy blocks cover 93.5 %, not 95.
DRIFT_SHARE = 0.2
MOST_BLOCKS = 10_000  # beyond this "more blocks" is no advice

#: One experiment a row, its blocks along the last axis.
Rows = NDArray[np.float64]

#: Seconds of one block: item → (baseline, arm), matched prompts only.
Pairs = Mapping[str, tuple[float, float]]


def block_value(pairs: Pairs) -> float:
    """Mean over matched prompts of ln(baseline ÷ arm); each prompt weighs the same. Raises ValueError without pairs."""
    if not pairs:
        raise ValueError("a block without matched prompts has no value")
    return float(np.mean([math.log(baseline / arm) for baseline, arm in pairs.values()]))


def total_value(pairs: Pairs) -> float:
    """ln(Σ baseline ÷ Σ arm) over the matched prompts of a block: long prompts weigh more."""
    if not pairs:
        raise ValueError("a block without matched prompts has no value")
    return math.log(sum(b for b, _ in pairs.values()) / sum(a for _, a in pairs.values()))


def too_few_blocks(n: int) -> str:
    return f"needs {MIN_BLOCKS} blocks, has {n}"


def ratio_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | Withheld:
    """exp(mean of block values) with its t interval over blocks; below 3 blocks the interval is withheld."""
    n = len(values)
    if n == 0:
        return Withheld(withheld=too_few_blocks(0), reason_code="no_blocks")
    if n < MIN_BLOCKS:
        return Interval(estimate=math.exp(float(np.mean(values))), n_blocks=n, withheld=too_few_blocks(n))
    mean, half = mean_and_half_width(np.asarray(values, dtype=float), confidence)
    return _interval(float(mean), float(half), n, "t over blocks")


def mean_and_half_width(values: Rows, confidence: float = CONFIDENCE) -> tuple[Rows, Rows]:
    """Of the t interval over the last axis, in logs."""
    n = values.shape[-1]
    half = t_quantile(n - 1, confidence) * np.std(values, axis=-1, ddof=1) / math.sqrt(n)
    return np.mean(values, axis=-1), half


def _interval(middle: float, half: float, n: int, method: str) -> Interval:
    return Interval(estimate=math.exp(middle), low=math.exp(middle - half), high=math.exp(middle + half), n_blocks=n, method=method)


def t_quantile(df: float, confidence: float = CONFIDENCE) -> float:
    """Two-sided quantile of Student's t, e.g. 2.776 for 4 degrees of freedom."""
    return float(stdtrit(df, 0.5 + confidence / 2))


def standard_error(values: Sequence[float]) -> float:
    """Of the mean of independent values."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values))


def p_value(values: Sequence[float]) -> float | None:
    """Two-sided p of a t test that the mean block value is 0 (no difference); None below 3 blocks."""
    if len(values) < MIN_BLOCKS:
        return None
    return _p_of_t(float(np.mean(values)), standard_error(values), len(values) - 1)


def _p_of_t(estimate: float, se: float, df: int) -> float:
    if se == 0:
        return 1.0 if estimate == 0 else 0.0
    return float(2 * stdtr(df, -abs(estimate / se)))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's step-down adjustment (Holm 1979): family-wise error over the given names."""
    adjusted: dict[str, float] = {}
    running = 0.0
    for rank, (name, p) in enumerate(sorted(p_values.items(), key=lambda pair: pair[1])):
        running = max(running, min(1.0, p * (len(p_values) - rank)))
        adjusted[name] = running
    return adjusted


def leave_one_prompt_out(blocks: Sequence[Pairs]) -> tuple[float, float] | Withheld:
    """Lowest and highest speed-up when any one prompt is left out of all blocks; shows whether one prompt carries the result."""
    items = sorted({item for pairs in blocks for item in pairs})
    if len(items) < 2:
        return Withheld(withheld=f"needs 2 prompts, has {len(items)}", reason_code="too_few_prompts")
    speedups = []
    for left_out in items:
        rest = [{item: pair for item, pair in pairs.items() if item != left_out} for pairs in blocks]
        values = [block_value(pairs) for pairs in rest if pairs]
        if values:
            speedups.append(math.exp(float(np.mean(values))))
    return min(speedups), max(speedups)


@dataclass(frozen=True)
class Drift:
    """Block values against the arm's position minus the baseline's. ``adjusted`` is the ratio at equal positions.

    A host that slows as a block goes on favours whoever runs first: with a slowdown of s (natural log) for each position
    the block value is truth − s · difference, so the line's value at difference 0 is free of it.
    """

    slope: float
    p: float
    shift: float  # what the drift moves a typical block by: |slope| · root mean square difference
    flagged: bool
    adjusted: Interval
    adjusted_p: float  # two-sided, that the ratio at equal positions is 1


@dataclass(frozen=True)
class Lines:
    """Least-squares lines of block values on position differences, one for each row. Errors are in logs."""

    slope: Rows
    at_zero: Rows  # the value at equal positions
    slope_se: Rows
    at_zero_se: Rows
    shift: Rows  # |slope| · root mean square difference
    df: int

    def flagged(self, margin: float, confidence: float) -> NDArray[np.bool_]:
        """Which slopes are surely there (p under a fifth of 1 − confidence) and move a typical block by more than the margin."""
        surely = np.abs(self.slope) > t_quantile(self.df, 1 - DRIFT_SHARE * (1 - confidence)) * self.slope_se
        return np.asarray(surely & (self.shift > math.log1p(margin)))


def lines(values: Rows, differences: Rows) -> Lines:
    """Rows must have 3 blocks or more, at two distances or more."""
    n = values.shape[-1]
    x_mean, y_mean = (np.mean(a, axis=-1, keepdims=True) for a in (differences, values))
    sxx = np.sum((differences - x_mean) ** 2, axis=-1)
    slope = np.sum((differences - x_mean) * (values - y_mean), axis=-1) / sxx
    at_zero = y_mean[..., 0] - slope * x_mean[..., 0]
    left = values - at_zero[..., None] - slope[..., None] * differences
    residual = np.sqrt(np.sum(left**2, axis=-1) / (n - 2))
    return Lines(
        slope=slope,
        at_zero=at_zero,
        slope_se=residual / np.sqrt(sxx),
        at_zero_se=residual * np.sqrt(1 / n + x_mean[..., 0] ** 2 / sxx),
        shift=np.abs(slope) * np.sqrt(np.mean(differences**2, axis=-1)),
        df=n - 2,
    )


def drift(values: Sequence[float], position_differences: Sequence[int], margin: float, confidence: float = CONFIDENCE) -> Drift | Withheld:
    """Ordinary least squares. Flagged if the slope is surely there and moves a typical block by more than the margin.

    Both are asked for: a slope too small to matter is left alone, and one by chance is rare.
    """
    n = len(values)
    if n < MIN_BLOCKS_FOR_DRIFT:
        return Withheld(withheld=f"needs {MIN_BLOCKS_FOR_DRIFT} blocks, has {n}", reason_code="too_few_blocks")
    if len(set(position_differences)) < 2:
        return Withheld(withheld="the arm stood at one distance from the baseline in all blocks", reason_code="one_position")
    line = lines(np.asarray(values, dtype=float), np.asarray(position_differences, dtype=float))
    slope, at_zero, se = float(line.slope), float(line.at_zero), float(line.at_zero_se)
    return Drift(
        slope=slope,
        p=_p_of_t(slope, float(line.slope_se), line.df),
        shift=float(line.shift),
        flagged=bool(line.flagged(margin, confidence)),
        adjusted=_interval(at_zero, t_quantile(line.df, confidence) * se, n, "regression on position"),
        adjusted_p=_p_of_t(at_zero, se, line.df),
    )


@dataclass(frozen=True)
class Speedup:
    """The interval that decides, its p, and what was found of drift: where that is flagged, both are of the regression."""

    interval: Interval | Withheld
    p: float | None
    drift: Drift | Withheld


def speedup(values: Sequence[float], position_differences: Sequence[int], margin: float, confidence: float = CONFIDENCE) -> Speedup:
    found = drift(values, position_differences, margin, confidence)
    if isinstance(found, Drift) and found.flagged:
        return Speedup(found.adjusted, found.adjusted_p, found)
    return Speedup(ratio_interval(values, confidence), p_value(values), found)


def speedups(values: Rows, differences: Rows, margin: float, confidence: float = CONFIDENCE) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """The same for many experiments at once: middles and half-widths in logs, and where drift was flagged. For simulations.

    Each row needs its arm at two distances from the baseline or more, as every balanced order of 2 blocks or more has.
    """
    middle, half = mean_and_half_width(values, confidence)
    if values.shape[-1] < MIN_BLOCKS_FOR_DRIFT:
        return middle, half, np.zeros(middle.shape, dtype=bool)
    line = lines(values, differences)
    flagged = line.flagged(margin, confidence)
    adjusted = t_quantile(line.df, confidence) * line.at_zero_se
    return np.where(flagged, line.at_zero, middle), np.where(flagged, adjusted, half), flagged


def noise_floor(estimates: Sequence[float], standard_errors: Sequence[float]) -> float | Withheld:
    """The bias that blocks don't remove on a host, as a ratio minus 1, from A/A contrasts (logs and their standard errors).

    exp(2·√max(0, var(estimates) − mean(se²))) − 1: what the estimates vary by beyond what their own errors explain.
    """
    n = len(estimates)
    if n != len(standard_errors):
        raise ValueError(f"{n} estimates with {len(standard_errors)} standard errors")
    if n < MIN_AA_CONTRASTS:
        return Withheld(withheld=f"needs {MIN_AA_CONTRASTS} A/A contrasts, has {n}", reason_code="too_few_contrasts")
    beyond = float(np.var(estimates, ddof=1)) - float(np.mean(np.square(standard_errors)))
    return math.exp(2 * math.sqrt(max(0.0, beyond))) - 1


def blocks_needed(values: Sequence[float], half_width: float, confidence: float = CONFIDENCE) -> int | None:
    """Blocks for an interval of ± ``half_width`` (in logs) if the spread stays as seen; None if over 10,000 or unknown."""
    if len(values) < MIN_BLOCKS or half_width <= 0:
        return None
    sd = float(np.std(values, ddof=1))
    low, high = MIN_BLOCKS, MOST_BLOCKS
    if t_quantile(high - 1, confidence) * sd / math.sqrt(high) > half_width:
        return None
    while low < high:
        middle = (low + high) // 2
        if t_quantile(middle - 1, confidence) * sd / math.sqrt(middle) <= half_width:
            high = middle
        else:
            low = middle + 1
    return low


@dataclass(frozen=True)
class PassDifference:
    """Share of checks passed, arm minus baseline, over distinct prompts, with a 95 % interval."""

    n: int
    baseline: float
    arm: float
    low: float
    high: float
    needed: int  # prompts for a half-width of the tolerance, if prompts go on differing as often


def prompts_to_hold(tolerance: float) -> int:
    """Prompts for a half-width of ``tolerance`` if none differs: the interval then shrinks as 1/n, since only the two added ones do."""
    return math.ceil(float(ndtri(0.5 + CONFIDENCE / 2)) / tolerance) - 2


def pass_difference(per_prompt: Sequence[tuple[float, float]], tolerance: float) -> PassDifference | Withheld:
    """``per_prompt``: (baseline, arm) share of passed checks for each distinct prompt.

    Wald interval after adding two prompts, one won and one lost by half (Agresti & Min 2005), so that no observed
    difference between few prompts does not look like proof of none.
    """
    if not per_prompt:
        return Withheld(withheld="no prompt has a check", reason_code="no_checks")
    n = len(per_prompt)
    differences = [arm - baseline for baseline, arm in per_prompt]
    total, squares = sum(differences), sum(d * d for d in differences)
    wide_n = n + 2
    middle = total / wide_n
    per_prompt_variance = (squares + 1) / wide_n - middle**2
    z = float(ndtri(0.5 + CONFIDENCE / 2))
    half = z * math.sqrt(max(0.0, per_prompt_variance) / wide_n)
    needed = math.ceil(per_prompt_variance * (z / tolerance) ** 2) if squares else prompts_to_hold(tolerance)
    return PassDifference(
        n=n,
        baseline=float(np.mean([b for b, _ in per_prompt])),
        arm=float(np.mean([a for _, a in per_prompt])),
        low=middle - half,
        high=middle + half,
        needed=needed,
    )
