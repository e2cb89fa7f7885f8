"""What a run's report says of the work that was asked."""

from __future__ import annotations

import pytest
from speccore.measurement import JobAnalysis
from speccore.report import came_with, point_words
from speccore.spec import Point

from tests.core.test_vllm_attempt import compared


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


def test_what_came_with_speculation_is_told_once_for_all_points() -> None:
    compared_twice = [compared("draft3"), compared("draft3").model_copy(update={"point": "w/c1/ctx0/t0.8"})]
    analysis = JobAnalysis(comparisons=compared_twice, checks=[], answers=[], attempts_used=[])
    assert came_with(analysis).splitlines() == [
        "What came with speculation, left to the engine in each arm (what the baseline's log doesn't tell may be the same there):",
        "",
        "- draft: tokens a step may schedule 2,048 (baseline: not told)",
        "- draft: tokens that the KV cache holds 116,480 (baseline: 131,072)",
        "- draft: requests of full context that fit at once 113.75 (baseline: 128)",
    ]
    silent = compared_twice[0].model_copy(update={"came_with": None})
    assert came_with(analysis.model_copy(update={"comparisons": [silent]})) == ""
