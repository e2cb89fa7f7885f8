"""Early looks at a job: which arms its evidence decides, after which block, from the block values that its comparison uses.

A look after a block sees that block and those before it, nothing later, so that whoever holds the evidence comes to the same
looks again: the agent on its own machine, the service while the job runs, and the comparison at its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from . import throughput
from .measurement import AttemptMeasurement, Check, Interval, LookTaken, Verdict, Withheld
from .pairs import Results, pair_blocks, reference_lengths
from .plan import TrialOutcome, give_up, last_blocks, next_trials
from .protocol import JobPlan
from .sequential import Decision, decide, looks, percent_of, schedule
from .spec import BASELINE_MODE, Arm, ExperimentSpec, Point
from .stats import CONFIDENCE, MIN_BLOCKS
from .workload import Workload

NAME = "early looks"
#: Verdicts that rest on the interval of a look.
BY_TIME = {
    ("keep", "faster"),
    ("disable", "slower"),
    ("disable", "not worth it"),
    ("inconclusive", "noise-limited"),
    ("inconclusive", "floor-limited"),
    ("inconclusive", "prompts disagree"),
}


@dataclass(frozen=True)
class Seen:
    """An arm at a point, as its last look saw it. ``values`` and ``differences`` are by block, those that the look rests on."""

    decision: Decision
    values: Mapping[int, float]
    differences: Mapping[int, int]
    n_planned: int

    @property
    def confidence(self) -> float:
        return self.decision.confidence

    @property
    def word(self) -> LookTaken:
        d = self.decision
        return LookTaken(
            number=d.look,
            n_looks=d.n_looks,
            n_blocks=d.n_blocks,
            n_planned=self.n_planned,
            confidence=d.confidence,
            decided=d.word is not None,
        )


@dataclass(frozen=True)
class Looks:
    """``points``: arm → point → what was seen. ``decided``: arm → the block after which its last open point was decided."""

    points: Mapping[str, Mapping[str, Seen]] = field(default_factory=dict)
    decided: Mapping[str, int] = field(default_factory=dict)
    after_block: int = 0

    def taken(self, arm: str, point: str) -> Seen | None:
        """None where there was no look, also for want of blocks."""
        seen = self.points.get(arm, {}).get(point)
        return seen if seen and seen.decision.look else None


@dataclass(frozen=True)
class Basis:
    """What looks rest on beside the attempts. ``floor_at`` gives a point's noise floor (a ratio minus 1), None where unknown."""

    spec: ExperimentSpec
    plan: JobPlan
    workloads: Mapping[str, Workload] = field(default_factory=dict)
    floor_at: Callable[[Point], float | None] = lambda point: None
    run_again: Collection[str] = ()  # trials whose counted attempt was a later one


def look(basis: Basis, attempts: Sequence[AttemptMeasurement], *, ended: bool = False, left_out: Collection[str] = ()) -> Looks:
    """All looks up to the last block of ``attempts``, which are those that count. ``ended``: no block will follow.

    An arm is decided when every point of it is; a point that was decided stays so, whatever comes after it. Arms that were
    ``left_out`` for their numbers have no last look before its time: its interval would not hold.
    """
    spec = basis.spec
    if not attempts or spec.blocks < MIN_BLOCKS:
        return Looks()
    arms = [a for a in spec.arms if not a.is_baseline and not a.control]
    found: dict[str, dict[str, Seen]] = {a.name: {} for a in arms}
    decided: dict[str, int] = {}
    until = max(a.block for a in attempts)
    for block in range(1, until + 1):
        last = ended and block == until
        results = Results(basis.plan, [a for a in attempts if a.block <= block], basis.run_again, last_blocks(spec, decided))
        for arm, point in _open(spec, arms, found):
            ends = last and arm.name not in left_out
            if ends or _may_be_due(results, spec, arm, point, found[arm.name].get(point.key)):
                found[arm.name][point.key] = _seen(basis, results, arm, point, found[arm.name].get(point.key), ended=ends)
        for arm in arms:
            if arm.name not in decided and all(_is_decided(found[arm.name].get(p.key)) for p in spec.points):
                decided[arm.name] = block
    return Looks(found, decided, until)


