"""Comparisons under load: block values from tokens per second, and the checks that only several requests at once need."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import AttemptMeasurement, Check, ComparisonResult, Interval, LoadMeasurement, Maybe, Withheld, value_of
from speccore.plan import plan_job
from speccore.protocol import ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec
from speccore.throughput import observed_concurrency, right_under_load, share_difference

from tests.core.made import attempts, number, spec_of, workload

TOGETHER = {"workload": "count", "concurrency": 4}
ALONE = {"workload": "count", "probes": 8}
KEY = "count/c4/ctx0/t0"

Rate = Callable[[AttemptMeasurement], Maybe]


def spec_under_load(*points: dict[str, Any], blocks: int = 3, **more: Any) -> ExperimentSpec:
    return spec_of(*more.pop("arms", ()), points=list(points) or [TOGETHER], engine={"slots": 4}, blocks=blocks, **more)


def load(rate: Maybe, observed: Maybe | None = None) -> LoadMeasurement:
    return LoadMeasurement(
        point=KEY, concurrency=4, n_requests=24, window_s=(1.0, 9.0), tokens_per_s=rate, observed_concurrency=observed or number(3.98)
    )


def ran(spec: ExperimentSpec, rate: Rate, *, observed: Rate | None = None, **more: Any) -> list[AttemptMeasurement]:
    """Attempts whose requests take equally long in all arms one by one, and that bring ``rate`` tokens per second together."""
    plan = plan_job(spec, {"count": workload(n=60, n_warmup=8)})
    found = attempts(spec, plan, {a.name: 1.0 for a in spec.arms}, **more)
    return [a.model_copy(update={"loads": [load(rate(a), observed(a) if observed else None)]}) for a in found]


def compared(spec: ExperimentSpec, found: list[AttemptMeasurement]) -> dict[str, ComparisonResult]:
    """By arm, at the point with several requests at once."""
    plan = plan_job(spec, {"count": workload(n=60, n_warmup=8)})
    analysis = analyse_job(spec, plan, found, [], JobFacts(noise_floor=0.0))
    return {c.arm: c for c in analysis.comparisons if c.concurrency > 1}


def check(c: ComparisonResult, name: str) -> Check | None:
    return next((k for k in c.checks if k.name == name), None)


def by_block(*arm: float) -> Rate:
    """100 tokens a second in the baseline, so many in each block of the arm."""
    return lambda a: number(100.0 if a.arm == "off" else arm[a.block - 1])


def test_the_block_value_is_the_ratio_of_tokens_per_second() -> None:
    spec = spec_under_load()
    c = compared(spec, ran(spec, by_block(200.0, 210.0, 190.0)))["draft-4"]
    assert c.block_values == pytest.approx({1: math.log(2.0), 2: math.log(2.1), 3: math.log(1.9)})
    assert isinstance(c.speedup, Interval)
    assert c.speedup.estimate == pytest.approx((2.0 * 2.1 * 1.9) ** (1 / 3))
    assert c.concurrency == 4
    # one by one they take as long as the baseline's: that stands beside it and decides nothing here
    assert value_of(c.arm_equal_work_s) == value_of(c.baseline_equal_work_s)
    assert isinstance(c.total_time, Interval)
    assert c.total_time.estimate == pytest.approx(1.0)
    assert (value_of(c.arm_loaded_tokens_per_s), value_of(c.baseline_loaded_tokens_per_s)) == (200.0, 100.0)
    assert value_of(c.arm_observed_concurrency) == 3.98
    assert isinstance(c.leave_one_prompt_out, Withheld)
    assert c.verdict.word == "keep"


def test_slower_in_total_time_is_said_of_requests_not_of_prompts() -> None:
    spec = spec_under_load()
    plan = plan_job(spec, {"count": workload(n=60, n_warmup=8)})
    slow = attempts(spec, plan, {"off": 1.0, "draft-4": 0.5})
    slow = [a.model_copy(update={"loads": [load(by_block(200.0, 201.0, 199.0)(a))]}) for a in slow]
    verdict = compared(spec, slow)["draft-4"].verdict
    assert (verdict.word, verdict.reason) == ("inconclusive", "prompts disagree")
    assert "in tokens per second of all requests, but 0.50× in the time that they take one by one" in verdict.sentence


def test_a_block_without_a_window_has_no_value_and_the_others_decide_nothing() -> None:
    spec = spec_under_load(blocks=4)
    why = Withheld(withheld="never were 4 requests decoding at once, 2 at most", reason_code="no_window")

    def without(a: AttemptMeasurement, otherwise: float) -> Maybe:
        return why if (a.arm, a.block) == ("draft-4", 2) else number(otherwise)

    found = ran(spec, lambda a: without(a, 100.0 if a.arm == "off" else 150.0), observed=lambda a: without(a, 3.98))
    c = compared(spec, found)["draft-4"]
    assert sorted(c.block_values) == [1, 3, 4]
    assert isinstance(c.speedup, Interval)
    assert (c.speedup.n_blocks, c.speedup.estimate) == (3, pytest.approx(1.5))
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "observed concurrency")

    none = compared(spec, ran(spec, lambda a: why, observed=lambda a: why))["draft-4"]
    assert isinstance(none.speedup, Withheld)
    assert none.speedup.withheld == "b1-off: never were 4 requests decoding at once, 2 at most"
    assert (none.verdict.word, none.verdict.sentence) == ("inconclusive", none.speedup.withheld)
    assert isinstance(none.arm_loaded_tokens_per_s, Withheld)


def test_an_attempt_measured_before_there_were_windows_says_so() -> None:
    spec = spec_under_load()
    old = [a.model_copy(update={"loads": []}) for a in ran(spec, by_block(200.0, 200.0, 200.0))]
    c = compared(spec, old)["draft-4"]
    assert isinstance(c.speedup, Withheld)
    assert c.speedup.withheld.endswith("no request ran together with others")


def test_a_shorter_limit_is_judged_by_tokens_per_second_too() -> None:
    arms = [{"name": f"draft-{n}", "mode": "draft", "draft_model": "d", "draft_limit": n} for n in (8, 2)]
    spec = spec_under_load(arms=arms)
    rates = {"off": 100.0, "draft-2": 160.0, "draft-8": 120.0}
    found = compared(spec, ran(spec, lambda a: number(rates[a.arm] * (1 + a.block / 1000))))
    assert (found["draft-8"].verdict.word, found["draft-2"].verdict.word) == ("shorten", "keep")
    assert "1.33×" in found["draft-8"].verdict.sentence
    assert found["draft-2"].recommended


def test_too_few_in_flight_make_it_invalid() -> None:
    spec = spec_under_load()
    c = compared(spec, ran(spec, by_block(200.0, 201.0, 199.0), observed=lambda a: number(3.7 if a.trial == "b2-off" else 3.99)))["draft-4"]
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "observed concurrency")
    assert c.verdict.sentence == "3.70 requests were in flight on average in b2-off, asked for were 4"


def test_the_threshold_is_95_per_cent_of_what_was_asked_for() -> None:
    assert observed_concurrency(4, {"t": number(3.80)}).state == "passed"
    assert observed_concurrency(4, {"t": number(3.79)}).state == "failed"
    one = Withheld(withheld="no window", reason_code="no_window")
    found = observed_concurrency(4, {"t": one})
    assert (found.state, found.sentence) == ("not checked", "t: no window")
    found = observed_concurrency(4, {"t": number(3.9), "u": one})
    assert (found.kind, found.state) == ("hard", "failed")
    assert found.sentence == "so many requests at once did not come about in 1 of 2 trials, first u: no window"
    assert observed_concurrency(4, {}).state == "not checked"


def test_one_at_a_time_has_none_of_it() -> None:
    spec = spec_of(points=[ALONE], blocks=3)
    plan = plan_job(spec, {"count": workload(n=60)})
    c = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}), [], JobFacts()).comparisons[0]
    assert check(c, "observed concurrency") is None
    assert check(c, "answers right under load") is None
    assert isinstance(c.arm_loaded_tokens_per_s, Withheld)


def passing(share_together: float, share_alone: float) -> list[AttemptMeasurement]:
    """Every n-th task check fails, by the shares, in the baseline."""

    def change(trial: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        share = share_together if "/c4/" in p.point else share_alone
        n = int(p.id.rsplit("#", 1)[1])
        return {"check_passed": math.floor(n * share) > math.floor((n - 1) * share)}

    return ran(spec_under_load(ALONE, TOGETHER), by_block(200.0, 201.0, 199.0), change=change)


def test_a_baseline_that_answers_wrongly_under_load_is_invalid_at_that_point_only() -> None:
    """llama.cpp builds exist that do, with some architectures; speed alone would never show it."""
    spec = spec_under_load(ALONE, TOGETHER)
    found = passing(0.0, 1.0)
    c = compared(spec, found)["draft-4"]
    assert (c.verdict.word, c.verdict.reason) == ("invalid", "answers right under load")
    assert "0 % of the baseline's task checks passed with 4 requests at once and 100 % one at a time" in c.verdict.sentence
    plan = plan_job(spec, {"count": workload(n=60, n_warmup=8)})
    alone = next(c for c in analyse_job(spec, plan, found, [], JobFacts()).comparisons if c.concurrency == 1)
    assert alone.verdict.word != "invalid"


def test_as_right_under_load_as_alone_passes() -> None:
    c = compared(spec_under_load(ALONE, TOGETHER), passing(1.0, 1.0))["draft-4"]
    found = check(c, "answers right under load")
    assert found is not None
    assert (found.state, found.kind) == ("passed", "hard")


@pytest.mark.parametrize(
    "other", [{"workload": "count", "probes": 8, "max_tokens": 99}, {"workload": "count", "probes": 8, "sampling": {"temperature": 0.8}}]
)
def test_other_work_is_no_measure_of_it(other: dict[str, Any]) -> None:
    spec = spec_under_load(other, TOGETHER)
    baseline = [a for a in passing(0.25, 1.0) if a.arm == "off"]
    found = right_under_load(next(p for p in spec.points if p.concurrency == 4), spec.points, baseline)
    assert (found.state, found.sentence) == ("not checked", "the experiment does not ask the same work one request at a time")


def test_prompts_without_a_check_are_not_checked() -> None:
    spec = spec_under_load(ALONE, TOGETHER)
    c = compared(spec, ran(spec, by_block(200.0, 201.0, 199.0)))["draft-4"]
    found = check(c, "answers right under load")
    assert found is not None
    assert (found.state, found.sentence) == ("not checked", "no prompt has a check")


@pytest.mark.parametrize(
    ("first", "second", "interval"),
    # Newcombe, Statistics in Medicine 17 (1998) 873, table II, method 10
    [
        ((56, 70), (48, 80), (0.0524, 0.3339)),
        ((9, 10), (3, 10), (0.1705, 0.8090)),
        ((6, 7), (2, 7), (0.0582, 0.8062)),
        ((5, 56), (0, 29), (-0.0381, 0.1926)),
        ((0, 10), (0, 20), (-0.1611, 0.2775)),
        ((10, 10), (0, 20), (0.6791, 1.0000)),
    ],
)
def test_intervals_are_the_published_ones(first: tuple[int, int], second: tuple[int, int], interval: tuple[float, float]) -> None:
    (x, n), (y, m) = first, second
    assert share_difference(x / n, n, y / m, m) == pytest.approx(interval, abs=6e-5)
