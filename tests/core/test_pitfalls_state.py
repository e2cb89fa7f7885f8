"""Known ways in which state, failure and wrong answers spoil numbers, each held by a test with its number.

The numbers, 29 to 43 here, are those of a collection of public faults in benchmarks of speculation. Those that concern a
running host or client (33 to 35, and 42 as a whole) are tested with the agent.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.measure import equal_work_s, measure_attempt
from speccore.measurement import ComparisonResult, Interval, Withheld, value_of
from speccore.outages import TrialFailure
from speccore.plan import plan_job
from speccore.records import StreamEvent
from speccore.spec import ExperimentSpec, Point

from tests.core import made
from tests.core.recordings import LLAMA, evidence, read, spec_of
from tests.core.streams import stream_of

WORKLOADS = {"w": made.workload("w", n=4)}
ARM = {"name": "draft-4", "mode": "draft", "draft_model": "d", "draft_limit": 4}
POINTS = [{"workload": "count", "probes": 4}]


def compared(spec: ExperimentSpec, speed: float = 2.0, failures: Any = (), **more: Any) -> ComparisonResult:
    plan = made.planned(spec, count=made.workload(n=80, **more.pop("item", {})))
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": speed}, **({"noise": made.wobble} | more))
    return analyse_job(spec, plan, ran, list(failures), JobFacts(noise_floor=0.005)).comparisons[0]


def check(c: ComparisonResult, name: str) -> Any:
    return next(k for k in c.checks if k.name == name)


def test_pitfall_29_a_cached_prompt_token_fails_a_cold_trial() -> None:
    _, body = LLAMA.request("p", Point(workload="w"), 1)
    assert body["cache_prompt"] is False
    first, second = measure_attempt(evidence("b10434-cache-hit", [0, 1], "off"), spec_of(), WORKLOADS).probes
    assert (value_of(first.cache_hit_tokens), value_of(second.cache_hit_tokens)) == (0, 127)
    c = compared(
        made.spec_of(ARM, points=POINTS), change=lambda t, p: {"cache_hit_tokens": second.cache_hit_tokens} if t.block == 2 else {}
    )
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "no cache hits")


@pytest.mark.parametrize("mode", ["ngram-mod", "ngram-cache"])
def test_pitfall_30_a_drafter_that_keeps_what_it_learned_starts_anew_for_each_point(mode: str) -> None:
    spec = made.spec_of({"name": "n", "mode": mode}, ARM, points=[{"workload": "count"}, {"workload": "prose"}], blocks=3)
    plan = made.planned(spec)
    points = {t.arm: [u.points for u in plan.trials if u.arm == t.arm and u.block == 1] for t in plan.trials}
    assert sorted(map(len, points["n"])) == [1, 1]
    assert sorted(map(len, points["draft-4"])) == [2]
    assert {t.position for t in plan.trials if t.block == 1} == {1, 2, 3}  # the order of arms is planned and recorded


def test_pitfall_31_repeats_in_one_start_are_no_replicates() -> None:
    """The interval is over starts: more probes in each leave its degrees of freedom alone."""
    few, many = (compared(made.spec_of(ARM, points=[{"workload": "count", "probes": n}], blocks=4)) for n in (2, 8))
    for c in (few, many):
        assert isinstance(c.speedup, Interval)
        assert c.speedup.n_blocks == 4
        assert len(c.block_values) == 4
    spec = made.spec_of(ARM, points=POINTS, blocks=3)
    for trial in plan_job(spec, {"count": made.workload(n=80)}).trials:
        assert len({p.item for p in trial.probes}) == len(trial.probes)


def test_pitfall_32_warm_up_is_kept_and_never_counted() -> None:
    m = measure_attempt(evidence("b10434-draft4-lv4", [0, 2], "draft", warmup=(0,)), spec_of(**{**ARM, "name": "draft"}), WORKLOADS)
    assert [(p.warmup, p.ok) for p in m.probes] == [(True, True), (False, True)]
    spec = made.spec_of(ARM, points=POINTS)
    slow_first = made.probe(made.planned(spec).trials[0].probes[0], 50.0).model_copy(update={"warmup": True})
    plan = made.planned(spec, count=made.workload(n=80))
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    warmed = [a.model_copy(update={"probes": [slow_first, *a.probes]}) for a in ran]
    plain, with_warmup = (analyse_job(spec, plan, a, [], JobFacts()).comparisons[0] for a in (ran, warmed))
    assert plain.speedup == with_warmup.speedup
    assert plain.acceptance_rate == with_warmup.acceptance_rate


def test_pitfall_36_answers_of_other_lengths_are_compared_at_one_length() -> None:
    """An arm that says less in less time is not faster: both are brought to the baseline's length, and the lengths are shown."""

    def shorter(trial: Any, p: Any) -> dict[str, Any]:
        if trial.arm == "off":
            return {}
        half = made.probe(p, 1.0, tokens=32)
        return {n: getattr(half, n) for n in ("completion_tokens", "server_tokens", "e2e_s", "decode_tokens_per_s", "ttft_any_s")}

    c = compared(made.spec_of(ARM, points=POINTS), speed=1.0, change=shorter, noise=lambda t, p: 1.0)
    assert isinstance(c.speedup, Interval)
    # 32 tokens in 1 s: 0.1 s and 31 in 0.9 s, so 64 take 0.1 + 63 ÷ (31 ÷ 0.9); the baseline's take 2 s
    assert c.speedup.estimate == pytest.approx(2.0 / equal_work_s(0.1, 1, 31 / 0.9, 64))
    assert (value_of(c.arm_tokens), value_of(c.baseline_tokens)) == (32, 64)
    assert check(c, "output lengths").state == "failed"
    record = stream_of([(100, 1)], final={"stop_type": "limit", "tokens_predicted": 1})
    assert LLAMA.probe_counts(record, 1, off=True, metrics=None, log=None).finish_reason == "length"


