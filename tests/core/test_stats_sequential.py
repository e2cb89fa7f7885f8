"""Early looks: boundaries against published ones and SciPy, the decision's rules, and what they promise, by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal, norm
from speccore import sequential, stats
from speccore.measurement import Interval
from speccore.sequential import Decision, decide, looks, schedule
from speccore.verdict import VerdictInput, judge

GAIN = [0.69, 0.71, 0.70, 0.68, 0.70]
TURNS = [1, -1, 1, -1, 1, -1, 1, -1, 1, -1]


def boundaries(blocks: tuple[int, ...], spent: float = 0.05) -> list[float]:
    return [-norm.ppf(look.level / 2) for look in looks(blocks, spent=spent)]


def test_boundaries_are_those_published_for_five_equal_looks() -> None:
    """Lan–DeMets with O'Brien–Fleming-type spending at two-sided 5 %: in every table of group sequential designs."""
    assert boundaries((1, 2, 3, 4, 5)) == pytest.approx([4.8769, 3.3569, 2.6803, 2.2898, 2.0310], abs=2e-4)
    assert boundaries((7,)) == pytest.approx([1.959964], abs=1e-6)


@pytest.mark.parametrize("blocks", [(3, 5), (3, 5, 7), (3, 5, 7, 10)])
def test_a_true_null_crosses_as_often_as_is_spent(blocks: tuple[int, ...]) -> None:
    """Against SciPy's multivariate normal: the chance to stay inside all boundaries up to each look."""
    zs = boundaries(blocks, spent=0.04)
    for k in range(1, len(blocks) + 1):
        n = np.array(blocks[:k])
        covariance = np.sqrt(np.minimum.outer(n, n) / np.maximum.outer(n, n))
        upper = np.array(zs[:k])
        inside = multivariate_normal(np.zeros(k), covariance).cdf(upper, lower_limit=-upper, rng=np.random.default_rng(1))
        assert 1 - inside == pytest.approx(looks(blocks)[k - 1].spent, abs=2e-5)


def test_each_plan_ends_with_a_look() -> None:
    assert [schedule(n) for n in (3, 4, 5, 8, 10, 12)] == [(3,), (3, 4), (3, 5), (3, 5, 7, 8), (3, 5, 7, 10), (3, 5, 7, 10, 12)]
    with pytest.raises(ValueError, match="2 blocks has no look"):
        schedule(2)
    for blocks in ((), (3, 3), (5, 3), (0, 2)):
        with pytest.raises(ValueError, match="ever more blocks"):
            looks(blocks)


@settings(deadline=None)
@given(st.sets(st.integers(1, 60), min_size=1, max_size=6))
def test_error_is_spent_whole_and_never_back(blocks: set[int]) -> None:
    found = looks(tuple(sorted(blocks)))
    assert found[-1].spent == pytest.approx(sequential.SPENT)
    assert all(a.spent <= b.spent for a, b in itertools.pairwise(found))
    assert all(0 <= look.level <= sequential.SPENT + 1e-9 for look in found)


def test_what_is_plain_is_decided_at_the_second_look_and_the_rest_goes_on() -> None:
    early = decide(GAIN[:3], TURNS[:3], 0.03, None, 10)
    assert (early.word, early.look, early.next_look) == (None, 1, 5)
    plain = decide(GAIN, TURNS[:5], 0.03, None, 10)
    assert (plain.word, plain.look, plain.n_looks, plain.next_look) == ("keep", 2, 4, None)
    assert plain.sentence == "look 2 of 4 (after 5 blocks): 2.01× [1.93–2.08] at 99.80 % confidence, decided: keep"
    unsure = decide([0.1, -0.2, 0.3, 0.0, 0.1], TURNS[:5], 0.03, None, 10)
    assert (unsure.word, unsure.next_look) == (None, 7)
    assert unsure.sentence.endswith("undecided; next look after block 7")
    assert decide([*GAIN, 0.7], TURNS[:6], 0.03, None, 10).look == 2


