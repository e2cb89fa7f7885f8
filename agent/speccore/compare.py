"""Everything computed for one job: each arm against the baseline at each point, its checks, its verdict, and the answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import (
    early,
    host_checks,
    integrity,
    job_checks,
    joining,
    memory_taken,
    occupancy,
    pace_checks,
    restarts,
    settled,
    stats,
    task_numbers,
    throughput,
    time_split,
)
from .advice import answer
from .answers_of_job import AnswersOfJob, Said
from .derive import Pooled, cycle_numbers, drafters_numbers, positions_numbers, side_numbers, speculation_numbers, stream_numbers
from .inventory import Peer
from .measurement import AttemptMeasurement, Check, ComparisonResult, Interval, JobAnalysis, JoinedAnswer, Verdict, Withheld, value_of
from .noise_floor import KnownFloor, point_class
from .outages import TrialFailure, outage
from .pairs import BlockPairs, Results, pair_blocks, reference_lengths, used_probes
from .plan import last_blocks
from .proposals import variation
from .protocol import JobPlan
from .quality import TrialAnswers, greedy_points
from .slow_ones import tail_lines
from .spec import BASELINE_MODE, Arm, ExperimentSpec, Point
from .verdict import QUALITY_TOLERANCE, Shorter, VerdictInput, holds_requirements, judge
from .workload import Workload


class JobFacts(Peer):
    """What the analysis can't see in the attempts. ``noise_floor`` as a ratio minus 1, of every class of points that
    ``floors`` doesn't name; None: unknown. ``floors`` is keyed by :func:`noise_floor.point_class`.
    """

    noise_floor: float | None = None
    floors: dict[str, KnownFloor] = {}
    shares_cores: bool = False
    hashes_verified: bool | None = None  # None: not computed again
    n_hashes: int = 0
    hash_problem: str = ""
    decided: dict[str, int] = {}  # arm → the block after which it was left out, since early looks had decided it

    def floor_at(self, point: Point) -> float | None:
        known = self.floors.get(point_class(point))
        return self.noise_floor if known is None else known.floor


def analyse_job(
    spec: ExperimentSpec,
    plan: JobPlan,
    attempts: Sequence[AttemptMeasurement],
    failures: Sequence[TrialFailure],
    facts: JobFacts,
    *,
    workloads: Mapping[str, Workload] | None = None,
    answers_read: Sequence[TrialAnswers] | None = None,
    joined: joining.Joined | None = None,
) -> JobAnalysis:
    """Compares all arms with the baseline at all points.

    ``attempts`` are those that count, one for each trial at most; ``failures`` the others. ``workloads`` is keyed as the
    points name them and gives reference lengths. ``answers_read``: what the counted attempts answered, read from their
    evidence; without it quality rests on task checks alone. ``joined``: the plan is that of several jobs. Raises ValueError if an attempt has no place in the plan, or two have one.
    """
    counted = {a.trial for a in attempts}
    run_again = {f.trial for f in failures if f.trial in counted}
    results = Results(plan, attempts, run_again=run_again, last=last_blocks(spec, facts.decided))
    answered = AnswersOfJob(spec, answers_read)
    checks = _job_checks(spec, results, facts, answered)
    looks = early.Looks()
    if spec.sequential:
        basis = early.Basis(spec, plan, workloads or {}, facts.floor_at, run_again)
        planned = [a for a in attempts if a.block in joined.parts[0]] if joined else attempts
        looks = early.look(basis, planned, ended=True, left_out=facts.decided)
        checks.append(early.check(basis, planned, facts.decided))
    job = _Job(spec, results, failures, facts, workloads or {}, checks, looks, answered, joined)
    comparisons: list[ComparisonResult] = []
    answers: list[dict[str, Any]] = []
    for point in spec.points:
        compared = job.compare_point(point)
        comparisons += compared
        answers.append(answer(point, compared))
    return JobAnalysis(
        comparisons=comparisons,
        checks=checks,
        answers=answers,
        attempts_used=[results.attempts[t].attempt_id for t in results.trials if t in results.attempts],
        fit=next((a.fit for a in attempts if a.fit), None),
        sampling=answered.sampling,
    )


@dataclass
class _Draft:
    """A comparison under way: its arm, its blocks, and what the verdict is to know."""

    arm: Arm
    blocks: list[BlockPairs]
    checks: list[Check]
    total_time: Interval | Withheld
    input: VerdictInput
    verdict: Verdict
    p: float | None
    said: Said
    joined: JoinedAnswer | None = None


@dataclass(frozen=True)
class _Job:
    spec: ExperimentSpec
    results: Results
    failures: Sequence[TrialFailure]
    facts: JobFacts
    workloads: Mapping[str, Workload]
    checks: Sequence[Check]
    looks: early.Looks
    answered: AnswersOfJob
    joined: joining.Joined | None = None

    def compare_point(self, point: Point) -> list[ComparisonResult]:
        """All arms but the baseline at one point, in the experiment's order, with at most one recommended."""
        lengths = self._lengths(point)
        arms = [a for a in self.spec.arms if not a.is_baseline]
        drafts: dict[str, _Draft] = {}
        # Shorter limits first: whether one is worth keeping is known when a longer one is judged.
        for arm in sorted(arms, key=lambda a: a.draft_limit or 0):
            drafts[arm.name] = self._judged(self._draft(arm, point, lengths), list(drafts.values()), point, lengths)
        adjusted = stats.holm({a.name: p for a in arms if not a.control and (p := drafts[a.name].p) is not None})
        best = self._recommended([drafts[a.name] for a in arms], point, lengths)
        return [self._result(drafts[a.name], point, adjusted.get(a.name), recommended=a.name == best) for a in arms]

    def _lengths(self, point: Point) -> dict[str, float]:
        items = {p.item for t in self.results.trials.values() for p in t.probes if p.point == point.key}
        baselines = self.results.by_block(self.spec.baseline.name, point.key).values()
        return reference_lengths(point.key, sorted(items), baselines, self.workloads.get(point.workload))

    def _draft(self, arm: Arm, point: Point, lengths: Mapping[str, float]) -> _Draft:
        baseline = self.spec.baseline
        blocks = pair_blocks(self.results, point.key, baseline.name, arm.name, lengths)
        by_block = throughput.block_values(blocks, point)
        of_parts = self.joined.seen(by_block) if self.joined else None
        looked = None if of_parts else self.looks.taken(arm.name, point.key)
        if looked is not None:  # what counts is what the look saw: a decision stands whatever came after it
            by_block = dict(looked.values)
        differences = looked.differences if looked else {b.block: b.position_difference for b in blocks}
        sure = looked or of_parts
        values, confidence = list(by_block.values()), sure.confidence if sure else stats.CONFIDENCE
        found = stats.speedup(values, [differences[block] for block in by_block], self.spec.margin, confidence)
        # A look that came before an engine fell behind has seen the lucky starts only.
        no_values = throughput.overloaded(blocks, point) if values else throughput.why_no_values(blocks, point)
        counted = [b for b in blocks if b.matched and (looked is None or b.block in by_block)]
        total_time = throughput.overloaded(blocks, point) or stats.ratio_interval(
            [stats.total_value(b.seconds) for b in counted], confidence
        )
        quality = _quality(blocks)
        said = self.answered.at(arm, point, quality)
        checks = self._checks(arm, point, blocks, found.drift, quality, said)
        known = VerdictInput(
            mode=arm.mode,
            control=arm.control,
            explains=arm.explains,
            together=point.concurrency > 1,
            margin=self.spec.margin,
            noise_floor=self.facts.floor_at(point),
            speedup=no_values or (joining.named(found.interval, of_parts) if of_parts else early.named(found.interval, looked)),
            total_time=total_time,
            block_values=values,
            confidence=of_parts.confidence if of_parts else stats.CONFIDENCE,
            checks=[*self.checks, *checks],
            required_context=self.spec.requirements.context,
            required_slots=self.spec.requirements.slots,
            **self._memory(arm, blocks),
            quality=quality,
            measures=said.quality,
            required_quality=self.spec.requirements.quality,
            **self._engagement(arm, point),
            **self._outage(arm, point, len(values)),
        )
        return _Draft(arm, blocks, checks, total_time, known, judge(known), found.p, said, of_parts)

    def _checks(
        self,
        arm: Arm,
        point: Point,
        blocks: list[BlockPairs],
        drift: stats.Drift | Withheld,
        quality: stats.PassDifference | Withheld,
        said: Said,
    ) -> list[Check]:
        """All checks of one comparison but Holm's, hard ones first."""
        baseline = self.spec.baseline
        sides = [[*self.results.by_block(a.name, point.key).values()] for a in (baseline, arm)]
        own = integrity.checks(
            integrity.Compared(
                arm=arm.name,
                mode=arm.mode,
                point=point.key,
                temperature=point.sampling.temperature,
                warm=point.warm,
                own_history=self.spec.engine.prefix_cache,
                baseline_attempts=sides[0],
                arm_attempts=sides[1],
                blocks=blocks,
                drift=drift,
                quality=quality,
                failures={f.trial: f.message for f in self._failures_at(point, arm.name, baseline.name)},
                n_not_run=len(self.results.not_run(point.key, arm.name, baseline.name) - {f.trial for f in self.failures}),
            )
        )
        more = [
            *host_checks.checks(*sides),
            *throughput.checks(point, self.spec.points, *sides),
            *occupancy.checks(point, *sides),
            *pace_checks.checks(self.spec, point, *sides),
            *said.checks,
            restarts.check([a for side in sides for a in side]),
        ]
        return sorted([*own, *more], key=lambda check: check.kind != "hard")

    def _judged(self, draft: _Draft, shorter: Sequence[_Draft], point: Point, lengths: Mapping[str, float]) -> _Draft:
        """The verdict again, knowing what arms of the same kind with shorter limits are worth."""
        kin = [s for s in shorter if _is_shorter(s.arm, draft.arm)]
        holding = [s.arm.name for s in kin if holds_requirements(s.input)]
        known = replace(
            draft.input,
            shorter_that_holds=holding[-1] if holding else "",
            shorter=[
                Shorter(
                    arm=s.arm.name,
                    draft_limit=s.arm.draft_limit or 0,
                    worth_keeping=judge(replace(s.input, shorter=())).word == "keep",
                    versus=self._versus(draft.arm, s.arm, point, lengths),
                )
                for s in kin
            ],
        )
        return replace(draft, input=known, verdict=judge(known))

    def _versus(self, slower: Arm, faster: Arm, point: Point, lengths: Mapping[str, float]) -> Interval | Withheld:
        """``slower``'s seconds ÷ ``faster``'s, arm to arm in the same blocks; at equal places where the host drifts."""
        blocks = pair_blocks(self.results, point.key, slower.name, faster.name, lengths)
        by_block = throughput.block_values(blocks, point)
        differences = [b.position_difference for b in blocks if b.block in by_block]
        confidence = early.confidence_after(len(by_block), self.spec.blocks) if self.spec.sequential else stats.CONFIDENCE
        if self.joined and (of_parts := self.joined.seen(by_block)):
            confidence = of_parts.confidence
        return stats.speedup(list(by_block.values()), differences, self.spec.margin, confidence).interval

    def _engagement(self, arm: Arm, point: Point) -> dict[str, Any]:
        attempts = self.results.of_arm(arm.name)
        off = [a for a in attempts if a.engaged is False]
        drafted = [n for p in used_probes(attempts, point.key) if (n := value_of(p.counters.drafted)) is not None]
        why = f"in {len(off)} of {len(attempts)} trials ({off[0].engaged_why})" if off else ""
        return {
            "speculation_reported": False if off else True if any(a.engaged for a in attempts) else None,
            "drafted": sum(drafted) if drafted else None,
            "not_engaged_why": why,
            "context": _least([a.context_per_slot for a in attempts]),
            "slots": _least([a.slots for a in attempts]),
        }

    def _memory(self, arm: Arm, blocks: Sequence[BlockPairs]) -> dict[str, Any]:
        required = self.spec.requirements.free_memory_mib
        return {
            "target_layers_moved": 0 if arm.control else memory_taken.layers_moved(blocks),
            "required_free_bytes": None if required is None else required * 2.0**20,
            "free_bytes": memory_taken.least_free_bytes(self.results.of_arm(arm.name)),
        }

    def _outage(self, arm: Arm, point: Point, n_blocks: int) -> dict[str, Any]:
        names = (arm.name, self.spec.baseline.name)
        of_arm, of_baseline = ([f for f in self._failures_at(point, name) if f.trial not in self.results.attempts] for name in names)
        arm_ran, baseline_ran = (self.results.by_block(name, point.key).keys() for name in names)
        return outage(of_arm, of_baseline, arm_ran, baseline_ran, n_blocks)

    def _failures_at(self, point: Point, *arms: str) -> list[TrialFailure]:
        return [
            f
            for f in self.failures
            if f.arm in arms and (f.trial not in self.results.trials or point.key in self.results.trials[f.trial].points)
        ]

    def _recommended(self, drafts: Sequence[_Draft], point: Point, lengths: Mapping[str, float]) -> str:
        """Among keeps the fastest; those not shown worse by the margin are ties, broken by smaller bill, then shorter limit."""
        keeps = {d.arm.name: d for d in drafts if d.verdict.word == "keep" and isinstance(d.input.speedup, Interval)}
        if not keeps:
            return ""
        best = max(keeps.values(), key=_estimate)
        ties = [best]
        for other in keeps.values():
            if other is not best:
                behind = self._versus(other.arm, best.arm, point, lengths)
                if not (isinstance(behind, Interval) and behind.low is not None and behind.low > 1 + self.spec.margin):
                    ties.append(other)
        bills = {d.arm.name: value_of(memory_taken.bill(d.blocks)) for d in ties}
        least = min((b for b in bills.values() if b is not None), default=None)
        if least is not None:
            ties = [d for d in ties if (bill := bills[d.arm.name]) is not None and bill <= least + _bill_tolerance(d)]
        return min(ties, key=lambda d: (d.arm.draft_limit or math.inf, -_estimate(d))).arm.name

    def _result(self, draft: _Draft, point: Point, p_holm: float | None, *, recommended: bool) -> ComparisonResult:
        arm, baseline = draft.arm, self.spec.baseline
        sides = {a.name: [*self.results.by_block(a.name, point.key).values()] for a in (baseline, arm)}
        pooled = Pooled.of(arm.name, point.key, sides[arm.name])
        pooled_baseline = Pooled.of(baseline.name, point.key, sides[baseline.name])
        used = [b for b in draft.blocks if b.matched]
        taken = None if draft.joined else self.looks.taken(arm.name, point.key)
        sure = draft.joined or taken
        standing = any(a.not_restarted for side in sides.values() for a in side)
        checks = (
            list(draft.checks)
            if arm.control
            else [*draft.checks, integrity.holm(draft.input.speedup, p_holm, 1 - sure.confidence if sure else integrity.HOLM_P)]
        )
        return ComparisonResult(
            arm=arm.name,
            mode=arm.mode,
            draft_limit=arm.draft_limit,
            point=point.key,
            workload=point.workload,
            concurrency=point.concurrency,
            occupied_context=point.occupied_context,
            temperature=point.sampling.temperature,
            speedup=draft.input.speedup,
            total_time=draft.total_time,
            leave_one_prompt_out=throughput.leave_one_prompt_out(used, point),
            block_values=throughput.block_values(draft.blocks, point),
            n_prompts=len({m.item for b in used for m in b.matched}),
            n_pairs_dropped=sum(len(b.dropped) for b in draft.blocks),
            p_holm=p_holm,
            noise_floor=self.facts.floor_at(point),
            memory_bill_bytes=memory_taken.bill(draft.blocks),
            context_lost_tokens=memory_taken.lost(sides[baseline.name], sides[arm.name], "context_per_slot"),
            slots_lost=memory_taken.lost(sides[baseline.name], sides[arm.name], "slots"),
            kv_tokens_lost=memory_taken.kv_tokens_lost(draft.blocks),
            came_with=settled.came_with(sides[baseline.name], sides[arm.name], self.spec.engine),
            variation=variation(draft.blocks, point),
            tails=tail_lines(sides[baseline.name], sides[arm.name], draft.blocks, point),
            agreement=draft.said.agreement,
            own_agreement=draft.said.own_agreement,
            quality=draft.said.quality,
            checks=checks,
            verdict=restarts.told(
                joining.told(early.told(draft.verdict, taken.word if taken else None), draft.joined), not_restarted=standing
            ),
            look=taken.word if taken else None,
            joined=draft.joined,
            recommended=recommended,
            not_restarted=standing,
            **throughput.steady(side_numbers(draft.blocks, point.key, arm.name, baseline.name), draft.blocks, point),
            **throughput.side_numbers(draft.blocks, point, arm.name, baseline.name),
            **task_numbers.side_numbers(draft.blocks, point.key, arm.name, baseline.name),
            task_decode_ratio=task_numbers.decode_ratio(draft.blocks, point.key),
            **speculation_numbers(pooled),
            **positions_numbers(pooled),
            drafters=drafters_numbers(pooled),
            **stream_numbers(pooled, pooled_baseline),
            **cycle_numbers(pooled, pooled_baseline),
            **time_split.splits(pooled, pooled_baseline, off=arm.mode == BASELINE_MODE),
        )


