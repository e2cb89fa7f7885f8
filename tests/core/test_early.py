"""Early looks at whole jobs: who is decided when, what is left out for it, and what the comparison says of it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from speccore import early
from speccore.cautions import cautions
from speccore.compare import JobFacts, analyse_job
from speccore.errors import EngineExitedAtStart
from speccore.measurement import AttemptMeasurement, ComparisonResult, Interval
from speccore.plan import TrialOutcome, next_trials, not_needed
from speccore.protocol import JobPlan, ProbePlan, TrialPlan
from speccore.sequential import looks
from speccore.spec import ExperimentSpec
from speccore.stats import ratio_interval

from tests.core.made import attempts, number, planned, spec_of, wobble, workload

TWO_POINTS = [{"workload": "count", "probes": 2}, {"workload": "prose", "probes": 2}]


def draft(limit: int, **more: Any) -> dict[str, Any]:
    return {"name": f"draft-{limit}", "mode": "draft", "draft_model": "d", "draft_limit": limit} | more


def sequential(*arms: dict[str, Any], blocks: int = 10, **more: Any) -> tuple[ExperimentSpec, JobPlan]:
    spec = spec_of(*(arms or (draft(4),)), blocks=blocks, sequential=True, **({"points": TWO_POINTS[:1]} | more))
    return spec, planned(spec, **{w: workload(w, n=80) for w in ("count", "prose")})


def basis(spec: ExperimentSpec, plan: JobPlan, **more: Any) -> early.Basis:
    return early.Basis(spec, plan, **more)


def up_to(block: int, measured: list[AttemptMeasurement]) -> list[AttemptMeasurement]:
    return [m for m in measured if m.block <= block]


def done(measured: list[AttemptMeasurement]) -> list[TrialOutcome]:
    return [TrialOutcome(trial=m.trial) for m in measured]


def steady(trial: TrialPlan, p: ProbePlan) -> float:
    """Blocks that differ by 4 % in turns: twice as fast is plain after five of them, and not after three."""
    return 1.0 if trial.arm == "off" else 1.04 if trial.block % 2 else 1 / 1.04


def shaky(trial: TrialPlan, p: ProbePlan) -> float:
    """Blocks that differ by 20 % in turns, so that nothing is decided."""
    return 1.0 if trial.arm == "off" else 1.2 if trial.block % 2 else 1 / 1.2


def arms_left(spec: ExperimentSpec, plan: JobPlan, outcomes: list[TrialOutcome], decided: dict[str, int]) -> dict[int, set[str]]:
    left: dict[int, set[str]] = {}
    for trial, _ in next_trials(spec, plan, outcomes, decided):
        left.setdefault(trial.block, set()).add(trial.arm)
    return left


# --- what a look sees ---


def test_a_plain_arm_is_decided_at_the_second_look_and_one_that_wavers_goes_on() -> None:
    spec, plan = sequential(draft(4), draft(8))
    measured = attempts(
        spec, plan, {"off": 1.0, "draft-4": 2.0, "draft-8": 1.0}, noise=lambda t, p: (shaky if t.arm == "draft-8" else steady)(t, p)
    )
    assert early.look(basis(spec, plan), up_to(4, measured)).decided == {}
    found = early.look(basis(spec, plan), up_to(5, measured))
    assert found.decided == {"draft-4": 5}
    assert found.points["draft-4"]["count/c1/ctx0/t0"].decision.word == "keep"
    assert found.points["draft-8"]["count/c1/ctx0/t0"].decision.next_look == 7


def test_what_came_later_takes_no_decision_back() -> None:
    spec, plan = sequential()
    measured = attempts(
        spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=lambda t, p: 5.0 if t.block > 5 and t.arm != "off" else steady(t, p)
    )
    assert early.look(basis(spec, plan), measured).decided == {"draft-4": 5}


def test_a_look_that_was_taken_is_not_taken_again_when_answers_are_compared_at_another_length() -> None:
    """The arm begins sooner and decodes as fast: a gain of 3 % at 200 tokens, of 65 % at 10, which two later blocks make the median."""
    spec, plan = sequential()

    def change(t: TrialPlan, p: ProbePlan) -> dict[str, Any]:
        n = number(200 if t.block in (2, 3) else 10)
        return {"completion_tokens": n, "server_tokens": n} if t.arm == "off" else {"ttft_any_s": number(0.02)}

    plan = planned(spec, count=workload(n=2))
    measured = attempts(spec, plan, {"off": 1.0, "draft-4": 1.0}, noise=wobble, change=change)
    point = spec.points[0].key
    third = early.look(basis(spec, plan), up_to(3, measured)).points["draft-4"][point]
    assert (third.decision.word, third.decision.look) == (None, 1)
    fifth = early.look(basis(spec, plan), up_to(5, measured)).points["draft-4"][point]
    assert (fifth.decision.word, fifth.decision.look, fifth.decision.n_blocks) == ("keep", 2, 5)


def test_an_arm_leaves_only_when_every_point_of_it_is_decided() -> None:
    spec, plan = sequential(points=TWO_POINTS)

    def noise(trial: TrialPlan, p: ProbePlan) -> float:
        return shaky(trial, p) if p.point.startswith("prose") and trial.block < 7 else steady(trial, p)

    measured = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=noise)
    at_five = early.look(basis(spec, plan), up_to(5, measured))
    assert {key.split("/")[0]: seen.decision.word for key, seen in at_five.points["draft-4"].items()} == {"count": "keep", "prose": None}
    assert at_five.decided == {}
    at_seven = early.look(basis(spec, plan), up_to(7, measured))
    assert at_seven.decided == {"draft-4": 7}
    assert at_seven.points["draft-4"]["count/c1/ctx0/t0"].decision.look == 2


def test_looks_count_block_values_and_not_blocks() -> None:
    """Block 2 has no value, since the arm's answers failed there: five values are there after block 6."""
    spec, plan = sequential()
    measured = attempts(
        spec,
        plan,
        {"off": 1.0, "draft-4": 2.0},
        noise=steady,
        change=lambda t, p: {"ok": False} if t.block == 2 and t.arm != "off" else {},
    )
    assert early.look(basis(spec, plan), up_to(5, measured)).decided == {}
    assert early.look(basis(spec, plan), up_to(6, measured)).decided == {"draft-4": 6}
    seen = early.look(basis(spec, plan), up_to(6, measured)).points["draft-4"]["count/c1/ctx0/t0"]
    assert sorted(seen.values) == [1, 3, 4, 5, 6]


