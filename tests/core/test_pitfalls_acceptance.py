"""Known ways in which acceptance misleads, or speculation is not on at all, each held by a test with its number.

The numbers, 10 to 23 here, are those of a collection of public faults in benchmarks of speculation.
"""

from __future__ import annotations

from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.engines import Bindings, MetricsPair, vllm_counts
from speccore.measure import measure_attempt
from speccore.measurement import AttemptMeasurement, JobAnalysis, Number, Withheld, value_of
from speccore.metrics import METRICS
from speccore.spec import ExperimentSpec, Point, Sampling
from speccore.workload import Item

from tests.core import made
from tests.core.recordings import LLAMA, evidence, read, record, spec_of

WORKLOADS = {"w": made.workload("w", n=4)}
DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
LV4 = "b10434-draft4-lv4"


def measured(files: dict[str, bytes], **arm: Any) -> AttemptMeasurement:
    return measure_attempt(files, spec_of(**(arm or DRAFT)), WORKLOADS)


def analysed(spec: ExperimentSpec, speeds: dict[str, float], **more: Any) -> JobAnalysis:
    plan = made.planned(spec, **{p.workload: made.workload(p.workload, n=80) for p in spec.points})
    return analyse_job(spec, plan, made.attempts(spec, plan, speeds, noise=made.wobble, **more), [], JobFacts(noise_floor=0.005))


def arm(limit: int) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit}


def test_pitfall_10_a_printed_rate_is_never_read_only_its_counts_are() -> None:
    """A build that counted drafts it had thrown away printed a wrong rate; raw counts are kept, with the build's name."""
    files = evidence(LV4, [0, 1, 2], "draft")
    lying = files | {"server.log": files["server.log"].replace(b"draft acceptance = 0.29310", b"draft acceptance = 0.99999")}
    assert lying["server.log"] != files["server.log"]
    counters = [m.probes[0].counters.model_dump() for m in (measured(files), measured(lying))]
    assert counters[0] == counters[1]
    assert (value_of(measured(lying).probes[0].counters.drafted), value_of(measured(lying).probes[0].counters.accepted)) == (116, 34)
    assert measured(files).log.build.startswith("1 (7e4c0a9)")
    # and a log that counts drafts which the stream never saw is a finding, not a correction
    more = files | {"server.log": files["server.log"].replace(b"34 accepted /   116 generated", b"34 accepted /   150 generated")}
    probe = measured(more).probes[0]
    assert probe.failure == "counts_disagree"
    assert "150 by server.log line 322 (draft acceptance)" in probe.failure_message


def test_pitfall_11_a_rate_stands_beside_what_was_drafted_and_ranks_nothing() -> None:
    """A cautious drafter with every token accepted loses against a bold one that is faster."""
    cautious = made.counters(drafted=10, accepted=10, verify_steps=10, decode_steps=53, emitted=63, eval_ms=1600, accepted_by_position=[10])
    spec = made.spec_of(arm(1), arm(8), points=[{"workload": "count", "probes": 4}])
    analysis = analysed(
        spec, {"off": 1.0, "draft-1": 1.2, "draft-8": 2.0}, change=lambda t, p: {"counters": cautious} if t.arm == "draft-1" else {}
    )
    timid, bold = analysis.comparisons
    assert value_of(timid.acceptance_rate) == 1.0
    assert value_of(bold.acceptance_rate) == 0.5
    assert (timid.recommended, bold.recommended) == (False, True)
    for c in (timid, bold):
        assert isinstance(c.acceptance_rate, Number) is isinstance(c.drafted_per_cycle, Number)
    assert value_of(timid.drafted_per_cycle) == 1
    assert value_of(bold.drafted_per_cycle) == 4


def test_pitfall_12_mean_length_counts_the_bonus_token_and_names_its_definition() -> None:
    assert METRICS["mean_acceptance_length"].definition_id == "mean_acceptance_length/1"
    for n, logged in enumerate(LLAMA.log_requests(read(f"{LV4}.log"))):
        if logged.mean_length is None:
            continue
        counters = LLAMA.probe_counts(record(LV4, n), 1, off=False, metrics=None, log=logged).counters
        steps = value_of(counters.verify_steps)
        assert steps
        assert round(1 + (value_of(counters.accepted) or 0) / steps, 2) == logged.mean_length
    # the same definition gives what vLLM's log says: 1 + 279 ÷ 113 = 3.47
    assert round(1 + 279 / 113, 2) == 3.47