def _job_checks(spec: ExperimentSpec, results: Results, facts: JobFacts, answered: AnswersOfJob) -> list[Check]:
    found = [
        job_checks.evidence_hashes(facts.hashes_verified, facts.n_hashes, facts.hash_problem),
        # Where answers were read, each greedy point has a check of its own.
        *([] if answered.are_read and greedy_points(spec) else [job_checks.baseline_repeats(job_checks.greedy_answers(spec, results))]),
        job_checks.noise_floor_known(
            facts.noise_floor,
            {c: facts.floors.get(c) for c in dict.fromkeys(map(point_class, spec.points))},
            not_restarted=spec.runtime.attached,
        ),
        job_checks.shares_cores(facts.shares_cores),
    ]
    return sorted(found, key=lambda check: check.kind != "hard")


def _quality(blocks: Sequence[BlockPairs]) -> stats.PassDifference | Withheld:
    """Task checks over distinct prompts; a prompt that was asked in several blocks counts once, with its mean."""
    by_item: dict[str, list[tuple[bool, bool]]] = {}
    for match in (m for b in blocks for m in b.matched):
        if match.left.check_passed is not None and match.right.check_passed is not None:
            by_item.setdefault(match.item, []).append((match.left.check_passed, match.right.check_passed))
    shares = [(sum(left for left, _ in seen) / len(seen), sum(right for _, right in seen) / len(seen)) for seen in by_item.values()]
    return stats.pass_difference(shares, QUALITY_TOLERANCE)


def _is_shorter(short: Arm, long: Arm) -> bool:
    """Whether the two differ in their limit only, and ``short`` has the shorter one."""
    if short.draft_limit is None or long.draft_limit is None or short.draft_limit >= long.draft_limit:
        return False
    limits = {"name", "draft_limit", "draft_min"}
    return short.model_dump(exclude=limits) == long.model_dump(exclude=limits)


def _estimate(draft: _Draft) -> float:
    return draft.input.speedup.estimate if isinstance(draft.input.speedup, Interval) else 0.0


def _bill_tolerance(draft: _Draft) -> float:
    """Bills closer than 1 % of the engine's own memory (or 1 MiB) are equal: samples of memory move by as much."""
    peaks = [peak for b in draft.blocks if (peak := value_of(b.left.peak_memory_bytes)) is not None]
    return max(2**20, 0.01 * min(peaks, default=0.0))


def _least(values: Sequence[int | None]) -> int | None:
    return min((v for v in values if v is not None), default=None)
