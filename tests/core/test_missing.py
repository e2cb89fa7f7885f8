"""What is missing is withheld with its reason: never zero, None or NaN, and never a number of another size."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from pydantic import BaseModel
from speccore.compare import JobFacts, analyse_job
from speccore.measure import measure_attempt
from speccore.measurement import AttemptMeasurement, ComparisonResult, Interval, Number, Withheld
from speccore.metrics import METRICS
from speccore.plan import plan_job
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec
from speccore.workload import Check, Item, Turn

from tests.core import made
from tests.core.recordings import evidence as made_evidence
from tests.core.recordings import spec_of

Files = dict[str, bytes]
Removal = Callable[[Files], None]

DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
HELD = "b10434-held-tokens-draft4-lv4"
LV4 = "b10434-draft4-lv4"
WORKLOAD = made.workload("w", n=6).model_copy(
    update={"items": [i.model_copy(update={"id": f"i{n}"}) for n, i in enumerate(made.workload("w", n=6).items)]}
)


@cache
def _whole(case: str, requests: tuple[int, ...], arm: str) -> Files:
    return made_evidence(case, list(requests), arm)


def evidence(case: str, requests: list[int], arm: str) -> Files:
    """A copy of the attempt's files, to be taken from."""
    return dict(_whole(case, tuple(requests), arm))


