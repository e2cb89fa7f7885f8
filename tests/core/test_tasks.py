"""Tasks of several turns: what each turn is asked behind, and how the turns become one measurement."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.errors import SpecError
from speccore.measurement import AttemptMeasurement, Interval, JobAnalysis, ProbeMeasurement, Withheld, value_of
from speccore.plan import plan_job
from speccore.protocol import TrialPlan
from speccore.records import StreamRecord
from speccore.table import analysis_text
from speccore.task_text import task_lines
from speccore.tasks import ASSISTANT, USER, messages_before, rests, split_of
from speccore.workload import Item, Turn, Workload

from tests.core import made
from tests.core.streams import stream_of

TURNS = [
    Turn(prompt="Read it.\n", answer="It is read.\n", tool_wait_s=0.5),
    Turn(prompt="Mend it.\n", answer="It is mended.\n", tool_wait_s=2),
    Turn(rebuild="It was read and mended.\n", prompt="Test it.\n", answer="It works.\n"),
    Turn(prompt="Say so.\n"),
]


def test_history_is_the_recorded_transcript() -> None:
    assert messages_before(TURNS, 1) == [(USER, "Read it.\n")]
    assert messages_before(TURNS, 2) == [(USER, "Read it.\n"), (ASSISTANT, "It is read.\n"), (USER, "Mend it.\n")]


def test_a_rebuilt_context_takes_the_place_of_all_history() -> None:
    assert messages_before(TURNS, 3) == [(USER, "It was read and mended.\nTest it.\n")]
    assert messages_before(TURNS, 4) == [(USER, "It was read and mended.\nTest it.\n"), (ASSISTANT, "It works.\n"), (USER, "Say so.\n")]


def record(turn: int, sent_at_s: float, waited_s: float = 0.0, item: str = "task") -> StreamRecord:
    """Sent at the second given, its tokens after 0.1, 0.2 and 0.3 s."""
    plain = stream_of([(100, 1), (200, 1), (300, 1)])
    events = [e.model_copy(update={"at_s": e.at_s - plain.sent_at_s + sent_at_s}) for e in plain.events]
    told = {"sent_at_s": sent_at_s, "closed_at_s": sent_at_s + 0.31, "turn": turn, "n_turns": 2, "waited_s": waited_s, "item": item}
    return plain.model_copy(update={"events": events, "probe": f"{item}.{turn}", **told})


def test_the_rest_is_what_passes_between_turns_beside_the_wait() -> None:
    found = rests([record(1, 10.0), record(2, 12.35, waited_s=2.0), record(1, 20.0, item="other")])
    assert found == {"task.2": pytest.approx(12.35 - 10.3 - 2.0)}


WORKLOAD = Workload(
    name="count",
    version=1,
    title="Tasks",
    items=[Item(id=f"task-{i}", turns=[Turn(prompt=f"{i}, first", answer="x"), Turn(prompt="second")]) for i in range(6)],
    warmup=[Item(id="warm", prompt="Hello")],
)


def done(
    trial: TrialPlan, mode: str, rate: float, *, wait_s: float, change: Callable[[ProbeMeasurement], dict[str, Any]] = lambda p: {}
) -> AttemptMeasurement:
    """Each turn reads 0.2 s and decodes 41 tokens at the rate; between them the tool waits."""
    attempt = made.attempt(trial, mode, lambda t, p: 1.0)
    turns = []
    for probe in attempt.probes:
        for n in (1, 2):
            values = {
                "probe": f"{probe.probe}.{n}",
                "turn": n,
                "n_turns": 2,
                "ttft_any_s": made.number(0.2),
                "e2e_s": made.number(0.2 + 40 / rate),
                "decode_tokens_per_s": made.number(rate),
                "completion_tokens": made.number(41),
                "server_tokens": made.number(41),
                "waited_s": wait_s if n == 2 else 0.0,
                "rest_s": 0.01 if n == 2 else None,
            }
            turn = probe.model_copy(update=values)
            turns.append(turn.model_copy(update=change(turn)))
    return attempt.model_copy(update={"probes": turns})


def compared(wait_s: float, change: Callable[[ProbeMeasurement], dict[str, Any]] = lambda p: {}, **spec: Any) -> Any:
    asked = made.spec_of(blocks=5, points=[{"workload": "count", "probes": 2}], **spec)
    plan = plan_job(asked, {"count": WORKLOAD})
    rates = {"off": 20.0, "draft-4": 40.0}
    ran = [
        done(
            t,
            asked.arm(t.arm).mode,
            rates[t.arm] * made.wobble(t, t.probes[0]),
            wait_s=wait_s,
            change=change if t.arm != "off" else lambda p: {},
        )
        for t in plan.trials
    ]
    return analyse_job(asked, plan, ran, [], JobFacts(), workloads={"count": WORKLOAD}).comparisons[0]


def test_a_faster_decode_loop_need_not_shorten_the_task() -> None:
    """Decoding is twice as fast in both; what it is worth depends on what else the task waits for."""
    quick, slow = compared(wait_s=0.0), compared(wait_s=300.0)
    for c in (quick, slow):
        assert isinstance(c.task_decode_ratio, Interval)
        assert c.task_decode_ratio.estimate == pytest.approx(2, rel=0.02)
    assert quick.speedup.estimate == pytest.approx((0.4 + 4 + 0.01) / (0.4 + 2 + 0.01), rel=0.02)
    assert slow.speedup.estimate == pytest.approx((0.4 + 4 + 300 + 0.01) / (0.4 + 2 + 300 + 0.01), rel=0.02)
    assert (quick.verdict.word, slow.verdict.word, slow.verdict.reason) == ("keep", "disable", "not worth it")


def test_the_whole_tasks_stand_in_the_pairs() -> None:
    c = compared(wait_s=1.0)
    assert value_of(c.arm_tokens) == 82
    assert c.n_prompts == 6
    assert value_of(c.baseline_e2e_s) == pytest.approx(0.4 + 4 + 1.0 + 0.01, rel=0.02)
    assert value_of(c.baseline_tokens_per_s) == pytest.approx(20, rel=0.02)
    assert value_of(c.acceptance_rate) == 0.5  # over all turns


def test_a_task_with_a_failed_turn_is_no_result() -> None:
    def second_fails(p: ProbeMeasurement) -> dict[str, Any]:
        return {"ok": False, "failure": "probe_failed", "failure_message": "HTTP 500"} if (p.item, p.turn) == ("task-0", 2) else {}

    c = compared(1.0, second_fails)
    check = next(k for k in c.checks if k.name == "probe failures")
    assert not check.passed
    assert any("turn 2: HTTP 500" in why for why in check.evidence["dropped"].values())
    assert c.n_prompts == 5


def test_a_turn_without_record_makes_no_whole_task() -> None:
    trial = plan_job(made.spec_of(points=[{"workload": "count", "probes": 1}]), {"count": WORKLOAD}).trials[0]
    turns = done(trial, "off", 20.0, wait_s=0.0).probes
    lengths = {f"{t.item}\n{t.turn}": 41.0 for t in turns}
    assert split_of(turns[:1], lengths) == "1 of 2 turns have a record"
    silent = [turns[0], turns[1].model_copy(update={"ttft_any_s": Withheld(withheld="it came late")})]
    assert split_of(silent, lengths) == "turn 2: it came late"
    assert split_of(turns, {}) == "turn 1: no answer of the baseline to take the length from"


def test_lengths_are_each_turns_own() -> None:
    """An arm that babbles in one turn is charged for the baseline's length there."""
    c = compared(0.0, lambda p: {"completion_tokens": made.number(400), "server_tokens": made.number(400)} if p.turn == 1 else {})
    assert c.speedup.estimate == pytest.approx((0.4 + 4 + 0.01) / (0.4 + 2 + 0.01), rel=0.02)


