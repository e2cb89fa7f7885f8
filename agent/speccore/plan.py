"""Plans a job: which trials in which order, with which prompts and seeds; and which trials still need an attempt.

The plan follows from the experiment and its seed alone, so agent and server come to the same one. All arms of a block get
the same prompts, seeds and order of points; other blocks get others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain

from . import attached, settling
from .dealing import DISTINCT_BYTES as DISTINCT_BYTES
from .dealing import Dealer, rng
from .dealing import probe_seed as probe_seed
from .errors import ErrorBody, SpecError
from .inventory import Peer
from .order import balanced_orders
from .protocol import JobPlan, TrialPlan
from .spec import Arm, ExperimentSpec, Point
from .workload import Workload

#: A job with more than this would take weeks, and its plan would not fit into a message.
MAX_TRIALS = 10_000
MAX_REQUESTS = 200_000

#: Most attempts at one trial, and the number of blocks in which an arm may fail before it is given up.
MAX_ATTEMPTS = 2
BLOCKS_UNTIL_GIVEN_UP = 2

#: The trials of a block are paired, so no more time than this may lie between one and the next.
MAX_GAP = timedelta(minutes=10)


def plan_job(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> JobPlan:
    """All trials of a job in order of running.

    ``workloads`` is keyed as the points name them. Raises :class:`SpecError` if a workload is missing or too short, or if
    what is asked can't be had together or is too much for one job.
    """
    if fault := next(
        chain(
            _missing(spec, workloads),
            _not_alone(spec, workloads),
            _not_together(spec),
            attached.faults(spec),
            _nothing_drawn(spec),
            _too_much(spec),
        ),
        None,
    ):
        raise fault
    return _planned(spec, workloads, [spec.blocks])


def plan_more(spec: ExperimentSpec, workloads: Mapping[str, Workload], parts: Sequence[int], n_blocks: int) -> JobPlan:
    """``n_blocks`` further blocks of an experiment of which so many were planned before, in each of ``parts``.

    Block numbers, orders and the drawing of prompts go on where the last part ended. Raises :class:`SpecError` as :func:`plan_job`.
    """
    if fault := next(chain(_missing(spec, workloads), _too_much(spec.model_copy(update={"blocks": n_blocks}))), None):
        raise fault
    return _planned(spec, workloads, [*parts, n_blocks])


def plan_again(plans: Sequence[JobPlan], blocks: Collection[int]) -> JobPlan:
    """Those blocks once more, whole, as the last of ``plans`` that has them planned them. Raises ValueError for one that none has."""
    last = {t.block: plan for plan in plans for t in plan.trials}
    if missing := sorted(set(blocks) - last.keys()):
        raise ValueError(f"no plan has block {missing[0]}")
    trials = [t for block in sorted(set(blocks)) for t in last[block].trials if t.block == block]
    again = [t.model_copy(update={"index": i}) for i, t in enumerate(trials)]
    return JobPlan(seed=plans[0].seed, trials=again, workloads=plans[0].workloads)


def _planned(spec: ExperimentSpec, workloads: Mapping[str, Workload], parts: Sequence[int]) -> JobPlan:
    """The trials of the last of ``parts``, numbers of blocks that are planned one part after another."""
    arms = [spec.baseline, *(a for a in spec.arms if a.name != spec.baseline.name)]
    arm_orders = _orders(len(arms), parts, spec.seed, "arms", anchor=True)
    point_orders = _orders(len(spec.points), parts, spec.seed, "points", anchor=False)
    dealer = Dealer(spec, workloads)
    trial_names = _file_names([a.name for a in arms])
    trials: list[TrialPlan] = []
    for block, (arm_order, point_order) in enumerate(zip(arm_orders, point_orders), start=1):
        points = [spec.points[i] for i in point_order]
        hand = dealer.deal(block, points)
        if block <= sum(parts[:-1]):
            continue
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
    hashes = {name: workloads[name].content_hash() for name in spec.workload_names}
    return JobPlan(seed=spec.seed, trials=trials, workloads=hashes)


def _orders(n: int, parts: Sequence[int], seed: int, what: str, *, anchor: bool) -> list[list[int]]:
    orders: list[list[int]] = []
    for size in parts:
        drawn = rng(seed, f"{what} after {len(orders)}" if orders else what)
        orders += balanced_orders(n, len(orders) + size, drawn, anchor=anchor, after=orders)
    return orders


def plan_faults(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> list[SpecError]:
    """Everything that stands against a plan, each with its field. A workload that isn't there is left to the caller to tell."""
    faults = [*_not_together(spec), *attached.faults(spec), *_nothing_drawn(spec), *_too_much(spec)]
    if not faults and all(name in workloads for name in spec.workload_names):
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
    if spec.sampling_test and spec.sampling_test.workload not in workloads:
        yield SpecError(
            f"sampling test: no workload {spec.sampling_test.workload!r}; known: {known}",
            remedy="Name one of the known workloads.",
            field="sampling_test.workload",
            value=spec.sampling_test.workload,
        )


