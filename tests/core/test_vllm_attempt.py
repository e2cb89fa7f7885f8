"""From an attempt of vLLM to its measurement and its comparison: the same fields as of llama-server, from recorded runs."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.derive import Pooled, cycle_numbers, positions_numbers, speculation_numbers
from speccore.measure import measure_attempt
from speccore.measurement import AttemptMeasurement, Number, Withheld, value_of
from speccore.plan import plan_job
from speccore.records import LOG, METRICS, Sample
from speccore.workload import Workload

from tests.core import recordings
from tests.core.vllm_recordings import ARMS, SPECULATING, evidence, spec_of

ITEMS = [{"id": f"i{n}", "prompt": f"p{n}"} for n in range(3)]
WORKLOAD = Workload.model_validate({"name": "w", "version": 1, "title": "W", "items": ITEMS, "warmup": [{"id": "i0", "prompt": "warm"}]})


def measured(case: str, files: dict[str, bytes] | None = None) -> AttemptMeasurement:
    return measure_attempt(files or evidence(case), spec_of(case), {"w": WORKLOAD})


@functools.cache
def whole(case: str) -> AttemptMeasurement:
    return measured(case)


def pooled(case: str) -> Pooled:
    return Pooled.of(ARMS[case]["name"], "w/c1/ctx0/t0", [whole(case)])


@pytest.mark.parametrize("case", SPECULATING)
def test_an_attempt_is_measured_and_engaged(case: str) -> None:
    m = whole(case)
    assert m.engaged is True
    assert m.engaged_why.endswith("tokens drafted in 3 probes")
    assert (m.problems, m.disagreements) == ([], [])
    assert [p.failure_message for p in m.probes] == ["", "", ""]
    assert (m.context_per_slot, m.slots, m.healthy_after_s) == (1024, 4, 28.0)
    assert all(p.speculation_reported for p in m.probes)
    assert [value_of(p.cache_hit_tokens) for p in m.probes] == [0, 0, 0]


def test_off_is_off() -> None:
    m = whole("off")
    assert m.engaged is None
    assert [p.ok for p in m.probes] == [True] * 3
    assert all(isinstance(p.counters.drafted, Withheld) for p in m.probes)
    assert [value_of(p.counters.decode_steps) for p in m.probes] == [54, 63, 63]


def test_the_fields_that_are_known_are_those_of_llama_server() -> None:
    """Of both engines' probes under speculation, but for the time of drafting, which vLLM doesn't tell apart."""
    llama = recordings.evidence("b10434-held-tokens-draft4-lv4", [1, 2], "draft")
    spec = recordings.spec_of(mode="draft", draft_model="draft", draft_limit=4)
    theirs = measure_attempt(llama, spec, {"w": WORKLOAD})

    def known(m: AttemptMeasurement) -> set[str]:
        probe = m.probes[1]
        fields = {name for name, value in [*probe, *probe.counters] if isinstance(value, Number | list)}
        return fields | {name for name, value in m if value not in (None, "", [], {}) and not isinstance(value, Withheld)}

    ours = known(whole("draft3"))
    assert known(theirs) - ours <= {
        "draft_ms",  # of the log of llama-server
        "peak_device_bytes",  # of the samples that stand for it
        "energy_j_per_1k_tokens",
        "memory_after_load_bytes",
        "memory_growth_bytes_per_min",
        "clock_mhz",
        "temperature_c",
        "n_late_events",
        "n_events",
        "token_latency_ms_p50",  # several tokens share an event
        "token_latency_ms_p95",
    }


@pytest.mark.parametrize(
    ("case", "per_pass", "length", "rate"),
    [
        ("draft3", 180 / 81, 1 + 103 / 81, 103 / 243),
        ("ngram4", 180 / 139, 1 + 45 / 20, 45 / 80),
        ("mtp1", 180 / 133, 1 + 49 / 133, 49 / 133),
    ],
)
def test_numbers_of_an_arm_count_all_steps(case: str, per_pass: float, length: float, rate: float) -> None:
    found = speculation_numbers(pooled(case))
    assert value_of(found["tokens_per_target_pass"]) == pytest.approx(per_pass)
    assert value_of(found["mean_acceptance_length"]) == pytest.approx(length)
    assert value_of(found["acceptance_rate"]) == pytest.approx(rate)


def test_positions_and_cycles_reach_the_comparison() -> None:
    positions = positions_numbers(pooled("draft3"))
    assert positions["accepted_by_position"] == pytest.approx([53 / 81, 27 / 81, 23 / 81])
    assert positions["conditional_by_position"] == pytest.approx([53 / 81, 27 / 53, 23 / 27])
    cycles = cycle_numbers(pooled("draft3"), pooled("off"))
    eval_ms = sum(value_of(p.counters.eval_ms) or 0 for p in whole("draft3").probes)
    assert value_of(cycles["cycle_ms"]) == pytest.approx(eval_ms / 81)
    plain = sum(value_of(p.counters.eval_ms) or 0 for p in whole("off").probes) / 180
    assert value_of(cycles["plain_step_ms"]) == pytest.approx(plain)
    assert value_of(cycles["break_even_tokens_per_pass"]) == pytest.approx(eval_ms / 81 / plain)
    apart = cycles["draft_ms_per_cycle"]
    assert isinstance(apart, Withheld)
    assert apart.withheld == "vLLM doesn't tell the time of drafting apart"


def changed(case: str, name: str, old: str, new: str) -> dict[str, bytes]:
    files = evidence(case)
    assert old.encode() in files[name]
    return files | {name: files[name].replace(old.encode(), new.encode())}


def test_another_method_than_asked_for_is_not_engaged() -> None:
    m = measured("draft3", changed("draft3", LOG, "method='draft_model'", "method='ngram'"))
    assert (m.engaged, m.engaged_why) == (False, "the server reports speculation ngram, asked for was draft_model")


def test_a_server_without_speculation_is_not_engaged() -> None:
    off = evidence("off")
    files = evidence("draft3") | {name: off[name] for name in (LOG, METRICS, "records.jsonl", "texts.jsonl")}
    m = measured("draft3", files)
    assert (m.engaged, m.engaged_why) == (False, "the server reports speculation none, asked for was draft_model")


def test_speculation_in_the_baseline_fails_its_probes() -> None:
    arms = evidence("draft3")
    files = evidence("off") | {name: arms[name] for name in (LOG, METRICS, "records.jsonl", "texts.jsonl")}
    probe = measured("off", files).probes[0]
    assert probe.failure == "engine_loaded_other"
    assert probe.failure_message == "mode is off, yet the server reports speculation: on"


def test_counts_of_somebody_elses_requests_fail_the_probe() -> None:
    files = evidence("draft3")
    lines = [json.loads(line) for line in files[METRICS].decode().splitlines()]
    lines[3]["text"] = lines[5]["text"]  # after the second request: as after the third
    files[METRICS] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    probe = measured("draft3", files).probes[1]
    assert probe.failure == "counts_disagree"
    assert "tokens: 64 by records.jsonl line 2" in probe.failure_message


def test_without_metrics_the_replies_tell_and_steps_that_share_events_are_missing() -> None:
    files = evidence("draft3")
    del files[METRICS]
    m = measured("draft3", files)
    assert m.engaged is True
    assert "metrics.jsonl is missing" in m.problems
    assert [value_of(p.counters.drafted) for p in m.probes] == [45, 75, 123]
    assert isinstance(m.probes[0].counters.decode_steps, Withheld)
    assert isinstance(m.probes[0].cache_hit_tokens, Withheld)


# --- compared ---


@functools.cache
def compared(case: str, **files: bytes) -> Any:
    """Three blocks of the recorded pair, compared."""
    spec = spec_of(case).model_copy(update={"blocks": 3})
    plan = plan_job(spec, {"w": WORKLOAD})
    attempts = []
    for trial in plan.trials:
        own = next(c for c, arm in ARMS.items() if arm["name"] == trial.arm)
        attempts.append(measure_attempt(evidence(own, block=trial.block) | (files if own == case else {}), spec, {"w": WORKLOAD}))
    [result] = analyse_job(spec, plan, attempts, [], JobFacts(), workloads={"w": WORKLOAD}).comparisons
    return result


def test_what_came_with_an_n_gram_drafter() -> None:
    found = {c.name: (c.baseline, c.arm) for c in compared("ngram4").came_with}
    assert found.keys() == {"max_num_scheduled_tokens", "async_scheduling"}
    baseline, arm = found["async_scheduling"]
    assert baseline is None  # that build's log doesn't tell
    assert (arm.value, arm.attempt, arm.line) == ("off", "A-ngram-1", 12)


def test_what_came_with_a_draft_model_and_what_it_costs() -> None:
    result = compared("draft3")
    found = {c.name: (c.baseline.value if c.baseline else None, c.arm.value) for c in result.came_with}
    assert found == {
        "max_num_scheduled_tokens": (None, 2048.0),
        "kv_cache_tokens": (131072.0, 116480.0),
        "max_concurrency": (128.0, 113.75),
    }
    assert result.kv_tokens_lost == 14592
    # the same peak, the same budget: what the helper takes is missing from the cache
    assert value_of(result.memory_bill_bytes) == pytest.approx(14592 * 2**30 / 131072)
    assert "bytes of KV cache lost" in result.memory_bill_bytes.source.field


def test_what_grows_outside_the_budget_is_added() -> None:
    more = Sample(at_s=2, phase="probing", rss_bytes=(3 << 30) + 5_000_000, pss_bytes=(3 << 30) + 5_000_000)
    result = compared("draft3", **{"samples.jsonl": (more.model_dump_json() + "\n").encode()})
    assert value_of(result.memory_bill_bytes) == pytest.approx(14592 * 2**30 / 131072 + 5_000_000)


def test_a_bill_without_the_caches_size_is_withheld() -> None:
    log = evidence("draft3")[LOG].replace(b"KV cache size:", b"KV cache holds")
    result = compared("draft3", **{LOG: log})
    assert result.kv_tokens_lost is None
    assert result.memory_bill_bytes.withheld == "an arm's log doesn't tell the size of its KV cache"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (b"dtype=torch.float32", b"dtype=torch.bfloat16", "type of the weights, as the engine settled it: float32"),
        (b"enable_prefix_caching=False", b"enable_prefix_caching=True", "prefix cache, as the engine settled it: off"),
    ],
)
def test_a_requested_setting_that_differs_breaks_the_pair(old: bytes, new: bytes, said: str) -> None:
    log = evidence("draft3")[LOG]
    assert old in log
    result = compared("draft3", **{LOG: log.replace(old, new)})
    [check] = [c for c in result.checks if c.name == "same comparison key"]
    assert (check.kind, check.passed) == ("hard", False)
    assert said in check.sentence
    assert result.verdict.word == "invalid"
    whole_pair = [c for c in compared("draft3").checks if c.name == "same comparison key"]
    assert whole_pair[0].passed
