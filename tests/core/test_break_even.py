"""Where a measured curve crosses the baseline's speed, and what is said where it doesn't."""

from __future__ import annotations

import pytest
from speccore.break_even import Curve, curve, lengths

#: As measured on a small target (b11434, limit 4): length asked for, tokens per pass, share of the baseline's speed.
MEASURED = [(1.0, 1.0, 0.5), (1.5, 1.49, 0.83), (2.0, 1.98, 1.1), (3.0, 2.96, 1.7), (4.0, 3.9, 2.1), (5.0, 4.9, 2.8)]


def of(*rows: tuple[float, float, float], baseline: tuple[float, float] = (100.0, 100.0)) -> Curve:
    usual = sum(baseline) / 2
    return curve("draft-4", "draft", baseline, [(asked, per_pass, share * usual, 500) for asked, per_pass, share in rows])


def test_the_crossing_lies_between_two_points_by_a_straight_line() -> None:
    found = of(*MEASURED)
    assert found.break_even() == pytest.approx(1.49 + (1 - 0.83) / (1.1 - 0.83) * 0.49)
    assert found.words() == "pays from 1.80 tokens per target pass on"
    assert found.synthetic


def test_what_is_counted_decides_and_not_what_was_asked_for() -> None:
    assert of((2.0, 1.2, 0.9), (3.0, 1.4, 1.1)).break_even() == pytest.approx(1.3)


def test_no_crossing_is_no_number() -> None:
    never, always = of(*MEASURED[:2]), of(*MEASURED[2:])
    assert never.break_even() is None
    assert never.words() == "does not pay up to 1.49 tokens per target pass, the most that were tried"
    assert always.break_even() is None
    assert always.words() == "pays from 1.98 tokens per target pass on, the fewest that were tried"
    assert "more than once" in of((1.0, 1.0, 1.2), (2.0, 2.0, 0.9)).words()
    assert of().words() == "was not measured"


def test_a_baseline_that_changed_meanwhile_makes_it_a_hint() -> None:
    found = of(*MEASURED, baseline=(100.0, 80.0))
    assert found.drift == pytest.approx(-0.2)
    assert found.words().endswith("the baseline changed by -20 % meanwhile, so that this is no more than a hint")
    assert "hint" not in of(*MEASURED, baseline=(100.0, 97.0)).words()


@pytest.mark.parametrize("limit", [None, 1, 2, 4, 8, 64])
def test_lengths_reach_a_whole_draft_and_the_token_after_it(limit: int | None) -> None:
    found = lengths(limit)
    assert found[0] == 1.0
    assert found[-1] == (limit or 3) + 1
    assert found == sorted(set(found))
    assert len(found) <= 8
