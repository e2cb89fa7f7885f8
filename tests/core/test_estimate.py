"""How long a job takes: a range that holds what was measured before, and says what it rests on."""

from __future__ import annotations

from typing import Any

import pytest
from speccore.estimate import Minutes, TrialCost, job_minutes
from speccore.spec import ExperimentSpec
from speccore.workload import Item, Turn

from tests.core.made import planned, spec_of, workload

SPEC = spec_of({"name": "n", "mode": "ngram-simple"}, points=[{"workload": "count", "max_tokens": 100}], blocks=5, second_look="never")
OFF, NGRAM = TrialCost("off", 2.0, 0.02, 0.5), TrialCost("ngram-simple", 2.0, 0.01, 0.5)


def minutes(*earlier: TrialCost, spec: ExperimentSpec = SPEC, model_bytes: int = 100 << 20, on_gpu: bool = False) -> Minutes:
    return job_minutes(spec, planned(spec), model_bytes=model_bytes, on_gpu=on_gpu, earlier=earlier)


def test_what_was_measured_lies_in_the_range() -> None:
    # Five blocks of one trial each: start 2 s, 3 requests of 100 tokens, rest 0.5 s.
    truly = 5 * ((2 + 300 * 0.02 + 0.5) + (2 + 300 * 0.01 + 0.5)) / 60
    few, many = minutes(OFF, NGRAM), minutes(*[OFF, NGRAM] * 10)
    assert few.low < truly < few.high
    assert few.basis == "from 2 earlier trials of this model on this host"
    assert many.low == pytest.approx(truly)
    assert many.high == pytest.approx(truly)
    assert many.basis == "from 20 earlier trials of this model on this host"


def test_requests_by_the_clock_have_their_time_however_fast_the_engine_is() -> None:
    quick = TrialCost("off", 2.0, 1e-6, 0.5), TrialCost("ngram-simple", 2.0, 1e-6, 0.5)
    alone = minutes(*quick, spec=spec_of({"name": "n", "mode": "ngram-simple"}, points=[{"workload": "count", "probes": 24}]))
    clock = minutes(*quick, spec=spec_of({"name": "n", "mode": "ngram-simple"}, points=[{"workload": "count", "rate_per_s": 0.5}]))
    assert clock.low - alone.low == pytest.approx(10 * 48 / 60, rel=0.01)  # ten starts, 24 requests in 48 s each


def test_warm_up_until_settled_takes_six_requests_to_as_many_as_are_planned() -> None:
    arm = {"name": "n", "mode": "ngram-simple"}
    points: list[dict[str, Any]] = [{"workload": "count", "max_tokens": 100, "probes": 2, "sampling": {"temperature": 0.8}}]
    many = [OFF, NGRAM] * 10
    settled = spec_of(arm, points=points, blocks=5, warmup={"mode": "settled"}, second_look="never")
    plan = planned(settled, count=workload(n_warmup=40))
    found = job_minutes(settled, plan, model_bytes=100 << 20, on_gpu=False, earlier=many)
    fixed = [
        minutes(*many, spec=spec_of(arm, points=[points[0] | {"probes": 1 + n}], blocks=5, second_look="never")) for n in (6, 10)
    ]  # one warm-up each
    assert (found.low, found.high) == (pytest.approx(fixed[0].low), pytest.approx(fixed[1].high))


def test_of_many_trials_the_extremes_are_left_out() -> None:
    odd = TrialCost("off", 500.0, 9.0, 100.0)
    assert minutes(*[OFF, NGRAM] * 10, odd).high == minutes(*[OFF, NGRAM] * 10).high
    assert minutes(OFF, NGRAM, odd).high > 60


def test_a_mode_that_the_host_never_ran_widens_it() -> None:
    known, part = minutes(*[OFF, NGRAM] * 10), minutes(*[OFF] * 10)
    assert part.low < known.low
    assert part.high > known.high
    assert part.basis == "from 10 earlier trials of this model on this host; ngram-simple: a guess by the other modes"


