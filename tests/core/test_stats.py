"""Statistics against oracles: SciPy's own tests, published forms, and simulated coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from speccore import stats
from speccore.measurement import Interval, Withheld

VALUES = [0.11, 0.14, 0.09, 0.2, 0.12]


def interval(values: list[float]) -> Interval:
    found = stats.ratio_interval(values)
    assert isinstance(found, Interval)
    return found


def test_interval_is_the_t_interval_of_the_logs() -> None:
    found = interval(VALUES)
    low, high = scipy.stats.t.interval(0.95, 4, loc=np.mean(VALUES), scale=scipy.stats.sem(VALUES))
    assert (found.estimate, found.low, found.high) == pytest.approx((math.exp(np.mean(VALUES)), math.exp(low), math.exp(high)), rel=1e-12)
    assert stats.p_value(VALUES) == pytest.approx(scipy.stats.ttest_1samp(VALUES, 0).pvalue, rel=1e-9)


@pytest.mark.parametrize("n", [1, 2])
def test_below_three_blocks_the_interval_is_withheld(n: int) -> None:
    found = interval(VALUES[:n])
    assert (found.low, found.high, found.n_blocks, found.withheld) == (None, None, n, f"needs 3 blocks, has {n}")
    assert stats.p_value(VALUES[:n]) is None


def test_without_blocks_there_is_no_ratio() -> None:
    assert stats.ratio_interval([]) == Withheld(withheld="needs 3 blocks, has 0", reason_code="no_blocks")


def test_interval_covers_the_truth_in_95_of_100() -> None:
    rng = np.random.default_rng(5)
    draws = rng.normal(0.2, 0.05, size=(4000, 4))
    hits = sum(1 for row in draws if (i := interval(list(row))).low <= math.exp(0.2) <= i.high)  # type: ignore[operator]
    assert hits / 4000 == pytest.approx(0.95, abs=0.01)


def test_prompts_weigh_the_same_in_a_block_and_by_length_in_total() -> None:
    pairs = {"short": (2.0, 1.0), "long": (30.0, 40.0)}
    assert stats.block_value(pairs) == pytest.approx((math.log(2) + math.log(0.75)) / 2)
    assert stats.total_value(pairs) == pytest.approx(math.log(32 / 41))
    with pytest.raises(ValueError, match="without matched prompts"):
        stats.block_value({})


def test_leaving_a_prompt_out_shows_what_it_carries() -> None:
    blocks = [{"a": (2.0, 1.0), "b": (1.0, 1.0)}, {"a": (4.0, 1.0)}]
    both = stats.leave_one_prompt_out(blocks)
    # Without a: only block 1 is left, at 1. Without b: the mean of ln 2 and ln 4.
    assert both == pytest.approx((1.0, math.sqrt(8)))
    assert stats.leave_one_prompt_out([{"a": (2.0, 1.0)}]) == Withheld(withheld="needs 2 prompts, has 1", reason_code="too_few_prompts")


def test_holm_steps_down_and_stays_monotone() -> None:
    assert stats.holm({"a": 0.01, "b": 0.04, "c": 0.03}) == pytest.approx({"a": 0.03, "c": 0.06, "b": 0.06})
    assert stats.holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert stats.holm({}) == {}


def test_drift_is_the_line_through_blocks() -> None:
    x, y = [-3, 2, 1, -1, 2, 3], [0.31, 0.09, 0.16, 0.25, 0.11, 0.07]
    found = stats.drift(y, x, margin=0.03)
    assert isinstance(found, stats.Drift)
    line = scipy.stats.linregress(x, y)
    half = scipy.stats.t.ppf(0.975, 4) * line.intercept_stderr
    assert (found.slope, found.p) == pytest.approx((line.slope, line.pvalue), rel=1e-9)
    expected = [math.exp(line.intercept + k * half) for k in (0, -1, 1)]
    assert [found.adjusted.estimate, found.adjusted.low, found.adjusted.high] == pytest.approx(expected, rel=1e-9)
    assert found.flagged
    assert found.adjusted.method == "regression on position"
    assert found.adjusted_p == pytest.approx(2 * scipy.stats.t.sf(line.intercept / line.intercept_stderr, 4), rel=1e-9)


def test_drift_needs_both_significance_and_size() -> None:
    x = [-2, -1, 1, 2, 1, -1]
    small = stats.drift([0.2 - 0.001 * d for d in x], x, margin=0.03)
    noisy = stats.drift([0.3, 0.0, 0.25, 0.05, 0.02, 0.28], x, margin=0.03)
    assert isinstance(small, stats.Drift)
    assert isinstance(noisy, stats.Drift)
    assert small.p < 0.05
    assert not small.flagged
    assert not noisy.flagged


def test_drift_is_as_large_as_what_it_moves_a_typical_block_by() -> None:
    x = [-2, -1, 1, 2, 1, -1]
    typical = math.sqrt(sum(d * d for d in x) / len(x))
    for slope, flagged in ((0.0295 / typical, False), (0.0297 / typical, True)):  # ln 1.03 is 0.02956
        found = stats.drift([0.2 - slope * d + 1e-6 * (i % 2) for i, d in enumerate(x)], x, margin=0.03)
        assert isinstance(found, stats.Drift)
        assert found.shift == pytest.approx(slope * typical, rel=1e-3)
        assert found.flagged is flagged


def test_drift_needs_blocks_at_different_distances() -> None:
    assert stats.drift([0.1, 0.2, 0.3], [1, -1, 2], 0.03) == Withheld(withheld="needs 4 blocks, has 3", reason_code="too_few_blocks")
    same = stats.drift([0.1, 0.2, 0.3, 0.2], [1, 1, 1, 1], 0.03)
    assert isinstance(same, Withheld)
    assert same.reason_code == "one_position"


def test_regression_recovers_the_truth_under_drift() -> None:
    """A host that slows by 5 % with each place: what the regression says covers the truth as often as it claims."""
    rng = np.random.default_rng(8)
    x = np.array([-3, 2, 1, -1, 2, -2])
    hits = flagged = 0
    for _ in range(800):
        found = stats.drift(list(0.2 - 0.05 * x + rng.normal(0, 0.01, 6)), list(x), 0.03)
        assert isinstance(found, stats.Drift)
        flagged += found.flagged
        hits += found.adjusted.low <= math.exp(0.2) <= found.adjusted.high  # type: ignore[operator]
    assert flagged / 800 > 0.99
    assert hits / 800 == pytest.approx(0.95, abs=0.02)


def test_speedup_is_the_plain_interval_or_where_drift_is_plain_the_regressions() -> None:
    x = [-3, 2, 1, -1, 2, 3]
    plain = stats.speedup(VALUES, x[:5], 0.03)
    assert (plain.interval, plain.p) == (stats.ratio_interval(VALUES), stats.p_value(VALUES))
    drifting = [0.2 - 0.05 * d + 0.001 * (i % 2) for i, d in enumerate(x)]
    found, line = stats.speedup(drifting, x, 0.03), stats.drift(drifting, x, 0.03)
    assert isinstance(line, stats.Drift)
    assert (found.interval, found.p, found.drift) == (line.adjusted, line.adjusted_p, line)
    assert stats.speedup(VALUES[:2], x[:2], 0.03).p is None


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    rng = np.random.default_rng(2)
    x = rng.choice([-2.0, -1.0, 1.0, 2.0], (300, 6))
    x[:, 0], x[:, 1] = -1.0, 1.0
    y = 0.1 - 0.03 * x + rng.normal(0, 0.006, (300, 6))
    for confidence in (0.95, 0.998):
        middle, half, flagged = stats.speedups(y, x, 0.03, confidence)
        one_by_one = [stats.speedup(list(row), [int(d) for d in at], 0.03, confidence) for row, at in zip(y, x)]
        assert list(flagged) == [isinstance(s.drift, stats.Drift) and s.drift.flagged for s in one_by_one]
        lows = [s.interval.low for s in one_by_one if isinstance(s.interval, Interval)]
        assert np.exp(middle - half) == pytest.approx(lows, rel=1e-9)
    assert 0.05 < flagged.mean() < 0.95
    assert not stats.speedups(y[:, :3], x[:, :3], 0.03)[2].any()


@pytest.mark.parametrize("noise", [0.02, 0.15])
def test_believing_in_drift_costs_no_coverage(noise: float) -> None:
    """Where nothing drifts. With drift believed at p < 0.05 it is 93.5 % at the greater noise."""
    rng = np.random.default_rng(17)
    x = np.tile([1.0, -1.0, -1.0, 1.0, 1.0], (60_000, 1))
    middle, half, flagged = stats.speedups(rng.normal(0, noise, x.shape), x, 0.03)
    assert 0.94 <= np.mean(np.abs(middle) <= half) <= 0.955
    assert flagged.mean() < 0.012


def test_noise_floor_is_what_errors_dont_explain() -> None:
    estimates = [0.01, -0.02, 0.03, -0.01, 0.02, -0.03, 0.01, 0.0, -0.02, 0.01]
    errors = [0.005] * 10
    expected = math.exp(2 * math.sqrt(np.var(estimates, ddof=1) - 0.005**2)) - 1
    assert stats.noise_floor(estimates, errors) == pytest.approx(expected)
    assert stats.noise_floor(estimates, [0.05] * 10) == 0
    assert stats.noise_floor(estimates[:9], errors[:9]) == Withheld(
        withheld="needs 10 A/A contrasts, has 9", reason_code="too_few_contrasts"
    )
    with pytest.raises(ValueError, match="10 estimates with 9"):
        stats.noise_floor(estimates, errors[:9])


def test_noise_floor_of_a_host_without_bias_is_near_zero_and_of_one_with_it_near_twice_the_bias() -> None:
    rng = np.random.default_rng(3)
    errors = [0.01] * 200
    quiet = stats.noise_floor(list(rng.normal(0, 0.01, 200)), errors)
    biased = stats.noise_floor(list(rng.normal(0, 0.03, 200) + rng.normal(0, 0.01, 200)), errors)
    assert isinstance(quiet, float)
    assert quiet < 0.012
    assert biased == pytest.approx(math.exp(0.06) - 1, abs=0.012)


def test_blocks_needed_is_the_first_that_is_narrow_enough() -> None:
    needed = stats.blocks_needed(VALUES, 0.02)
    assert needed is not None
    sd = np.std(VALUES, ddof=1)
    half = [scipy.stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n) for n in (needed - 1, needed)]
    assert half[0] > 0.02 >= half[1]
    assert stats.blocks_needed([0.1, 0.1, 0.1], 0.01) == 3
    assert stats.blocks_needed(VALUES, 1e-9) is None
    assert stats.blocks_needed(VALUES[:2], 0.1) is None
    assert stats.blocks_needed(VALUES, 0.0) is None


def test_pass_difference_claims_nothing_from_few_equal_prompts() -> None:
    few = stats.pass_difference([(1.0, 1.0)] * 10, 0.02)
    many = stats.pass_difference([(1.0, 1.0)] * 200, 0.02)
    assert isinstance(few, stats.PassDifference)
    assert isinstance(many, stats.PassDifference)
    assert few.low < -0.1
    assert few.needed == 96
    assert many.low > -0.02
    assert stats.pass_difference([], 0.02) == Withheld(withheld="no prompt has a check", reason_code="no_checks")


def test_pass_difference_is_agresti_and_min_on_counts() -> None:
    """93 against 62 of 100, 33 lost and 2 won: the adjusted Wald interval worked out by hand."""
    shares = [(1.0, 1.0)] * 60 + [(1.0, 0.0)] * 33 + [(0.0, 1.0)] * 2 + [(0.0, 0.0)] * 5
    found = stats.pass_difference(shares, 0.02)
    assert isinstance(found, stats.PassDifference)
    middle = -31 / 102
    half = 1.959964 * math.sqrt(36 - 31**2 / 102) / 102
    assert (found.baseline, found.arm) == pytest.approx((0.93, 0.62))
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half), rel=1e-6)


def test_pass_difference_covers_the_truth() -> None:
    rng = np.random.default_rng(11)
    draws = rng.random((1500, 60))
    hits = 0
    for row in draws:  # 10 % lost, 4 % won
        found = stats.pass_difference([(1.0, 0.0) if u < 0.1 else (0.0, 1.0) if u < 0.14 else (1.0, 1.0) for u in row], 0.02)
        assert isinstance(found, stats.PassDifference)
        hits += found.low <= -0.06 <= found.high
    assert hits / 1500 >= 0.94
