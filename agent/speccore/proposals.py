"""What to propose before a job is run: how wide its intervals will be, and how many blocks of how many probes would serve better.

From what earlier jobs on the host varied by (a pilot), and from what starts and probes cost there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from . import throughput
from .estimate import Minutes
from .measurement import Variation, Withheld
from .pairs import BlockPairs
from .protocol import JobPlan, TrialPlan
from .sample_size import MOST_BLOCKS, Components, Costs, Proposal, Proposals, components, expected_half_width, propose
from .spec import Arm, ExperimentSpec, Point
from .stats import MIN_BLOCKS, too_few_blocks
from .workload import Workload

#: Taken where nothing was measured: standard deviations of ln(baseline ÷ arm) between starts, and of one prompt within a start.
GUESS_BETWEEN, GUESS_WITHIN = 0.02, 0.08
#: Without a time to fill, a plan is proposed that tells the margin, or this where the experiment's is smaller.
LEAST_MARGIN = 0.01
#: Rarely worth more in one start, and a form's preview is computed while somebody types.
MOST_PROBES = 60


def variation(blocks: Sequence[BlockPairs], point: Point) -> Variation | Withheld:
    """What the block values of a comparison varied by, in two parts where it has several prompts asked one at a time."""
    if is_one_at_a_time(point):
        found = components([[math.log(left / right) for left, right in b.seconds.values()] for b in blocks])
        if isinstance(found, Components):
            return Variation(between=found.between, within=found.within, n_blocks=found.n_blocks, n_pairs=found.n_pairs)
    values = list(throughput.block_values(blocks, point).values())
    if len(values) < MIN_BLOCKS:
        return Withheld(withheld=too_few_blocks(len(values)), reason_code="too_few_blocks")
    # Of one prompt in each start, or of a window: what a start adds can't be told from what its requests add.
    return Variation(between=statistics.variance(values), within=0.0, n_blocks=len(values), n_pairs=len(values))


def is_one_at_a_time(point: Point) -> bool:
    """Whether more probes of a point make more prompts of a block; else its window and its requests are given."""
    return point.concurrency == 1 and point.rate_per_s is None


@dataclass(frozen=True)
class Earlier:
    """What a finished comparison of the same target on the same host varied by."""

    engine: str
    arm: Arm
    point: Point
    found: Variation


@dataclass(frozen=True)
class Pilot:
    """What each arm is expected to vary by at each point, and in words what that rests on. ``guessed``: partly nothing."""

    of: Mapping[tuple[str, str], Components]  # by arm and point
    basis: str
    guessed: bool


def pilot_for(spec: ExperimentSpec, earlier: Sequence[Earlier]) -> Pilot:
    """The same arm at the same point with the same engine; else any arm at a point of the same kind; else a stated guess."""
    of: dict[tuple[str, str], Components] = {}
    same = like = 0
    asked: dict[tuple[str, str, str], list[Variation]] = {}
    kinds: dict[bool, list[Variation]] = {}
    for e in earlier:
        asked.setdefault(_question(e.engine, e.arm, e.point), []).append(e.found)
        kinds.setdefault(is_one_at_a_time(e.point), []).append(e.found)
    for arm in (a for a in spec.arms if not a.is_baseline):
        for point in spec.points:
            own = asked.get(_question(spec.runtime.engine, arm, point), [])
            kin = own or kinds.get(is_one_at_a_time(point), [])
            of[arm.name, point.key] = _pooled(kin)
            same, like = same + bool(own), like + bool(kin and not own)
    return Pilot(of, _basis(len(of), same, like, len(earlier)), guessed=same + like < len(of))


def _question(engine: str, arm: Arm, point: Point) -> tuple[str, str, str]:
    """What makes two comparisons of one target the same question: not the arm's name, nor how many probes it is asked with."""
    return engine, arm.model_dump_json(exclude={"name", "control"}), point.model_dump_json(exclude={"probes"})


