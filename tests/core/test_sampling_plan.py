"""The sampling test inside an experiment: who draws how much under which seeds, and what the draws say together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from speccore import untimed
from speccore.errors import SpecError
from speccore.measurement import Withheld
from speccore.plan import plan_job
from speccore.quality import TrialAnswers
from speccore.quality_results import SamplingResult
from speccore.records import Continuation
from speccore.sampling_plan import draws, judged, measure, prompt, sizes
from speccore.spec import ExperimentSpec

from tests.core.made import planned, spec_of, workload

TEST = {"workload": "count", "continuations": 600, "positions": 2}
DRAFT = {"name": "draft-4", "mode": "draft", "draft_model": "d", "draft_limit": 4}
CONTROL = {"name": "again", "mode": "off", "control": True}


def spec(*arms: dict[str, Any], **more: Any) -> ExperimentSpec:
    return spec_of(*(arms or (DRAFT,)), blocks=3, sampling_test=TEST | more.pop("test", {}), **more)


def drawn(spec: ExperimentSpec, shares: dict[str, float], **odd: Sequence[Continuation]) -> list[TrialAnswers]:
    """What each trial drew: token 1 with the arm's share, else one of five others. ``odd``: draws of an arm as they are given."""
    plan = planned(spec)
    n = sizes(spec, plan)
    found = []
    for trial in plan.trials:
        continuations = []
        for seed in draws(spec, trial, n.get(trial.id, 0)):
            rng = random.Random(seed)
            ids = [1 if rng.random() < shares.get(trial.arm, 0.5) else rng.randrange(2, 7) for _ in range(2)]
            continuations.append(Continuation(item="i", seed=seed, ids=ids, drafted=None if spec.arm(trial.arm).mode == "off" else 2))
        continuations = list(odd.get(trial.arm.replace("-", "_"), continuations))
        found.append(TrialAnswers(trial.arm, trial.block, continuations=continuations))
    return found


class TestWhoDraws:
    def test_each_start_draws_its_share_and_the_baseline_its_control_too(self) -> None:
        assert sizes(spec(), planned(spec())) == {f"b{b}-{arm}": n for b in (1, 2, 3) for arm, n in (("off", 400), ("draft-4", 200))}

    def test_a_second_arm_of_mode_off_is_the_control(self) -> None:
        with_control = spec(CONTROL, DRAFT)
        assert set(sizes(with_control, planned(with_control)).values()) == {200}

    def test_of_an_arm_with_a_trial_for_each_point_the_first_one_draws(self) -> None:
        stateful = spec({"name": "m", "mode": "ngram-mod"}, points=[{"workload": "count"}, {"workload": "prose"}])
        found = sizes(stateful, planned(stateful))
        assert sum(n for trial, n in found.items() if "-m" in trial) == 600
        assert len([trial for trial in found if "-m" in trial]) == 3

    def test_no_seed_is_drawn_with_twice(self) -> None:
        both = spec(CONTROL, DRAFT, DRAFT | {"name": "draft-8", "draft_limit": 8})
        plan = planned(both)
        every = [seed for t in plan.trials for seed in draws(both, t, 2 * sizes(both, plan)[t.id])]
        assert len(set(every)) == len(every)
        assert all(0 <= seed < 2**31 for seed in every)

    def test_another_experiment_seed_draws_others(self) -> None:
        one, other = spec(seed=1), spec(seed=2)
        trial = planned(one).trials[0]
        assert draws(one, trial, 1) != draws(other, trial, 1)
        assert prompt(one, workload()).id in {i.id for i in workload().items}

    def test_preview_counts_what_is_asked_after_the_timed_part(self) -> None:
        both = spec(points=[{"workload": "count", "probes": 4}, {"workload": "count", "sampling": {"temperature": 0.5}}])
        assert untimed.n_requests(both, planned(both)) == (12, 1800)

    def test_a_prompt_that_comes_again_in_a_later_block_is_looked_at_once(self) -> None:
        few = spec_of(DRAFT, points=[{"workload": "count", "probes": 4}], blocks=5)
        plan = plan_job(few, {"count": workload(n=6)})
        assert sum(len(u.looks) for u in untimed.untimed(few, plan).values()) == 6
        never = few.model_copy(update={"second_look": "never"})
        assert untimed.n_requests(never, plan) == (0, 0)


