"""What a run's report says of the work that was asked."""

from __future__ import annotations

import pytest
from specagent.report import point_words
from speccore.spec import Point


@pytest.mark.parametrize(
    ("point", "words"),
    [
        (Point(workload="count", probes=1), "count: temperature 0, up to 128 tokens, 1 request in each start"),
        (
            Point(workload="python-code", occupied_context=15800, max_tokens=64),
            "python-code: temperature 0, up to 64 tokens, 2 requests in each start, 15,800 tokens of context occupied",
        ),
        (
            Point(workload="count", concurrency=4, warm=True, thinking=False),
            "count: temperature 0, up to 128 tokens, 24 requests in each start, 4 at once, each prompt asked before, thinking off",
        ),
    ],
)
def test_a_point_is_told_with_all_that_makes_it_another(point: Point, words: str) -> None:
    assert point_words(point) == words
