"""Requests by the clock: latency from when they were due, what came meanwhile, and an engine that falls behind."""

from __future__ import annotations

import random
from typing import Any

import pytest
from speccore import window
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import AttemptMeasurement, Check, ComparisonResult, Interval, LoadMeasurement, Withheld, value_of
from speccore.openloop import load_of, loads, overload
from speccore.plan import plan_job
from speccore.protocol import ProbePlan, TrialPlan
from speccore.records import StreamRecord
from speccore.times import probe_times

from tests.core.made import attempts, number, spec_of, workload
from tests.core.streams import stream_of

KEY = "count/c1/ctx0/t0/r2"
POINT = {"workload": "count", "rate_per_s": 2, "probes": 24}


def answer(due_s: float, took_s: float, *, late_s: float = 0.0, point: str = KEY) -> StreamRecord:
    """Due at ``due_s``, sent so much later, ten tokens until ``took_s`` after it was due."""
    at = [(1000 * (due_s + late_s + (took_s - late_s) * i / 10), 1) for i in range(1, 11)]
    return stream_of(at, scheduled_at_s=due_s, sent_at_s=due_s + late_s, closed_at_s=due_s + took_s, point=point)


def numbered(records: list[StreamRecord]) -> list[tuple[int, StreamRecord]]:
    return list(enumerate(records, 1))


def test_latency_counts_from_when_the_request_was_due() -> None:
    times = probe_times(answer(5.0, 2.0, late_s=0.5), 1)
    assert value_of(times.e2e_s) == pytest.approx(2.0)
    assert value_of(times.ttft_any_s) == pytest.approx(0.65)
    assert "scheduled_at_s" in getattr(times.ttft_any_s, "source").field  # noqa: B009
    unscheduled = answer(5.0, 2.0, late_s=0.5).model_copy(update={"scheduled_at_s": None})
    assert value_of(probe_times(unscheduled, 1).e2e_s) == pytest.approx(1.5)


def test_what_came_in_the_time_of_the_requests() -> None:
    """Every half second one that takes a second: two are under way, but for the first half second with one."""
    found = load_of(KEY, 2.0, numbered([answer(i / 2, 1.0) for i in range(25)]))
    assert found.window_s == (0.0, 12.0)
    assert value_of(found.observed_rate_per_s or number(None)) == pytest.approx(2.0)
    assert value_of(found.observed_concurrency) == pytest.approx(47 / 24)
    # 23 have ended within, the 24th has brought half of its ten tokens, the last nothing.
    assert value_of(found.tokens_per_s) == pytest.approx((23 * 10 + 5) / 12)
    assert found.overloaded == ""


def test_a_backlog_that_grows_is_told() -> None:
    behind = [answer(i / 2, 1.0 + i / 4) for i in range(24)]
    said = load_of(KEY, 2.0, numbered(behind)).overloaded
    assert said == (
        "requests came faster than they were answered: of the last ones half took over 6.12 s, a quick one 2.50 s, in a run of 11.5 s"
    )
    # The last ones were quick, yet ever more had been under way before.
    tail = [answer(i / 10, min(1.0 + i / 10, 8.0 - i / 10)) for i in range(60)]
    assert "in flight in the run's first half" in overload([window.began_s(r) for r in tail], [r.closed_at_s for r in tail])


def test_an_engine_that_answers_nobody_in_time_is_not_called_fit() -> None:
    """All were due before the first had its answer: nothing shows that the engine would keep up."""
    assert overload([0.0] * 24, [9.0] * 24) == ""
    found = load_of(KEY, 100.0, numbered([answer(i / 100, 60.0) for i in range(24)]))
    assert found.overloaded == "0 of 24 requests came after the first answer had ended, too few to see whether the engine keeps up"


def test_chance_alone_is_no_overload() -> None:
    """Poisson arrivals at a place that answers one after another in a second each, 24 of them, 200 times."""

    def told(per_s: float) -> int:
        n = 0
        for seed in range(200):
            draw = random.Random(seed)
            due = free = 0.0
            dues, ends = [], []
            for _ in range(24):
                due += draw.expovariate(per_s)
                free = max(free, due) + 1.0
                dues.append(due)
                ends.append(free)
            n += bool(overload(dues, ends))
        return n

    assert told(0.5) <= 6
    assert told(1.6) >= 140


def test_loads_are_of_points_with_a_rate_and_of_no_warm_up() -> None:
    spec = spec_of(points=[POINT, {"workload": "count"}])
    warm = answer(0.0, 1.0).model_copy(update={"warmup": True, "scheduled_at_s": None})
    own = [answer(i / 2, 0.3) for i in range(24)]
    other = [answer(99.0, 1.0, point="count/c1/ctx0/t0")]
    found = loads(spec, numbered([warm, *own, *other]))
    assert [(x.point, x.n_requests, x.rate_per_s) for x in found] == [(KEY, 24, 2.0)]