def test_pitfall_13_a_response_alone_does_not_tell_how_many_steps_had_a_draft() -> None:
    """n-gram drafters draft seldom: tokens − accepted − 1 are all steps, 43 in this answer, of which 9 had a draft."""
    case = "b10434-ngram-simple-lv4"
    fields = dict.fromkeys(("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted"))
    whole = record(case, 0)
    blind = whole.model_copy(update={"events": [e.model_copy(update=fields) for e in whole.events]})
    counters = LLAMA.probe_counts(blind, 1, off=False, metrics=None, log=None).counters
    assert 64 - 20 - 1 == 43 == value_of(counters.decode_steps)
    assert isinstance(counters.verify_steps, Withheld)
    assert isinstance(counters.accepted_by_position, Withheld)
    known = LLAMA.probe_counts(whole, 1, off=False, metrics=None, log=None).counters
    assert (value_of(known.decode_steps), value_of(known.verify_steps)) == (43, 9)


def test_pitfall_14_sampling_is_part_of_a_points_identity_and_echoed_in_the_record() -> None:
    cold, warm = (Point(workload="w", sampling=Sampling(temperature=t)) for t in (0.0, 0.8))
    assert cold.key != warm.key
    _, body = LLAMA.request("p", warm, 1)
    assert body["temperature"] == 0.8
    assert body["prompt"] == "p"  # raw: no template comes between
    assert record(LV4, 0).generation_settings["temperature"] == 0.0


def test_pitfall_15_counters_are_summed_over_labels_and_a_reset_is_no_count() -> None:
    assert MetricsPair(before={"d": {"0": 1.0, "1": 2.0}}, after={"d": {"0": 4.0, "1": 9.0}}, line=1).growth("d") == 10
    assert MetricsPair(before={"d": 40.0}, after={"d": 3.0}, line=1).growth("d") is None
    assert MetricsPair(before={"d": {"0": 9.0}}, after={"d": {"0": 2.0, "1": 9.0}}, line=1).growth_by_label("d") is None
    two = 'vllm:spec_decode_num_draft_tokens_total{engine="0"} 7\nvllm:spec_decode_num_draft_tokens_total{engine="1"} 5\n'
    assert vllm_counts.totals(two).drafted == 12


def test_pitfall_15_no_drafts_with_speculation_on_is_an_error_and_not_zero_percent() -> None:
    files = evidence("b10434-off", [0], "draft")
    files["records.jsonl"] = files["records.jsonl"].replace(b'"speculative.types":"none"', b'"speculative.types":"none,draft-simple"')
    m = measured(files)
    assert (m.engaged, m.engaged_why) == (False, "the server reported no draft counts in 1 probes")
    assert isinstance(m.probes[0].counters.drafted, Withheld)


def test_pitfall_16_a_prompt_is_text_and_goes_out_as_the_workload_has_it() -> None:
    """Lists of token ids, which random prompts would be, are no prompt."""
    _, body = LLAMA.request("Count from 1 to 80:\n", Point(workload="w"), 1)
    assert body["prompt"] == "Count from 1 to 80:\n"
    with pytest.raises(ValueError, match="string"):
        Item.model_validate({"id": "x", "prompt": [5, 77, 1023]})


def test_pitfall_17_an_answer_may_end_by_itself() -> None:
    _, body = LLAMA.request("p", Point(workload="w"), 1)
    assert "ignore_eos" not in body
    assert LLAMA.probe_counts(record("b10434-held-tokens-draft4-lv4", 3), 1, off=False, metrics=None, log=None).finish_reason == "stop"