def test_a_noise_floor_above_the_gain_decides_nothing() -> None:
    spec, plan = sequential()
    measured = attempts(spec, plan, {"off": 1.0, "draft-4": 1.2}, noise=steady)
    assert early.look(basis(spec, plan), up_to(5, measured)).decided == {"draft-4": 5}
    assert early.look(basis(spec, plan, floor_at=lambda point: 0.3), up_to(5, measured)).decided == {}


# --- what is left out ---


def test_a_decided_arm_leaves_later_blocks_and_the_baseline_goes_with_the_last() -> None:
    spec, plan = sequential(draft(4), draft(8), {"name": "again", "mode": "off", "control": True}, blocks=7)
    outcomes = [TrialOutcome(trial=t.id) for t in plan.trials if t.block <= 5]
    assert arms_left(spec, plan, outcomes, {}) == {b: {"off", "again", "draft-4", "draft-8"} for b in (6, 7)}
    assert arms_left(spec, plan, outcomes, {"draft-4": 5}) == {b: {"off", "again", "draft-8"} for b in (6, 7)}
    assert arms_left(spec, plan, outcomes, {"draft-4": 3, "draft-8": 5}) == {}
    assert set(not_needed(spec, plan, outcomes, {"draft-4": 3, "draft-8": 5}).values()) == {3, 5}
    assert len(not_needed(spec, plan, outcomes, {"draft-4": 5})) == 2


def test_what_ran_before_the_word_came_is_not_run_again_and_the_rest_of_its_block_is_left_out() -> None:
    spec, plan = sequential(blocks=7)
    six = [t for t in plan.trials if t.block == 6]
    outcomes = [TrialOutcome(trial=t.id) for t in plan.trials if t.block <= 5] + [TrialOutcome(trial=six[0].id)]
    assert next_trials(spec, plan, outcomes, {"draft-4": 5}) == []
    assert six[0].id not in not_needed(spec, plan, outcomes, {"draft-4": 5})


def test_with_the_other_arm_given_up_the_baseline_goes_with_the_decided_one() -> None:
    spec, plan = sequential(draft(4), draft(8), blocks=7)
    error = EngineExitedAtStart("no such model").body()
    outcomes = [TrialOutcome(trial=t.id, error=error if t.arm == "draft-8" and t.block <= 2 else None) for t in plan.trials if t.block <= 5]
    assert arms_left(spec, plan, outcomes, {"draft-4": 5}) == {}
    assert arms_left(spec, plan, outcomes, {}) == {b: {"off", "draft-4"} for b in (6, 7)}