def test_pitfall_37_a_fast_arm_with_wrong_answers_is_not_kept() -> None:
    def wrong(trial: Any, p: Any) -> dict[str, Any]:
        return {"check_passed": trial.arm == "off" or made.hash_of(p.item) % 10 < 6}

    spec = made.spec_of(ARM, points=[{"workload": "count", "probes": 12}])
    plan = made.planned(spec, count=made.workload(n=80))
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=made.wobble, change=wrong)
    c = analyse_job(spec, plan, ran, [], JobFacts(noise_floor=0.005)).comparisons[0]
    assert isinstance(c.speedup, Interval)
    assert c.speedup.estimate > 1.9
    assert (c.verdict.word, c.verdict.reason) == ("disable", "quality")
    assert check(c, "task checks").state == "failed"


def test_pitfall_38_greedy_answers_that_differ_are_no_failure_by_themselves() -> None:
    """Near-ties flip: unequal answers of the baseline are told and never fail, equal ones pass."""
    spec = made.spec_of(ARM, points=POINTS, blocks=3)
    plan = made.planned(spec, count=made.workload(n=4))  # the same prompts in each block
    states = []
    for hashes in (lambda t: "same", lambda t: f"block {t.block}"):
        ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, change=lambda t, p, h=hashes: {"ids_sha256": h(t)})  # type: ignore[misc]
        analysis = analyse_job(spec, plan, ran, [], JobFacts())
        states.append(next(k for k in analysis.checks if k.name == "baseline agrees with itself").state)
    assert states == ["passed", "not checked"]


def test_pitfall_39_sampler_settings_are_recorded_with_every_answer() -> None:
    settings = [json.loads(line)["generation_settings"] for line in evidence("b10434-off", [0], "off")["records.jsonl"].splitlines()]
    assert {"temperature", "top_k", "top_p", "min_p", "repeat_penalty"} <= settings[0].keys()


