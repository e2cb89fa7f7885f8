"""Tails: nearest rank, exact order-statistic intervals for independent probes, and honest ones for probes that come in kin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from speccore.measurement import Withheld
from speccore.tails import Tail, tail


def in_trials(values: np.ndarray, n_trials: int) -> list[list[float]]:
    return [list(part) for part in np.array_split(values, n_trials)]


def found(trials: list[list[float]], quantile: float) -> Tail:
    result = tail(trials, quantile)
    assert isinstance(result, Tail)
    return result


@pytest.mark.parametrize(("quantile", "least", "name"), [(0.95, 100, "p95"), (0.99, 500, "p99")])
def test_too_few_probes_give_no_tail(quantile: float, least: int, name: str) -> None:
    values = np.arange(float(least))
    assert isinstance(tail(in_trials(values, 5), quantile), Tail)
    words = f"{name} needs {least} probes, has {least - 1}"
    assert tail(in_trials(values[1:], 5), quantile) == Withheld(withheld=words, reason_code="too_few_probes")
    one = tail([list(values)], quantile)
    assert one == Withheld(withheld=f"{name} needs 2 starts, has 1", reason_code="too_few_trials")
    with pytest.raises(ValueError, match=r"p50 is not offered; known: p95, p99"):
        tail(in_trials(values, 5), 0.5)


@pytest.mark.parametrize(("n", "quantile"), [(100, 0.95), (1000, 0.95), (500, 0.99), (2000, 0.99)])
def test_ranks_of_independent_probes_are_those_of_the_binomial(n: int, quantile: float) -> None:
    """Values 1 … n dealt evenly to the starts, so that each rank is its value and starts are alike."""
    trials = [list(np.arange(float(i + 1), n + 1, 10)) for i in range(10)]
    t = found(trials, quantile)
    assert t.estimate == round(quantile * n)
    assert t.effective == n
    assert t.high is not None
    # Chance that the true percentile lies below the lower or at or over the upper value: below 2.5 % each.
    assert binom.sf(t.high - 1, n, quantile) <= 0.025
    assert binom.cdf(t.low - 1, n, quantile) <= 0.025
    # And neither is further out than the next rank or two.
    assert binom.sf(t.high - 3, n, quantile) > 0.025
    assert binom.cdf(t.low + 1, n, quantile) > 0.025


@given(st.lists(st.lists(st.floats(0.001, 100), min_size=30, max_size=60), min_size=4, max_size=8))
def test_the_percentile_lies_inside_its_interval(trials: list[list[float]]) -> None:
    t = found(trials, 0.95)
    values = [v for trial in trials for v in trial]
    assert min(values) <= t.low <= t.estimate <= max(values)
    assert t.high is None or t.estimate <= t.high <= max(values)
    assert 1 <= t.effective <= t.n_probes == len(values)
    assert (t.high is None) == bool(t.high_withheld)


def test_one_slow_start_makes_the_upper_end_unknown() -> None:
    rng = np.random.default_rng(2)
    quiet = [list(rng.normal(1, 0.01, 40)) for _ in range(5)]
    slow = [*quiet[:4], list(rng.normal(3, 0.01, 40))]
    assert found(quiet, 0.95).high is not None
    t = found(slow, 0.95)
    assert t.effective < 20
    assert t.high is None
    assert "the upper end of p95 is not known: the 5 starts differ so much that their 200 probes tell as much as" in t.high_withheld


def covers(rng: np.random.Generator, *, n_trials: int, each: int, kin: float, quantile: float, truth: float) -> float:
    hits = 0
    for _ in range(1000):
        starts = rng.normal(0, kin, (n_trials, 1))
        t = found([list(row) for row in starts + rng.normal(0, np.sqrt(1 - kin**2), (n_trials, each))], quantile)
        hits += t.low <= truth and (t.high is None or truth <= t.high)
    return hits / 1000


@pytest.mark.parametrize(
    ("n_trials", "each", "kin", "quantile", "truth"),
    [(10, 20, 0.0, 0.95, 1.644854), (10, 50, 0.0, 0.99, 2.326348), (5, 40, 0.3, 0.95, 1.644854), (20, 20, 0.3, 0.95, 1.644854)],
)
def test_intervals_cover_the_truth(n_trials: int, each: int, kin: float, quantile: float, truth: float) -> None:
    """``kin``: correlation of a start's probes is its square. Without regard to it the third case covers 89 %."""
    rng = np.random.default_rng(9)
    assert covers(rng, n_trials=n_trials, each=each, kin=kin, quantile=quantile, truth=truth) >= 0.94
