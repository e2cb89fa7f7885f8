"""Changes in a series of runs: steps, drifts, odd runs, runs that don't count."""

from __future__ import annotations

import math
import random

import pytest
from speccore.changes import LEAST_AFTER, Change, Run, changes
from speccore.measurement import Withheld


def series(*parts: tuple[int, float], noise: float = 0.01, seed: int = 1) -> list[Run]:
    """``parts``: so many runs around so much."""
    rng, runs = random.Random(seed), []
    for n, level in parts:
        for _ in range(n):
            i = len(runs)
            runs.append(Run(level * math.exp(noise * rng.gauss(0, 1)), build=f"build {i}", key=f"run {i}"))
    return runs


def found(runs: list[Run], **more: float) -> list[Change]:
    told = changes(runs, **more)
    assert isinstance(told, list), told
    return told


def test_a_step_is_told_once_with_both_sides_and_the_builds_between_which_it_came() -> None:
    (change,) = found(series((15, 2.0), (12, 1.9)))
    assert not change.better
    assert change.shape == "step"
    assert (change.last_before, change.first_after) == ("run 14", "run 15")
    assert (change.build_before, change.build_after) == ("build 14", "build 15")
    assert int(change.found_at.split()[1]) <= 18
    assert 0.93 < change.change.low < change.change.estimate < change.change.high < 0.99
    assert change.before.low < 2.0 < change.before.high
    assert change.after.estimate == pytest.approx(1.9, rel=0.02)
    assert len(change.after_keys) >= LEAST_AFTER


def test_better_is_told_from_worse() -> None:
    assert [c.better for c in found(series((12, 1.5), (10, 1.6)))] == [True]
    assert [c.better for c in found(series((12, 1.5), (12, 1.6), (12, 1.5), noise=0.005))] == [True, False]


def test_what_was_said_stays_when_later_runs_come() -> None:
    runs = series((15, 2.0), (20, 1.8))
    first = next(c for n in range(16, 36) for c in found(runs[:n]))
    assert found(runs)[0] == first
    assert len(found(runs)) == 1


@pytest.mark.parametrize("factor", [0.2, 0.7, 1.4, 8.0])
@pytest.mark.parametrize("at", [6, 10, 20, 29])
def test_one_noisy_run_never_alerts(factor: float, at: int) -> None:
    for seed in range(5):
        runs = series((30, 2.0), seed=seed)
        runs[at] = Run(2.0 * factor, key="odd")
        assert found(runs) == []


def test_two_noisy_runs_in_a_row_are_no_lasting_change() -> None:
    runs = series((30, 2.0))
    runs[20] = runs[21] = Run(1.2, key="odd")
    assert found(runs) == []


def test_an_odd_run_before_hides_no_change() -> None:
    runs = series((20, 2.0), (8, 1.8))
    runs[7] = Run(6.0, key="odd")
    (change,) = found(runs)
    assert change.first_after == "run 20"
    assert change.before.estimate == pytest.approx(2.0, rel=0.03)


def test_runs_that_are_invalid_or_have_no_number_never_count() -> None:
    runs = series((20, 2.0))
    bad = [Run(0.5, counts=False, key=f"invalid {i}") for i in range(10)]
    none = [Run(None, key=f"missing {i}") for i in range(10)]
    odd = [Run(v, key="odd") for v in (0.0, -1.0, math.nan, math.inf)]
    assert found([*runs, *bad, *none, *odd]) == []
    among = [r for pair in zip(series((20, 2.0), (10, 1.8)), [*none, *bad, *none], strict=True) for r in pair]
    (change,) = found(among)
    assert (change.last_before, change.first_after) == ("run 19", "run 20")
    assert not {k for k in (*change.before_keys, *change.after_keys) if "run" not in k}


def test_too_few_runs_are_withheld_with_how_many_it_needs() -> None:
    told = changes([*series((7, 2.0)), Run(None), Run(1.0, counts=False)])
    assert isinstance(told, Withheld)
    assert told.withheld == "needs 8 valid runs, has 7"
    assert found(series((8, 2.0))) == []


def test_a_slow_drift_is_found_and_called_one() -> None:
    rng = random.Random(3)
    runs = [Run(2.0 * math.exp(-0.006 * i + 0.004 * rng.gauss(0, 1)), key=str(i)) for i in range(25)]
    told = found(runs)
    assert told
    assert {c.shape for c in told} == {"drift"}
    assert not any(c.better for c in told)


def test_a_change_that_is_too_small_to_matter_is_none() -> None:
    runs = series((20, 2.0), (10, 1.98), noise=0.001)
    assert found(runs, smallest=0.02) == []
    assert len(found(runs, smallest=0.005)) == 1


def test_runs_that_are_equal_to_the_last_digit_are_judged_by_their_own_intervals() -> None:
    same = [Run(2.0, 1.9, 2.1, key=str(i)) for i in range(10)]
    assert found([*same, *(Run(1.94, 1.84, 2.04, key=f"a{i}") for i in range(3))]) == []
    assert len(found([*same, *(Run(1.0, 0.95, 1.05, key=f"a{i}") for i in range(3))])) == 1
    bare = [Run(2.0, key=str(i)) for i in range(10)]
    assert len(found([*bare, *(Run(1.9, key=f"a{i}") for i in range(3))])) == 1


def test_unchanged_series_of_fifty_runs_hardly_ever_alert() -> None:
    """A seeded sample of what ``make bench-watch`` simulates in full."""
    alerts = sum(bool(found(series((50, 2.0), noise=0.03, seed=s))) for s in range(200))
    assert alerts <= 1


def test_five_per_cent_at_one_per_cent_noise_is_found_within_four_runs() -> None:
    told = [found(series((16, 2.0), (4, 1.9), seed=s)) for s in range(100)]
    assert sum(bool(t) and not t[0].better for t in told) >= 95