def test_pitfall_40_acceptance_says_nothing_on_answers() -> None:
    """Normal acceptance and corrupted text: the check of the answer decides, not the counters."""
    item = {"id": "i0", "prompt": "Count from 1 to 80:\n", "check": {"kind": "count", "start": 1}}
    workload = made.workload("w", n=1).model_validate({**made.workload("w", n=1).model_dump(), "items": [item]})
    files = evidence("b10434-draft4-lv4", [0], "draft")
    text = json.loads(files["texts.jsonl"])
    files["texts.jsonl"] = json.dumps(text | {"texts": ["1, 2, 7, 8, " for _ in text["texts"]]}).encode()
    probe = measure_attempt(files, spec_of(**{**ARM, "name": "draft"}), {"w": workload}).probes[0]
    assert probe.ok
    assert value_of(probe.counters.accepted) == 34
    assert (probe.check_passed, probe.check_note) == (False, "expected 3, found 7")


def test_pitfall_41_want_of_memory_is_a_type_of_its_own_and_a_bill_stands_beside_the_speed() -> None:
    assert LLAMA.start_failure(read("b10434-out-of-memory.log"), 1).code == "engine_out_of_memory"
    at_first_request = "0.00.001.000 I srv: model loaded\n0.00.002.000 E ggml_cuda: CUDA error: out of memory\n"
    fault = LLAMA.memory_fault(at_first_request, -6)
    assert fault is not None
    assert fault.code == "engine_out_of_memory"
    spec = made.spec_of(ARM, points=POINTS)
    failures = [
        TrialFailure(trial=f"b{b}-draft-4", arm="draft-4", block=b, code="engine_out_of_memory", message="no memory", oom=True)
        for b in (1, 2)
    ]
    plan = made.planned(spec, count=made.workload(n=80))
    lost = [t.id for t in plan.trials if t.arm == "draft-4" and t.block in (1, 2)]
    failures = [f.__class__(**{**vars(f), "trial": t}) for f, t in zip(failures, lost, strict=True)]
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=made.wobble, without=lost)
    c = analyse_job(spec, plan, ran, failures, JobFacts()).comparisons[0]
    assert (c.verdict.word, c.verdict.reason) == ("disable", "does not fit")
    assert value_of(compared(spec).memory_bill_bytes) == 9 * 2**20


def test_pitfall_42_an_answer_that_hung_keeps_what_came_and_gives_no_speed() -> None:
    """The client ends a silent answer after its deadline; what it then leaves is a failed probe."""
    events = [StreamEvent(at_s=0.1 + 0.02 * i, tokens=1) for i in range(5)]
    hung = stream_of([], events=events, failure="probe_failed", failure_message="no byte for 30 s")
    files = evidence("b10434-draft4-lv4", [0], "draft") | {"records.jsonl": hung.model_dump_json().encode()}
    probe = measure_attempt(files, spec_of(**{**ARM, "name": "draft"}), WORKLOADS).probes[0]
    assert (probe.ok, probe.failure, probe.failure_message) == (False, "probe_failed", "no byte for 30 s")
    assert probe.n_events == 5
    assert isinstance(probe.counters.drafted, Withheld)


def test_pitfall_43_survivors_of_a_crash_are_not_averaged_in_silence() -> None:
    """Of four answers in each start the last is lost: the mean over the rest is no result."""

    def dies(trial: Any, p: Any) -> dict[str, Any]:
        last = trial.arm != "off" and p.id == trial.probes[-1].id
        return {"ok": False, "failure": "probe_failed", "failure_message": "the engine exited with code 139"} if last else {}

    c = compared(made.spec_of(ARM, points=POINTS), change=dies)
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "probe failures")
    assert "and none in the other" in check(c, "probe failures").sentence
    assert c.n_pairs_dropped == 5  # what came back stays to be seen
