"""The sampling-rule test against exact values, and how often it accuses the innocent and finds the guilty."""

from __future__ import annotations

import dataclasses
import itertools
import json
from math import comb

import numpy as np
import pytest
from scipy.stats import chi2_contingency
from speccore.measurement import Withheld
from speccore.sampling_rule import (
    ACCUSE_P,
    END,
    Answer,
    RuleResult,
    Table,
    measured,
    sampling_rule,
    seeds,
    shared_out,
    shifted,
    statistic,
    tables,
    total_variation,
)

FLAT = [[0.5, 0.3, 0.15, 0.05]] * 4


def drawn(rng: np.random.Generator, n: int, first: int, shares: list[list[float]], prompts: int = 1) -> list[Answer]:
    """n answers; shares[i] are those of tokens 0, 1, … at position i."""
    columns = [rng.choice(len(p), size=n, p=p) for p in shares]
    return [Answer(f"p{i % prompts}", first + i, tuple(int(c[i]) for c in columns)) for i in range(n)]


def judged(result: RuleResult | Withheld) -> RuleResult:
    assert isinstance(result, RuleResult)
    return result


class TestArithmetic:
    def test_the_statistic_is_pearsons(self) -> None:
        left, right = np.array([30, 50, 20, 5]), np.array([44, 60, 10, 91])
        expected = chi2_contingency(np.array([left, right]), correction=False).statistic
        assert statistic(left, right) == pytest.approx(expected, rel=1e-12)

    def test_total_variation_by_hand(self) -> None:
        assert total_variation(np.array([5, 5]), np.array([10, 10])) == 0
        assert total_variation(np.array([10, 0]), np.array([0, 4])) == 1
        assert total_variation(np.array([6, 4]), np.array([30, 70])) == pytest.approx(0.3)

    def test_p_is_that_of_all_ways_to_share_the_draws_out(self) -> None:
        left, right = np.array([33, 17, 10]), np.array([21, 25, 14])
        both = left + right
        seen = float(statistic(left, right))
        ways = beyond = 0
        for a, b in itertools.product(range(both[0] + 1), range(both[1] + 1)):
            c = int(left.sum()) - a - b
            if 0 <= c <= both[2]:
                n = comb(int(both[0]), a) * comb(int(both[1]), b) * comb(int(both[2]), c)
                row = np.array([a, b, c])
                ways += n
                beyond += n if float(statistic(row, both - row)) >= seen - 1e-9 else 0
        exact = beyond / ways
        assert 0.01 < exact < 0.2
        chance = shared_out([Table(left, right)], np.array([1.0]), 40_000, np.random.default_rng(3))
        assert (chance.all_kinds >= seen - 1e-9).mean() == pytest.approx(exact, abs=4 * (exact * (1 - exact) / 40_000) ** 0.5)

    def test_the_worst_kind_by_hand(self) -> None:
        """Two kinds: χ² of the table is the squared standardised difference of either."""
        left, right = np.array([30, 70]), np.array([45, 55])
        found = measured([(left, right), (np.array([50, 50]), np.array([50, 50]))], np.array([0.5, 0.5]))
        assert found.one_kind == pytest.approx(chi2_contingency(np.array([left, right]), correction=False).statistic)
        assert found.all_kinds == pytest.approx(float(found.one_kind))
        assert (found.variation, found.one_difference) == (pytest.approx(0.075), pytest.approx(0.075))
        alike = measured([(np.array([9, 0]), np.array([9, 0]))], np.array([1.0]))
        assert [float(m) for m in alike] == [0, 0, 0, 0]

    @pytest.mark.parametrize(("top", "others"), [(0.4, 0.6), (0.9, 0.1)])
    def test_a_shift_is_as_large_as_it_says(self, top: float, others: float) -> None:
        shares = np.array([others / 2, top, others / 2])
        moved = shifted(shares, 0.05)
        assert moved.sum() == pytest.approx(1)
        assert np.abs(moved - shares).sum() / 2 == pytest.approx(0.05)
        assert (moved[1] > top) == (top < 0.5)

    @pytest.mark.parametrize(("seen", "of"), [(8, 10), (9, 10), (9, 11)])
    def test_all_of_the_probability_can_be_moved_and_drawn_from(self, seen: int, of: int) -> None:
        moved = shifted(np.array([seen, of - seen]) / of, 1.0)
        assert moved == pytest.approx([0.0, 1.0])
        assert np.random.default_rng(1).multinomial(10, moved).tolist() == [0, 10]

    def test_rare_tokens_are_one_kind_and_an_early_end_is_a_token(self) -> None:
        off = [Answer("p", i, (7,) if i < 50 else (100 + i,)) for i in range(60)]
        on = [Answer("p", 100 + i, (7,) if i < 40 else ()) for i in range(60)]
        (table,) = tables(off, on, 0)
        assert (table.left.tolist(), table.right.tolist()) == ([0, 50, 10], [20, 40, 0])  # END, 7, the rare ones
        assert END < 0

    def test_prompts_are_counted_apart(self) -> None:
        off = [Answer("a" if i % 2 else "b", i, (i % 2,)) for i in range(100)]
        on = [Answer("a" if i % 2 else "b", 100 + i, (1 - i % 2,)) for i in range(100)]
        assert [(t.left.tolist(), t.right.tolist()) for t in tables(off, on, 0)] == [([0, 50], [50, 0]), ([50, 0], [0, 50])]


