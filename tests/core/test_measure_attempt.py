"""From an attempt's evidence to its measurement: recorded runs, their numbers, and evidence that is missing or broken."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.engines import Bindings
from speccore.measure import equal_work_s, measure_attempt
from speccore.measurement import AttemptMeasurement, Number, Withheld, value_of
from speccore.records import Sample
from speccore.spec import ExperimentSpec
from speccore.times import probe_times
from speccore.workload import Workload

from tests.core.recordings import LLAMA, evidence, read, record, spec_of

WORKLOAD = Workload.model_validate(
    {
        "name": "w",
        "version": 1,
        "title": "W",
        "items": [
            {"id": "i0", "prompt": "Count from 1 to 80:\n", "check": {"kind": "count", "start": 1}},
            {"id": "i1", "prompt": "x = 1\n", "check": {"kind": "python"}},
            *({"id": f"i{n}", "prompt": f"p{n}"} for n in range(2, 6)),
        ],
        "warmup": [{"id": "i0", "prompt": "warm"}],
    }
)
DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
HELD = "b10434-held-tokens-draft4-lv4"


def measured(
    case: str, requests: list[int], arm: dict[str, Any] | None, files: dict[str, bytes] | None = None, **kw: Any
) -> AttemptMeasurement:
    spec = spec_of(**(arm or {}))
    name = arm["mode"] if arm else "off"
    return measure_attempt(files if files is not None else evidence(case, requests, name, **kw), spec, {"w": WORKLOAD})


def test_equal_work_is_the_observed_time_where_lengths_are_equal() -> None:
    times = probe_times(record("b10434-draft4-lv4", 0), 1)
    assert isinstance(times.ttft_any_s, Number)
    assert isinstance(times.decode_tokens_per_s, Number)
    assert isinstance(times.e2e_s, Number)
    assert equal_work_s(times.ttft_any_s.value, times.n_first, times.decode_tokens_per_s.value, 64) == pytest.approx(times.e2e_s.value)
    assert equal_work_s(1.0, 4, 10.0, 24) == 3.0
    assert equal_work_s(1.0, 4, 10.0, 2) == 1.0
    with pytest.raises(ValueError, match="tokens_per_s is 0"):
        equal_work_s(1.0, 4, 0, 24)


def test_times_come_from_arrivals() -> None:
    # arrivals follow the recorded engine clock: prompt 3.691 ms, first token at +0.001, last cycle at 65.872 ms
    times = probe_times(record("b10434-draft4-lv4", 0), 7)
    assert value_of(times.ttft_any_s) == pytest.approx(0.003692)
    assert value_of(times.e2e_s) == pytest.approx(0.069563)
    assert times.n_first == 1
    assert value_of(times.decode_tokens_per_s) == pytest.approx(63 / 0.065871)
    assert isinstance(times.e2e_s, Number)
    assert times.e2e_s.source.line == 7


def test_a_chunk_is_what_arrives_within_a_millisecond_of_its_first() -> None:
    r = record("b10434-off", 0)
    at = [0.0, 0.0005, 0.001, 0.0015, 0.0021, 0.010]
    events = [e.model_copy(update={"at_s": 10.0 + t}) for e, t in zip(r.events[:6], at, strict=True)]
    times = probe_times(r.model_copy(update={"events": events}), 1)
    assert (times.n_chunks, times.n_first) == (3, 3)  # 0–1.0 ms, 1.5–2.1 ms, 10 ms
    assert value_of(times.decode_tokens_per_s) == pytest.approx(3 / 0.010)


def test_durations_that_the_engine_contradicts_are_withheld() -> None:
    files = evidence("b10434-draft4-lv4", [0], "draft")
    sent_late = {**json.loads(files["records.jsonl"]), "sent_at_s": 10.003}  # the prompt took 3.691 ms, the rest 65.872 ms
    files["records.jsonl"] = json.dumps(sent_late).encode()
    probe = measured("", [], DRAFT, files).probes[0]
    for duration, said in (
        (probe.ttft_any_s, "measured 0.7 ms, the engine needed 3.7 ms"),
        (probe.e2e_s, "measured 66.6 ms, the engine needed 69.6 ms"),
    ):
        assert isinstance(duration, Withheld)
        assert said in duration.withheld
        assert duration.reason_code == "client_late"
    assert value_of(probe.decode_tokens_per_s) == pytest.approx(63 / 0.065871)  # both of its ends were stamped on arrival
    barely = {**sent_late, "sent_at_s": 10.0009}
    files["records.jsonl"] = json.dumps(barely).encode()
    assert value_of(measured("", [], DRAFT, files).probes[0].ttft_any_s) == pytest.approx(0.002792)


def test_draft_attempt() -> None:
    m = measured("b10434-draft4-lv4", [0, 1], DRAFT)
    assert (m.attempt_id, m.trial, m.arm, m.mode, m.block) == ("A", "b1-draft", "draft", "draft", 1)
    assert (m.context_per_slot, m.slots, m.healthy_after_s) == (2048, 1, 0.8)
    assert (m.n_late_events, m.n_events) == (1, 200)
    probe, one_token = m.probes
    assert probe.ok
    assert (probe.line, one_token.line) == (1, 2)
    c = probe.counters
    assert [value_of(x) for x in (c.drafted, c.accepted, c.verify_steps, c.decode_steps)] == [116, 34, 29, 29]
    assert c.accepted_by_position == [13, 10, 6, 5]
    assert [value_of(x) for x in (probe.prompt_tokens, probe.completion_tokens, probe.server_tokens)] == [32, 64, 64]
    assert (probe.finish_reason, probe.n_events, probe.speculation_reported) == ("length", 65, True)
    assert one_token.ok
    assert isinstance(one_token.decode_tokens_per_s, Withheld)
    assert one_token.decode_tokens_per_s.withheld.startswith("one arrival")
    assert (m.engaged, m.engaged_why) == (True, "116 tokens drafted in 1 probes")
    assert m.log.speculation == "draft-simple"


def test_drafting_time_is_the_requests_own_share_of_the_log() -> None:
    files = evidence("b10434-draft4-lv4", [0, 1, 2], "draft")
    draft_ms = [p.counters.draft_ms for p in measured("", [], DRAFT, files).probes]
    assert [value_of(m) for m in draft_ms] == [22.955, 0.0, 19.374]
    assert isinstance(draft_ms[0], Number)
    line = files["server.log"].decode().splitlines()[(draft_ms[0].source.line or 0) - 1]
    assert "dur(b,g,a) = 0.001, 22.945, 0.009 ms" in line
    # one record fewer than the log has requests: nothing can be placed for sure
    assert isinstance(measured("b10434-draft4-lv4", [0, 1], DRAFT).probes[0].counters.draft_ms, Withheld)


def test_metrics_confirm_and_every_probe_is_ok_under_held_tokens() -> None:
    m = measured(HELD, [0, 1, 2, 3, 4, 5], DRAFT, warmup=(0,))
    assert [p.failure_message for p in m.probes] == [""] * 6
    assert [p.warmup for p in m.probes] == [True, *[False] * 5]
    assert [value_of(p.completion_tokens) for p in m.probes] == [16, 24, 7, 6, 33, 1]
    assert [value_of(p.counters.verify_steps) for p in m.probes][:3] == [4, 22, 5]
    assert m.probes[3].finish_reason == "stop"
    assert m.engaged_why == "152 tokens drafted in 5 probes"  # the warm-up is not counted


def test_off_attempt_has_no_draft_counts() -> None:
    m = measured("b10434-off", [0], None)
    assert m.engaged is None
    assert isinstance(m.probes[0].counters.drafted, Withheld)
    assert value_of(m.probes[0].counters.decode_steps) == 63
    assert m.probes[0].ok


def test_speculation_in_the_baseline_fails_its_probes() -> None:
    m = measured("b10434-draft4-lv4", [0], None)
    assert m.probes[0].failure == "engine_loaded_other"
    assert "the server reports speculation: draft-simple" in m.probes[0].failure_message


def test_draft_model_without_spec_type_is_not_engaged() -> None:
    for build in ("b10434", "b11434"):
        m = measured(f"{build}-draft-without-spec-type", [0], DRAFT)
        assert m.engaged is False
        assert m.engaged_why == "the server reports speculation none, asked for was draft-simple"


def test_draft_model_of_another_vocabulary_is_not_engaged_with_the_logs_reason() -> None:
    for build in ("b10434", "b11434"):
        m = measured(f"{build}-vocab-mismatch", [0], DRAFT)
        assert m.probes[0].speculation_reported is True
        assert m.engaged is False
        assert "draft model vocab type must match target model" in m.engaged_why
        assert m.log.error_code == "vocab_mismatch"


def test_ngram_that_found_nothing_is_engaged() -> None:
    files = evidence("b10434-off", [0], "ngram-simple")
    files["records.jsonl"] = files["records.jsonl"].replace(b'"speculative.types":"none"', b'"speculative.types":"none,ngram-simple"')
    m = measured("", [], {"mode": "ngram-simple"}, files)
    assert (m.engaged, m.engaged_why) == (True, "speculation is on; its drafter found nothing to propose")
    assert isinstance(m.probes[0].counters.drafted, Withheld)
    assert measured("b10434-ngram-simple-lv4", [0], {"mode": "ngram-simple"}).engaged_why == "69 tokens drafted in 1 probes"
    other = measured("b10434-draft4", [0], {"mode": "ngram-simple"})
    assert (other.engaged, other.engaged_why) == (False, "the server reports speculation draft-simple, asked for was ngram-simple")


def test_cache_hits_are_seen() -> None:
    m = measured("b10434-cache-hit", [0, 1], None)
    assert [value_of(p.cache_hit_tokens) for p in m.probes] == [0, 127]


def test_memory_is_the_peak_while_probing() -> None:
    m = measured("b10434-off", [0], None)
    assert isinstance(m.peak_memory_bytes, Number)
    assert m.peak_memory_bytes.value == 520 + 17
    assert m.peak_memory_bytes.source.model_dump() == {
        "file": "samples.jsonl",
        "line": 3,
        "field": "pss_bytes + device_bytes, peak while probing",
    }
    assert value_of(m.peak_device_bytes) == 17
    assert m.cpu_percent_mean == 50


def with_samples(*samples: Sample, case: str = "b10434-off") -> AttemptMeasurement:
    files = evidence(case, [0], "off")
    files["samples.jsonl"] = b"".join(s.model_dump_json().encode() + b"\n" for s in samples)
    return measured("", [], None, files)


def test_memory_is_of_one_kind_proportional_where_it_was_read() -> None:
    during = Sample(at_s=1, phase="probing", rss_bytes=900)
    between = Sample(at_s=2, phase="probing", rss_bytes=700, pss_bytes=500)
    warmup = Sample(at_s=0, phase="warm-up", rss_bytes=990, pss_bytes=990)
    m = with_samples(warmup, during, between, during)
    assert value_of(m.peak_memory_bytes) == 500
    assert isinstance(m.peak_device_bytes, Withheld)
    resident = with_samples(warmup, during).peak_memory_bytes
    assert isinstance(resident, Number)
    assert (resident.value, resident.source.line) == (900, 2)
    assert resident.source.field.startswith("rss_bytes")
    assert isinstance(with_samples(warmup, Sample(at_s=1, phase="probing")).peak_memory_bytes, Withheld)


@pytest.mark.parametrize(
    "garbage",
    [
        '"at_s":NaN,"phase":"probing"',
        '"at_s":3,"phase":"probing","rss_bytes":-1',
        f'"at_s":3,"phase":"probing","rss_bytes":{10**400}',
        f'"at_s":3,"phase":"probing","rss_bytes":5,"device_bytes":{{"g0":{10**30}}}',
        '"at_s":1e300,"phase":"probing","rss_bytes":5',
        '"at_s":3,"phase":"probing","devices":{"g0":{"energy_j":1e308}}',
        '"at_s":3,"phase":"probing","devices":{"g0":{"throttle":"heat"}}',
    ],
)
def test_a_sample_that_can_not_be_is_named_and_no_number_comes_of_it(garbage: str) -> None:
    files = evidence("b10434-off", [0], "off")
    whole = measured("", [], None, dict(files))
    files["samples.jsonl"] += f"{{{garbage}}}\n".encode()
    m = measured("", [], None, files)
    assert [p for p in m.problems if p.startswith("samples.jsonl line 6 can't be read")]
    assert m.model_dump(exclude={"problems"}) == whole.model_dump(exclude={"problems"})


def test_memory_on_a_device_that_was_not_sampled_is_no_zero() -> None:
    files = evidence("b10434-off", [0], "off")
    files["server.log"] += b"\n0.00.100.000 I load_tensors:      Vulkan0 model buffer size =   512.00 MiB\n"
    for device_bytes, expected in (({}, None), ({"g0": 17}, 517)):
        sample = Sample(at_s=2, phase="probing", pss_bytes=500, device_bytes=device_bytes)
        m = measured("", [], None, files | {"samples.jsonl": sample.model_dump_json().encode()})
        assert m.log.devices == ["Vulkan0"]
        assert value_of(m.peak_memory_bytes) == expected
        if expected is None:
            assert isinstance(m.peak_memory_bytes, Withheld)
            assert m.peak_memory_bytes.withheld == "the engine holds memory on Vulkan0, which could not be sampled"


def with_command(case: str, arm: str, port: int, **settings: Any) -> dict[str, bytes]:
    files, spec = evidence(case, [0], arm), spec_of(**DRAFT)
    bindings = Bindings(executable="/e/llama-server", target="/m/t.gguf", draft="/m/d.gguf", port=port)
    capabilities = LLAMA.capabilities(read("b10434.help.txt"))
    engine_settings = spec.engine.model_copy(update=settings)
    argv = LLAMA.render(engine_settings, spec.arm(arm), capabilities, bindings, allowed_flags=(), threads=1).argv
    files["launch.json"] = json.dumps({**json.loads(files["launch.json"]), "argv": argv}).encode()
    return files


def test_pair_fields_are_equal_in_both_arms_of_a_fair_pair() -> None:
    off = measured("", [], DRAFT, with_command("b10434-off", "off", 9000))
    draft = measured("", [], DRAFT, with_command("b10434-draft4", "draft", 9001))
    assert off.pair_fields == draft.pair_fields
    assert off.pair_fields["boot_id"] == "boot"
    assert off.pair_fields["workload:w"] == "wh"
    louder = measured("", [], DRAFT, with_command("b10434-draft4", "draft", 9001, log_verbosity=5))
    assert {k for k, v in off.pair_fields.items() if louder.pair_fields[k] != v} == {"command"}


def test_trial_of_one_point_pairs_with_a_trial_of_all() -> None:
    spec = ExperimentSpec.model_validate(
        {**spec_of(**DRAFT).model_dump(), "points": [{"workload": "w"}, {"workload": "v"}]},
    )
    workloads = {"w": WORKLOAD, "v": WORKLOAD.model_copy(update={"name": "v"})}
    whole, part = evidence("b10434-off", [0], "off"), evidence("b10434-off", [0], "off")
    for files, names in ((whole, ("w", "v")), (part, ("w",))):
        hashes = {name: workloads[name].content_hash() for name in names}
        files["manifest.json"] = json.dumps({**json.loads(files["manifest.json"]), "workloads": hashes}).encode()
    fields = [measure_attempt(files, spec, workloads).pair_fields for files in (whole, part)]
    assert fields[0] == fields[1]
    other = json.loads(part["manifest.json"])
    part["manifest.json"] = json.dumps({**other, "workloads": {"w": "another"}}).encode()
    assert measure_attempt(part, spec, workloads).pair_fields["workload:w"] == "another"


def test_checks_judge_the_answer() -> None:
    m = measured(HELD, [0, 1], DRAFT)
    assert (m.probes[0].check_passed, m.probes[0].check_note) == (True, "counts 1 to 8")
    assert m.probes[1].check_passed is True  # the cut line of accents is left out; what is whole parses
    without = evidence(HELD, [0], "draft")
    del without["texts.jsonl"]
    p = measured("", [], DRAFT, without).probes[0]
    assert (p.check_passed, p.check_note) == (None, "not judged: the answer's text is not in texts.jsonl")


def test_counts_that_disagree_fail_the_probe() -> None:
    files = evidence(HELD, [0], "draft")
    snapshots = [json.loads(line) for line in files["metrics.jsonl"].decode().splitlines()]
    assert "tokens_predicted_total 16\n" in snapshots[1]["text"]
    snapshots[1]["text"] = snapshots[1]["text"].replace("tokens_predicted_total 16\n", "tokens_predicted_total 19\n")
    files["metrics.jsonl"] = "\n".join(map(json.dumps, snapshots)).encode()
    p = measured("", [], DRAFT, files).probes[0]
    assert (p.ok, p.failure) == (False, "counts_disagree")
    assert "19 by metrics.jsonl" in p.failure_message
    assert value_of(p.completion_tokens) == 16  # what was counted stays to be seen


def test_failed_requests_keep_their_failure() -> None:
    files = evidence("b10434-off", [0], "off")
    data = json.loads(files["records.jsonl"])
    broken = {**data, "failure": "probe_failed", "failure_message": "the stream ended early", "events": [], "final": {}}
    refused = {**data, "status": 503, "events": [], "final": {}}
    full = {**data, "final": {**data["final"], "truncated": True}}
    files["records.jsonl"] = "\n".join(map(json.dumps, (broken, refused, full))).encode()
    first, second, third = measured("", [], None, files).probes
    assert (first.ok, first.failure, first.failure_message) == (False, "probe_failed", "the stream ended early")
    assert "status 503" in second.failure_message
    assert "the context was full" in third.failure_message
    assert isinstance(first.ttft_any_s, Withheld)
    assert first.check_passed is None


ALL = ["server.log", "launch.json", "manifest.json", "records.jsonl", "texts.jsonl", "metrics.jsonl", "samples.jsonl", "attempt.json"]


@pytest.mark.parametrize("name", ALL)
def test_each_missing_file_is_named_and_crashes_nothing(name: str) -> None:
    files = evidence(HELD, [0, 1], "draft")
    del files[name]
    m = measured("", [], DRAFT, files)
    assert f"{name} is missing" in m.problems
    whole = measured(HELD, [0, 1], DRAFT)
    assert whole.problems == []
    if name not in ("records.jsonl", "attempt.json"):
        assert [value_of(p.completion_tokens) for p in m.probes] == [16, 24]


def test_no_evidence_at_all() -> None:
    m = measured("", [], DRAFT, {})
    assert m.probes == []
    assert isinstance(m.peak_memory_bytes, Withheld)
    assert (m.arm, m.mode, m.engaged, m.context_per_slot) == ("", "", None, None)
    assert len(m.problems) == len(ALL) + 1


def test_no_probe_answered_is_not_engaged() -> None:
    files = evidence("b10434-draft4-lv4", [0], "draft")
    files["records.jsonl"] = b""
    m = measured("", [], DRAFT, files)
    assert m.engaged is False
    assert "no probe was answered" in m.engaged_why


@pytest.mark.parametrize("name", ALL[1:])
def test_broken_files_are_named_with_their_line(name: str) -> None:
    files = evidence(HELD, [0, 1], "draft")
    files[name] = files[name].splitlines()[0] + b"\n{broken\n" if name.endswith("l") else b"\xff{"
    problems = measured("", [], DRAFT, files).problems
    assert any(p.startswith(f"{name} line 2 can't be read" if name.endswith("l") else f"{name} can't be read") for p in problems)


@pytest.mark.parametrize("said", [[4], "4", True, -1, 1 << 40])
def test_what_an_engine_cannot_have_it_has_not_said(said: Any) -> None:
    files = evidence(HELD, [0, 1], "draft")
    launch = json.loads(files["launch.json"])
    launch["props"] |= {"total_slots": said, "default_generation_settings": {"n_ctx": said}}
    m = measured("", [], DRAFT, files | {"launch.json": json.dumps(launch).encode()})
    whole = measured(HELD, [0, 1], DRAFT)
    assert (m.slots, m.context_per_slot) == (whole.log.n_slots, whole.log.context_per_slot)


@pytest.mark.parametrize("odd", ['{"arms": [], "reserve_bytes": NaN}', '{"arms": [{"arm": "a", "mode": "off", "top": 1e999}]}', "[]", ""])
def test_a_search_for_a_context_that_cannot_be_read_costs_no_other_number(odd: str) -> None:
    files = evidence(HELD, [0, 1], "draft") | {"fit.json": odd.encode()}
    m = measured("", [], DRAFT, files)
    assert m.fit is None
    assert [p for p in m.problems if p.startswith("fit.json")] == m.problems
    json.dumps(m.model_dump(mode="json"), allow_nan=False)  # what no database takes
    assert [value_of(p.completion_tokens) for p in m.probes] == [16, 24]


def test_sources_lead_back_to_the_evidence() -> None:
    files = evidence(HELD, [0, 1], "draft")
    m = measured("", [], DRAFT, files)

    def walk(value: Any) -> list[Number]:
        if isinstance(value, Number):
            return [value]
        if isinstance(value, list):
            return [n for v in value for n in walk(v)]
        return [n for v in value.__dict__.values() for n in walk(v)] if hasattr(value, "__dict__") else []

    numbers = walk(m)
    assert len(numbers) > 30
    for number in numbers:
        text = files[number.source.file].decode()
        assert number.source.field
        assert number.source.line is None or 1 <= number.source.line <= len(text.splitlines())


def test_measurement_survives_the_wire() -> None:
    m = measured(HELD, [0, 1], DRAFT)
    assert AttemptMeasurement.model_validate_json(m.model_dump_json()) == m


def test_unknown_arm_is_a_problem_not_a_crash() -> None:
    spec: ExperimentSpec = spec_of(**DRAFT)
    m = measure_attempt(evidence("b10434-off", [0], "gone"), spec, {})
    assert "arm 'gone' is not in the experiment" in m.problems
    assert m.engaged is None
