"""Every number knows where it was read and what the other sources say; those that differ are a finding with all values."""

from __future__ import annotations

import json
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.integrity import counts_agree
from speccore.measure import measure_attempt
from speccore.measurement import AttemptMeasurement, Check, Number
from speccore.plan import plan_job
from speccore.records import MetricsSnapshot
from speccore.spec import ExperimentSpec

from tests.core import made
from tests.core.recordings import evidence, spec_of

WORKLOADS = {"w": made.workload("w", n=6)}
DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
HELD, LV4 = "b10434-held-tokens-draft4-lv4", "b10434-draft4-lv4"


def measured(files: dict[str, bytes]) -> AttemptMeasurement:
    return measure_attempt(files, spec_of(**DRAFT), WORKLOADS)


def places(m: Any) -> list[tuple[float, str]]:
    assert isinstance(m, Number)
    return [(n.value, n.place()) for n in (m, *m.also)]


def test_each_count_has_all_its_sources_in_order_of_trust() -> None:
    probe = measured(evidence(LV4, [0, 1, 2], "draft")).probes[0]
    assert places(probe.counters.drafted) == [
        (116, "records.jsonl line 1 (events: last draft_n)"),
        (116, "records.jsonl line 1 (final.timings.draft_n)"),
        (116, "server.log line 322 (draft acceptance)"),
    ]
    assert places(probe.counters.verify_steps) == [
        (29, "records.jsonl line 1 (events: cycles with a draft)"),
        (29, "server.log line 324 (#gen drafts, growth)"),
    ]
    assert places(probe.counters.eval_ms) == [
        (65.872, "records.jsonl line 1 (final.timings.predicted_ms)"),
        (65.87, "server.log line 319 (eval time)"),
    ]
    assert [where for _, where in places(probe.completion_tokens)] == [
        "records.jsonl line 1 (events: ids)",
        "records.jsonl line 1 (final.tokens_predicted)",
        "records.jsonl line 1 (final.timings.predicted_n)",
        "server.log line 319 (eval time)",
    ]


def test_metrics_stand_between_the_response_and_the_log() -> None:
    m = measured(evidence(HELD, [0, 1, 2, 3, 4, 5], "draft"))
    files = [where.split()[0] for _, where in places(m.probes[1].counters.drafted)]
    assert files == ["records.jsonl", "records.jsonl", "metrics.jsonl", "server.log"]
    assert len({value for value, _ in places(m.probes[1].counters.drafted)}) == 1


def test_each_cited_line_of_the_log_holds_the_number() -> None:
    files = evidence(LV4, [0, 1, 2], "draft")
    lines = files["server.log"].decode().split("\n")
    counters = measured(files).probes[2].counters
    for m, shown in ((counters.drafted, "116 generated"), (counters.accepted, "34 accepted"), (counters.draft_ms, "42.313")):
        assert isinstance(m, Number)
        logged = next(n for n in (m, *m.also) if n.source.file == "server.log")
        assert logged.source.line
        assert shown in lines[logged.source.line - 1]


def test_other_line_ends_in_a_log_move_no_line_number() -> None:
    """Form feeds and the like come from prompts; only a line feed ends a line of the file."""
    files = evidence(LV4, [0, 1, 2], "draft")
    odd = files | {"server.log": b"prompt: a\x0cb\x1cc\xe2\x80\xa8d\r\n" + files["server.log"]}
    before, after = (measured(f).probes[0].counters.accepted for f in (files, odd))
    assert isinstance(before, Number)
    assert isinstance(after, Number)
    assert [n.source.line for n in after.also if n.source.file == "server.log"] == [323]
    assert [n.source.line for n in before.also if n.source.file == "server.log"] == [322]


def disagreeing() -> AttemptMeasurement:
    files = evidence(LV4, [0, 1, 2], "draft")
    files["server.log"] = files["server.log"].replace(b"   34 accepted /   116 generated", b"   33 accepted /   116 generated", 1)
    return measured(files)


def test_a_disagreement_shows_every_value_and_its_place_and_none_is_averaged() -> None:
    m = disagreeing()
    probe = m.probes[0]
    assert isinstance(probe.counters.accepted, Number)
    assert probe.counters.accepted.value == 34
    check = counts_agree({"b1/r0": probe, "b1/r1": m.probes[1]})
    assert (check.state, check.kind) == ("failed", "hard")
    assert check.evidence["said"] == {
        "b1/r0": {
            "accepted": [
                {"value": 34, "file": "records.jsonl", "line": 1, "field": "events: last draft_n_accepted"},
                {"value": 34, "file": "records.jsonl", "line": 1, "field": "final.timings.draft_n_accepted"},
                {"value": 33, "file": "server.log", "line": 322, "field": "draft acceptance"},
            ]
        }
    }
    assert Check.model_validate_json(check.model_dump_json()) == check


