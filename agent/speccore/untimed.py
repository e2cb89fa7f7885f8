"""What trials ask after their timed part: which, and how much that is, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from . import sampling_plan
from .protocol import JobPlan, TrialPlan
from .spec import ExperimentSpec, Point

Place = tuple[str, str]
#: Of requests that run at once so many in each trial are asked once more, one at a time: all of them would take longer than what
#: is timed, and an engine that mixes up what runs at once does so with most.
LOOKS_TOGETHER = 8


@dataclass(frozen=True)
class Untimed:
    """Of one trial: (point, item) of what is asked once more, and how many short continuations are drawn."""

    looks: frozenset[Place] = frozenset()
    n_continuations: int = 0


def untimed(spec: ExperimentSpec, plan: JobPlan) -> dict[str, Untimed]:
    """By trial. Asked again is the baseline, where it is greedy, and each prompt once in a job; of what runs at once a few."""
    points = {p.key: p for p in spec.points if p.sampling.temperature == 0 and spec.second_look == "once"}
    sizes = sampling_plan.sizes(spec, plan)
    seen: set[Place] = set()
    found = {}
    for trial in plan.trials:
        looks = _looks(points, trial, seen) if trial.arm == spec.baseline.name else frozenset()
        found[trial.id] = Untimed(looks, sizes.get(trial.id, 0))
        seen |= looks
    return found


def _looks(points: Mapping[str, Point], trial: TrialPlan, seen: Set[Place]) -> frozenset[Place]:
    by_point: dict[str, dict[Place, None]] = {}
    for probe in trial.probes:
        if probe.point in points and (probe.point, probe.item) not in seen:
            by_point.setdefault(probe.point, {})[probe.point, probe.item] = None
    most = {key: None if points[key].one_by_one else LOOKS_TOGETHER for key in by_point}
    return frozenset(place for key, places in by_point.items() for place in list(places)[: most[key]])


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
