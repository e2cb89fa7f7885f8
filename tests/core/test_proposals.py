"""What is proposed before a job is run: from which pilot, at what cost, for the margin or for a time."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.estimate import TrialCost, job_minutes
from speccore.measurement import Variation, Withheld
from speccore.proposals import Earlier, Expected, PlanChoice, expected, most_probes, pilot_for
from speccore.protocol import ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec

from tests.core import made

DRAFT = {"name": "d", "mode": "draft", "draft_model": "d", "draft_limit": 4}
START_S, TOKEN_S, REST_S = 60.0, 0.05, 2.0
SEEN = Variation(between=0.01**2, within=0.05**2, n_blocks=5, n_pairs=20)


def clock(spec: ExperimentSpec) -> Any:
    costs = [TrialCost(mode, START_S, TOKEN_S, REST_S) for mode in ("off", "draft") for _ in range(8)]
    return lambda plan: job_minutes(spec, plan, model_bytes=1, on_gpu=False, earlier=costs)


def earlier(spec: ExperimentSpec, found: Variation = SEEN, engine: str = "llama-server", **changes: Any) -> list[Earlier]:
    arms = [a.model_copy(update=changes) for a in spec.arms if not a.is_baseline]
    return [Earlier(engine, a, p, found) for a in arms for p in spec.points]


def told(spec: ExperimentSpec, pilot: Sequence[Earlier] = (), budget_s: float | None = None, n_items: int = 40) -> Expected:
    workloads = {p.workload: made.workload(p.workload, n=n_items) for p in spec.points}
    return expected(spec, made.planned(spec, **workloads), workloads, clock(spec), pilot_for(spec, pilot), budget_s)


def choice(found: PlanChoice | Withheld | None) -> PlanChoice:
    assert isinstance(found, PlanChoice), found
    return found


def test_what_a_job_varied_by_is_in_its_comparisons() -> None:
    """Starts vary by 4 %, prompts within a start by 3 %: over many blocks the two are told apart."""
    spec = made.spec_of(DRAFT, blocks=60, points=[{"workload": "count", "probes": 6}])
    plan = made.planned(spec)

    def noise(trial: TrialPlan, probe: ProbePlan) -> float:
        start, own = random.Random(trial.id), random.Random(trial.id + probe.id)
        return math.exp(start.gauss(0, 0.04) + own.gauss(0, 0.03))

    (c,) = analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "d": 1.5}, noise=noise), [], JobFacts()).comparisons
    assert isinstance(c.variation, Variation)
    assert (c.variation.n_blocks, c.variation.n_pairs) == (60, 360)
    assert math.sqrt(c.variation.between) == pytest.approx(0.04 * math.sqrt(2), rel=0.25)  # of both arms
    assert math.sqrt(c.variation.within) == pytest.approx(0.03 * math.sqrt(2), rel=0.1)


def test_one_prompt_in_a_block_is_taken_as_the_start() -> None:
    spec = made.spec_of(DRAFT, blocks=5, points=[{"workload": "count", "probes": 1}])
    plan = made.planned(spec)
    (c,) = analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "d": 1.5}, noise=made.wobble), [], JobFacts()).comparisons
    assert isinstance(c.variation, Variation)
    assert c.variation.between > 0
    assert (c.variation.within, c.variation.n_pairs) == (0, 5)


class TestPilot:
    spec = made.spec_of(DRAFT, points=[{"workload": "count"}, {"workload": "code"}])

    def test_without_any_it_is_a_stated_guess(self) -> None:
        found = pilot_for(self.spec, [])
        assert found.guessed
        assert (
            found.basis
            == "a guess (starts that differ by 2 % and prompts by 8 %): nothing valid like it has been measured on this host yet"
        )

    def test_the_same_question_comes_before_any_other(self) -> None:
        noisy = Variation(between=1.0, within=1.0, n_blocks=5, n_pairs=20)
        found = pilot_for(self.spec, [*earlier(self.spec), *earlier(self.spec, noisy, draft_limit=8)])
        assert {(c.between, c.within) for c in found.of.values()} == {(SEEN.between, SEEN.within)}
        assert (found.guessed, found.basis) == (False, "from earlier jobs of the same arms and work on this host")

    def test_another_name_or_number_of_probes_is_the_same_question(self) -> None:
        more = [p.model_copy(update={"probes": 9}) for p in self.spec.points]
        found = pilot_for(self.spec.model_copy(update={"points": more}), earlier(self.spec, name="other"))
        assert found.basis.startswith("from earlier jobs of the same arms")

    @pytest.mark.parametrize("other", [{"draft_limit": 8}, {"mode": "mtp", "draft_model": None}])
    def test_else_other_arms_of_the_model_there(self, other: dict[str, Any]) -> None:
        found = pilot_for(self.spec, earlier(self.spec, **other))
        assert found.basis == "from other arms or work of this model on this host"
        assert {c.within for c in found.of.values()} == {SEEN.within}

    def test_another_engine_is_not_the_same_question(self) -> None:
        assert pilot_for(self.spec, earlier(self.spec, engine="vllm")).basis == "from other arms or work of this model on this host"

    def test_what_is_known_in_part_is_told_in_parts(self) -> None:
        found = pilot_for(self.spec, earlier(self.spec)[:1])
        assert found.basis == (
            "1 of 2 from earlier jobs of the same arms and work on this host; 1 of 2 from other arms or work of this model on this host"
        )

    def test_what_is_known_of_one_request_at_a_time_says_nothing_of_several(self) -> None:
        loaded = made.spec_of(DRAFT, points=[{"workload": "count", "concurrency": 4}], engine={"slots": 4})
        assert pilot_for(loaded, earlier(self.spec)).guessed

    def test_several_jobs_weigh_by_what_they_know(self) -> None:
        large = Variation(between=0.0, within=0.02**2, n_blocks=21, n_pairs=81)
        (point,) = (p for p in self.spec.points if p.workload == "count")
        only = self.spec.model_copy(update={"points": [point]})
        (c,) = pilot_for(only, [*earlier(only), *earlier(only, large)]).of.values()
        assert c.between == pytest.approx((4 * SEEN.between + 20 * 0) / 24)
        assert c.within == pytest.approx((15 * SEEN.within + 60 * large.within) / 75)


class TestExpected:
    def test_the_plan_as_typed(self) -> None:
        found = choice(told(spec := made.spec_of(DRAFT, blocks=5), earlier(spec)).as_typed)
        typed = job_minutes(
            spec,
            made.planned(spec),
            model_bytes=1,
            on_gpu=False,
            earlier=[TrialCost(m, START_S, TOKEN_S, REST_S) for m in ("off", "draft") for _ in range(8)],
        )
        assert (found.blocks, found.probes, found.low_minutes, found.high_minutes) == (5, 2, typed.low, typed.high)
        # t for 4 degrees · E[s ÷ σ] · σ ÷ √5
        half = 2.776 * 0.94 * math.sqrt(0.01**2 + 0.05**2 / 2) / math.sqrt(5)
        assert found.percent == pytest.approx(100 * math.expm1(half), rel=0.01)

    def test_two_blocks_have_no_width(self) -> None:
        found = told(made.spec_of(DRAFT, blocks=2)).as_typed
        assert found == Withheld(withheld="needs 3 blocks, has 2", reason_code="too_few_blocks")

    def test_without_a_time_the_plan_that_tells_the_margin_soonest(self) -> None:
        found = told(spec := made.spec_of(DRAFT), earlier(spec))
        best = choice(found.proposal)
        assert found.asked == "±3 %, the margin"
        assert best.percent <= 3
        assert choice(found.shorter).high_minutes < best.low_minutes
        assert choice(found.longer).percent < best.percent
        assert (best.blocks, best.probes) == (5, 5)

    def test_a_time_is_filled_and_not_overrun(self) -> None:
        found = told(spec := made.spec_of(DRAFT), earlier(spec), budget_s=3 * 3600)
        best = choice(found.proposal)
        assert (best.low_minutes + best.high_minutes) / 2 <= 180
        assert best.high_minutes > 150
        assert choice(found.shorter).high_minutes < best.high_minutes < choice(found.longer).high_minutes

    def test_a_time_too_short_says_what_three_blocks_take(self) -> None:
        found = told(spec := made.spec_of(DRAFT), earlier(spec), budget_s=60)
        assert isinstance(found.proposal, Withheld)
        assert found.proposal.withheld.startswith("3 blocks of 1 probe take ")

    def test_no_more_probes_than_a_workload_has_prompts_for(self) -> None:
        spec = made.spec_of(DRAFT, points=[{"workload": "count"}, {"workload": "count", "sampling": {"temperature": 1}}])
        assert most_probes(spec, {"count": made.workload(n=9)}) == 4
        best = choice(told(spec, earlier(spec), budget_s=86_400, n_items=9).proposal)
        assert best.probes is not None
        assert best.probes <= 4

    def test_requests_at_once_are_as_many_as_they_are(self) -> None:
        spec = made.spec_of(DRAFT, points=[{"workload": "count", "concurrency": 4}], engine={"slots": 4})
        best = choice(told(spec, earlier(spec), n_items=30).proposal)
        assert best.probes is None

    def test_a_margin_out_of_reach_gives_the_narrowest_plan_there_is(self) -> None:
        noisy = Variation(between=0.5, within=0.1, n_blocks=5, n_pairs=20)
        found = told(spec := made.spec_of(DRAFT), earlier(spec, noisy))
        assert found.asked == "as narrow as can be"
        assert choice(found.proposal).blocks == 100
        assert choice(found.proposal).percent > 3

    def test_the_noisiest_arm_and_point_decide(self) -> None:
        spec = made.spec_of(DRAFT, points=[{"workload": "count"}, {"workload": "code"}])
        noisy = Variation(between=0.05**2, within=0.0, n_blocks=5, n_pairs=20)
        quiet, loud = earlier(spec)
        one = choice(told(spec, [quiet, Earlier(loud.engine, loud.arm, loud.point, noisy)]).as_typed)
        both = choice(told(spec, [quiet, loud]).as_typed)
        assert one.percent > 1.3 * both.percent


def test_costs_are_those_of_the_estimate() -> None:
    """A block: two starts with what stands between, one warm-up of 128 tokens each; a probe: 128 tokens in each arm."""
    spec = made.spec_of(DRAFT, second_look="never")
    found = told(spec, earlier(spec), budget_s=4 * 3600)
    best = choice(found.proposal)
    assert best.probes is not None
    exact = best.blocks * 2 * (START_S + REST_S + 128 * TOKEN_S * (1 + best.probes)) / 60
    assert (best.low_minutes, best.high_minutes) == (pytest.approx(exact), pytest.approx(exact))


class TestByPoint:
    def test_each_point_has_its_own_width_and_the_widest_is_the_plan_s(self) -> None:
        spec = made.spec_of(DRAFT, blocks=5, points=[{"workload": "count"}, {"workload": "code", "probes": 8}])
        loose = Variation(between=0.1**2, within=0.05**2, n_blocks=5, n_pairs=20)
        pilot = [*earlier(spec)[:1], *earlier(spec, loose)[1:]]
        found = told(spec, pilot)
        count, code = (p.key for p in spec.points)
        for plan in (found.as_typed, found.proposal, found.longer):
            plan = choice(plan)
            assert plan.percent_at.keys() == {count, code}
            assert plan.percent_at[count] < plan.percent_at[code]
            assert max(plan.percent_at.values()) == pytest.approx(plan.percent)
        # t for 4 degrees · E[s ÷ σ] · σ ÷ √5, of 2 probes
        half = 2.776 * 0.94 * math.sqrt(0.01**2 + 0.05**2 / 2) / math.sqrt(5)
        assert choice(found.as_typed).percent_at[count] == pytest.approx(100 * math.expm1(half), rel=0.01)
        assert choice(found.longer).percent_at[code] < choice(found.proposal).percent_at[code]

    def test_more_probes_make_no_interval_of_several_at_once_narrower(self) -> None:
        spec = made.spec_of(DRAFT, points=[{"workload": "count"}, {"workload": "count", "concurrency": 4}], engine={"slots": 4})
        found = told(spec, budget_s=3600, n_items=200)
        plan, loaded = choice(found.proposal), spec.points[1].key
        (c,) = (c for (_, point), c in pilot_for(spec, []).of.items() if point == loaded)
        from speccore.sample_size import expected_half_width

        assert plan.percent_at[loaded] == pytest.approx(100 * math.expm1(expected_half_width([c], 1, plan.blocks)))