def look_so_far(
    basis: Basis, outcomes: Sequence[TrialOutcome], attempts: Sequence[AttemptMeasurement], at_most: int | None = None
) -> Looks:
    """The looks after the blocks that are whole, one after the other from the first; ``at_most`` so many blocks."""
    found = Looks()
    while True:
        until = whole_until(basis.spec, basis.plan, outcomes, found.decided)
        until = until if at_most is None else min(until, at_most)
        again = look(basis, [a for a in attempts if a.block <= until])
        if again.decided == found.decided:
            return Looks(again.points, again.decided, until)
        found = again


def whole_until(spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome], decided: Mapping[str, int]) -> int:
    """The last block that was begun such that no trial up to it is still to run."""
    if give_up(spec, plan, outcomes).job is not None:
        return 0
    ran = {o.trial for o in outcomes}
    begun = max((t.block for t in plan.trials if t.id in ran), default=0)
    left = next_trials(spec, plan, outcomes, decided)
    return min(begun, left[0][0].block - 1) if left else begun


def is_due(spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome], decided: Mapping[str, int], block: int) -> bool:
    """Whether a look follows upon ``block``, as far as outcomes tell: at a point of an arm that goes on it is the block of a look."""
    if not spec.sequential or spec.blocks < MIN_BLOCKS:
        return False
    good = {o.trial for o in outcomes if o.error is None}
    ran: dict[tuple[str, str], set[int]] = {}
    for trial in plan.trials:
        if trial.id in good and trial.block <= block:
            for key in trial.points:
                ran.setdefault((trial.arm, key), set()).add(trial.block)
    due = schedule(spec.blocks)
    for arm in spec.arms:
        if arm.is_baseline or arm.control or arm.name in decided:
            continue
        for point in spec.points:
            both = ran.get((arm.name, point.key), set()) & ran.get((spec.baseline.name, point.key), set())
            if block in both and len(both) in due:
                return True
    return False


def _open(spec: ExperimentSpec, arms: Sequence[Arm], found: Mapping[str, Mapping[str, Seen]]) -> Iterator[tuple[Arm, Point]]:
    for point in spec.points:
        for arm in arms:
            if not _is_decided(found[arm.name].get(point.key)):
                yield arm, point


def _is_decided(seen: Seen | None) -> bool:
    return seen is not None and seen.decision.word is not None


def _may_be_due(results: Results, spec: ExperimentSpec, arm: Arm, point: Point, before: Seen | None) -> bool:
    """Cheap: no look lies between the values of the last one and the blocks that both arms have by now."""
    both = results.by_block(arm.name, point.key).keys() & results.by_block(spec.baseline.name, point.key).keys()
    taken = before.decision.n_blocks if before else 0
    return any(taken < n <= len(both) for n in schedule(spec.blocks))


def _seen(basis: Basis, results: Results, arm: Arm, point: Point, before: Seen | None, *, ended: bool) -> Seen:
    spec, taken = basis.spec, before.decision.n_blocks if before else 0
    baseline = spec.baseline.name
    items = sorted({p.item for t in results.trials.values() for p in t.probes if p.point == point.key})
    lengths = reference_lengths(point.key, items, results.by_block(baseline, point.key).values(), basis.workloads.get(point.workload))
    blocks = pair_blocks(results, point.key, baseline, arm.name, lengths)
    values = throughput.block_values(blocks, point)
    differences = {b.block: b.position_difference for b in blocks if b.block in values}
    floor = basis.floor_at(point)
    decision = decide(list(values.values()), list(differences.values()), spec.margin, floor, spec.blocks, ended=ended, taken=taken)
    used = list(values)[: decision.n_blocks] if decision.look else list(values)
    return Seen(decision, {b: values[b] for b in used}, {b: differences[b] for b in used}, spec.blocks)


def confidence_after(n_values: int, n_planned: int) -> float:
    """Of an interval over so many values that any look may have ended: the confidence of the last look up to there."""
    if n_planned < MIN_BLOCKS:
        return CONFIDENCE
    taken = [each for each in looks(schedule(n_planned)) if each.n_blocks <= n_values]
    return taken[-1].confidence if taken else CONFIDENCE


