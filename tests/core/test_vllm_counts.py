"""vLLM's counters, the steps its replies list, and its log, from recorded runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from speccore.cycles import accepted_by_position, conditional, survival
from speccore.engines.vllm_counts import Totals, growth, log_intervals, request_steps, totals

VLLM = Path(__file__).parents[1] / "logs" / "vllm"


def read(name: str) -> str:
    return (VLLM / f"v0.32.0-{name}").read_text(encoding="utf-8")


def reply(name: str) -> dict[str, Any]:
    text = read(f"draft-per-request-{name}.txt")
    streamed = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    found: dict[str, Any] = json.loads(streamed[-1] if streamed else text)
    return found


def test_counters_are_summed_over_labels_and_positions_read() -> None:
    t = totals(read("draft3.metrics.txt"))
    assert (t.drafts, t.drafted, t.accepted, t.generated, t.engine_steps) == (430, 1290, 245, 684, 444)
    assert t.accepted_by_position == [131, 79, 35]
    assert survival([131, 79, 35], 430) == pytest.approx([0.305, 0.184, 0.081], abs=0.0005)  # as the engine's log rounds them
    assert conditional([131, 79, 35], 430) == pytest.approx([131 / 430, 79 / 131, 35 / 79])
    twice = read("draft3.metrics.txt") + read("draft3.metrics.txt").replace('engine="0"', 'engine="1"')
    assert totals(twice).drafted == 2580
    assert totals(twice).accepted_by_position == [262, 158, 70]


def test_without_speculation_its_counters_are_missing_not_zero() -> None:
    t = totals(read("off.metrics.txt"))
    assert (t.drafts, t.drafted, t.accepted, t.accepted_by_position) == (None, None, None, None)
    assert t.generated == 726
    assert totals("") == Totals()


def test_growth_knows_what_is_missing_and_what_was_reset() -> None:
    before = Totals(drafted=10, accepted=4, accepted_by_position=[3, 1])
    after = Totals(drafted=18, accepted=9, drafts=2, accepted_by_position=[5, 3])
    assert growth(before, after) == Totals(drafted=8, accepted=5, accepted_by_position=[2, 2])
    assert growth(after, before) == Totals()
    assert growth(Totals(), after) == Totals()


@pytest.mark.parametrize("name", ["completions_stream_false", "completions_stream_true"])
def test_steps_of_one_answer(name: str) -> None:
    steps = request_steps(reply(name))
    assert steps is not None
    assert steps.faults == []
    said = reply(name)["metrics"]["speculative_decoding"]
    assert (sum(steps.drafted), sum(steps.accepted), len(steps.drafted)) == (
        said["num_draft_tokens"],
        said["num_accepted_draft_tokens"],
        said["num_spec_steps"],
    )


def test_steps_by_position() -> None:
    steps = request_steps(reply("completions_stream_false"))
    assert steps is not None
    assert (steps.drafted, steps.accepted) == ([4, 4, 4, 4, 3, 4, 4], [4, 4, 2, 0, 3, 4, 4])
    assert accepted_by_position(steps.accepted, steps.drafted) == [6, 6, 5, 4]


def test_a_reply_that_contradicts_itself_says_so() -> None:
    data = reply("completions_stream_false")
    said = data["metrics"]["speculative_decoding"]
    said["per_step_accepted"][3] = 5
    steps = request_steps(data)
    assert steps is not None
    assert steps.faults == ["accepted: 26 by step, 21 by num_accepted_draft_tokens", "step 4 accepted 5 of 4"]
    said["per_step_accepted"].pop()
    steps = request_steps(data)
    assert steps is not None
    assert (steps.drafted, steps.faults) == ([], ["7 steps drafted, 6 accepted"])


@pytest.mark.parametrize("data", [{}, {"metrics": None}, {"metrics": {}}, {"metrics": {"speculative_decoding": {"per_step_drafted": "4"}}}])
def test_a_reply_without_steps_has_none(data: dict[str, Any]) -> None:
    assert request_steps(data) is None


def test_the_logs_line_and_an_unknown_wording() -> None:
    text = read("ngram4.log")
    [(line, drafted, accepted)] = log_intervals(text)
    assert (drafted, accepted) == (426, 279)
    assert "SpecDecoding metrics" in text.split("\n")[line - 1]
    t = totals(read("ngram4.metrics.txt"))
    assert (t.drafted, t.accepted) == (426, 279)
    assert log_intervals(text.replace("Accepted: 279 tokens", "Took 279")) == []
