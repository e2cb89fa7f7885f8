"""What trials ask after their timed part: which, and how much that is, before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from . import sampling_plan
from .protocol import JobPlan
from .spec import ExperimentSpec

Place = tuple[str, str]


@dataclass(frozen=True)
class Untimed:
    """Of one trial: (point, item) of what is asked once more, and how many short continuations are drawn."""

    looks: frozenset[Place] = frozenset()
    n_continuations: int = 0


def untimed(spec: ExperimentSpec, plan: JobPlan) -> dict[str, Untimed]:
    """By trial. Asked again is the baseline, where it is greedy and answers one request at a time, and each prompt once in a job."""
    points = {p.key for p in spec.points if p.sampling.temperature == 0 and p.one_by_one and spec.second_look == "once"}
    sizes = sampling_plan.sizes(spec, plan)
    seen: set[Place] = set()
    found = {}
    for trial in plan.trials:
        asked = {(p.point, p.item) for p in trial.probes if p.point in points} if trial.arm == spec.baseline.name else set()
        found[trial.id] = Untimed(frozenset(asked - seen), sizes.get(trial.id, 0))
        seen |= asked
    return found


def n_requests(spec: ExperimentSpec, plan: JobPlan) -> tuple[int, int]:
    """Of a whole job: requests asked once more, and short continuations."""
    every = untimed(spec, plan).values()
    return sum(len(u.looks) for u in every), sum(u.n_continuations for u in every)


def tokens(spec: ExperimentSpec, asked: Untimed) -> tuple[float, float]:
    """Tokens that these may bring: one after another, and as steps shared by those that run at once."""
    points = {p.key: p for p in spec.points}
    again = sum(points[key].max_tokens for key, _ in asked.looks)
    if spec.sampling_test is None:
        return again, again
    drawn = asked.n_continuations * (spec.sampling_test.positions + sampling_plan.BEYOND)
    # A prompt is read for each of these few tokens, which may take as long again.
    return again + 2 * drawn, again + drawn / spec.engine.slots