def named(interval: Interval | Withheld, seen: Seen | None) -> Interval | Withheld:
    """The interval with the look it comes from in its method."""
    if seen is None or not isinstance(interval, Interval):
        return interval
    at = f"{interval.method}, at look {seen.decision.look} of {seen.decision.n_looks} ({percent_of(seen.confidence)} confidence)"
    return interval.model_copy(update={"method": at})


def told(verdict: Verdict, taken: LookTaken | None) -> Verdict:
    """A verdict on time says at which look it was reached."""
    if taken is None or (verdict.word, verdict.reason) not in BY_TIME:
        return verdict
    return verdict.model_copy(update={"sentence": f"{verdict.sentence}; {in_words(taken)}"})


def cautions(spec: ExperimentSpec) -> Iterator[str]:
    """What to think of before an experiment that stops early."""
    if not spec.sequential:
        return
    if spec.blocks <= MIN_BLOCKS:
        yield f"with {spec.blocks} of the blocks nothing can end early: the first look is after block {MIN_BLOCKS}"
    if not any(not a.is_baseline and not a.control for a in spec.arms):
        yield "nothing ends early without an arm that has speculation"
    if spec.sampling_test:
        yield "an arm that ends early draws fewer continuations for the sampling test, which then finds less"
    if spec.requirements.quality == "held":
        yield "time alone decides when an arm ends: with fewer blocks it has fewer prompts to show that its quality is held"
    if any(a.is_repeat for a in spec.arms) and any(a.mode != BASELINE_MODE for a in spec.arms):
        yield "the control ends with the last arm that is decided, and a contrast of fewer blocks adds nothing to the floor of more"


def schedule_in_words(spec: ExperimentSpec) -> str:
    """``after blocks 3, 5, 7 and 10``; '' where nothing ends early."""
    if not spec.sequential or spec.blocks < MIN_BLOCKS:
        return ""
    *first, last = map(str, schedule(spec.blocks))
    return f"after blocks {', '.join(first)} and {last}" if first else f"after block {last}"


def in_words(taken: LookTaken) -> str:
    """What a verdict says of the look that it rests on."""
    level = percent_of(taken.confidence)
    where = f"look {taken.number} of {taken.n_looks}"
    if not taken.decided:
        return f"not decided by {where}, after {taken.n_blocks} of {taken.n_planned} blocks ({level} interval)"
    if taken.n_blocks < taken.n_planned:
        return (
            f"decided early, at {where} after {taken.n_blocks} of {taken.n_planned} blocks ({level} interval); "
            "what is decided early is overstated on average, little where the interval is narrow"
        )
    return f"decided at the last of {taken.n_looks} looks ({level} interval)"


def check(basis: Basis, attempts: Sequence[AttemptMeasurement], left_out: Mapping[str, int]) -> Check:
    """Whether the evidence decides what was left out because it was decided. ``left_out``: arm → the block after which it left.

    No noise floor is asked: one that was lower when a look was taken decided what a higher one would not.
    """
    found = look(replace(basis, floor_at=lambda point: None), attempts)
    n_planned = basis.spec.blocks
    early = {arm: block for arm, block in left_out.items() if found.decided.get(arm, n_planned + 1) > block}
    evidence = {"left_after_block": dict(left_out), "decided_after_block": dict(found.decided)}
    if early:
        arm, block = next(iter(early.items()))
        sentence = (
            f"{arm} left after block {block}, and its numbers do not decide it there: "
            "a run that stops where it looks good finds what it looks for"
        )
        return Check(name=NAME, kind="soft", passed=False, sentence=sentence, evidence=evidence)
    said = ", ".join(f"{arm} after block {block}" for arm, block in left_out.items() if block < n_planned)
    sentence = f"decided by the numbers so far, and not started again: {said}" if said else "no arm was decided before the last block"
    return Check(name=NAME, kind="soft", passed=True, sentence=sentence, evidence=evidence)
