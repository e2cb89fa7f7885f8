"""Plans a job: which trials in which order, with which prompts and seeds; and which trials still need an attempt.

The plan follows from the experiment and its seed alone, so agent and server come to the same one. All arms of a block get
the same prompts, seeds and order of points; other blocks get others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from .canonical import sha256_of
from .errors import ErrorBody, SpecError
from .inventory import Peer
from .order import balanced_orders
from .protocol import JobPlan, ProbePlan, TrialPlan, WarmupPlan
from .spec import STATEFUL_MODES, Arm, ExperimentSpec, Point
from .workload import Item, Workload

#: Prompts of one trial differ within these first bytes. Each token stands for at least one byte of the prompt, so prompts
#: that do can't share their first 64 tokens either, whatever the tokenizer.
DISTINCT_BYTES = 64

#: A job with more than this would take weeks, and its plan would not fit into a message.
MAX_TRIALS = 10_000
MAX_REQUESTS = 200_000

#: Of a point: what is not offered yet, with the only value that is.
_NOT_YET: dict[str, object] = {"occupied_context": 0, "rate_per_s": None, "warm": False, "thinking": None}

#: Most attempts at one trial, and the number of blocks in which an arm may fail before it is given up.
MAX_ATTEMPTS = 2
BLOCKS_UNTIL_GIVEN_UP = 2

#: The trials of a block are paired, so no more time than this may lie between one and the next.
MAX_GAP = timedelta(minutes=10)


def probe_seed(seed: int, workload: str, block: int, item: str) -> int:
    """Sampling seed of a request, below 2**31: equal in all arms of a block, another in every other block."""
    return int(sha256_of([seed, workload, block, item])[:16], 16) % 2**31


def plan_job(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> JobPlan:
    """All trials of a job in order of running.

    ``workloads`` is keyed as the points name them. Raises :class:`SpecError` if a workload is missing or too short, or if
    a point asks for what is not offered yet.
    """
    if fault := next(chain(_missing(spec, workloads), _not_offered(spec), _too_much(spec)), None):
        raise fault
    arms = [spec.baseline, *(a for a in spec.arms if a.name != spec.baseline.name)]
    arm_orders = balanced_orders(len(arms), spec.blocks, _rng(spec.seed, "arms"), anchor=True)
    point_orders = balanced_orders(len(spec.points), spec.blocks, _rng(spec.seed, "points"), anchor=False)
    dealer = _Dealer(spec, workloads)
    trial_names = _file_names([a.name for a in arms])
    trials: list[TrialPlan] = []
    for block, (arm_order, point_order) in enumerate(zip(arm_orders, point_orders), start=1):
        points = [spec.points[i] for i in point_order]
        hand = dealer.deal(block, points)
        for position, arm in enumerate((arms[i] for i in arm_order), start=1):
            for name, own_points in _trials_of(arm, f"b{block}-{trial_names[arm.name]}", points, spec.points):
                warmup, probes = hand.requests(own_points)
                trials.append(
                    TrialPlan(
                        id=name,
                        index=len(trials),
                        block=block,
                        position=position,
                        arm=arm.name,
                        points=[p.key for p in own_points],
                        warmup=warmup,
                        probes=probes,
                    )
                )
    hashes = {p.workload: workloads[p.workload].content_hash() for p in spec.points}
    return JobPlan(seed=spec.seed, trials=trials, workloads=hashes)


def plan_faults(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> list[SpecError]:
    """Everything that stands against a plan, each with its field. A workload that isn't there is left to the caller to tell."""
    faults = [*_not_offered(spec), *_too_much(spec)]
    if not faults and all(p.workload in workloads for p in spec.points):
        try:
            plan_job(spec, workloads)
        except SpecError as error:
            faults.append(error)
    return faults


def _missing(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecError]:
    known = ", ".join(sorted(workloads)) or "none"
    for i, point in enumerate(spec.points):
        if point.workload not in workloads:
            yield SpecError(
                f"point {point.key!r}: no workload {point.workload!r}; known: {known}",
                remedy="Name one of the known workloads.",
                field=f"points.{i}.workload",
                value=point.workload,
            )


