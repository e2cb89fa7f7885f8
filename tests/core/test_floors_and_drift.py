"""The analysis of a job: a floor for each class of points, and arms held against each other on a host that drifts."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime

from speccore.compare import JobFacts, analyse_job
from speccore.measurement import ComparisonResult, JobAnalysis
from speccore.noise_floor import KnownFloor
from speccore.protocol import ProbePlan, TrialPlan

from tests.core import made

TWO = [{"name": f"draft-{n}", "mode": "draft", "draft_model": "d", "draft_limit": n} for n in (2, 8)]


def drifting(slope: float) -> Callable[[TrialPlan, ProbePlan], float]:
    """The host slows by so much (ln) from one place of a block to the next."""

    def noise(trial: TrialPlan, probe: ProbePlan) -> float:
        return made.wobble(trial, probe) * math.exp(slope * trial.position)

    return noise


def analysed(speeds: dict[str, float], slope: float, blocks: int = 6) -> dict[str, ComparisonResult]:
    spec = made.spec_of(*TWO, blocks=blocks, requirements={})
    plan = made.planned(spec)
    found = analyse_job(spec, plan, made.attempts(spec, plan, speeds, noise=drifting(slope)), [], JobFacts(noise_floor=0.0))
    return {c.arm: c for c in found.comparisons}


def test_a_shorter_limit_is_held_against_a_longer_one_at_equal_places() -> None:
    """Over unequal places the 6 % between the two drown in what the host lost on the way."""
    speeds = {"off": 1.0, "draft-2": 1.59, "draft-8": 1.5}
    for slope in (0.0, 0.04):
        verdict = analysed(speeds, slope)["draft-8"].verdict
        assert (verdict.word, verdict.reason) == ("shorten", "shorter limit is better"), (slope, verdict)


def test_drift_makes_no_limit_look_better_than_another() -> None:
    found = analysed({"off": 1.0, "draft-2": 1.5, "draft-8": 1.5}, 0.04)
    assert [c.verdict.word for c in found.values()] == ["keep", "keep"]


def test_on_a_drifting_host_an_arm_that_is_surely_slower_is_no_tie() -> None:
    """Its limit is the shorter one, which would win a tie."""
    found = analysed({"off": 1.0, "draft-2": 1.5, "draft-8": 1.59}, 0.04)
    assert {arm for arm, c in found.items() if c.recommended} == {"draft-8"}


def with_floors(**floors: KnownFloor) -> JobAnalysis:
    points = [{"workload": "count"}, {"workload": "count", "concurrency": 2}]
    spec = made.spec_of(points=points, blocks=3, engine={"slots": 2})
    plan = made.planned(spec)
    known = {"c1/ctx0": floors.get("alone"), "c2/ctx0": floors.get("together")}
    facts = JobFacts(floors={c: f for c, f in known.items() if f})
    return analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "draft-4": 1.06}, noise=made.wobble), [], facts)


def test_each_point_is_judged_by_the_floor_of_its_class() -> None:
    until = datetime(2026, 12, 24, tzinfo=UTC)
    wide = KnownFloor(floor=0.2, n_blocks=3, n_contrasts=12, valid_until=until, jobs=["j"] * 12)
    found = with_floors(alone=wide, together=KnownFloor(why="needs 10 A/A contrasts, has 3", n_blocks=3))
    alone, together = found.comparisons
    assert (alone.noise_floor, alone.verdict.reason, together.noise_floor) == (0.2, "floor-limited", None)
    check = next(c for c in found.checks if c.name == "A/A known")
    assert (check.kind, check.state) == ("soft", "failed")
    assert check.sentence == (
        "this host's noise floor is 20.0 % at c1/ctx0 (12 contrasts of the baseline with itself, valid until 2026-12-24); "
        "is unknown at c2/ctx0 (needs 10 A/A contrasts, has 3): where unknown it is taken as 0; "
        "each run of the preset noise-floor with 3 blocks on this host adds a contrast"
    )
    narrow = with_floors(alone=KnownFloor(floor=0.0, n_blocks=3, n_contrasts=10), together=wide)
    assert narrow.comparisons[0].verdict.word == "keep"
    assert next(c for c in narrow.checks if c.name == "A/A known").state == "passed"
