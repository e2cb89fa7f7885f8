"""How many whole blocks fit into a time, decided before and while they run."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from speccore.budget import before_start, blocks_that_fit, next_block
from speccore.spans import in_words, seconds_of


def test_whole_blocks_only() -> None:
    assert [blocks_that_fit(t, 30.0) for t in (0, 29, 30, 89.9, 90, 1000)] == [0, 0, 1, 2, 3, 33]
    with pytest.raises(ValueError, match="takes time"):
        blocks_that_fit(10, 0)


def test_the_first_block_may_always_start() -> None:
    assert next_block(1.0, 0.0, [], 5).start


def test_a_block_that_would_not_end_in_time_does_not_start() -> None:
    assert next_block(100.0, 66.0, [20.0, 22.0, 24.0], 10).start  # 66 + 24 = 90
    decision = next_block(100.0, 90.0, [20.0, 22.0, 24.0, 24.0], 10)
    assert not decision.start
    assert not decision.useless
    assert decision.why_not == "10 s are left and a block takes 24 s"


def test_a_block_is_expected_to_take_as_long_as_the_longest() -> None:
    assert next_block(100.0, 61.0, [20.0, 1.0, 40.0], 10).start is False
    assert next_block(101.5, 61.0, [20.0, 1.0, 40.0], 10).start is True


@pytest.mark.parametrize(("elapsed", "seconds", "reachable"), [(50.0, [50.0], 1), (35.0, [35.0], 2), (70.0, [30.0, 40.0], 2)])
def test_as_soon_as_three_blocks_are_out_of_reach_it_ends(elapsed: float, seconds: list[float], reachable: int) -> None:
    """95 s for blocks of 35 s: the third can't end, and below three nothing is said."""
    decision = next_block(95.0, elapsed, seconds, 5)
    assert not decision.start
    assert decision.useless
    assert f"{reachable} of the 3 blocks" in decision.why_not
    needed = elapsed + (3 - len(seconds)) * max(seconds)
    assert f"{in_words(needed)} would be enough" in decision.why_not


def test_who_plans_fewer_than_three_blocks_gets_them() -> None:
    assert next_block(100.0, 40.0, [40.0], 2).start
    assert not next_block(70.0, 40.0, [40.0], 2).start


def test_before_anything_is_run() -> None:
    assert before_start(90.0, 30.0, 5).start
    decision = before_start(89.0, 30.0, 5)
    assert decision.start  # a guess may be wrong
    assert not decision.useless
    assert "2 of the 3 blocks" in decision.why_not
    assert "1 min 30 s or more would be needed" in decision.why_not
    assert before_start(22.5, 30.0, 5).start
    hopeless = before_start(22.4, 30.0, 5)  # not even if the guess were four times too high
    assert not hopeless.start
    assert hopeless.useless


@given(
    budget=st.floats(1, 1e5),
    block=st.floats(0.01, 1e4),
    jitter=st.lists(st.floats(0.5, 1.0), min_size=1, max_size=40),
    planned=st.integers(1, 40),
)
def test_no_block_that_is_no_longer_than_before_ends_late(budget: float, block: float, jitter: list[float], planned: int) -> None:
    elapsed, seconds = block, [block]  # the first is the longest
    for factor in jitter:
        if len(seconds) == planned or not next_block(budget, elapsed, seconds, planned).start:
            break
        elapsed += block * factor
        seconds.append(block * factor)
        assert elapsed <= budget * (1 + 1e-6)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("15m", 900), ("1.5h", 5400), ("1h30m", 5400), (" 2 H 5 m 1s", 7501), ("1d", 86400), ("0.5", 0.5)],
)
def test_times_as_people_write_them(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "3x", "3h2", "m3", "1h1h", "1m1h", "-3m", "0", "0s", "1e3", "inf", "nan", "1..5s", "3 fortnights", "3 hoursh", "٣m"]
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        seconds_of(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (12.4, "12 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (600, "10 min"),
        (3599, "1 h"),
        (12000, "3 h 20 min"),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words


def test_what_does_not_fit_is_told_of_the_blocks_planned() -> None:
    assert "so that the one block planned does not fit into 10 s" in before_start(10.0, 20.0, 1).why_not
    assert "so that 1 of the 2 blocks planned fits into" in before_start(30.0, 20.0, 2).why_not
    assert "so that 0 of the 3 blocks that an interval needs fit into" in before_start(10.0, 20.0, 5).why_not
    assert next_block(50.0, 30.0, [30.0], 2).why_not.endswith("so that 1 of the 2 blocks planned fits into 50 s; 1 min would be enough")