@pytest.mark.parametrize("hits", [{1: 0, 2: 300}, {1: 5, 2: 300}, {1: 64, 2: 300}])
def test_hits_on_a_tasks_own_history_are_no_fault_where_the_prefix_cache_is_on(hits: dict[int, int]) -> None:
    def cached(p: ProbeMeasurement) -> dict[str, Any]:
        return {"cache_hit_tokens": made.number(hits[p.turn or 0])}

    on, off = (compared(0.0, cached, engine={"prefix_cache": cache}) for cache in (True, False))
    states = [next(k for k in c.checks if k.name == "no cache hits").state for c in (on, off)]
    assert states == ["failed" if hits[1] >= 64 else "passed", "failed"]


@pytest.mark.parametrize(
    ("point", "field"),
    [({"concurrency": 2}, "points.0.concurrency"), ({"rate_per_s": 2}, "points.0.rate_per_s"), ({"warm": True}, "points.0.warm")],
)
def test_a_task_is_asked_alone(point: dict[str, Any], field: str) -> None:
    spec = made.spec_of(points=[{"workload": "count", "probes": 2, **point}], engine={"slots": 2})
    with pytest.raises(SpecError, match="tasks of several turns") as error:
        plan_job(spec, {"count": WORKLOAD})
    assert error.value.details["field"] == field


def test_the_split_is_told_as_text() -> None:
    c = compared(wait_s=1.0)
    analysis = JobAnalysis(comparisons=[c], checks=[], answers=[], attempts_used=[])
    head, line = task_lines(analysis).splitlines()
    assert head == "whole tasks, in seconds:"
    arm, baseline, ratios = line.split("; ")
    assert arm.startswith("  count/c1/ctx0/t0, draft-4: 3.4")
    assert "= reading 0.40 + decoding 2.0" in arm
    assert "+ tools 1.00 + rest 0.01" in arm
    assert baseline.startswith("baseline 5.4")
    assert ratios.startswith("decoding alone 2.0")
    assert task_lines(analysis) in analysis_text(analysis)
    spec = made.spec_of(blocks=3)
    plan = made.planned(spec)
    assert task_lines(analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}), [], JobFacts())) == ""