def test_before_the_first_look_nothing_is_said() -> None:
    found = decide(GAIN[:2], TURNS[:2], 0.03, None, 10)
    assert (found.word, found.look, found.next_look) == (None, 0, 3)
    assert found.sentence == "the first look is after 3 blocks, 2 are there"
    assert decide(GAIN[:2], TURNS[:2], 0.03, None, 10, ended=True).next_look is None
    with pytest.raises(ValueError, match="5 block values are more than the 4"):
        decide(GAIN, TURNS[:5], 0.03, None, 4)


def test_a_job_that_ends_early_spends_what_is_left_at_its_last_block() -> None:
    values = [0.10, 0.05, 0.12, 0.07, 0.11, 0.06]
    going = decide(values, TURNS[:6], 0.03, None, 10)
    ended = decide(values, TURNS[:6], 0.03, None, 10, ended=True)
    assert (going.word, going.look, going.next_look) == (None, 2, 7)
    assert (ended.word, ended.look, ended.n_looks, ended.next_look) == ("keep", 3, 3, None)
    assert looks((3, 5, 6), 10)[-1].spent == pytest.approx(sequential.SPENT)
    assert looks((3, 5, 6), 10)[:2] == looks((3, 5, 7, 10))[:2]


def test_the_interval_of_a_look_is_the_t_interval_at_its_confidence() -> None:
    found = decide(GAIN, TURNS[:5], 0.03, None, 10).interval
    assert isinstance(found, Interval)
    by_hand = stats.ratio_interval(GAIN, looks((3, 5, 7, 10))[1].confidence)
    assert found == by_hand
    usual = stats.ratio_interval(GAIN)
    assert isinstance(usual, Interval)
    assert usual.low > found.low  # type: ignore[operator]


def test_a_decision_stands_whatever_comes_after_it() -> None:
    later = [*GAIN, -3.0, 2.0]
    assert decide(later, TURNS[:7], 0.03, None, 10) == decide(GAIN, TURNS[:5], 0.03, None, 10)


def test_drift_that_is_plain_is_corrected_at_a_look_too() -> None:
    tenth = [0.001 * (i % 3) for i in range(10)]
    found = decide([0.02 - 0.06 * x + e for x, e in zip(TURNS, tenth)], TURNS, 0.03, None, 10)
    assert found.word == "not worth it"
    assert isinstance(found.interval, Interval)
    assert found.interval.method == "regression on position"
    assert found.interval.estimate == pytest.approx(math.exp(0.0209), abs=1e-3)


@given(
    st.lists(st.floats(-0.3, 0.3), min_size=3, max_size=3),
    st.sampled_from([0.0, 0.03, 0.1]),
    st.sampled_from([None, 0.0, 0.02, 0.08]),
)
def test_its_words_are_the_verdicts_on_the_same_interval(values: list[float], margin: float, floor: float | None) -> None:
    found = decide(values, TURNS[:3], margin, floor, 3)
    assert isinstance(found.interval, Interval)
    verdict = judge(VerdictInput(mode="draft", margin=margin, noise_floor=floor, speedup=found.interval, total_time=found.interval))
    words = {"keep": "keep", "slower": "disable", "not worth it": "disable", None: "inconclusive"}
    assert verdict.word == words[found.word]
    if verdict.word == "disable":
        assert verdict.reason == found.word


def wrong_decisions(values: np.ndarray, differences: np.ndarray, truth: float) -> float:
    """Share of experiments that are decided against the truth, one by one through the function that jobs call."""
    wrong = 0
    for row, x in zip(values, differences):
        found: Decision = decide(list(row), list(x), 0.03, None, row.size)
        if found.word == "keep":
            wrong += truth <= math.log(1.03)
        elif found.word == "slower":
            wrong += truth >= 0
        elif found.word == "not worth it":
            wrong += truth >= math.log(1.03)
    return wrong / len(values)


@pytest.mark.parametrize(("truth", "least"), [(1.0, 0.0), (1.03, 0.03)])
def test_false_decisions_are_rarer_than_five_in_a_hundred(truth: float, least: float) -> None:
    """At the margin itself both "keep" and "not worth it" are false; at 1 "not worth it" is right and soon said."""
    rng = np.random.default_rng(12)
    values = math.log(truth) + rng.normal(0, 0.03, (1500, 10))
    share = wrong_decisions(values, np.tile(TURNS, (1500, 1)), math.log(truth))
    assert least <= share < 0.06  # three standard errors of the simulation over 4.3 %