def test_a_look_is_due_where_an_arm_that_goes_on_comes_to_the_blocks_of_one() -> None:
    spec, plan = sequential(draft(4), draft(8))
    lost = EngineExitedAtStart("no").body()

    def due(block: int, decided: dict[str, int] | None = None, lacks: str = "") -> bool:
        outcomes = [TrialOutcome(trial=t.id, error=lost if t.id == lacks else None) for t in plan.trials if t.block <= block]
        return early.is_due(spec, plan, outcomes, decided or {}, block)

    assert [b for b in range(1, 11) if due(b)] == [3, 5, 7, 10]
    assert not due(5, {"draft-4": 3, "draft-8": 3})
    assert due(6, {"draft-4": 3}, lacks="b2-draft-8")
    assert not due(5, {"draft-4": 3}, lacks="b2-draft-8")
    assert not early.is_due(spec_of(draft(4), blocks=10), plan, [TrialOutcome(trial=t.id) for t in plan.trials], {}, 3)


def test_only_whole_blocks_are_looked_at_and_a_decision_makes_blocks_whole() -> None:
    spec, plan = sequential(draft(4), draft(8))
    measured = attempts(
        spec, plan, {"off": 1.0, "draft-4": 2.0, "draft-8": 1.0}, noise=lambda t, p: (shaky if t.arm == "draft-8" else steady)(t, p)
    )
    begun = [m for m in measured if m.block <= 5 and (m.block < 5 or m.arm != "off")]
    assert early.look_so_far(basis(spec, plan), done(begun), begun).after_block == 4
    ran = [m for m in measured if m.block <= 5 or (m.block <= 7 and m.arm != "draft-4")]
    found = early.look_so_far(basis(spec, plan), done(ran), ran)
    assert (found.after_block, found.decided) == (7, {"draft-4": 5})
    assert early.look_so_far(basis(spec, plan), done(ran), ran, at_most=4).decided == {}


def test_places_in_a_block_close_up_behind_an_arm_that_left() -> None:
    """Drift is told by places: who left takes none, so the arm behind it is nearer to the baseline."""
    spec, plan = sequential(draft(4), draft(8), blocks=7)
    measured = attempts(spec, plan, {"off": 1.0, "draft-4": 2.0, "draft-8": 1.1}, noise=steady)
    ran = [m for m in measured if m.block <= 5 or m.arm != "draft-4"]
    seen = early.look(basis(spec, plan), ran).points["draft-8"]["count/c1/ctx0/t0"]
    assert all(abs(seen.differences[b]) == 1 for b in (6, 7) if b in seen.differences)
    assert {abs(d) for d in seen.differences.values()} <= {1, 2}
    wide = [m for m in measured if m.arm != "draft-4" or m.block <= 7]
    assert 2 in {abs(d) for d in early.look(basis(spec, plan), wide).points["draft-8"]["count/c1/ctx0/t0"].differences.values()}


# --- what the comparison says ---


def only(spec: ExperimentSpec, plan: JobPlan, measured: list[AttemptMeasurement], decided: dict[str, int]) -> tuple[ComparisonResult, Any]:
    analysis = analyse_job(spec, plan, measured, [], JobFacts(hashes_verified=True, n_hashes=1, decided=decided))
    check = next(c for c in analysis.checks if c.name == early.NAME)
    return next(c for c in analysis.comparisons if c.arm == "draft-4"), check


def test_the_looks_interval_decides_and_says_so() -> None:
    spec, plan = sequential()
    measured = up_to(5, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=steady))
    c, check = only(spec, plan, measured, {"draft-4": 5})
    level = looks((3, 5, 7, 10))[1].confidence
    by_hand = ratio_interval(list(c.block_values.values()), level)
    assert isinstance(c.speedup, Interval)
    assert isinstance(by_hand, Interval)
    assert (c.speedup.low, c.speedup.high) == (pytest.approx(by_hand.low), pytest.approx(by_hand.high))
    assert c.speedup.method == "t over blocks, at look 2 of 4 (99.80 % confidence)"
    assert c.look is not None
    assert (c.look.number, c.look.n_blocks, c.look.n_planned, c.look.decided) == (2, 5, 10, True)
    assert c.look.confidence == pytest.approx(level)
    assert (c.verdict.word, c.verdict.reason) == ("keep", "faster")
    assert "; decided early, at look 2 of 4 after 5 of 10 blocks (99.80 % interval); what is decided early" in c.verdict.sentence
    assert (check.state, check.sentence) == ("passed", "decided by the numbers so far, and not started again: draft-4 after block 5")


