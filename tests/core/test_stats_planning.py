"""Variance components and proposals: against hand calculation, brute force, Kalibera & Jones's formula, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from speccore import sample_size as ss
from speccore.measurement import Withheld
from speccore.sample_size import Components, Costs

PILOT = Components(between=0.01**2, within=0.04**2, n_blocks=5, n_pairs=20)
SLOW_START = Costs(start_s=300, probe_s=20)


def test_components_by_hand() -> None:
    """Two within each block, means 1, 3, 8: MS within = 2 · (1 + 4 + 0) ÷ 3, MS between = 2 · 26 ÷ 2, size 2."""
    found = ss.components([[0.0, 2.0], [1.0, 5.0], [8.0, 8.0]])
    within = (2 + 8 + 0) / 3
    between = (2 * ((1 - 4) ** 2 + (3 - 4) ** 2 + (8 - 4) ** 2) / 2 - within) / 2
    assert found == Components(between=pytest.approx(between), within=pytest.approx(within), n_blocks=3, n_pairs=6)  # type: ignore[arg-type]


def test_blocks_that_agree_more_than_chance_have_no_variance_between_them() -> None:
    found = ss.components([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    assert isinstance(found, Components)
    assert found.between == 0


def test_components_of_unequal_blocks_are_unbiased() -> None:
    rng = np.random.default_rng(4)
    sizes = (2, 4, 1, 6, 3)
    found = []
    for _ in range(3000):
        blocks = [rng.normal(0, 0.3) + rng.normal(0, 0.2, k) for k in sizes]
        c = ss.components([list(b) for b in blocks])
        assert isinstance(c, Components)
        found.append((c.between, c.within))
    between, within = np.mean(found, axis=0)
    assert within == pytest.approx(0.04, rel=0.05)
    assert between == pytest.approx(0.09, rel=0.06)  # a negative estimate, here rare, is raised to 0


def test_a_pilot_too_small_says_what_it_lacks() -> None:
    assert ss.components([[0.1, 0.2], [0.1, 0.3], []]) == Withheld(withheld="needs 3 blocks, has 2", reason_code="too_few_blocks")
    assert ss.components([[0.1], [0.2], [0.3]]) == Withheld(
        withheld="needs a block with 2 matched prompts, each has 1", reason_code="too_few_prompts"
    )


@pytest.mark.parametrize(("probes", "blocks"), [(1, 3), (4, 5), (10, 20)])
def test_expected_half_width_is_the_mean_of_real_ones(probes: int, blocks: int) -> None:
    rng = np.random.default_rng(7)
    values = rng.normal(0, 0.01, (40_000, blocks)) + rng.normal(0, 0.04, (40_000, blocks, probes)).mean(axis=2)
    from scipy.stats import sem, t

    seen = float(np.mean(t.ppf(0.975, blocks - 1) * sem(values, axis=1)))
    assert ss.expected_half_width([PILOT], probes, blocks) == pytest.approx(seen, rel=0.01)


def test_the_widest_interval_counts() -> None:
    noisy_starts = Components(between=0.03**2, within=0.0, n_blocks=5, n_pairs=20)
    both = ss.expected_half_width([PILOT, noisy_starts], 4, 5)
    assert both == ss.expected_half_width([noisy_starts], 4, 5) > ss.expected_half_width([PILOT], 4, 5)


@given(
    between=st.floats(0, 0.05),
    within=st.floats(0.001, 0.2),
    start=st.floats(0, 600),
    probe=st.floats(0.5, 60),
    budget=st.floats(200, 40_000),
)
def test_nothing_that_fits_is_narrower(between: float, within: float, start: float, probe: float, budget: float) -> None:
    pilot, costs = [Components(between**2, within**2, 5, 20)], Costs(start, probe)
    found = ss.narrowest(pilot, costs, budget, most_probes=12)
    fits = [(k, n) for k in range(1, 13) for n in range(3, 101) if n * (start + k * probe) <= budget]
    if isinstance(found, Withheld):
        assert not fits
        return
    assert (found.probes, found.blocks) in fits
    assert found.seconds == pytest.approx(found.blocks * (start + found.probes * probe))
    assert found.half_width == min(ss.expected_half_width(pilot, k, n) for k, n in fits)


def test_nothing_that_is_narrow_enough_is_quicker() -> None:
    found = ss.quickest([PILOT], SLOW_START, math.log(1.03))
    assert isinstance(found, ss.Proposal)
    enough = [
        (SLOW_START.of(k, n), k, n) for k in range(1, 60) for n in range(3, 40) if ss.expected_half_width([PILOT], k, n) <= math.log(1.03)
    ]
    assert (found.seconds, found.probes, found.blocks) == min(enough)
    assert found.half_width <= math.log(1.03)
    assert found.percent <= 3


def test_probes_for_each_start_tend_to_the_formula_of_kalibera_and_jones() -> None:
    """√(cost of a start ÷ cost of a probe · variance within ÷ between), where blocks are many enough that t hardly weighs."""
    found = ss.quickest([PILOT], SLOW_START, 0.0033)
    assert isinstance(found, ss.Proposal)
    assert found.blocks > 30
    assert found.probes == pytest.approx(math.sqrt(300 / 20 * 0.04**2 / 0.01**2), abs=3)


def test_the_dearer_the_start_the_more_probes_it_gets() -> None:
    plans = [ss.narrowest([PILOT], Costs(start, 20), 10_800) for start in (5, 60, 600)]
    probes = [p.probes for p in plans if isinstance(p, ss.Proposal)]
    assert probes == sorted(probes)
    assert probes[0] < probes[-1]


def test_three_hours_this_evening_with_half_and_twice_beside_it() -> None:
    found = ss.propose([PILOT], SLOW_START, budget_s=3 * 3600)
    assert isinstance(found, ss.Proposals)
    assert found.shorter is not None
    assert found.longer is not None
    assert found.shorter.seconds <= 1.5 * 3600 < found.best.seconds <= 3 * 3600 < found.longer.seconds <= 6 * 3600
    assert found.shorter.half_width > found.best.half_width > found.longer.half_width


def test_a_width_is_asked_for_likewise() -> None:
    found = ss.propose([PILOT], SLOW_START, half_width=math.log(1.03))
    assert isinstance(found, ss.Proposals)
    assert found.best == ss.quickest([PILOT], SLOW_START, math.log(1.03))
    assert found.shorter is None or found.shorter.half_width > found.best.half_width
    for wrong in ({}, {"half_width": 0.1, "budget_s": 60.0}):
        with pytest.raises(ValueError, match="either a width or a time"):
            ss.propose([PILOT], SLOW_START, **wrong)


def test_too_little_time_and_too_narrow_a_width_say_what_would_do() -> None:
    assert ss.propose([PILOT], SLOW_START, budget_s=600) == Withheld(
        withheld="3 blocks of 1 probe take 960 s, 600 s are there", reason_code="no_time"
    )
    narrow = ss.propose([PILOT], SLOW_START, half_width=1e-5)
    assert isinstance(narrow, Withheld)
    assert "out of reach: 100 blocks of 200 probes give" in narrow.withheld


def test_costs_and_plans_that_cannot_be_are_refused() -> None:
    for wrong in ((-1.0, 1.0), (1.0, 0.0)):
        with pytest.raises(ValueError, match="a probe takes time"):
            Costs(*wrong)
    for probes, blocks in ((0, 5), (1, 2)):
        with pytest.raises(ValueError, match="3 blocks of 1 probe"):
            ss.expected_half_width([PILOT], probes, blocks)
    with pytest.raises(ValueError, match="no pilot"):
        ss.expected_half_width([], 1, 5)
