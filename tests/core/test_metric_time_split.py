"""Where the time of a side's requests went: by hand, and what is not told, impossible, or off by the jitter of two clocks."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.derive import Pooled
from speccore.measurement import ProbeMeasurement, Withheld, value_of
from speccore.time_split import splits
from speccore.time_split_results import TimeSplit

from tests.core import made
from tests.core.recordings import LLAMA
from tests.core.streams import stream_of


def request(prompt: float | None, **counted: Any) -> ProbeMeasurement:
    """A request of 64 tokens in 2 s, its first after 0.2 s."""
    trial = made.planned(made.spec_of()).trials[0]
    return made.probe(trial.probes[0], 2.0, counters=made.counters(**counted), prompt_ms=made.number(prompt))


def both(arm: list[ProbeMeasurement], *, off: bool = False, baseline: list[ProbeMeasurement] | None = None) -> tuple[Any, Any]:
    plain = baseline or [request(150.0, decode_steps=63, eval_ms=1800.0)]
    found = splits(Pooled("draft-4", "p", arm, [1]), Pooled("off", "p", plain, [1]), off=off)
    return found["arm_time_split"], found["baseline_time_split"]


def parts(split: TimeSplit) -> dict[str, float]:
    return {p.name: round(p.ms, 6) for p in split.parts}


def test_metric_prompt_ms() -> None:
    record = stream_of([(100, 1), (140, 4)])
    timed = record.model_copy(update={"final": record.final | {"timings": {"prompt_ms": 87.5}}})
    assert value_of(LLAMA.probe_counts(timed, 1, off=True, metrics=None, log=None).prompt_ms) == 87.5


def test_metric_time_split() -> None:
    """Two requests of 2 s: 150 + 130 ms of prefill, 1,750 + 1,800 of decoding, of which 300 + 200 went into drafts."""
    arm, baseline = both(
        [request(150.0, draft_ms=300, eval_ms=1750, decode_steps=20), request(130.0, draft_ms=200, eval_ms=1800, decode_steps=20)]
    )
    assert (arm.whole_ms, arm.tokens, arm.n_probes, arm.prefill_by) == (4000, 128, 2, "engine")
    assert parts(arm) == {"prefill": 280, "draft": 500, "verify": 3050, "rest": 170}
    assert sum(p.ms for p in arm.parts) == pytest.approx(arm.whole_ms)
    assert arm.ms_per_token(arm.parts[1]) == 500 / 128
    assert arm.share(arm.parts[1]) == 0.125
    assert parts(baseline) == {"prefill": 150, "verify": 1800, "rest": 50}
    assert baseline.not_told == {}


def test_both_sides_go_by_one_clock() -> None:
    """Where one request of either side has no time of its prompt, prefill lasts up to the first token in all of them."""
    arm, baseline = both([request(150.0, draft_ms=300, eval_ms=1750), request(None, draft_ms=300, eval_ms=1750)])
    assert arm.prefill_by == baseline.prefill_by == "client"
    assert parts(arm) == {"prefill": 400, "draft": 600, "verify": 2900, "rest": 100}
    assert parts(baseline) == {"prefill": 200, "verify": 1800, "rest": 0}


def test_what_the_engine_does_not_tell_is_no_part_of_its_own() -> None:
    arm, _ = both([request(150.0, eval_ms=1750)])
    assert parts(arm) == {"prefill": 150, "decode": 1750, "rest": 100}
    assert set(arm.not_told) == {"draft"}
    silent, _ = both([request(None, draft_ms=5)])
    assert parts(silent) == {"prefill": 200, "after_first": 1800}
    assert set(silent.not_told) == {"decode"}
    half, _ = both([request(150.0, draft_ms=300, eval_ms=1750), request(150.0, eval_ms=1750)])
    assert "draft" not in parts(half)


def test_a_control_drafts_nothing() -> None:
    arm, _ = both([request(150.0, eval_ms=1750)], off=True)
    assert parts(arm) == {"prefill": 150, "verify": 1750, "rest": 100}
    assert arm.not_told == {}


def test_a_sum_that_cannot_be_is_withheld() -> None:
    more, baseline = both([request(150.0, draft_ms=300, eval_ms=1900)])
    assert isinstance(more, Withheld)
    assert "2050.0 ms, more than the 2000.0 ms" in more.withheld
    assert isinstance(baseline, TimeSplit)
    drafting, _ = both([request(150.0, draft_ms=1800, eval_ms=1750)])
    assert isinstance(drafting, Withheld)
    assert drafting.reason_code == "impossible"


def test_jitter_of_two_clocks_makes_no_part_negative() -> None:
    arm, _ = both([request(150.4, draft_ms=300, eval_ms=1850.0)])
    assert parts(arm) == {"prefill": 150.4, "draft": 300, "verify": 1549.6, "rest": 0}
    assert sum(p.ms for p in arm.parts) == pytest.approx(2000)


def test_requests_without_a_whole_are_left_out_and_none_is_a_reason() -> None:
    broken = request(150.0, eval_ms=1750, draft_ms=3).model_copy(update={"e2e_s": Withheld(withheld="no token came")})
    arm, _ = both([broken, request(150.0, draft_ms=300, eval_ms=1750)])
    assert (arm.n_probes, arm.whole_ms) == (1, 2000)
    assert both([broken])[0].withheld == "no token came"


def test_an_answer_of_one_token_has_no_decoding() -> None:
    arm, _ = both([request(150.0, draft_ms=0, decode_steps=0)])
    assert parts(arm) == {"prefill": 150, "draft": 0, "verify": 0, "rest": 1850}
