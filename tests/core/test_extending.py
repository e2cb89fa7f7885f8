"""Blocks added to a finished answer: the interval that holds whenever somebody stops, and plans that go on."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from speccore import extending
from speccore.agreeing import Found, agreement
from speccore.extending import ADDED, WRONG_IN_ALL, FirstLooks, expected_half_width, joined_confidence
from speccore.joining import Joined, Part, own_blocks, what_differs
from speccore.plan import plan_again, plan_job, plan_more
from speccore.stats import CONFIDENCE, mean_and_half_width, t_quantile
from speccore.workload import Item, Workload

from tests.core.made import spec_of


def test_without_an_addition_or_an_answer_before_it_the_interval_is_a_first_one() -> None:
    assert joined_confidence(FirstLooks(5), 5, 5) == CONFIDENCE
    for n_first in (0, 1, 2):
        assert joined_confidence(FirstLooks(5), n_first, 7) == CONFIDENCE
    with pytest.raises(ValueError, match="less than the 5"):
        joined_confidence(FirstLooks(5), 5, 4)


@pytest.mark.parametrize("n_first", [3, 5, 10])
def test_each_further_block_asks_for_more_confidence_and_still_narrows_in_the_end(n_first: int) -> None:
    found = [joined_confidence(FirstLooks(n_first), n_first, n) for n in range(n_first, 41)]
    assert all(a < b for a, b in itertools.pairwise(found))
    widths = [t_quantile(n - 1, c) / math.sqrt(n) for n, c in zip(range(n_first, 41), found, strict=True)]
    assert widths[n_first] < widths[0]  # twice as many blocks pay
    assert all(a > b for a, b in itertools.pairwise(widths[n_first:]))


def test_the_first_added_block_spends_what_its_share_is() -> None:
    """Of normal values with known variance, by direct simulation: crossing at 6 but not at 5."""
    z5, z6 = 1.959964, extending._boundary(((5, 0.05),), 6)
    x = np.random.default_rng(3).normal(size=(400_000, 6)).cumsum(axis=1)
    crossed = (np.abs(x[:, 5]) / math.sqrt(6) > z6) & (np.abs(x[:, 4]) / math.sqrt(5) <= z5)
    assert crossed.mean() == pytest.approx(ADDED / 6, rel=0.1)


def test_early_looks_that_came_before_are_counted() -> None:
    plain, early = (joined_confidence(FirstLooks(10, sequential=s), 10, 15) for s in (False, True))
    assert plain != early
    assert FirstLooks(10, sequential=True).steps(10)[0][0] == 3
    assert sum(step for _, step in FirstLooks(10, sequential=True).steps(10)) == pytest.approx(0.04)
    assert FirstLooks(10, sequential=True).steps(14) == ((14, pytest.approx(0.05)),)  # looked at after the plan's end only


@pytest.mark.parametrize("n_first", [3, 5])
def test_adding_until_it_pays_is_wrong_no_more_often_than_promised(n_first: int) -> None:
    """Nobody can do worse than one who looks after each block and stops at the first that pleases; a plain 95 % is far worse."""
    most, n = 30, 20_000
    x = np.random.default_rng(8).normal(size=(n, most))
    sums, squares = x.cumsum(axis=1), (x * x).cumsum(axis=1)
    held, plain = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
    for k in range(n_first, most + 1):
        mean = sums[:, k - 1] / k
        se = np.sqrt((squares[:, k - 1] - k * mean**2) / (k - 1) / k)
        held |= np.abs(mean) > t_quantile(k - 1, joined_confidence(FirstLooks(n_first), n_first, k)) * se
        plain |= np.abs(mean) > t_quantile(k - 1) * se
    assert held.mean() < WRONG_IN_ALL
    assert plain.mean() > 2 * WRONG_IN_ALL


def test_the_expected_width_falls_with_blocks_and_needs_three_values() -> None:
    values = [0.10, 0.14, 0.12, 0.16, 0.09]
    widths = [expected_half_width(values, FirstLooks(5), 5, n) for n in (10, 20, 40)]
    assert all(w is not None for w in widths)
    assert widths == sorted(widths, reverse=True)  # type: ignore[type-var]
    assert expected_half_width(values[:2], FirstLooks(5), 2, 10) is None


def parts(*blocks: tuple[int, ...], sequential: bool = False) -> Joined:
    return Joined(tuple(frozenset(b) for b in blocks), len(blocks[0]), sequential)


def test_what_counts_as_seen_before_is_the_first_part_that_had_an_answer() -> None:
    answer = parts((1, 2, 3, 4, 5), (6, 7)).seen(range(1, 8))
    assert answer is not None
    assert (answer.n_first, answer.n_blocks) == (5, 7)
    # block 2 was void: the first answer had four values
    answer = parts((1, 2, 3, 4, 5), (6, 7)).seen([1, 3, 4, 5, 6, 7])
    assert answer is not None
    assert (answer.n_first, answer.n_blocks) == (4, 6)
    answer = parts((1, 2), (3, 4, 5)).seen(range(1, 6))
    assert answer is not None
    assert (answer.n_first, answer.confidence) == (0, CONFIDENCE)
    answer = parts((1, 2), (3,), (4, 5)).seen(range(1, 6))
    assert answer is not None
    assert (answer.n_first, answer.confidence) == (3, joined_confidence(FirstLooks(2), 3, 5))
    assert parts((1, 2, 3), (4, 5)).seen([1, 2, 3]) is None


def test_a_block_counts_where_it_was_whole_first_else_where_most_of_it_was_measured() -> None:
    begun = Part([1, 2, 3, 4], {1: 3, 2: 3, 3: 2}, [1, 2])
    assert own_blocks([begun, Part([3, 4], {3: 3, 4: 3}, [3, 4])]) == [{1, 2}, {3, 4}]
    assert own_blocks([begun, Part([3, 4], {3: 2}, [])]) == [{1, 2, 4}, {3, 4}]
    # Stopped after its first start, the second try takes nothing away from the first.
    assert own_blocks([begun, Part([3, 4], {3: 1}, [])]) == [{1, 2, 3, 4}, {4}]
    assert own_blocks([Part([1, 2, 3], {1: 3, 2: 3}, [1, 2]), Part([3], {}, [])]) == [{1, 2, 3}, {3}]


def test_a_whole_block_is_not_replaced_by_running_it_again() -> None:
    seen = Part([4, 5, 6], {4: 3, 5: 3}, [4, 5])
    assert own_blocks([seen, Part([4, 5, 6], {4: 3, 5: 3, 6: 3}, [4, 5, 6])]) == [{4, 5}, {6}]


def test_what_differs_is_named_with_both_values() -> None:
    same = {"runtime_hash": "a" * 64, "driver": "550"}
    assert what_differs(same, dict(same)) == []
    (words,) = what_differs(same, same | {"driver": "570"})
    assert words == "driver: 550 in the earlier blocks against 570 in the added ones"
    assert [w.split(":")[0] for w in what_differs(same, {"driver": "550"})] == ["engine build"]


def items(n: int) -> Workload:
    made = [
        Item(id=f"i{i}", prompt=f"{i:03d} is where this prompt begins, and then it goes on for a while, long enough") for i in range(n + 8)
    ]
    return Workload(name="tiny", version=1, title="Tiny", items=made[:n], warmup=made[n:])


def small(blocks: int = 5):  # type: ignore[no-untyped-def]
    points = [{"workload": "tiny", "max_tokens": 16, "probes": 2}]
    arms = ({"name": "ngram", "mode": "ngram-simple"}, {"name": "ngram-8", "mode": "ngram-simple", "draft_limit": 8})
    return spec_of(*arms, points=points, blocks=blocks, warmup={"mode": "fixed", "requests": 1}, seed=4)


def test_further_blocks_go_on_with_numbers_prompts_and_balance() -> None:
    the_spec, content = small(), {"tiny": items(30)}
    first = plan_job(the_spec, content)
    more = plan_more(the_spec, content, [5], 3)
    again = plan_more(the_spec, content, [5, 3], 2)
    assert [sorted({t.block for t in p.trials}) for p in (first, more, again)] == [[1, 2, 3, 4, 5], [6, 7, 8], [9, 10]]
    assert [t.index for t in more.trials] == list(range(len(more.trials)))
    asked = [p.item for plan in (first, more, again) for b in sorted({t.block for t in plan.trials}) for p in _of_block(plan, b)]
    assert len(asked) == len(set(asked)) == 20  # drawn without replacement while the workload lasts
    assert plan_more(the_spec, content, [5], 3) == more
    for arm in {t.arm for t in first.trials}:
        at = [t.position for plan in (first, more, again) for t in plan.trials if t.arm == arm]
        counts = [at.count(p) for p in range(1, len(the_spec.arms) + 1)]
        assert max(counts) - min(counts) <= 1


def _of_block(plan, block):  # type: ignore[no-untyped-def]
    return next(t for t in plan.trials if t.block == block).probes


def test_missing_blocks_are_planned_as_they_were() -> None:
    the_spec, content = small(), {"tiny": items(30)}
    first, more = plan_job(the_spec, content), plan_more(the_spec, content, [5], 3)
    again = plan_again([first, more], [7, 2])
    assert [t.id for t in again.trials] == [t.id for t in first.trials if t.block == 2] + [t.id for t in more.trials if t.block == 7]
    assert [t.index for t in again.trials] == list(range(len(again.trials)))
    with pytest.raises(ValueError, match="no plan has block 9"):
        plan_again([first, more], [9])


def found(run: str, low: float | None, high: float | None, verdict: str = "keep") -> Found:
    return Found(run, None if low is None or high is None else (low + high) / 2, low, high, verdict)


def test_agreement_claims_no_more_than_the_intervals_do() -> None:
    share = agreement([found("a", 1.2, 1.5), found("b", 1.4, 1.9)])
    assert share.word == "share"
    assert "Both intervals hold 1.40–1.50" in share.sentence
    assert "no proof that they are equal" in share.sentence
    assert "verdicts differ" in agreement([found("a", 1.2, 1.5), found("b", 0.9, 1.9, "inconclusive")]).sentence
    apart = agreement([found("a", 1.2, 1.3), found("b", 1.25, 1.4), found("c", 0.8, 0.9, "disable")])
    assert apart.word == "apart"
    assert "The intervals of b, 1.32× [1.25–1.40], and c, 0.85× [0.80–0.90], have no value in common" in apart.sentence


@pytest.mark.parametrize(("n_runs", "n_blocks"), [(2, 5), (5, 5), (12, 3), (12, 10), (40, 5)])
def test_equal_runs_are_seldom_called_different_however_many_there_are(n_runs: int, n_blocks: int) -> None:
    rng, n = np.random.default_rng(8), 300
    values = 0.01 * rng.standard_normal((n, n_runs, n_blocks))
    middle, half = mean_and_half_width(values)
    apart = 0
    for m, h in zip(middle, half, strict=True):
        runs = [
            Found(f"run {i}", float(np.exp(a)), float(np.exp(a - b)), float(np.exp(a + b)), "keep", n_blocks=n_blocks)
            for i, (a, b) in enumerate(zip(m, h, strict=True))
        ]
        apart += agreement(runs).word == "apart"
    assert apart <= 0.08 * n


def test_a_pair_of_many_that_parts_widely_is_called_different() -> None:
    runs = [Found(f"run {i}", 1.3, 1.28, 1.32, "keep", n_blocks=5) for i in range(20)]
    assert agreement([*runs, Found("odd", 1.33, 1.325, 1.335, "keep", n_blocks=5)]).word == "chance"
    assert agreement([*runs, Found("odd", 1.6, 1.58, 1.62, "keep", n_blocks=5)]).word == "apart"


def test_a_run_without_an_interval_is_named_and_says_nothing() -> None:
    one = agreement([found("a", 1.2, 1.5), found("b", None, None, "invalid")])
    assert one.word == "one"
    assert one.sentence == "Only a has an interval: there is nothing to hold it against. b has no interval that counts."
    assert agreement([found("b", None, None)]).sentence == "No run has an interval."