class TestAccusation:
    def test_a_changed_distribution_is_accused_at_its_position(self) -> None:
        rng = np.random.default_rng(1)
        biased = [*FLAT[:1], [0.62, 0.18, 0.15, 0.05], *FLAT[2:]]
        off, again = drawn(rng, 2000, 0, FLAT), drawn(rng, 2000, 2000, FLAT)
        on, clean = drawn(rng, 2000, 4000, biased), drawn(rng, 2000, 6000, FLAT)
        result = judged(sampling_rule(off, again, {"guilty": on, "clean": clean}))
        guilty, innocent = result.arms
        assert [guilty.outcome, innocent.outcome, result.control.outcome] == ["accused", "not accused", "not accused"]
        assert [p.position for p in guilty.positions if p.p_adjusted < ACCUSE_P] == [2]
        assert 0.05 < guilty.positions[1].at_least < 0.12 < guilty.positions[1].total_variation + 0.03
        assert "from another distribution than the baseline: at position 2 " in guilty.words
        assert innocent.words.startswith("no difference shown; a shift of ")

    def test_a_real_difference_too_small_to_matter_is_told_and_not_accused(self) -> None:
        """With very many draws p is tiny, and the lower bound stays below two per cent."""
        rng = np.random.default_rng(2)
        off, again = drawn(rng, 60_000, 0, [[0.5, 0.5]]), drawn(rng, 60_000, 60_000, [[0.5, 0.5]])
        on = drawn(rng, 60_000, 120_000, [[0.517, 0.483]])
        (arm,) = judged(sampling_rule(off, again, {"on": on}, positions=1, n_permutations=999, n_power=0)).arms
        assert arm.positions[0].p_adjusted < ACCUSE_P
        assert 0 < arm.positions[0].at_least < 0.02
        assert arm.outcome == "not accused"
        assert "differs" in arm.words

    def test_nobody_is_accused_by_a_baseline_that_disagrees_with_itself(self) -> None:
        rng = np.random.default_rng(3)
        other = [[0.2, 0.6, 0.15, 0.05]] * 4
        off, again, on = drawn(rng, 1000, 0, FLAT), drawn(rng, 1000, 1000, other), drawn(rng, 1000, 2000, other)
        result = judged(sampling_rule(off, again, {"on": on}, n_power=0))
        assert result.control.outcome == "control failed"
        assert result.arms[0].outcome == "control failed"
        assert "does not agree with itself" in result.arms[0].words

    def test_a_bias_that_differs_by_prompt_does_not_cancel_out(self) -> None:
        rng = np.random.default_rng(4)

        def of(first: int, a: float, b: float) -> list[Answer]:
            sides = [("a", a), ("b", b)]
            return [
                Answer(prompt, first + 1000 * k + i, (int(rng.random() < share),))
                for k, (prompt, share) in enumerate(sides)
                for i in range(1000)
            ]

        off, again, on = of(0, 0.5, 0.5), of(2000, 0.5, 0.5), of(4000, 0.6, 0.4)
        (arm,) = judged(sampling_rule(off, again, {"on": on}, positions=1, n_power=0)).arms
        assert arm.outcome == "accused"
        assert arm.positions[0].total_variation == pytest.approx(0.1, abs=0.04)

    def test_the_innocent_are_seldom_accused(self) -> None:
        """100 tests of an arm that draws as the baseline does: an accusation needs a corrected p below 1 %."""
        rng = np.random.default_rng(5)
        outcomes = []
        for _ in range(100):
            samples = [drawn(rng, 400, first, FLAT) for first in (0, 400, 800)]
            result = judged(sampling_rule(samples[0], samples[1], {"on": samples[2]}, n_permutations=999, n_power=0))
            outcomes.append(result.arms[0].outcome)
        assert outcomes.count("accused") <= 3
        assert outcomes.count("control failed") <= 5

    def test_what_is_said_to_be_found_is_found(self) -> None:
        """The stated shift, made real at each position in turn, is accused in about nine of ten tests."""
        rng = np.random.default_rng(6)
        shares = [[0.45, 0.3, 0.15, 0.1]]
        first = judged(sampling_rule(*(drawn(rng, 800, k, shares) for k in (0, 800)), {"on": drawn(rng, 800, 1600, shares)}, positions=1))
        stated = first.arms[0].positions[0].found_at
        assert stated is not None
        assert 0.03 < stated < 0.15
        guilty = [shifted(np.array(shares[0]), stated).tolist()]
        found = []
        for _ in range(60):
            off, again, on = drawn(rng, 800, 0, shares), drawn(rng, 800, 800, shares), drawn(rng, 800, 1600, guilty)
            arm = judged(sampling_rule(off, again, {"on": on}, positions=1, n_permutations=499, n_power=0)).arms[0]
            found.append(arm.outcome == "accused")
        assert 47 <= sum(found) <= 60

    def test_the_lower_bound_holds(self) -> None:
        """Of 100 bounds at 95 %, few lie above the true total variation, which is 0.05."""
        rng = np.random.default_rng(7)
        shares = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
        other = [shifted(shares, 0.05).tolist()]
        above = 0
        for _ in range(100):
            off, again = drawn(rng, 500, 0, [shares.tolist()]), drawn(rng, 500, 500, [shares.tolist()])
            on = drawn(rng, 500, 1000, other)
            (arm,) = judged(sampling_rule(off, again, {"on": on}, positions=1, n_permutations=499, n_power=0)).arms
            above += arm.positions[0].at_least > 0.05
        assert above <= 9

    def test_draws_that_are_all_alike_can_find_nothing(self) -> None:
        off, again, on = ([Answer("p", first + i, (1, 2, 3, 4)) for i in range(200)] for first in (0, 200, 400))
        (arm,) = judged(sampling_rule(off, again, {"on": on})).arms
        assert arm.outcome == "not accused"
        assert [p.p for p in arm.positions] == [1.0] * 4
        assert "nothing could be found" in arm.words


