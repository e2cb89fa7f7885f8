"""Measurements made up for tests of the analysis: values are set by the test, shapes are the real ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from speccore.measurement import (
    AttemptMeasurement,
    Counters,
    LogFacts,
    Maybe,
    Number,
    ProbeMeasurement,
    Source,
    Withheld,
)
from speccore.plan import plan_job
from speccore.protocol import JobPlan, ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec, parse_spec
from speccore.workload import Item, Workload

TOKENS = 64


def number(value: float | None) -> Maybe:
    if value is None:
        return Withheld(withheld="not measured", reason_code="missing")
    return Number(value=value, source=Source(file="records.jsonl", line=1))


def workload(name: str = "count", n: int = 40, n_warmup: int = 4, **item: Any) -> Workload:
    return Workload(
        name=name,
        version=1,
        title=name,
        items=[Item(id=f"{name}-{i}", prompt=f"{name} prompt number {i}", **item) for i in range(n)],
        warmup=[Item(id=f"{name}-warm-{i}", prompt=f"warm-up {i} of {name}") for i in range(n_warmup)],
    )


def spec_of(*arms: dict[str, Any], points: list[dict[str, Any]] | None = None, **more: Any) -> ExperimentSpec:
    """A small experiment with baseline ``off`` before the given arms, warmed up by one request."""
    data: dict[str, Any] = {
        "name": "t",
        "target": {"model": "m"},
        "arms": [{"name": "off", "mode": "off"}, *(arms or ({"name": "draft-4", "mode": "draft", "draft_model": "d", "draft_limit": 4},))],
        "points": points or [{"workload": "count"}],
        "warmup": {"mode": "fixed"},
        **more,
    }
    spec, problems = parse_spec(data)
    assert spec is not None, problems
    return spec


def planned(spec: ExperimentSpec, **workloads: Workload) -> JobPlan:
    return plan_job(spec, {p.workload: workloads.get(p.workload) or workload(p.workload) for p in spec.points})


def counters(**given: float | list[int] | Withheld | None) -> Counters:
    """Counters of a probe; unnamed ones are withheld."""
    positions = given.pop("accepted_by_position", None)
    names = ("drafted", "accepted", "committed", "verify_steps", "decode_steps", "emitted", "draft_ms", "eval_ms")
    return Counters(
        **{n: number(given.get(n)) for n in names},  # type: ignore[arg-type]
        accepted_by_position=positions if isinstance(positions, list) else Withheld(withheld="not counted"),
    )


OFF = counters(decode_steps=TOKENS - 1, emitted=TOKENS - 1, eval_ms=2000.0)
#: 64 tokens in 21 cycles of 4: 84 drafted, 42 accepted.
DRAFT = counters(drafted=84, accepted=42, verify_steps=21, decode_steps=21, emitted=63, eval_ms=1000.0, accepted_by_position=[20, 12, 6, 4])


def probe(plan: ProbePlan, seconds: float, *, tokens: int = TOKENS, **more: Any) -> ProbeMeasurement:
    """A probe whose equal-work time for ``tokens`` tokens is ``seconds``: a tenth of it to the first token."""
    ttft = seconds / 10
    values: dict[str, Any] = {
        "ok": True,
        "line": 1,
        "status": 200,
        "prompt_tokens": number(20),
        "completion_tokens": number(tokens),
        "server_tokens": number(tokens),
        "cache_hit_tokens": number(0),
        "n_events": tokens,
        "n_chunks": tokens,
        "n_first": 1,
        "ttft_any_s": number(ttft),
        "ttft_content_s": number(ttft),
        "e2e_s": number(seconds),
        "decode_tokens_per_s": number((tokens - 1) / (seconds - ttft)),
        "counters": OFF,
    }
    return ProbeMeasurement(probe=plan.id, point=plan.point, item=plan.item, warmup=False, **(values | more))


Change = Callable[[TrialPlan, ProbePlan], dict[str, Any]]


def attempt(
    trial: TrialPlan, mode: str, seconds: Callable[[TrialPlan, ProbePlan], float], change: Change | None = None, **more: Any
) -> AttemptMeasurement:
    off = mode == "off"
    probes = [
        probe(p, seconds(trial, p), **({"counters": OFF if off else DRAFT} | (change(trial, p) if change else {}))) for p in trial.probes
    ]
    values: dict[str, Any] = {
        "attempt_id": f"attempt-{trial.id}",
        "log": LogFacts(),
        "engaged": None if off else True,
        "peak_memory_bytes": number(100 * 2**20 if off else 109 * 2**20),
        "peak_device_bytes": number(None),
        "context_per_slot": 4096,
        "slots": 1,
        "n_events": 128,
        "pair_fields": {"boot_id": "b", "runtime_hash": "r", "target_hash": "t", "command": "[]"},
    }
    return AttemptMeasurement(trial=trial.id, arm=trial.arm, mode=mode, block=trial.block, probes=probes, **(values | more))


def attempts(
    spec: ExperimentSpec,
    plan: JobPlan,
    speeds: dict[str, float],
    *,
    noise: Callable[[TrialPlan, ProbePlan], float] = lambda t, p: 1.0,
    without: Iterable[str] = (),
    change: Change | None = None,
    **more: Any,
) -> list[AttemptMeasurement]:
    """An attempt for each trial but ``without``; an arm of speed s needs 2 ÷ s seconds for each probe, times the noise."""

    def seconds(trial: TrialPlan, p: ProbePlan) -> float:
        return 2.0 / speeds[trial.arm] * noise(trial, p)

    return [attempt(t, spec.arm(t.arm).mode, seconds, change, **more) for t in plan.trials if t.id not in without]


def wobble(trial: TrialPlan, p: ProbePlan) -> float:
    """A repeatable noise of about ±1 %, different in each trial and probe."""
    return 1 + ((hash_of(trial.id + p.id) % 2001) - 1000) / 100_000


def hash_of(text: str) -> int:
    value = 7
    for character in text:
        value = (value * 131 + ord(character)) % 1_000_003
    return value
