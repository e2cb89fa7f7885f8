"""When a warm-up has settled, how many requests that may take, and how points share the prompts for it."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.settling import LEAST, Settling, ms_per_token, settling, shares, window_size
from speccore.spec import Point, Warmup

from tests.core.streams import stream_of


def point(concurrency: int = 1, **more: Any) -> Point:
    return Point(workload="count", concurrency=concurrency, **more)


@pytest.mark.parametrize(
    ("answers", "settled"),
    [
        ([10, 10, 10, 10, 10, 10], True),
        ([90, 40, 10, 10, 10, 10, 10, 10], True),  # what came before the last two windows does not matter
        ([90, 10, 10, 10, 10, 10], False),
        ([10, 10, 10, 10.5, 10.5, 10.5], True),  # 5 % apart
        ([10.5, 10.5, 10.5, 10, 10, 10], True),  # whichever is the slower one
        ([10, 10, 10, 10.52, 10.52, 10.52], False),
        ([9, 10, 11, 11, 10, 9], True),  # windows are compared, not requests
    ],
)
def test_two_windows_that_agree_within_5_per_cent(answers: list[float], settled: bool) -> None:
    found = settling("p", answers, 3)
    assert (found.n, found.settled, found.why) == (len(answers), settled, "")
    assert found.apart is not None
    assert (found.apart <= 0.05 + 1e-9) is settled


def test_the_windows_are_the_last_ones_in_their_order() -> None:
    assert settling("p", [99, 1, 2, 3, 4, 5, 6], 3) == Settling(point="p", n=7, settled=False, windows_ms=(2, 5))
    assert settling("p", [8, 8, 8, 8, 4, 4, 4, 4], 4).windows_ms == (8, 4)


def test_fewer_than_two_windows_have_not_settled() -> None:
    found = settling("p", [10] * 5, 3)
    assert (found.settled, found.windows_ms, found.apart) == (False, None, None)
    assert found.why == "5 requests are less than two windows of 3"
    assert settling("p", [], 3).why == "0 requests are less than two windows of 3"


def test_answers_without_a_time_per_token_are_no_agreement() -> None:
    found = settling("p", [10, 10, 10, None, 10, None], 3)
    assert (found.settled, found.windows_ms) == (False, None)
    assert found.why == "2 of the last 6 requests had no time per token, since their answers came at once or failed"
    assert settling("p", [None, 10, 10, 10, 10, 10, 10], 3).settled


def test_the_time_per_token_is_that_of_decoding() -> None:
    """The wait for the first token is no part of it: prompts of different lengths would never agree."""
    assert ms_per_token(stream_of([(5000, 1), (5100, 1), (5200, 1)])) == pytest.approx(100)
    assert ms_per_token(stream_of([(5000, 1)])) is None
    assert ms_per_token(stream_of([(5000, 1), (5100, 1)], failure="probe_failed")) is None


@pytest.mark.parametrize(("concurrency", "n_prompts", "size"), [(1, 10, 3), (2, 10, 3), (4, 12, 4), (16, 48, 16), (16, 20, 10), (16, 6, 3)])
def test_a_window_is_as_large_as_the_load_while_the_prompts_last(concurrency: int, n_prompts: int, size: int) -> None:
    assert window_size(point(concurrency), n_prompts) == size


def test_points_share_out_what_their_workload_has() -> None:
    one, two = point(), point(sampling={"temperature": 0.8})
    assert shares([one], Warmup(mode="settled"), 40) == {one.key: 10}
    assert shares([one], Warmup(mode="settled", most=7), 40) == {one.key: 7}
    assert shares([one, two], Warmup(mode="settled"), 15) == {one.key: 8, two.key: 7}
    assert shares([one, two], Warmup(mode="settled"), 11) == {one.key: 0, two.key: 0}


def test_many_at_once_get_full_windows_first() -> None:
    levels = [point(c) for c in (1, 2, 4, 8, 16)]
    has = shares(levels, Warmup(mode="settled"), 40)
    assert sum(has.values()) == 40
    assert min(has.values()) == LEAST
    assert window_size(levels[-1], has[levels[-1].key]) == 8
    plenty = shares(levels, Warmup(mode="settled"), 200)
    assert [plenty[p.key] for p in levels] == [10, 10, 12, 24, 48]