def _not_offered(spec: ExperimentSpec) -> Iterator[SpecError]:
    asked: list[tuple[str, object, object]] = [
        *((f"points.{i}.{key}", getattr(p, key), usual) for i, p in enumerate(spec.points) for key, usual in _NOT_YET.items()),
        ("sequential", spec.sequential, False),
        ("sampling_test", spec.sampling_test, None),
        ("fit", spec.fit, False),
        ("warmup.mode", spec.warmup.mode, "fixed"),
        ("requirements.free_memory_mib", spec.requirements.free_memory_mib, None),
        ("requirements.quality", spec.requirements.quality, "not lost"),
    ]
    for field, value, usual in asked:
        if value != usual:
            only = "nothing" if usual is None else usual
            yield SpecError(
                f"{field} {value} is not offered yet, only {only}",
                remedy=f"Set {field} to {only}, or leave it out.",
                field=field,
                value=str(value),
            )


def _too_much(spec: ExperimentSpec) -> Iterator[SpecError]:
    n_probes = sum(p.n_requests for p in spec.points)
    starts = {a.name: len(spec.points) if a.mode in STATEFUL_MODES else 1 for a in spec.arms}
    n_trials = spec.blocks * sum(starts.values())
    n_warmup = sum(p.concurrency for p in spec.points if p.concurrency > 1)
    n_requests = spec.blocks * len(spec.arms) * (n_probes + n_warmup) + n_trials * spec.warmup.requests
    for what, n, most in (("starts of the engine", n_trials, MAX_TRIALS), ("requests", n_requests, MAX_REQUESTS)):
        if n > most:
            yield SpecError(
                f"the experiment has {n:,} {what}, more than the {most:,} of one job",
                remedy="Lower blocks or probes, or split arms and points into several experiments.",
                field="blocks",
                value=spec.blocks,
            )


def _trials_of(arm: Arm, name: str, points: list[Point], numbered: list[Point]) -> Iterable[tuple[str, list[Point]]]:
    """One trial with all points, or one for each point where the drafter's state outlives a request."""
    if arm.mode not in STATEFUL_MODES or len(points) == 1:
        yield name, points
        return
    for point in points:
        yield f"{name}-p{numbered.index(point) + 1}", [point]


def _file_names(names: list[str]) -> dict[str, str]:
    """Each arm's name in letters that are safe in file names and URLs, still distinct."""
    safe: dict[str, str] = {}
    for name in names:
        base = candidate = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        n = 2
        # An ending such as "-p1" numbers the trials of an arm that has one for each point.
        while candidate in safe.values() or re.search(r"-p\d+$", candidate):
            candidate = f"{base}-{n}"
            n += 1
        safe[name] = candidate
    return safe


def _rng(seed: int, what: str) -> random.Random:
    return random.Random(f"{seed}/{what}")  # noqa: S311  a plan must be repeatable, not secret