def measured(files: Files, **arm: Any) -> AttemptMeasurement:
    return measure_attempt(files, spec_of(**(arm or DRAFT)), {"w": WORKLOAD})


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every number and everything withheld, with the way to it."""
    if isinstance(value, Number | Withheld | Interval):
        yield path, value
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from numbers(getattr(value, name), f"{path}.{name}")
    elif isinstance(value, list):
        for i, v in enumerate(value):
            yield from numbers(v, f"{path}[{i}]")


def hold_true(whole: AttemptMeasurement, less: AttemptMeasurement, files: Files) -> int:
    """With evidence taken away each number is what it was, or withheld in words; returns how many are withheld now that were not."""
    before, lost = dict(numbers(whole)), 0
    for path, value in numbers(less):
        if isinstance(value, Withheld):
            assert value.withheld.strip(), path
            assert value.reason_code, path
            lost += isinstance(before.get(path), Number)
            continue
        assert math.isfinite(value.value), path
        assert value.source.file in files, f"{path} cites {value.source.file}, which is gone"
        assert isinstance(before[path], Number), f"{path} is {value.value} without evidence that it was withheld with"
        # the log rounds milliseconds to two digits
        assert value.value == pytest.approx(before[path].value, abs=0.005 if path.endswith("_ms") else 1e-9), path
    return lost


FILES = ["server.log", "launch.json", "manifest.json", "records.jsonl", "texts.jsonl", "metrics.jsonl", "samples.jsonl", "attempt.json"]


@pytest.mark.parametrize("case", [(HELD, [0, 1, 2, 3]), (LV4, [0, 1, 2])], ids=["metrics around", "log"])
@pytest.mark.parametrize("name", FILES)
def test_each_file_taken_away(name: str, case: tuple[str, list[int]]) -> None:
    files = evidence(*case, "draft")
    whole = measured(files)
    del files[name]
    hold_true(whole, measured(files), files)


def change_records(files: Files, change: Callable[[dict[str, Any]], None]) -> None:
    records = [json.loads(line) for line in files["records.jsonl"].decode().split("\n") if line]
    for r in records:
        change(r)
    files["records.jsonl"] = "".join(json.dumps(r) + "\n" for r in records).encode()


def drop_event_field(*names: str) -> Removal:
    return lambda files: change_records(files, lambda r: [e.pop(n, None) for e in r["events"] for n in names] and None)


def drop_final(*names: str) -> Removal:
    return lambda files: change_records(files, lambda r: [r["final"].pop(n, None) for n in names] and None)


def drop_timing(*names: str) -> Removal:
    return lambda files: change_records(files, lambda r: [(r["final"].get("timings") or {}).pop(n, None) for n in names] and None)


EVENT_FIELDS = ["predicted_n", "predicted_ms", "draft_n", "draft_n_accepted", "read_at_s", "kind", "without_id"]
FINAL_FIELDS = ["tokens_predicted", "tokens_evaluated", "truncated", "stop_type", "timings"]
TIMINGS = ["predicted_n", "predicted_ms", "draft_n", "draft_n_accepted", "cache_n", "prompt_n", "prompt_ms"]
REMOVALS = {
    **{f"event {n}": drop_event_field(n) for n in EVENT_FIELDS},
    **{f"final {n}": drop_final(n) for n in FINAL_FIELDS},
    **{f"timing {n}": drop_timing(n) for n in TIMINGS},
    "every event field": drop_event_field(*EVENT_FIELDS),
    "every final field": drop_final(*FINAL_FIELDS),
}


@pytest.mark.parametrize("case", [(HELD, [0, 1, 2, 3]), (LV4, [0, 1, 2])], ids=["metrics around", "log"])
@pytest.mark.parametrize("removal", REMOVALS.values(), ids=REMOVALS)
def test_each_field_of_the_records_taken_away(removal: Removal, case: tuple[str, list[int]]) -> None:
    files = evidence(*case, "draft")
    whole = measured(files)
    removal(files)
    less = measured(files)
    assert [p.failure_message for p in less.probes] == [""] * len(less.probes)
    hold_true(whole, less, files)


def test_removals_do_take_numbers_away() -> None:
    files = evidence(LV4, [0, 1, 2], "draft")
    whole = measured(files)
    for name in ("every event field", "every final field"):
        less = dict(files)
        REMOVALS[name](less)
        assert hold_true(whole, measured(less), less) > 0, name


def test_a_log_at_the_default_verbosity_has_no_drafting_time() -> None:
    counters = measured(evidence("b10434-draft4", [0], "draft")).probes[0].counters
    assert isinstance(counters.draft_ms, Withheld)
    assert "log_verbosity 4" in counters.draft_ms.withheld
    assert isinstance(counters.verify_steps, Number)  # of the stream


# --- every metric, with all of its sources taken away ---


def without_lines(files: Files, *words: bytes) -> None:
    for name in ("server.log", "metrics.jsonl"):
        files[name] = b"\n".join(line for line in files[name].split(b"\n") if not any(w in line for w in words))


def no_answers(files: Files) -> None:
    files["records.jsonl"] = b""


def no_arrivals(files: Files) -> None:
    change_records(files, lambda r: r.update(events=[]))


def one_arrival(files: Files) -> None:
    change_records(files, lambda r: [e.update(at_s=r["sent_at_s"] + 0.01) for e in r["events"]] and None)


def only_reasoning(files: Files) -> None:
    change_records(files, lambda r: [e.update(kind="reasoning") for e in r["events"]] and None)


def late_stamp(files: Files) -> None:
    change_records(files, lambda r: r.update(sent_at_s=98.0))


def no_prompt_time(files: Files) -> None:
    change_records(files, lambda r: r["final"].get("timings", {}).pop("prompt_ms", None))


def uncounted(files: Files) -> None:
    change_records(files, lambda r: [e.update(tokens=0, without_id=0, uncounted=e["tokens"] > 0) for e in r["events"]] and None)
    drop_event_field("predicted_n", "predicted_ms")(files)


def no_prompt_count(files: Files) -> None:
    drop_final("tokens_evaluated")(files)


def no_cache_count(files: Files) -> None:
    drop_timing("cache_n")(files)
    without_lines(files, b"cached_total")


def no_drafts(files: Files) -> None:
    drop_event_field("draft_n", "draft_n_accepted")(files)
    drop_timing("draft_n", "draft_n_accepted")(files)
    without_lines(files, b"draft acceptance", b"spec_decode", b"statistics")


def no_engine_clock(files: Files) -> None:
    drop_event_field("predicted_n", "predicted_ms")(files)
    drop_timing("predicted_ms")(files)
    without_lines(files, b"eval time")


def no_cycles(files: Files) -> None:
    drop_event_field("predicted_n", "predicted_ms", "draft_n", "draft_n_accepted")(files)
    drop_timing("draft_n", "draft_n_accepted")(files)
    without_lines(files, b"statistics", b"spec_decode", b"draft acceptance")


def no_clocks_at_all(files: Files) -> None:
    no_engine_clock(files)
    one_arrival(files)


def no_statistics(files: Files) -> None:
    without_lines(files, b"statistics")


def no_samples(files: Files) -> None:
    files["samples.jsonl"] = b""


def no_device_samples(files: Files) -> None:
    samples = [json.loads(line) | {"device_bytes": {}} for line in files["samples.jsonl"].decode().split("\n") if line]
    files["samples.jsonl"] = "".join(json.dumps(s) + "\n" for s in samples).encode()


def no_texts(files: Files) -> None:
    del files["texts.jsonl"]


def no_launch(files: Files) -> None:
    del files["launch.json"]


#: metric: what takes every source of it away.
SOURCES: dict[str, Removal] = {
    "speedup": no_answers,
    "total_time": no_answers,
    "equal_work_s": one_arrival,
    "e2e_s": late_stamp,
    "ttft_any_s": no_arrivals,
    "prompt_ms": no_prompt_time,
    "time_split": no_arrivals,
    "ttft_content_s": only_reasoning,
    "decode_tokens_per_s": one_arrival,
    "batch_ratio": uncounted,
    "chunk_gap_ms_p50": one_arrival,
    "chunk_gap_ms_p95": one_arrival,
    "token_latency_ms": uncounted,
    "token_latency_ms_p50": uncounted,
    "token_latency_ms_p95": uncounted,
    "peak_tokens_per_s": uncounted,
    "loaded_tokens_per_s": uncounted,
    "observed_concurrency": no_arrivals,
    "task_prefill_s": no_arrivals,
    "task_decode_s": one_arrival,
    "task_tool_wait_s": no_arrivals,
    "task_rest_s": no_arrivals,
    "task_decode_ratio": one_arrival,
    "task_passed": no_texts,
    "completion_tokens": uncounted,
    "prompt_tokens": no_prompt_count,
    "cache_hit_tokens": no_cache_count,
    "drafted": no_drafts,
    "accepted": no_drafts,
    "committed": no_cycles,
    "emitted": uncounted,
    "verify_steps": no_cycles,
    "decode_steps": no_cycles,
    "draft_ms": no_statistics,
    "eval_ms": no_engine_clock,
    "acceptance_rate": no_drafts,
    "acceptance_rate_by_request": no_drafts,
    "mean_acceptance_length": no_drafts,
    "tokens_per_target_pass": no_cycles,
    "drafted_per_cycle": no_drafts,
    "accepted_by_position": no_drafts,
    "conditional_by_position": no_drafts,
    "cycle_ms": no_clocks_at_all,
    "plain_step_ms": no_clocks_at_all,
    "break_even_tokens_per_pass": no_clocks_at_all,
    "decoding_gain": no_cycles,
    "draft_ms_per_cycle": no_statistics,
    "verify_ms_per_cycle": no_statistics,
    "memory_bill_bytes": no_samples,
    "peak_memory_bytes": no_samples,
    "peak_device_bytes": no_device_samples,
    "memory_after_load_bytes": no_samples,
    "memory_growth_bytes_per_min": no_samples,
    "energy_j_per_1k_tokens": no_samples,
    "healthy_after_s": no_launch,
    "p_holm": no_answers,
    "noise_floor": no_answers,
}
#: Known or not, without a reason of their own: the contract has None for "unknown".
NONE_IF_UNKNOWN = {"healthy_after_s", "p_holm", "noise_floor"}
#: The baseline has no drafts, but a step of it makes one token whatever is counted.
OF_THE_ARM_ONLY = {"committed", "decode_steps"}
#: Of points with several requests at once.
OF_SEVERAL = {"loaded_tokens_per_s", "observed_concurrency"}


def job(remove: Removal | None) -> tuple[list[AttemptMeasurement], ComparisonResult]:
    """Three blocks, each of the three recorded answers with and without speculation."""
    data = spec_of(**DRAFT).model_dump() | {"blocks": 3}
    data["points"][0]["probes"] = 3
    spec = ExperimentSpec.model_validate(data)
    workloads = {"w": WORKLOAD.model_copy(update={"items": WORKLOAD.items[:3]})}
    plan: JobPlan = plan_job(spec, workloads)
    attempts = []
    for trial in plan.trials:
        files = evidence(LV4 if trial.arm == "draft" else "b10434-off", [0, 1, 2], trial.arm)
        summary = json.loads(files["attempt.json"]) | {"trial": trial.id, "block": trial.block, "attempt_id": trial.id}
        files["attempt.json"] = json.dumps(summary).encode()
        # The recorded engine takes about a millisecond for a token; so that chunks can be told apart, thirty here. Blocks vary.
        slow_down(files, 30 + trial.block * (trial.arm == "draft"))
        if remove:
            remove(files)
        attempts.append(measure_attempt(files, spec, workloads))
    return attempts, analyse_job(spec, plan, attempts, [], JobFacts(), workloads=workloads).comparisons[0]


def job_together(remove: Removal | None) -> tuple[list[AttemptMeasurement], ComparisonResult]:
    """Three blocks of the recorded answers, two in flight at a time, each sent when the one before it in its lane has ended."""
    data = spec_of(**DRAFT).model_dump() | {"blocks": 3}
    data["points"][0]["concurrency"] = data["engine"]["slots"] = 2
    spec = ExperimentSpec.model_validate(data)
    workloads = {"w": made.workload("w", n=24)}
    plan = plan_job(spec, workloads)
    attempts = []
    for trial in plan.trials:
        files = evidence(LV4 if trial.arm == "draft" else "b10434-off", [0, 1, 2], trial.arm)
        summary = json.loads(files["attempt.json"]) | {"trial": trial.id, "block": trial.block, "attempt_id": trial.id}
        files["attempt.json"] = json.dumps(summary).encode()
        slow_down(files, 30)
        recorded = [json.loads(line) for line in files["records.jsonl"].decode().splitlines()]
        free_at, records = [10.0, 10.01], []
        for i, probe in enumerate(trial.probes):
            lane, r = i % 2, recorded[i % 3]
            later = free_at[lane] - r["sent_at_s"]
            events = [e | {"at_s": e["at_s"] + later, "read_at_s": None} for e in r["events"]]
            closed_at_s = events[-1]["at_s"]
            name = {"probe": probe.id, "point": probe.point, "item": probe.item}
            records.append(r | name | {"sent_at_s": free_at[lane], "closed_at_s": closed_at_s, "events": events})
            free_at[lane] = closed_at_s
        files["records.jsonl"] = "".join(json.dumps(r) + "\n" for r in records).encode()
        files["metrics.jsonl"] = b""
        if remove:
            remove(files)
        attempts.append(measure_attempt(files, spec, workloads))
    return attempts, analyse_job(spec, plan, attempts, [], JobFacts(), workloads=workloads).comparisons[0]


def job_of_tasks(remove: Removal | None) -> tuple[list[AttemptMeasurement], ComparisonResult]:
    """Three blocks in which a recorded answer is that of both turns of one task."""
    data = spec_of(**DRAFT).model_dump() | {"blocks": 3}
    data["points"][0]["probes"] = 1
    spec = ExperimentSpec.model_validate(data)
    turns = [Turn(prompt=f"turn {n}", answer="x", check=Check(kind="python")) for n in range(2)]
    workloads = {"w": WORKLOAD.model_copy(update={"items": [Item(id="task", turns=turns)]})}
    plan = plan_job(spec, workloads)
    attempts = []
    for trial in plan.trials:
        files = evidence(LV4 if trial.arm == "draft" else "b10434-off", [0], trial.arm)
        summary = json.loads(files["attempt.json"]) | {"trial": trial.id, "block": trial.block, "attempt_id": trial.id}
        files["attempt.json"] = json.dumps(summary).encode()
        slow_down(files, 30)
        for name in ("records.jsonl", "texts.jsonl"):
            answer = json.loads(files[name])
            of_turn = {"item": "task", "point": trial.points[0], "n_turns": 2, "waited_s": 0.0}
            both = [answer | of_turn | {"probe": f"{trial.probes[0].id}.{n}", "turn": n} for n in (1, 2)]
            files[name] = "".join(json.dumps(one) + "\n" for one in both).encode()
        if remove:
            remove(files)
        attempts.append(measure_attempt(files, spec, workloads))
    return attempts, analyse_job(spec, plan, attempts, [], JobFacts(), workloads=workloads).comparisons[0]


def job_for(metric: str) -> Callable[[Removal | None], tuple[list[AttemptMeasurement], ComparisonResult]]:
    return job_together if metric in OF_SEVERAL else job_of_tasks if metric.startswith("task_") else job


def slow_down(files: Files, times: int) -> None:
    change_records(files, lambda r: [e.update(at_s=r["sent_at_s"] + times * (e["at_s"] - r["sent_at_s"])) for e in r["events"]] and None)


def everywhere(metric: str, attempts: list[AttemptMeasurement], comparison: ComparisonResult) -> list[Any]:
    """The metric wherever it is kept: in probes, their counters, attempts and the comparison."""
    alias = {"decode_tokens_per_s": "tokens_per_s", "completion_tokens": "tokens"}.get(metric, metric)
    holders: list[Any] = [comparison]
    for a in attempts:
        if metric not in OF_THE_ARM_ONLY or a.arm == "draft":
            holders += [a, *a.probes, *(p.counters for p in a.probes), *a.loads]
    fields = (metric, f"arm_{alias}", f"baseline_{alias}")
    return [getattr(h, f) for h in holders for f in fields if f in type(h).model_fields]


def test_every_metric_has_its_sources_named_here() -> None:
    assert METRICS.keys() == SOURCES.keys()


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_without_its_sources_is_withheld(metric: str) -> None:
    for value in everywhere(metric, *job_for(metric)(SOURCES[metric])):
        if metric in NONE_IF_UNKNOWN:
            assert value is None
        else:
            assert isinstance(value, Withheld), value
            assert value.withheld.strip()
            assert value.reason_code


def test_with_its_sources_every_metric_is_there() -> None:
    whole = {make: make(None) for make in (job, job_together, job_of_tasks)}
    for metric in METRICS.keys() - {"noise_floor"}:  # which comes from earlier jobs
        found = everywhere(metric, *whole[job_for(metric)])
        assert found, metric
        assert any(v is not None and not isinstance(v, Withheld) for v in found), metric