def test_a_point_that_was_decided_before_its_arm_left_keeps_that_looks_numbers() -> None:
    spec, plan = sequential()
    measured = attempts(
        spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=lambda t, p: 1.3 if t.block > 5 and t.arm != "off" else steady(t, p)
    )
    c, _ = only(spec, plan, up_to(7, measured), {})
    assert isinstance(c.speedup, Interval)
    assert c.speedup.n_blocks == 5
    assert c.speedup.estimate == pytest.approx(2.0, rel=0.03)
    assert isinstance(c.total_time, Interval)
    assert c.total_time.n_blocks == 5
    assert sorted(c.block_values) == list(range(1, 8))


def test_the_last_look_is_no_early_one_and_an_undecided_one_says_that_it_is() -> None:
    spec, plan = sequential(blocks=3)
    c, check = only(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=wobble), {})
    assert c.verdict.sentence.endswith("; decided at the last of 1 looks (96.0 % interval)")
    assert check.sentence == "no arm was decided before the last block"
    spec, plan = sequential()
    c, _ = only(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 1.0}, noise=shaky), {})
    assert c.verdict.reason == "noise-limited"
    assert c.verdict.sentence.endswith("; not decided by look 4 of 4, after 10 of 10 blocks (96.3 % interval)")


def test_a_run_that_left_an_arm_out_before_its_numbers_decide_is_told() -> None:
    spec, plan = sequential()
    measured = up_to(5, attempts(spec, plan, {"off": 1.0, "draft-4": 1.08}, noise=shaky))
    c, check = only(spec, plan, measured, {"draft-4": 5})
    assert (check.kind, check.state) == ("soft", "failed")
    assert check.sentence.startswith("draft-4 left after block 5, and its numbers do not decide it there")
    assert c.look is not None
    assert c.look.confidence > 0.99  # no last look before its time: its interval would not hold
    cancelled, passed = only(spec, plan, measured, {})
    assert passed.state == "passed"
    assert cancelled.look is not None
    assert cancelled.look.confidence < 0.97


def test_without_early_looks_nothing_of_this_is_said() -> None:
    spec = spec_of(draft(4), blocks=5, points=TWO_POINTS[:1])
    plan = planned(spec, count=workload(n=80))
    analysis = analyse_job(spec, plan, attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=steady), [], JobFacts())
    (c,) = analysis.comparisons
    assert isinstance(c.speedup, Interval)
    assert (c.look, c.speedup.method) == (None, "t over blocks")
    assert "look" not in c.verdict.sentence
    assert early.NAME not in {check.name for check in analysis.checks}


def test_arms_are_compared_with_each_other_at_the_confidence_of_a_look() -> None:
    assert early.confidence_after(6, 10) == pytest.approx(looks((3, 5, 7, 10))[1].confidence)
    assert early.confidence_after(10, 10) == pytest.approx(looks((3, 5, 7, 10))[3].confidence)
    assert early.confidence_after(2, 10) == pytest.approx(0.95)
    assert math.isclose(early.confidence_after(2, 2), 0.95)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"blocks": 3}, ["with 3 of the blocks nothing can end early: the first look is after block 3"]),
        ({"blocks": 10}, []),
        ({"blocks": 3, "sequential": False}, []),
        ({"requirements": {"quality": "held"}}, ["time alone decides when an arm ends"]),
        ({"sampling_test": {"workload": "count"}}, ["an arm that ends early draws fewer continuations"]),
        ({"arms": [{"name": "again", "mode": "off", "control": True}]}, ["nothing ends early without an arm that has speculation"]),
        ({"arms": [draft(4), {"name": "again", "mode": "off", "control": True}]}, ["the control ends with the last arm that is decided"]),
    ],
)
def test_what_to_think_of_before(more: dict[str, Any], said: list[str]) -> None:
    arms = more.pop("arms", [draft(4)])
    spec = spec_of(*arms, **({"blocks": 10, "sequential": True} | more))
    found = [c.message for c in cautions(spec, {}) if c.field == "sequential"]
    assert [words[: len(start)] for words, start in zip(found, said, strict=True)] == said


def test_the_looks_of_a_plan_in_words() -> None:
    assert [early.schedule_in_words(spec_of(blocks=n, sequential=True)) for n in (2, 3, 4, 10)] == [
        "",
        "after block 3",
        "after blocks 3 and 4",
        "after blocks 3, 5, 7 and 10",
    ]
    assert early.schedule_in_words(spec_of(blocks=10)) == ""
