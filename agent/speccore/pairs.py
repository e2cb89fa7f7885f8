"""Matches the probes of two arms prompt by prompt inside each block, in seconds for equal work.

A prompt that is invalid in one of the two is dropped from both in that block, with the reason.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .measure import equal_work_s
from .measurement import AttemptMeasurement, Number, ProbeMeasurement, value_of
from .protocol import JobPlan, TrialPlan
from .tasks import Split, fixed_lengths, item_of, length_key, requests_by_item, split_of, whole
from .workload import Workload


@dataclass(frozen=True)
class Matched:
    """One prompt in one block, valid in both arms. ``left`` is the baseline, or the longer limit of two arms.

    Of a task, ``left`` and ``right`` are the whole tasks, and the splits say where their time went.
    """

    item: str
    left: ProbeMeasurement
    right: ProbeMeasurement
    left_s: float
    right_s: float
    reference_tokens: float
    left_split: Split | None = None
    right_split: Split | None = None


@dataclass(frozen=True)
class BlockPairs:
    """A block in which both arms have an attempt that counts."""

    block: int
    left: AttemptMeasurement
    right: AttemptMeasurement
    matched: list[Matched]
    dropped: dict[str, str]  # item: why
    left_failed: list[str]  # probes without a valid answer, as trial/probe
    right_failed: list[str]
    position_difference: int  # right's place in the block minus left's

    @property
    def n_planned(self) -> int:
        return len(self.matched) + len(self.dropped)

    @property
    def seconds(self) -> dict[str, tuple[float, float]]:
        return {m.item: (m.left_s, m.right_s) for m in self.matched}


class Results:
    """The attempts of a job that count, found by arm, block and point.

    ``run_again``: trials whose counted attempt was a later one; it ran at the end of its block. ``last``: arm → its last block,
    where early looks decided it: it has no place in later ones.
    """

    def __init__(
        self, plan: JobPlan, attempts: Iterable[AttemptMeasurement], run_again: Iterable[str] = (), last: Mapping[str, int] | None = None
    ) -> None:
        self.last = dict(last or {})
        self.trials = {t.id: t for t in plan.trials}
        self.attempts: dict[str, AttemptMeasurement] = {}
        self.run_again = frozenset(run_again)
        for attempt in attempts:
            if attempt.trial not in self.trials:
                raise ValueError(f"attempt {attempt.attempt_id} belongs to trial {attempt.trial!r}, which the plan does not have")
            if attempt.trial in self.attempts:
                raise ValueError(
                    f"trial {attempt.trial!r} has two attempts that count: {self.attempts[attempt.trial].attempt_id} and {attempt.attempt_id}"
                )
            self.attempts[attempt.trial] = attempt

    def of_arm(self, arm: str) -> list[AttemptMeasurement]:
        return [self.attempts[t.id] for t in self.trials.values() if t.arm == arm and t.id in self.attempts]

    def by_block(self, arm: str, point: str) -> dict[int, AttemptMeasurement]:
        found = {t.block: self.attempts[t.id] for t in self.trials.values() if t.arm == arm and point in t.points and t.id in self.attempts}
        return dict(sorted(found.items()))

    def position(self, trial: TrialPlan) -> int:
        """The place in the block at which the counted attempt ran: trials that ran again came last, in their old order."""
        block = [t for t in self.trials.values() if t.block == trial.block]
        if trial.id not in self.run_again:
            return trial.position - len({t.position for t in block if self._left_out(t) and t.position < trial.position})
        before = {t.position for t in block if t.id in self.run_again and t.position < trial.position}
        return max(t.position for t in block) + 1 + len(before)

    def not_run(self, point: str, *arms: str) -> set[str]:
        """Trials of the arms at the point without an attempt that counts, those aside that a look left out."""
        asked = (t for t in self.trials.values() if t.arm in arms and point in t.points)
        return {t.id for t in asked if t.id not in self.attempts and not self._left_out(t)}

    def _left_out(self, trial: TrialPlan) -> bool:
        return trial.block > self.last.get(trial.arm, trial.block) and trial.id not in self.attempts

    def planned_probes(self, trial: str, point: str) -> dict[str, str]:
        """item: probe id, of one point."""
        return {p.item: p.id for p in self.trials[trial].probes if p.point == point}


def reference_lengths(
    point: str, items: Iterable[str], baselines: Iterable[AttemptMeasurement], workload: Workload | None
) -> dict[str, float]:
    """L for each prompt, one number in all arms: the item's reference length, else the median baseline length over all blocks.

    A task has one for each turn, under :func:`speccore.tasks.length_key`.
    """
    fixed = fixed_lengths(workload) if workload else {}
    seen: dict[str, list[float]] = {}
    for attempt in baselines:
        for probe in attempt.probes:
            tokens = value_of(probe.completion_tokens)
            if probe.point == point and probe.ok and not probe.warmup and tokens:
                seen.setdefault(length_key(probe.item, probe.turn), []).append(tokens)
    measured = {key: statistics.median(lengths) for key, lengths in seen.items()}
    asked = set(items)
    return {key: length for key, length in (measured | fixed).items() if item_of(key) in asked}


def pair_blocks(results: Results, point: str, left: str, right: str, lengths: Mapping[str, float]) -> list[BlockPairs]:
    """All blocks in which both arms have a counted attempt with this point, also those where no prompt could be matched."""
    lefts, rights = results.by_block(left, point), results.by_block(right, point)
    return [_pair(results, point, block, lefts[block], rights[block], lengths) for block in sorted(lefts.keys() & rights.keys())]


def _pair(
    results: Results, point: str, block: int, left: AttemptMeasurement, right: AttemptMeasurement, lengths: Mapping[str, float]
) -> BlockPairs:
    asked = [requests_by_item(a, point) for a in (left, right)]
    probes = [{item: whole(requests) for item, requests in side.items()} for side in asked]
    plans = [results.planned_probes(a.trial, point) for a in (left, right)]
    matched: list[Matched] = []
    dropped: dict[str, str] = {}
    for item in sorted(plans[0].keys() | plans[1].keys()):
        splits = [_split(side.get(item), lengths) for side in asked]
        seconds = [
            s if isinstance(s, str) else s.whole_s if s else _seconds(side.get(item), lengths.get(item)) for s, side in zip(splits, probes)
        ]
        faults = [f"{a.arm}: {s}" for a, s in zip((left, right), seconds) if isinstance(s, str)]
        if faults:
            dropped[item] = "; ".join(faults)
            continue
        tokens = sum(length for key, length in lengths.items() if item_of(key) == item) if splits[0] else lengths[item]
        split = [s if isinstance(s, Split) else None for s in splits]
        matched.append(Matched(item, probes[0][item], probes[1][item], float(seconds[0]), float(seconds[1]), tokens, *split))
    failed = [
        [f"{a.trial}/{probe}" for item, probe in plan.items() if not _is_ok(side.get(item))]
        for a, plan, side in zip((left, right), plans, probes)
    ]
    return BlockPairs(
        block=block,
        left=left,
        right=right,
        matched=matched,
        dropped=dropped,
        left_failed=failed[0],
        right_failed=failed[1],
        position_difference=results.position(results.trials[right.trial]) - results.position(results.trials[left.trial]),
    )


def _split(requests: Sequence[ProbeMeasurement] | None, lengths: Mapping[str, float]) -> Split | str | None:
    """Of a task; None for a single request, and where there is none."""
    return split_of(requests, lengths) if requests and requests[0].turn is not None else None


def _is_ok(probe: ProbeMeasurement | None) -> bool:
    return probe is not None and probe.ok


def _seconds(probe: ProbeMeasurement | None, reference_tokens: float | None) -> float | str:
    """Equal-work seconds, or in words why there are none."""
    if probe is None:
        return "no record"
    if not probe.ok:
        return probe.failure_message or probe.failure or "failed"
    for number in (probe.ttft_any_s, probe.decode_tokens_per_s):
        if not isinstance(number, Number):
            return number.withheld
    if reference_tokens is None:
        return "no answer of the baseline to take the length from"
    ttft, rate = value_of(probe.ttft_any_s), value_of(probe.decode_tokens_per_s)
    if ttft is None or rate is None or ttft <= 0 or rate <= 0:
        return f"time to first token {ttft} s and speed {rate} tokens/s are no measurement"
    return equal_work_s(ttft, probe.n_first, rate, reference_tokens)


def used_probes(attempts: Sequence[AttemptMeasurement], point: str) -> list[ProbeMeasurement]:
    """The valid, counted probes of a point."""
    return [p for a in attempts for p in a.probes if p.point == point and p.ok and not p.warmup]


def late_events(attempts: Sequence[AttemptMeasurement], point: str) -> tuple[int, int]:
    """(late, all) events of a point, since one with many requests at once asks more of a client than the others of its trial.

    Of attempts whose probes don't tell theirs (measured by an earlier version) all events count.
    """
    late = n = 0
    for attempt in attempts:
        probes = [p for p in attempt.probes if not p.warmup]
        own = [p for p in probes if p.point == point]
        if not attempt.n_events or sum(p.n_queued_events for p in probes) != attempt.n_late_events:
            late, n = late + attempt.n_late_events, n + attempt.n_events
        else:
            late, n = late + sum(p.n_queued_events for p in own), n + sum(p.n_events for p in own)
    return late, n