def test_without_any_it_is_a_guess_that_says_so() -> None:
    found = minutes()
    assert found.basis == "a guess from the model's size (100 MiB) and a CPU: this host has not run it yet"
    assert found.high > 3 * found.low > 0
    card = minutes(model_bytes=20 << 30, on_gpu=True)
    assert card.basis == "a guess from the model's size (20 GiB) and a GPU: this host has not run it yet"
    assert card.high < minutes(model_bytes=20 << 30).high


@pytest.mark.parametrize(
    ("model_bytes", "on_gpu", "token_s", "start_s"),
    [
        (120 << 20, False, 0.017, 0.8),
        (4 << 30, False, 0.15, 4),
        (16 << 30, True, 0.02, 12),
        (60 << 30, True, 0.006, 40),
        (20 << 30, True, 0.033, 6),
    ],
)
def test_the_guess_holds_machines_as_they_are(model_bytes: int, on_gpu: bool, token_s: float, start_s: float) -> None:
    """Plain decoding as people report it: a 3 M model inflated, 7 B and 8 B at 4 and 16 bits, a mixture of experts, 32 B on one card."""
    spec = spec_of({"name": "off2", "mode": "off", "control": True}, points=[{"workload": "count", "max_tokens": 100}])
    truly = 10 * (start_s + 300 * token_s + 1) / 60
    found = minutes(spec=spec, model_bytes=model_bytes, on_gpu=on_gpu)
    assert found.low < truly < found.high


def test_requests_that_run_at_once_lower_the_least() -> None:
    points = [{"workload": "count", "max_tokens": 100, "probes": 8}]
    one = spec_of(points=points, engine={"slots": 4}, second_look="never")
    four = one.model_copy(update={"points": [one.points[0].model_copy(update={"concurrency": 4})]})
    plan = planned(one)
    renamed = plan.model_copy(
        update={
            "trials": [
                t.model_copy(
                    update={
                        "probes": [p.model_copy(update={"point": four.points[0].key}) for p in t.probes],
                        "warmup": [w.model_copy(update={"point": four.points[0].key}) for w in t.warmup],
                    }
                )
                for t in plan.trials
            ]
        }
    )
    alone = job_minutes(one, plan, model_bytes=1 << 30, on_gpu=True, earlier=[OFF])
    together = job_minutes(four, renamed, model_bytes=1 << 30, on_gpu=True, earlier=[OFF])
    assert together.low < alone.low
    assert together.high == alone.high


def test_a_full_context_has_to_be_read_first() -> None:
    points = [{"workload": "count", "max_tokens": 100, "occupied_context": n} for n in (0, 20_000)]
    bare, full = (minutes(*[OFF, NGRAM] * 10, spec=spec_of(points=[p], blocks=5, engine={"context": 32768})) for p in points)
    # 2 arms, 5 blocks, 3 requests; each of 10 prompts is read once more, where the baseline is asked again
    assert "reading context (800,000 tokens in all) is taken as 0.4 to 25 %" in full.basis
    assert "reading" not in bare.basis
    assert full.low > bare.low
    assert full.high > 10 * bare.high


def test_a_task_takes_its_turns_and_its_tools() -> None:
    turn = Turn(prompt="x" * 400, answer="y" * 400, tool_wait_s=30)
    tasks = workload().model_copy(
        update={"items": [Item(id=f"t{i}", turns=[turn, turn.model_copy(update={"tool_wait_s": 0})]) for i in range(1)]}
    )
    spec = spec_of(points=[{"workload": "count", "max_tokens": 100, "probes": 1}], blocks=4)
    plan = planned(spec, count=tasks)
    known, unknown = (
        job_minutes(spec, plan, model_bytes=1 << 20, on_gpu=False, earlier=[OFF, NGRAM] * 10, workloads=w) for w in ({"count": tasks}, None)
    )
    waits = 2 * 4 * 30 / 60
    assert known.low - unknown.low > waits
    assert known.low - unknown.low == pytest.approx(waits + 8 * (100 + 0.004 * 400) * 0.02 / 60, rel=0.2)