def test_pitfall_18_each_kind_of_work_has_its_own_answer_and_no_number_stands_for_all() -> None:
    points = [{"workload": "count", "probes": 4}, {"workload": "prose", "probes": 4}]
    spec = made.spec_of(arm(4), points=points)
    plan = made.planned(spec, count=made.workload(n=80), prose=made.workload("prose", n=80))
    speed = {"count": 2.0, "prose": 0.8}
    ran = made.attempts(
        spec,
        plan,
        {"off": 1.0, "draft-4": 1.0},
        noise=lambda t, p: made.wobble(t, p) / (speed[p.point.split("/")[0]] if t.arm != "off" else 1.0),
    )
    analysis = analyse_job(spec, plan, ran, [], JobFacts(noise_floor=0.005))
    assert [(c.workload, c.verdict.word) for c in analysis.comparisons] == [("count", "keep"), ("prose", "disable")]
    assert [a["word"] for a in analysis.answers] == ["keep", "disable"]
    assert set(type(analysis).model_fields) == {
        "analysis_version",
        "comparisons",
        "checks",
        "answers",
        "attempts_used",
        "sampling",
        "fit",
        "parts",
    }


def test_pitfall_19_a_drafter_whose_first_token_is_hardly_ever_right_is_broken() -> None:
    broken = made.counters(
        drafted=84, accepted=1, verify_steps=21, decode_steps=62, emitted=63, eval_ms=2000, accepted_by_position=[1, 0, 0, 0]
    )
    c = analysed(made.spec_of(arm(4)), {"off": 1.0, "draft-4": 1.3}, change=lambda t, p: {"counters": broken} if t.arm != "off" else {})
    (only,) = c.comparisons
    assert (only.verdict.word, only.verdict.reason) == ("invalid", "drafter alive")


def test_pitfall_20_another_backend_is_another_runtime_and_no_ratio_spans_two() -> None:
    spec = made.spec_of(arm(4), blocks=3)
    plan = made.planned(spec)
    fields = {"boot_id": "b", "target_hash": "t", "command": "[]"}
    ran = [
        a.model_copy(update={"pair_fields": fields | {"runtime_hash": "vulkan" if a.arm == "off" else "cuda"}})
        for a in made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    ]
    verdict = analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0].verdict
    assert (verdict.word, verdict.reason) == ("invalid", "same comparison key")


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_pitfall_21_a_drafter_that_was_loaded_and_never_asked_is_not_engaged(build: str) -> None:
    m = measured(evidence(f"{build}-draft-without-spec-type", [0], "draft"))
    assert m.engaged is False
    assert "reports speculation none" in m.engaged_why
    assert "draft" in read(f"{build}-draft-without-spec-type.argv.txt")  # its model was on the command line


def test_pitfall_21_such_an_arm_gets_no_verdict_on_speed() -> None:
    spec = made.spec_of(arm(4))
    plan = made.planned(spec, count=made.workload(n=80))
    ran = [
        a.model_copy(update={"engaged": False if a.arm != "off" else None, "engaged_why": "nothing was drafted"})
        for a in made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=made.wobble)
    ]
    assert analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0].verdict.word == "not engaged"


@pytest.mark.parametrize("build", ["b10434", "b11434"])
def test_pitfall_22_a_helper_of_another_vocabulary_is_a_typed_failure_though_the_server_is_healthy(build: str) -> None:
    m = measured(evidence(f"{build}-vocab-mismatch", [0], "draft"))
    assert m.log.error_code == "vocab_mismatch"
    assert m.engaged is False
    assert LLAMA.start_failure(read(f"{build}-vocab-mismatch.log"), 1).code == "vocab_mismatch"


def test_pitfall_23_slower_is_a_normal_result_and_both_arms_sample_alike() -> None:
    (c,) = analysed(made.spec_of(arm(4), points=[{"workload": "count", "probes": 4}]), {"off": 1.0, "draft-4": 0.7}).comparisons
    assert (c.verdict.word, c.verdict.reason) == ("disable", "slower")
    capabilities = LLAMA.capabilities(read("b10434.help.txt"))
    spec, bindings = spec_of(**DRAFT), Bindings(executable="/e", target="/t", draft="/d", port=1)
    off, draft = (
        LLAMA.render(spec.engine, spec.arm(name), capabilities, bindings, allowed_flags=(), threads=1).argv for name in ("off", "draft")
    )
    assert off != draft
    assert LLAMA.without_speculation(off) == LLAMA.without_speculation(draft)