def ran(behind: str = "", **speeds: float) -> list[AttemptMeasurement]:
    """All trials of three blocks; in the trial named ``behind`` requests piled up."""
    spec = spec_of(points=[POINT], blocks=3)
    plan = plan_job(spec, {"count": workload(n=80)})
    found = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0} | speeds)
    return [a.model_copy(update={"loads": [load("they came too fast" if a.trial == behind else "")]}) for a in found]


def load(overloaded: str) -> LoadMeasurement:
    numbers: dict[str, Any] = {"tokens_per_s": number(100.0), "observed_concurrency": number(1.5), "observed_rate_per_s": number(1.9)}
    return LoadMeasurement(point=KEY, concurrency=1, n_requests=24, window_s=(0, 12), rate_per_s=2, overloaded=overloaded, **numbers)


def compared(found: list[AttemptMeasurement]) -> ComparisonResult:
    spec = spec_of(points=[POINT], blocks=3)
    plan = plan_job(spec, {"count": workload(n=80)})
    return analyse_job(spec, plan, found, [], JobFacts(noise_floor=0.0)).comparisons[0]


def keeps_up(c: ComparisonResult) -> Check:
    return next(k for k in c.checks if k.name == "engine keeps up")


def test_by_the_clock_the_speed_up_is_one_of_latency() -> None:
    c = compared(ran())
    assert isinstance(c.speedup, Interval)
    assert c.speedup.estimate == pytest.approx(2.0)
    assert (c.verdict.word, keeps_up(c).state) == ("keep", "passed")
    assert keeps_up(c).sentence.startswith("requests came at 1.9 a second, asked for were 2")
    assert value_of(c.arm_loaded_tokens_per_s) == 100.0
    assert value_of(c.arm_observed_concurrency) == 1.5


@pytest.mark.parametrize("trial", ["b2-off", "b3-draft-4"])
def test_on_either_side_an_engine_that_fell_behind_withholds_latency(trial: str) -> None:
    c = compared(ran(trial))
    for held in (c.speedup, c.total_time, c.leave_one_prompt_out, c.arm_equal_work_s, c.baseline_equal_work_s, c.arm_e2e_s):
        assert isinstance(held, Withheld)
        assert held.reason_code == "overloaded"
        assert f"{trial}: they came too fast; lower the rate, now 2 a second" in held.withheld
    assert c.block_values == {}
    tails = {t.metric: getattr(t, "withheld", "") for t in c.tails or []}
    assert all("overloaded" in tails[metric] for metric in ("ttft_any_s", "e2e_s", "equal_work_s"))
    assert "overloaded" not in tails["token_latency_ms"]
    assert (c.verdict.word, c.verdict.reason) == ("inconclusive", "overloaded")
    assert "lower the rate" in c.verdict.sentence
    assert "rate" in c.verdict.next_step
    assert keeps_up(c).state == "failed"
    assert keeps_up(c).kind == "soft"
    assert isinstance(value_of(c.arm_tokens_per_s), float)  # how fast it decodes is no matter of when it was due


def test_a_look_before_an_engine_fell_behind_keeps_nothing() -> None:
    """The point by the clock is decided after five blocks; the other one goes on, and in the seventh requests pile up."""
    spec = spec_of(points=[POINT, {"workload": "prose", "probes": 2}], blocks=10, sequential=True)
    plan = plan_job(spec, {"count": workload(n=80), "prose": workload("prose", n=80)})

    def noise(t: TrialPlan, p: ProbePlan) -> float:
        shaky = 1.02 if p.point == KEY else 1.3
        return 1.0 if t.arm == "off" else shaky if t.block % 2 else 1 / shaky

    found = [a for a in attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=noise) if a.block <= 7]
    words = []
    for behind in ("", "b7-draft-4"):
        told = [a.model_copy(update={"loads": [load("they came too fast" if a.trial == behind else "")]}) for a in found]
        c = next(c for c in analyse_job(spec, plan, told, [], JobFacts(noise_floor=0.0)).comparisons if c.point == KEY)
        words.append((c.verdict.word, c.verdict.reason))
    assert words == [("keep", "faster"), ("inconclusive", "overloaded")]


def test_an_attempt_without_its_load_is_not_taken_for_one_that_kept_up() -> None:
    found = [a.model_copy(update={"loads": []}) for a in ran()]
    assert "no request was sent by the clock" in compared(found).verdict.sentence