class TestWhatIsRefused:
    def test_a_test_at_temperature_0(self) -> None:
        with pytest.raises(SpecError, match="nothing is drawn that could be tested"):
            planned(spec(test={"sampling": {"temperature": 0}}))

    def test_a_workload_that_is_not_there(self) -> None:
        with pytest.raises(SpecError, match="sampling test: no workload 'prose'") as refused:
            planned(spec(test={"workload": "prose"}))
        assert refused.value.body().details["field"] == "sampling_test.workload"

    def test_more_than_a_job_may_ask(self) -> None:
        with pytest.raises(SpecError, match="requests, more than the"):
            planned(spec(test={"continuations": 100_000}))

    def test_its_workload_is_named_by_the_plan(self) -> None:
        prose = workload("prose")
        plan = plan_job(spec(test={"workload": "prose"}), {"count": workload(), "prose": prose})
        assert plan.workloads == {"count": workload().content_hash(), "prose": prose.content_hash()}


class TestWhatDrawsSay:
    def test_one_distribution_accuses_nobody(self) -> None:
        found = judged(spec(), drawn(spec(), {}))
        assert isinstance(found, SamplingResult)
        assert (found.n_baseline, found.control.n, found.arms[0].n, found.arms[0].drafted) == (600, 600, 600, 1200)
        assert found.arms[0].outcome == "not accused"
        told = measure(found, "draft-4")
        assert told is not None
        assert told.state == "not shown"
        assert "in nine of ten such tests" in told.sentence

    def test_another_distribution_is_accused(self) -> None:
        found = judged(spec(), drawn(spec(), {"draft-4": 0.8}))
        assert isinstance(found, SamplingResult)
        assert found.arms[0].outcome == "accused"
        told = measure(found, "draft-4")
        assert told is not None
        assert told.state == "lost"
        assert told.sentence.startswith("draws its tokens from another distribution than the baseline")

    def test_nobody_is_accused_where_the_control_differs(self) -> None:
        both = spec(CONTROL, DRAFT)
        found = judged(both, drawn(both, {"again": 0.8, "draft-4": 0.8}))
        assert isinstance(found, SamplingResult)
        assert (found.control.outcome, found.arms[0].outcome) == ("control failed", "control failed")

    def test_an_arm_that_drafted_nothing_was_not_tested(self) -> None:
        silent = drawn(spec(), {})
        for trial in silent:
            trial.continuations = [c.model_copy(update={"drafted": 0 if c.drafted else None}) for c in trial.continuations]
        found = judged(spec(), silent)
        assert isinstance(found, SamplingResult)
        assert (found.arms[0].outcome, found.arms[0].words) == (
            "not tested",
            "nothing was drafted in 600 continuations, so nothing was tested",
        )

    @pytest.mark.parametrize(
        ("odd", "why"),
        [
            ([Continuation(item="i", seed=1, problem="HTTP 500")], "continuations of draft-4 failed, the first: HTTP 500"),
            ([], "draft-4 has 0 continuations, 100 are needed"),
        ],
    )
    def test_an_arm_whose_draws_failed_is_not_tested(self, odd: list[Continuation], why: str) -> None:
        found = judged(spec(), drawn(spec(), {}, draft_4=odd))
        assert isinstance(found, SamplingResult)
        assert found.arms[0].outcome == "not tested"
        assert why in found.arms[0].words

    @pytest.mark.parametrize(
        ("odd", "why"),
        [
            ([], "off has 0 continuations"),
            ([Continuation(item="i", seed=s, ids=[1], drafted=3) for s in range(400)], "the baseline drafted"),
            ([Continuation(item="i", seed=7, ids=[1]) for _ in range(400)], "needed"),
        ],
    )
    def test_without_a_baseline_nothing_is_said(self, odd: list[Continuation], why: str) -> None:
        found = judged(spec(), drawn(spec(), {}, off=odd))
        assert isinstance(found, Withheld)
        assert why in found.withheld

    def test_who_does_not_ask_hears_nothing(self) -> None:
        assert judged(spec_of(DRAFT), []) is None
        assert measure(None, "draft-4") is None