def _pooled(found: Sequence[Variation]) -> Components:
    """Of several, each variance weighted by its degrees of freedom."""
    if not found:
        return Components(between=GUESS_BETWEEN**2, within=GUESS_WITHIN**2, n_blocks=0, n_pairs=0)
    n_blocks, n_pairs = sum(v.n_blocks for v in found), sum(v.n_pairs for v in found)
    apart = [v for v in found if v.n_pairs > v.n_blocks]  # those that could tell the two parts
    between = sum(v.between * (v.n_blocks - 1) for v in (apart or found)) / sum(v.n_blocks - 1 for v in (apart or found))
    within = sum(v.within * (v.n_pairs - v.n_blocks) for v in apart) / sum(v.n_pairs - v.n_blocks for v in apart) if apart else 0.0
    return Components(between=between, within=within, n_blocks=n_blocks, n_pairs=n_pairs)


def _basis(n: int, same: int, like: int, n_earlier: int) -> str:
    scatter = f"starts that differ by {100 * GUESS_BETWEEN:g} % and prompts by {100 * GUESS_WITHIN:g} %"
    if not n_earlier or not same + like:
        return f"a guess ({scatter}): nothing valid like it has been measured on this host yet"
    sources = {
        "from earlier jobs of the same arms and work on this host": same,
        "from other arms or work of this model on this host": like,
        f"a guess ({scatter})": n - same - like,
    }
    used = {words: k for words, k in sources.items() if k}
    return next(iter(used)) if len(used) == 1 else "; ".join(f"{k} of {n} {words}" for words, k in used.items())


@dataclass(frozen=True)
class PlanChoice:
    """So many blocks of so many probes in each start. ``probes`` None: as typed, since no point asks one request at a time, or
    they differ. ``percent``: of ± of the widest interval, as expected; ``percent_at``: that of each point's widest, by its key."""

    blocks: int
    probes: int | None
    low_minutes: float
    high_minutes: float
    percent: float
    percent_at: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """What a host would make of the plan, and of others. ``proposal`` has what was asked for, ``asked`` in words."""

    as_typed: PlanChoice | Withheld
    asked: str
    proposal: PlanChoice | Withheld
    shorter: PlanChoice | None
    longer: PlanChoice | None
    basis: str
    guessed: bool


#: How long a plan takes on a host.
Clock = Callable[[JobPlan], Minutes]


def expected(
    spec: ExperimentSpec, plan: JobPlan, workloads: Mapping[str, Workload], clock: Clock, pilot: Pilot, budget_s: float | None = None
) -> Expected:
    """What the plan is expected to tell, and three others: for the margin, or for ``budget_s`` seconds."""
    cost = _Cost.of(spec, plan, clock)
    widest = _widest(list(pilot.of.values()))
    most = most_probes(spec, workloads)
    asked = f"±{100 * _wanted(spec):.2g} %, the margin" if budget_s is None else "the time you have"
    found: Proposals | Withheld
    if budget_s is None:
        found = propose(widest, cost.costs(), half_width=math.log1p(_wanted(spec)), most_probes=most)
    else:
        found = propose(widest, cost.costs(), budget_s=max(0.0, budget_s - cost.once_s()), most_probes=most)
    proposal, shorter, longer = (found, None, None) if isinstance(found, Withheld) else (found.best, found.shorter, found.longer)
    if isinstance(found, Withheld) and budget_s is None:  # what the margin would take is more than is ever proposed
        asked = "as narrow as can be"
        proposal = _narrowest(widest, cost, most)
    same = spec.points[0].probes if any(map(is_one_at_a_time, spec.points)) else None
    return Expected(
        as_typed=_as_typed(spec, pilot, cost),
        asked=asked,
        proposal=proposal if isinstance(proposal, Withheld) else cost.choice(proposal, same, _at(spec, pilot, proposal)),
        shorter=cost.choice(shorter, same, _at(spec, pilot, shorter)) if shorter else None,
        longer=cost.choice(longer, same, _at(spec, pilot, longer)) if longer else None,
        basis=pilot.basis,
        guessed=pilot.guessed,
    )


def _at(spec: ExperimentSpec, pilot: Pilot, plan: Proposal) -> dict[str, float]:
    """What a plan is expected to tell at each point. Of a point that asks several at once a probe more is no prompt more of a block."""
    return {
        p.key: 100 * math.expm1(expected_half_width(of_point, plan.probes if is_one_at_a_time(p) else 1, plan.blocks))
        for p in spec.points
        if (of_point := [c for (_, point), c in pilot.of.items() if point == p.key])
    }


def _wanted(spec: ExperimentSpec) -> float:
    return max(spec.margin, LEAST_MARGIN)