def test_positions_of_another_source_are_compared_too() -> None:
    files = evidence(LV4, [0, 1, 2], "draft")
    files["server.log"] = files["server.log"].replace(b"acc per pos = (0.448,", b"acc per pos = (0.517,", 1)
    probe = measured(files).probes[0]
    assert probe.failure == "counts_disagree"
    assert probe.failure_message.startswith("accepted_by_position: [13, 10, 6, 5] by records.jsonl (events: accepted of each cycle)")
    assert "rates [0.517, 0.345, 0.207, 0.172] by server.log" in probe.failure_message


# --- requests that ran together ---


def together(*, drafted: int = 232, failure: str = "", closed_at_s: float = 40.0) -> AttemptMeasurement:
    """Two recorded answers of 64 tokens and 116 drafted each, with /metrics before and after both."""
    files = evidence(LV4, [0, 0], "draft")
    records = [json.loads(line) | {"probe": f"r{i}"} for i, line in enumerate(files["records.jsonl"].decode().splitlines())]
    point = records[0]["point"].replace("/c1/", "/c2/")
    records = [r | {"point": point, "closed_at_s": closed_at_s, "failure": failure} for r in records]
    files["records.jsonl"] = "".join(json.dumps(r) + "\n" for r in records).encode()
    counters = {
        "llamacpp:tokens_predicted_total": 128,
        "llamacpp:spec_decode_num_draft_tokens_total": drafted,
        "llamacpp:spec_decode_num_accepted_tokens_total": 68,
        "llamacpp:spec_decode_num_drafts_total": 58,
    }
    zero = "\n".join(f"{name} 0" for name in counters)
    grown = "\n".join(f"{name} {value}" for name, value in counters.items())
    snapshots = [
        MetricsSnapshot(at_s=9.0, when="before", status=200, text=zero),
        MetricsSnapshot(at_s=50.0, when="after", status=200, text=grown),
    ]
    files["metrics.jsonl"] = "".join(s.model_dump_json() + "\n" for s in snapshots).encode()
    data = spec_of(**DRAFT).model_dump() | {"points": [{"workload": "w", "concurrency": 2}]}
    data["engine"]["slots"] = 2
    spec = ExperimentSpec.model_validate(data)
    return measure_attempt(files, spec, WORKLOADS)


def test_requests_that_ran_together_add_up_to_the_growth_around_them() -> None:
    m = together()
    assert [p.failure_message for p in m.probes] == ["", ""]
    assert m.disagreements == []


def test_a_sum_that_is_off_is_a_finding_of_the_attempt() -> None:
    m = together(drafted=240)
    assert m.disagreements == [
        "drafted: 232 in 2 requests by records.jsonl; "
        "240 by metrics.jsonl line 2 (llamacpp:spec_decode_num_draft_tokens_total after − before)"
    ]
    assert all(p.ok for p in m.probes)  # whose fault it is can't be told
    check = counts_agree({"t/r0": m.probes[0]}, {"t": m.disagreements})
    assert (check.state, check.kind) == ("failed", "hard")
    assert "don't add up to the engine's counters, first in t: drafted: 232" in check.sentence


@pytest.mark.parametrize("more", [{"failure": "probe_failed"}, {"closed_at_s": 60.0}])
def test_a_request_that_failed_or_outlived_the_window_spoils_the_sum(more: dict[str, Any]) -> None:
    assert together(drafted=240, **more).disagreements == []


def test_disagreements_reach_the_verdict() -> None:
    spec = made.spec_of(blocks=3)
    plan = plan_job(spec, {"count": made.workload(n=80)})
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0})
    ran = [a.model_copy(update={"disagreements": ["drafted: 1 against 2"]}) if a.trial == ran[0].trial else a for a in ran]
    verdict = analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0].verdict
    assert (verdict.word, verdict.reason) == ("invalid", "counts agree")


def test_measurements_and_analyses_of_earlier_versions_can_still_be_read() -> None:
    m = measured(evidence(LV4, [0], "draft"))
    stored = json.loads(m.model_dump_json())
    del stored["disagreements"]
    for probe in stored["probes"]:
        for name in ("batch_ratio", "chunk_gap_ms_p50", "token_latency_ms", "peak_tokens_per_s", "n_queued_events"):
            del probe[name]
        for number in (probe["completion_tokens"], probe["counters"]["drafted"]):
            del number["also"]
    read_again = AttemptMeasurement.model_validate(stored)
    token_latency = read_again.probes[0].token_latency_ms
    assert not isinstance(token_latency, Number)
    assert (token_latency.reason_code, read_again.disagreements) == ("defined_later", [])
