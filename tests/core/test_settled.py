"""Settings that came with speculation: which differ, which may, and how they are told."""

from __future__ import annotations

import pytest
from speccore import settled
from speccore.measurement import AttemptMeasurement, LogFacts
from speccore.plan import plan_job
from speccore.spec import EngineSettings

from tests.core import made
from tests.core.recordings import LLAMA, read

SETTINGS = EngineSettings()


def starts(arm: str, *values: dict[str, str | float]) -> list[AttemptMeasurement]:
    """One attempt for each, whose log tells these settings, the n-th on line n."""
    spec = made.spec_of()
    trial = plan_job(spec, {"count": made.workload()}).trials[0]
    blank = made.attempt(trial, "off", lambda t, p: 2.0)
    return [
        blank.model_copy(
            update={
                "attempt_id": f"{arm}-{i}",
                "log": LogFacts(settled=told, settled_lines={name: n for n, name in enumerate(told, 1)}),
            }
        )
        for i, told in enumerate(values, 1)
    ]


def differing(off: list[dict[str, str | float]], arm: list[dict[str, str | float]], settings: EngineSettings = SETTINGS) -> list[str]:
    return [c.name for c in settled.came_with(starts("off", *off), starts("arm", *arm), settings)]


def test_what_no_start_of_the_other_arm_has_came_with_speculation() -> None:
    assert differing([{"async_scheduling": "on"}] * 3, [{"async_scheduling": "off"}] * 3) == ["async_scheduling"]
    assert differing([{"async_scheduling": "on"}] * 3, [{"async_scheduling": "off"}, *[{"async_scheduling": "on"}] * 2]) == []


def test_capacities_that_wander_between_starts_are_no_difference() -> None:
    off: list[dict[str, str | float]] = [{"kv_cache_tokens": n} for n in (524288.0, 524160.0, 524304.0)]
    near: list[dict[str, str | float]] = [{"kv_cache_tokens": n} for n in (524200.0, 524100.0)]
    far: list[dict[str, str | float]] = [{"kv_cache_tokens": n} for n in (419328.0, 419000.0, 419500.0)]
    assert differing(off, near) == []
    assert differing(off, far) == ["kv_cache_tokens"]
    [found] = settled.came_with(starts("off", *off), starts("arm", *far), SETTINGS)
    assert found.baseline is not None
    assert found.arm is not None
    assert (found.baseline.value, found.baseline.attempt) == (524288.0, "off-1")  # the middle one, and who told it
    assert (found.arm.value, found.arm.attempt, found.arm.line) == (419328.0, "arm-1", 1)


def test_what_one_log_never_tells_is_not_told_and_no_value() -> None:
    [found] = settled.came_with(
        starts("off", {"model_runner": "V1"}), starts("arm", {"model_runner": "V1", "max_num_scheduled_tokens": 2048.0}), SETTINGS
    )
    assert (found.name, found.baseline) == ("max_num_scheduled_tokens", None)
    assert settled.lines([found], "ngram-4") == ["ngram-4: tokens a step may schedule 2,048 (baseline: not told)"]
    assert differing([{}], [{"async_scheduling": "off"}]) == []  # a log that tells nothing at all differs in nothing


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (SETTINGS, "dtype"),
        (SETTINGS, "prefix_caching"),
        (EngineSettings(batch=4096), "max_num_batched_tokens"),
        (EngineSettings(batch=4096), "n_batch"),
        (EngineSettings(extra={"--attention-backend": "FLASH_ATTN"}), "attention_backend"),
        (EngineSettings(extra={"--no-async-scheduling": True}), "async_scheduling"),
    ],
)
def test_what_is_asked_for_is_no_gift_of_speculation_but_part_of_the_pair(settings: EngineSettings, name: str) -> None:
    assert differing([{name: "a"}], [{name: "b"}], settings) == []
    assert settled.pair_fields(LogFacts(settled={name: "a"}), settings) == {f"settled:{name}": "a"}


def test_what_is_left_to_the_engine_is_no_part_of_the_pair() -> None:
    told: dict[str, str | float] = {"async_scheduling": "off", "kv_cache_tokens": 9.0, "graph_sizes": "1, 2", "attention_backend": "X"}
    assert settled.pair_fields(LogFacts(settled=told), SETTINGS) == {}
    auto = EngineSettings(flash_attention="auto")
    assert differing([{"flash_attention": "on"}], [{"flash_attention": "off"}], auto) == ["flash_attention"]
    asked = EngineSettings(flash_attention="on")
    assert settled.pair_fields(LogFacts(settled={"flash_attention": "on"}), asked) == {"settled:flash_attention": "on"}


def test_a_size_of_cache_that_is_asked_for_in_bytes_may_hold_fewer_tokens_beside_a_helper() -> None:
    """vLLM gives the helper's layers a part of the same bytes: what is missing is the helper's price, and no other setting."""
    asked = EngineSettings(extra={"--kv-cache-memory-bytes": "1G"})
    off: dict[str, str | float] = {"kv_cache_tokens": 131072.0, "kv_cache_bytes": 2.0**30}
    arm: dict[str, str | float] = {"kv_cache_tokens": 116480.0, "kv_cache_bytes": 2.0**30}
    assert settled.pair_fields(LogFacts(settled=off), asked) == settled.pair_fields(LogFacts(settled=arm), asked)
    assert differing([off], [arm], asked) == ["kv_cache_tokens"]
    assert settled.pair_fields(LogFacts(settled=off), asked) == {"settled:kv_cache_bytes": f"{2.0**30:g}"}


def test_llama_server_keeps_outputs_and_state_for_drafts() -> None:
    off, mtp = (LLAMA.parse_log(read(f"b11434-mtp-{n}.log")).settled for n in ("n0", "n5"))
    assert differing([off], [mtp]) == ["outputs_per_sequence", "state_copies"]
    assert (off["outputs_per_sequence"], mtp["outputs_per_sequence"], mtp["state_copies"]) == (1.0, 6.0, 5.0)
    facts = LLAMA.parse_log(read("b11434-mtp-n5.log"))
    assert "n_rs_seq" in read("b11434-mtp-n5.log").split("\n")[facts.settled_lines["state_copies"] - 1]
    draft = LLAMA.parse_log(read("b10434-draft4-lv4.log")).settled
    assert draft["outputs_per_sequence"] == 5.0  # the target's, not the draft model's own context
    assert LLAMA.parse_log(read("b10434-draft4.log")).settled == {}  # at the default verbosity the log doesn't tell


def test_cache_lost_in_bytes_is_what_the_baseline_holds_in_them() -> None:
    off: dict[str, str | float] = {"kv_cache_tokens": 524288.0, "kv_cache_bytes": 2.0**30}
    arm: dict[str, str | float] = {"kv_cache_tokens": 419328.0, "kv_cache_bytes": 2.0**30}
    assert settled.kv_tokens_lost(off, arm) == 104960
    assert settled.kv_bytes_lost(off, arm) == 104960 * 2048
    assert settled.kv_tokens_lost({}, arm) is None
    assert settled.kv_bytes_lost({"kv_cache_tokens": 524288.0}, arm) is None