def _narrowest(pilot: Sequence[Components], cost: _Cost, most: int) -> Proposal:
    return Proposal(most, MOST_BLOCKS, cost.costs().of(most, MOST_BLOCKS), expected_half_width(pilot, most, MOST_BLOCKS))


def _widest(pilot: Sequence[Components]) -> list[Components]:
    """Those that can be the widest at some number of probes: others vary less in both parts than one of them."""
    left: list[Components] = []
    for c in sorted(pilot, key=lambda c: (-c.between, -c.within)):
        if not left or c.within > left[-1].within:
            left.append(c)
    return left


def most_probes(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> int:
    """Probes of a point that its workload has prompts for, if all points that ask one at a time get as many."""
    most = MOST_PROBES
    for name in {p.workload for p in spec.points}:
        points = [p for p in spec.points if p.workload == name]
        free = [p for p in points if is_one_at_a_time(p)]
        taken = sum(p.n_requests for p in points if not is_one_at_a_time(p))
        if free and name in workloads:
            most = min(most, max(1, (len(workloads[name].items) - taken) // len(free)))
    return most


def _as_typed(spec: ExperimentSpec, pilot: Pilot, cost: _Cost) -> PlanChoice | Withheld:
    if spec.blocks < MIN_BLOCKS:
        return Withheld(withheld=too_few_blocks(spec.blocks), reason_code="too_few_blocks")
    probes = {p.key: p.probes if is_one_at_a_time(p) else 1 for p in spec.points}
    values = [Components(c.of_block_value(probes[point]), 0.0, c.n_blocks, c.n_pairs) for (_, point), c in pilot.of.items()]
    half = expected_half_width(values, 1, spec.blocks)
    widest: dict[str, float] = {}
    for (_, point), value in zip(pilot.of, values, strict=True):
        widest[point] = max(widest.get(point, 0.0), 100 * math.expm1(expected_half_width([value], 1, spec.blocks)))
    counts = {p.probes for p in spec.points if is_one_at_a_time(p)}
    return PlanChoice(
        spec.blocks,
        counts.pop() if len(counts) == 1 else None,
        cost.typed.low,
        cost.typed.high,
        100 * math.expm1(half),
        widest,
    )


@dataclass(frozen=True)
class _Cost:
    """Minutes as (low, high): what a block takes beside its probes, one more probe at each point that asks one at a time, and
    what is done once in a job."""

    typed: Minutes
    block: tuple[float, float]
    probe: tuple[float, float]
    once: tuple[float, float]

    @classmethod
    def of(cls, spec: ExperimentSpec, plan: JobPlan, clock: Clock) -> _Cost:
        """By taking things out of the plan and looking how much less it takes."""
        free = {p.key for p in spec.points if is_one_at_a_time(p)}
        first = [t for t in plan.trials if t.block == plan.trials[0].block]
        bare = [_with_probes(t, free, 0) for t in first]
        none, empty, one = (clock(plan.model_copy(update={"trials": ts})) for ts in ([], bare, [_with_probes(t, free, 1) for t in first]))
        return cls(
            typed=clock(plan),
            block=(empty.low - none.low, empty.high - none.high),
            probe=(one.low - empty.low, one.high - empty.high),
            once=(none.low, none.high),
        )

    def costs(self) -> Costs:
        """Seconds, in the middle of each range; a probe of what takes none costs a hair, so that none is added in vain."""
        return Costs(60 * _middle(self.block), max(60 * _middle(self.probe), 1e-3))

    def once_s(self) -> float:
        return 60 * _middle(self.once)

    def choice(self, p: Proposal, probes: int | None, at: Mapping[str, float]) -> PlanChoice:
        low, high = (p.blocks * (self.block[i] + p.probes * self.probe[i]) + self.once[i] for i in (0, 1))
        return PlanChoice(p.blocks, None if probes is None else p.probes, low, high, p.percent, at)


def _middle(span: tuple[float, float]) -> float:
    return (span[0] + span[1]) / 2


def _with_probes(trial: TrialPlan, points: set[str], n: int) -> TrialPlan:
    """The trial with so many probes of each of these points, and all of the others."""
    seen: dict[str, int] = {}
    kept = []
    for probe in trial.probes:
        seen[probe.point] = seen.get(probe.point, 0) + 1
        if probe.point not in points or seen[probe.point] <= n:
            kept.append(probe)
    return trial.model_copy(update={"probes": kept})