class TestWhatIsAsked:
    def test_seeds_are_disjoint(self) -> None:
        ranges = seeds(7, 3, 100)
        assert [len(r) for r in ranges] == [100, 100, 100]
        assert len(set().union(*ranges)) == 300

    def test_a_seed_used_twice_is_refused(self) -> None:
        rng = np.random.default_rng(8)
        off, again, on = drawn(rng, 200, 0, FLAT), drawn(rng, 200, 200, FLAT), drawn(rng, 200, 150, FLAT)
        with pytest.raises(ValueError, match="seed 150 was used twice, in baseline and draft"):
            sampling_rule(off, again, {"draft": on})

    def test_other_prompts_are_refused(self) -> None:
        rng = np.random.default_rng(9)
        off, again, on = drawn(rng, 200, 0, FLAT), drawn(rng, 200, 200, FLAT), drawn(rng, 200, 400, FLAT, prompts=2)
        with pytest.raises(ValueError, match="draft has other prompts than the baseline: p1"):
            sampling_rule(off, again, {"draft": on})

    def test_too_few_continuations_say_nothing(self) -> None:
        rng = np.random.default_rng(10)
        result = sampling_rule(drawn(rng, 200, 0, FLAT), drawn(rng, 99, 200, FLAT), {"on": drawn(rng, 200, 400, FLAT)})
        assert isinstance(result, Withheld)
        assert result.withheld == "needs 100 continuations, control has 99"

    def test_many_arms_take_more_permutations(self) -> None:
        """Of 20 arms the guilty one is still found; too few permutations could accuse nobody."""
        rng = np.random.default_rng(12)
        samples = [drawn(rng, 200, 200 * k, [[0.2, 0.6, 0.15, 0.05]] if k == 7 else FLAT[:1]) for k in range(22)]
        arms = {f"arm {k}": samples[k] for k in range(2, 22)}
        result = judged(sampling_rule(samples[0], samples[1], arms, positions=1, n_power=0))
        assert result.n_permutations == 20_000
        assert [a.arm for a in result.arms if a.outcome == "accused"] == ["arm 7"]
        with pytest.raises(ValueError, match="3999 permutations can accuse nobody in 20 tests: 4000 are needed"):
            sampling_rule(samples[0], samples[1], arms, positions=1, n_permutations=3999)

    def test_the_result_is_the_same_again_and_can_be_written_as_json(self) -> None:
        rng = np.random.default_rng(11)
        samples = [drawn(rng, 200, first, FLAT, prompts=2) for first in (0, 200, 400)]
        results = [sampling_rule(samples[0], samples[1], {"on": samples[2]}, n_permutations=999) for _ in range(2)]
        assert results[0] == results[1]
        assert json.loads(json.dumps(dataclasses.asdict(judged(results[0])), allow_nan=False))["arms"][0]["n"] == 200