def _not_together(spec: ExperimentSpec) -> Iterator[SpecError]:
    if spec.fit and spec.sequential:
        yield SpecError(
            "fit beside sequential is not offered: it follows the last start, and which one that is shows only afterwards",
            remedy="Set one of the two to false.",
            field="fit",
            value="true",
        )


def _not_alone(spec: ExperimentSpec, workloads: Mapping[str, Workload]) -> Iterator[SpecError]:
    """Tasks are asked one after another, each once: their time is that of one user who waits for the next turn."""
    for i, point in enumerate(spec.points):
        asked = (("concurrency", point.concurrency, 1), ("rate_per_s", point.rate_per_s, None), ("warm", point.warm, False))
        if wrong := next((a for a in asked if a[1] != a[2]), None) if workloads[point.workload].is_task else None:
            key, value, only = wrong
            yield SpecError(
                f"workload {point.workload!r} holds tasks of several turns, which are asked one at a time; {key} is {value}",
                remedy=f"Set {key} to {only}, or leave it out." if only is not None else f"Leave {key} out.",
                field=f"points.{i}.{key}",
                value=value,
            )


def _nothing_drawn(spec: ExperimentSpec) -> Iterator[SpecError]:
    if spec.sampling_test and spec.sampling_test.sampling.temperature == 0:
        yield SpecError(
            "sampling_test.sampling.temperature 0 takes the likeliest token each time: nothing is drawn that could be tested",
            remedy="Set it above 0; greedy answers are compared without this test.",
            field="sampling_test.sampling.temperature",
            value=0,
        )


def _too_much(spec: ExperimentSpec) -> Iterator[SpecError]:
    n_probes = sum(p.n_requests for p in spec.points)
    starts = {a.name: len(spec.points) if a.is_stateful else 1 for a in spec.arms}
    n_trials = spec.blocks * sum(starts.values())
    n_ahead = sum(p.n_requests for p in spec.points if p.warm)
    if spec.warmup.mode == "settled":
        n_warmup, n_fixed = sum(settling.wanted(p, spec.warmup) for p in spec.points), 0
    else:
        n_warmup, n_fixed = sum(p.concurrency for p in spec.points if p.concurrency > 1), spec.warmup.requests
    n_requests = spec.blocks * len(spec.arms) * (n_probes + n_ahead + n_warmup) + n_trials * n_fixed
    if spec.sampling_test:  # the baseline draws its control too
        n_requests += spec.blocks * (len(spec.arms) + 1) * -(-spec.sampling_test.continuations // spec.blocks)
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
    if not arm.is_stateful or len(points) == 1:
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


def last_blocks(spec: ExperimentSpec, decided: Mapping[str, int], given_up: Collection[str] = ()) -> dict[str, int]:
    """Arms that need no block after that one, since early looks decided them (``decided``: arm → block).

    When every arm with speculation is decided or given up, the baseline and the controls need no further block either.
    """
    return last_blocks_of({a.name: not a.is_baseline and not a.control for a in spec.arms}, decided, given_up)


def last_blocks_of(arms: Mapping[str, bool], decided: Mapping[str, int], given_up: Collection[str]) -> dict[str, int]:
    """The same by names: arm → whether there is something to decide about it."""
    if not decided:
        return {}
    if any(asked and name not in decided and name not in given_up for name, asked in arms.items()):
        return dict(decided)
    return {name: decided.get(name, max(decided.values())) for name in arms}


def not_needed(spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome], decided: Mapping[str, int]) -> dict[str, int]:
    """Trials that were left out since early looks had decided, each with the block after which that was."""
    last = last_blocks(spec, decided, give_up(spec, plan, outcomes).arms)
    ran = {o.trial for o in outcomes}
    return {t.id: last[t.arm] for t in plan.trials if t.block > last.get(t.arm, t.block) and t.id not in ran}


def next_trials(
    spec: ExperimentSpec, plan: JobPlan, outcomes: Sequence[TrialOutcome], decided: Mapping[str, int] | None = None
) -> list[tuple[TrialPlan, int]]:
    """What is still to run, in order, each with the number of its attempt. Empty when the job is done or given up.

    A trial that failed and may be retried comes again at the end of its block. ``decided`` is what early looks say, arm → block
    (see :func:`last_blocks`).
    """
    gone = give_up(spec, plan, outcomes)
    if gone.job is not None:
        return []
    last = last_blocks(spec, decided or {}, gone.arms)
    done = {o.trial for o in outcomes if o.error is None} | set(_failed_for_good(outcomes))
    tries: dict[str, int] = {}
    for outcome in outcomes:
        tries[outcome.trial] = tries.get(outcome.trial, 0) + 1
    left = [(t, tries.get(t.id, 0) + 1) for t in plan.trials if t.id not in done and t.arm not in gone.arms]
    left = [(t, n) for t, n in left if t.block <= last.get(t.arm, t.block)]
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