@dataclass
class _Hand:
    """The requests of one block, the same for each arm."""

    probes: dict[str, list[ProbePlan]]
    warmup: dict[str, list[tuple[str, int]]]  # point: (item, seed), as many as a trial may need of this point
    n_warmup: int

    def requests(self, points: list[Point]) -> tuple[list[WarmupPlan], list[ProbePlan]]:
        """Warm-up requests go through the trial's points in turn, so that each shape is met where there are enough.

        A point with several requests at once gets as many more as fill them, while its workload has them.
        """
        turns = [(points[i % len(points)], i // len(points)) for i in range(self.n_warmup)]
        for point in (p for p in points if p.concurrency > 1):
            has = sum(p is point for p, _ in turns)
            turns += [(point, i) for i in range(has, min(point.concurrency, len(self.warmup[point.key])))]
        warmup = []
        for n, (point, i) in enumerate(turns, start=1):
            item, seed = self.warmup[point.key][i]
            warmup.append(WarmupPlan(id=f"warmup#{n}", point=point.key, item=item, seed=seed))
        return warmup, [probe for p in points for probe in self.probes[p.key]]


class _Dealer:
    """Deals prompts to blocks: without replacement while a workload lasts, and never two alike in one trial."""

    def __init__(self, spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> None:
        self.spec = spec
        self.workloads = {p.key: workloads[p.workload] for p in spec.points}
        # Hashed once: a large workload takes its time, and a job asks thousands of times.
        hashes = {name: workloads[name].content_hash() for name in {p.workload for p in spec.points}}
        self.hashes = {p.key: hashes[p.workload] for p in spec.points}
        self.decks = {self.hashes[k]: _Deck(w, w.items, _rng(spec.seed, f"items/{w.ref}")) for k, w in self.workloads.items()}
        self.warmup_decks = {self.hashes[k]: _Deck(w, w.warmup, _rng(spec.seed, f"warmup/{w.ref}")) for k, w in self.workloads.items()}
        # An arm with a trial for each point may send all its warm-up requests to one point; the others share them out.
        alone = len(spec.points) == 1 or any(a.mode in STATEFUL_MODES for a in spec.arms)
        self.n_warmup_each = spec.warmup.requests if alone else -(-spec.warmup.requests // len(spec.points))

    def deal(self, block: int, points: list[Point]) -> _Hand:
        used: set[bytes] = set()
        hand = _Hand(probes={}, warmup={}, n_warmup=self.spec.warmup.requests)
        for point in points:
            hand.warmup[point.key] = self._drawn(self.warmup_decks, block, point, self.n_warmup_each, used, "warm-up")
        for point in (p for p in points if p.concurrency > 1):
            missing = point.concurrency - len(hand.warmup[point.key])
            hand.warmup[point.key] += self._draw(self.warmup_decks, block, point, missing, used)
        for point in points:
            drawn = self._drawn(self.decks, block, point, point.n_requests, used, "probe")
            hand.probes[point.key] = [
                ProbePlan(id=f"{point.key}#{n}", point=point.key, item=item, seed=seed) for n, (item, seed) in enumerate(drawn, start=1)
            ]
        return hand

    def _drawn(
        self, decks: Mapping[str, _Deck], block: int, point: Point, needed: int, used: set[bytes], what: str
    ) -> list[tuple[str, int]]:
        drawn = self._draw(decks, block, point, needed, used)
        if len(drawn) < needed:
            raise self._too_short(point, what)
        return drawn

    def _draw(self, decks: Mapping[str, _Deck], block: int, point: Point, needed: int, used: set[bytes]) -> list[tuple[str, int]]:
        """(item, seed) of so many requests, or of as many as the workload still has."""
        workload = self.workloads[point.key]
        drawn: list[tuple[str, int]] = []
        while len(drawn) < needed and (item := decks[self.hashes[point.key]].take(used)):
            used.add(_start(item))
            drawn.append((item.id, probe_seed(self.spec.seed, workload.ref, block, item.id)))
        return drawn

    def _too_short(self, point: Point, what: str) -> SpecError:
        workload = self.workloads[point.key]
        alike = [i for i, p in enumerate(self.spec.points) if self.hashes[p.key] == self.hashes[point.key]]
        points = [self.spec.points[i] for i in alike]
        items = workload.items if what == "probe" else workload.warmup
        needed = sum(p.n_requests for p in points) if what == "probe" else self.n_warmup_each * len(points)
        distinct = len({_start(i) for i in items})
        kind = "items" if what == "probe" else "warm-up items"
        same = f" ({distinct} of them differ in their first {DISTINCT_BYTES} bytes)" if distinct < len(items) else ""
        field, lower, crowded = "warmup.requests", "warmup.requests", ""
        if what == "probe":
            field, lower = f"points.{alike[0]}.probes", "probes"
        if what == "probe" and sum(p.probes for p in points) <= distinct:  # it is the requests at once that ask for more
            most = max(points, key=lambda p: p.concurrency)
            field, lower = f"points.{alike[points.index(most)]}.concurrency", "the concurrency"
            crowded = f" ({most.n_requests} with {most.concurrency} at once)"
        return SpecError(
            f"workload {workload.name!r} has {len(items)} {kind}{same}; {needed} {what} requests of one trial{crowded} need as many, "
            f"since no two requests of a trial may begin with the same {DISTINCT_BYTES} bytes",
            remedy=f"Lower {lower}, {'split the points into several experiments, ' if crowded else ''}"
            "or use a workload with more distinct prompts.",
            field=field,
            workload=workload.ref,
            n_items=len(items),
            needed=needed,
        )


class _Deck:
    """A workload's items in a drawn order, drawn anew when all were dealt."""

    def __init__(self, workload: Workload, items: Sequence[Item], rng: random.Random) -> None:
        self.items = list(items)
        self.rng = rng
        self.left: list[Item] = []

    def take(self, used: set[bytes]) -> Item | None:
        """The next item whose start is not in ``used``; None if there is none in the whole workload."""
        for _ in range(2):
            for i, item in enumerate(self.left):
                if _start(item) not in used:
                    return self.left.pop(i)
            self.left += self.rng.sample(self.items, len(self.items))
        return None


def _start(item: Item) -> bytes:
    return item.prompt.encode()[:DISTINCT_BYTES]


class TrialOutcome(Peer):
    """How an attempt at a trial ended. ``error`` is None for a good one."""

    trial: str
    n: int = 1
    error: ErrorBody | None = None


class GiveUp(Peer):
    """``arms``: given up, each with the error that decided. ``job``: set when the baseline is given up, so nothing can be compared."""

    arms: dict[str, ErrorBody] = {}
    job: ErrorBody | None = None


def give_up(spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome]) -> GiveUp:
    """An arm is given up when a trial of it failed for good in two blocks: every attempt used, or a retry can't help."""
    failed_blocks: dict[str, dict[int, ErrorBody]] = {}
    trials = {t.id: t for t in plan.trials}
    for trial_id, error in _failed_for_good(outcomes).items():
        trial = trials[trial_id]
        failed_blocks.setdefault(trial.arm, {})[trial.block] = error
    given_up = {arm: blocks[max(blocks)] for arm, blocks in failed_blocks.items() if len(blocks) >= BLOCKS_UNTIL_GIVEN_UP}
    return GiveUp(arms=given_up, job=given_up.get(spec.baseline.name))


def next_trials(spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome]) -> list[tuple[TrialPlan, int]]:
    """What is still to run, in order, each with the number of its attempt. Empty when the job is done or given up.

    A trial that failed and may be retried comes again at the end of its block.
    """
    gone = give_up(spec, plan, outcomes)
    if gone.job is not None:
        return []
    done = {o.trial for o in outcomes if o.error is None} | set(_failed_for_good(outcomes))
    tries: dict[str, int] = {}
    for outcome in outcomes:
        tries[outcome.trial] = tries.get(outcome.trial, 0) + 1
    left = [(t, tries.get(t.id, 0) + 1) for t in plan.trials if t.id not in done and t.arm not in gone.arms]
    return sorted(left, key=lambda todo: (todo[0].block, todo[1], todo[0].index))


def _failed_for_good(outcomes: Sequence[TrialOutcome]) -> dict[str, ErrorBody]:
    tries: dict[str, int] = {}
    failed: dict[str, ErrorBody] = {}
    good = {o.trial for o in outcomes if o.error is None}
    for outcome in outcomes:
        tries[outcome.trial] = tries.get(outcome.trial, 0) + 1
        if outcome.error is None or outcome.trial in good:
            continue
        if not outcome.error.retry or tries[outcome.trial] >= MAX_ATTEMPTS:
            failed[outcome.trial] = outcome.error
    return failed


@dataclass(frozen=True)
class DoneTrial:
    """An attempt that ended and counts, good or failed, with what must be the same throughout its block."""

    trial: str
    block: int
    boot_id: str
    inventory_hash: str
    driver: str
    started_at: datetime
    ended_at: datetime


def torn_blocks(
    plan: JobPlan,
    done: Sequence[DoneTrial],
    *,
    now: datetime,
    boot_id: str,
    driver: str,
    inventory_hash: str,
    left: Collection[str] | None = None,
) -> dict[int, str]:
    """Blocks that must be run whole once more before they go on, each with the reason in words.

    Torn is a block that is begun and not finished, if the machine is another than it was (boot, driver, inventory) or was
    away from it for more than :data:`MAX_GAP`. ``done`` holds the attempts of each block's current run. ``left`` names the
    trials still to run, as :func:`next_trials` tells; unset: all of the plan that aren't in ``done``. A finished block is
    never torn.
    """
    ended = {d.trial for d in done}
    to_run = {t.id for t in plan.trials} - ended if left is None else set(left)
    unfinished = {t.block for t in plan.trials if t.id in to_run}
    torn: dict[int, str] = {}
    for block in sorted(unfinished):
        of_block = [d for d in done if d.block == block]
        if reason := _why_torn(of_block, now, {"boot_id": boot_id, "driver": driver, "inventory_hash": inventory_hash}):
            torn[block] = reason
    return torn


def _why_torn(done: Sequence[DoneTrial], now: datetime, machine: Mapping[str, str]) -> str:
    words = {
        "boot_id": "the machine was started anew",
        "driver": "the driver changed",
        "inventory_hash": "the host's inventory (engine builds, models or settings) changed",
    }
    reasons = [said for field, said in words.items() if any(getattr(d, field) != machine[field] for d in done)]
    if done and not reasons:
        last = max(done, key=lambda d: d.ended_at)
        if (gap := now - last.ended_at) > MAX_GAP:
            limit = MAX_GAP // timedelta(minutes=1)
            reasons.append(f"{gap // timedelta(minutes=1)} minutes passed after {last.trial}, more than {limit}")
    return " and ".join(reasons)
