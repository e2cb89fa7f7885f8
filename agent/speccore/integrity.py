"""The integrity panel: each check with a plain sentence and what it rests on.

A failed *hard* check makes a comparison invalid; a soft one warns. A check whose evidence was not measured says "not
checked": it has neither passed nor failed, and is never hard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .differences import difference, field_words
from .formats import percent
from .keys import pair_key
from .measurement import AttemptMeasurement, Check, Interval, Number, ProbeMeasurement, Withheld, value_of
from .pairs import BlockPairs, late_events, used_probes
from .quality_results import TASK_CHECKS
from .spec import is_model_drafter
from .stats import Drift, PassDifference
from .verdict import QUALITY_TOLERANCE

MOST_FAILED = 0.05  # share of probes, and of pairs dropped
MOST_LATE = 0.01  # share of a client's events
LENGTHS_HARD, LENGTHS_SOFT = 0.50, 0.10  # relative difference of mean answer lengths
ALIVE = 0.05  # share of first positions accepted
ALIVE_HARD_TEMPERATURE = 0.2
FEW_PROMPTS = 8
HOLM_P = 0.05
#: Parts of the comparison key without which equal keys show nothing.
ESSENTIAL_FIELDS = ("boot_id", "runtime_hash", "target_hash", "command")
#: Parts of it that a restart of the machine changes.
BETWEEN_BLOCKS = ("boot_id", "inventory_hash", "os")
#: Tokens: prompts of a trial differ within their first 64 bytes, so more in common is a repeat.
COMMON_BEGINNING = 64
NAMED = 10  # so many trials or probes are named in a check's evidence


def passed(name: str, sentence: str, *, hard: bool = False, **evidence: Any) -> Check:
    return Check(name=name, kind="hard" if hard else "soft", passed=True, sentence=sentence, evidence=evidence)


def failed(name: str, sentence: str, *, hard: bool = False, **evidence: Any) -> Check:
    return Check(name=name, kind="hard" if hard else "soft", passed=False, sentence=sentence, evidence=evidence)


def not_checked(name: str, sentence: str, **evidence: Any) -> Check:
    return Check(name=name, kind="soft", passed=False, not_checked=True, sentence=sentence, evidence=evidence)


@dataclass(frozen=True)
class Compared:
    """What the checks of one comparison look at. ``failures``: "trial: message" of attempts that did not count."""

    arm: str
    mode: str
    point: str
    temperature: float
    baseline_attempts: Sequence[AttemptMeasurement]
    arm_attempts: Sequence[AttemptMeasurement]
    blocks: Sequence[BlockPairs]
    drift: Drift | Withheld
    quality: PassDifference | Withheld
    failures: Mapping[str, str]
    n_not_run: int = 0  # trials of the plan that were never begun, though no look had left them out
    warm: bool = False  # each prompt was asked before on purpose
    own_history: bool = False  # the prefix cache is on: later turns of a task find their own history there


def checks(c: Compared) -> list[Check]:
    """All checks of one comparison but Holm's, hard ones first."""
    attempts = [*c.baseline_attempts, *c.arm_attempts]
    probes = {_ref(a, p): p for a in attempts for p in a.probes if p.point == c.point and not p.warmup}
    found = [
        same_key({a.trial: a.pair_fields for a in attempts}, {a.trial: a.block for a in attempts}),
        counts_agree(probes, {a.trial: a.disagreements for a in attempts}),
        no_cache_hits(_hits(c, probes), warm=c.warm),
        probe_failures(c.blocks),
        client_lag(*late_events(attempts, c.point)),
        output_lengths([m.left for b in c.blocks for m in b.matched], [m.right for b in c.blocks for m in b.matched]),
        drafter_alive(c.mode, c.temperature, used_probes(c.arm_attempts, c.point)),
        host_drift(c.drift),
        order_balance([b.position_difference for b in c.blocks if b.matched]),
        few_prompts(len({m.item for b in c.blocks for m in b.matched})),
        task_checks(c.quality),
        failed_trials(c.failures, c.n_not_run),
        evidence_whole({a.trial: a.problems for a in attempts}),
    ]
    return sorted(found, key=lambda check: check.kind != "hard")


def _hits(c: Compared, probes: Mapping[str, ProbeMeasurement]) -> dict[str, float | None]:
    """Prompt tokens from the prefix cache that say something.

    Not a task's own history where that cache is on, nor, before its first turn, the beginning that all prompts have (the token
    that begins a text, a first word).
    """
    hits = {ref: value_of(p.cache_hit_tokens) for ref, p in probes.items() if not (c.own_history and (p.turn or 1) > 1)}
    common = {ref for ref, n in hits.items() if c.own_history and probes[ref].turn and n is not None and n < COMMON_BEGINNING}
    return {ref: 0.0 if ref in common else n for ref, n in hits.items()}


def _ref(attempt: AttemptMeasurement, probe: ProbeMeasurement) -> str:
    return f"{attempt.trial}/{probe.probe}"


# --- hard ---


def same_key(fields_by_trial: Mapping[str, Mapping[str, str]], block_of: Mapping[str, int] | None = None) -> Check:
    """Everything but speculation is equal in all trials of the ratio.

    A ratio is taken inside a block: what a restart of the machine changes (:data:`BETWEEN_BLOCKS`) may differ between
    blocks, of which ``block_of`` tells each trial's.
    """
    name = "same comparison key"
    if not fields_by_trial:
        return not_checked(name, "no trial to compare")
    if block_of and (restarts := _values_between_blocks(fields_by_trial, block_of)):
        alike = {t: {k: v for k, v in fields.items() if k not in BETWEEN_BLOCKS} for t, fields in fields_by_trial.items()}
        first = {k: v for k, v in next(iter(fields_by_trial.values())).items() if k in BETWEEN_BLOCKS}
        check = same_key({t: {**fields, **first} for t, fields in alike.items()})
        sentence = f"{check.sentence}; different between blocks and not inside any: {_fields(restarts)}"
        return check.model_copy(update={"sentence": sentence}) if check.passed else check
    keys = {trial: pair_key(fields) for trial, fields in fields_by_trial.items()}
    if len(set(keys.values())) == 1:
        fields = next(iter(fields_by_trial.values()))
        if unknown := [n for n in ESSENTIAL_FIELDS if not fields.get(n)]:
            return not_checked(name, f"equal as far as known, but no trial has evidence of its {_fields(unknown)}")
        return passed(name, "host, boot, build, files and settings are the same in all trials", hard=True, key=next(iter(keys.values())))
    names = sorted({n for fields in fields_by_trial.values() for n in fields})
    differing = {n: {trial: fields.get(n, "") for trial, fields in fields_by_trial.items()} for n in names}
    differing = {n: by_trial for n, by_trial in differing.items() if len(set(by_trial.values())) > 1}
    shown = "; ".join(difference(n, by_trial) for n, by_trial in sorted(differing.items()))
    return failed(name, f"trials differ in more than speculation: {shown}", hard=True, keys=keys, fields=sorted(differing))


def _values_between_blocks(fields_by_trial: Mapping[str, Mapping[str, str]], block_of: Mapping[str, int]) -> list[str]:
    """Which of :data:`BETWEEN_BLOCKS` differ between blocks, if none of them differs inside a block; else nothing."""
    found = []
    for name in BETWEEN_BLOCKS:
        by_block: dict[int, set[str]] = {}
        for trial, fields in fields_by_trial.items():
            by_block.setdefault(block_of[trial], set()).add(fields.get(name, ""))
        if any(len(values) > 1 for values in by_block.values()):
            return []
        if len(set().union(*by_block.values())) > 1:
            found.append(name)
    return found


def _place(ref: str) -> str:
    """``b1-off/count/c1/ctx0/t0#2`` → ``probe 2 of count in b1-off``."""
    trial, _, probe = ref.partition("/")
    point, _, number = probe.rpartition("#")
    return f"probe {number} of {point.split('/')[0]} in {trial}" if point else ref


def _fields(names: Iterable[str]) -> str:
    return ", ".join(field_words(name) for name in names)


def counts_agree(probes: Mapping[str, ProbeMeasurement], together: Mapping[str, Sequence[str]] | None = None) -> Check:
    """Client and server count the same tokens in each answer, and the sources of the counters agree.

    ``together``: by trial, what contradicts the sum over requests that ran together. Sources that differ are shown with
    their values and places; none is averaged away.
    """
    name = "counts agree"
    wrong = [ref for ref, p in probes.items() if p.failure == "counts_disagree" or _differ(p)]
    sums = {trial: list(found) for trial, found in (together or {}).items() if found}
    if wrong:
        first = probes[wrong[0]]
        why = first.failure_message or f"client {value_of(first.completion_tokens):g}, server {value_of(first.server_tokens):g} tokens"
        sentence = f"{_n(wrong, 'probe')} counted differently by client and server, first {_place(wrong[0])}: {why}"
        said = {ref: _said(probes[ref]) for ref in wrong[:NAMED]}
        return failed(name, sentence, hard=True, probes=wrong[:NAMED], said=said, trials=sums)
    if sums:
        trial, found = next(iter(sums.items()))
        return failed(
            name, f"requests that ran together don't add up to the engine's counters, first in {trial}: {found[0]}", hard=True, trials=sums
        )
    compared = [ref for ref, p in probes.items() if value_of(p.completion_tokens) is not None and value_of(p.server_tokens) is not None]
    if not compared:
        return not_checked(name, "no probe has both the client's and the server's count")
    return passed(name, f"client and server agree on the tokens of {len(compared)} of {len(probes)} probes", hard=True, n=len(compared))


def _said(p: ProbeMeasurement) -> dict[str, list[dict[str, Any]]]:
    """For each count whose sources differ, what each of them says and where."""
    counts = {"tokens": p.completion_tokens} | {n: getattr(p.counters, n) for n in ("drafted", "accepted", "verify_steps")}
    numbers = {n: [c, *c.also] for n, c in counts.items() if isinstance(c, Number)}
    return {
        n: [{"value": s.value, **s.source.model_dump()} for s in sources]
        for n, sources in numbers.items()
        if len({s.value for s in sources}) > 1
    }


def _differ(p: ProbeMeasurement) -> bool:
    client, server = value_of(p.completion_tokens), value_of(p.server_tokens)
    return p.ok and client is not None and server is not None and client != server


def no_cache_hits(hits: Mapping[str, float | None], *, warm: bool = False) -> Check:
    """``hits``: prompt tokens from the prefix cache by probe; None where the engine doesn't say. ``warm``: they are meant."""
    name = "no cache hits"
    hit = {ref: n for ref, n in hits.items() if n}
    if warm:
        came = f"{sum(hit.values()):g} prompt tokens came from the prefix cache in {len(hit)} of {_n(hits, 'probe')}"
        return not_checked(
            name, f"each prompt was asked before in the same start, on purpose: {came}", probes=dict(list(hit.items())[:NAMED])
        )
    if hit:
        sentence = f"{sum(hit.values()):g} prompt tokens came from the prefix cache in {_n(hit, 'probe')} of a cold trial"
        return failed(name, sentence, hard=True, probes=dict(list(hit.items())[:NAMED]))
    known = [ref for ref, n in hits.items() if n is not None]
    if not known:
        return not_checked(name, "the engine does not say what came from its prefix cache")
    return passed(name, f"no prompt token came from the prefix cache in {_n(known, 'probe')}", hard=True, n=len(known))


def probe_failures(blocks: Sequence[BlockPairs]) -> Check:
    """At most 5 % of an arm's probes fail, not in one arm only, and at most 5 % of pairs are dropped."""
    name = "probe failures"
    planned = sum(b.n_planned for b in blocks)
    if not planned:
        return not_checked(name, "no block has both arms")
    left = [ref for b in blocks for ref in b.left_failed]
    right = [ref for b in blocks for ref in b.right_failed]
    dropped = {f"block {b.block}: {item}": why for b in blocks for item, why in b.dropped.items()}
    faults = [
        f"{_n(refs, 'probe')} of {planned} failed in the {who} ({percent(len(refs) / planned)}{', and none in the other' if not others else ''})"
        for who, refs, others in (("baseline", left, right), ("arm", right, left))
        if refs and (not others or len(refs) / planned > MOST_FAILED)
    ]
    if len(dropped) / planned > MOST_FAILED and not faults:
        where, why = next(iter(dropped.items()))
        faults.append(f"{_n(dropped, 'pair')} of {planned} dropped ({percent(len(dropped) / planned)}), first {where} ({why})")
    evidence = {"baseline": left[:NAMED], "arm": right[:NAMED], "dropped": dict(list(dropped.items())[:NAMED]), "n_planned": planned}
    if faults:
        return failed(name, "; ".join(faults), hard=True, **evidence)
    return passed(
        name, f"{len(left) + len(right)} of {2 * planned} probes failed, {len(dropped)} of {planned} pairs dropped", hard=True, **evidence
    )


def client_lag(n_late: int, n_events: int) -> Check:
    """At most 1 % of the events were read so late that their arrival is only a bound; ``n_events`` 0: the client can't tell."""
    name = "client lag"
    if not n_events:
        return not_checked(name, "the client had no stamps of the kernel, so it can't tell when it read late")
    share = n_late / n_events
    sentence = f"the client read {n_late} of {n_events} events so late that their arrival is only a bound ({percent(share, 1)})"
    if share <= MOST_LATE:
        return passed(name, sentence, hard=True, n_late=n_late, n_events=n_events)
    remedy = "something else wanted its cores: measure again while the host is idle"
    return failed(name, f"{sentence}; {remedy}", hard=True, n_late=n_late, n_events=n_events)


def output_lengths(baseline: Sequence[ProbeMeasurement], arm: Sequence[ProbeMeasurement]) -> Check:
    """Mean answer lengths over matched prompts: hard over 50 % apart, soft from 10 %."""
    name = "output lengths"
    lengths = [[n for p in side if (n := value_of(p.completion_tokens)) is not None] for side in (baseline, arm)]
    if not lengths[0] or not lengths[1]:
        return not_checked(name, "no matched prompt has its length counted in both arms")
    means = [sum(side) / len(side) for side in lengths]
    return length_check(*means)


def length_check(baseline_mean: float, arm_mean: float) -> Check:
    name = "output lengths"
    difference = abs(arm_mean - baseline_mean) / baseline_mean
    sentence = (
        f"answers have {baseline_mean:.1f} tokens on average in the baseline and {arm_mean:.1f} in the arm ({percent(difference)} apart)"
    )
    if difference > LENGTHS_HARD:
        return failed(name, sentence, hard=True, baseline=baseline_mean, arm=arm_mean)
    if difference >= LENGTHS_SOFT:
        return failed(name, sentence, baseline=baseline_mean, arm=arm_mean)
    return passed(name, sentence, hard=True, baseline=baseline_mean, arm=arm_mean)


def drafter_alive(mode: str, temperature: float, probes: Sequence[ProbeMeasurement]) -> Check:
    """The helper's first proposal is accepted in at least 5 % of the steps that had one."""
    name = "drafter alive"
    steps = accepted = 0.0
    for probe in probes:
        n = value_of(probe.counters.verify_steps)
        positions = probe.counters.accepted_by_position
        if n is None or isinstance(positions, Withheld):
            continue
        steps += n
        accepted += positions[0] if positions else 0
    if not steps:
        return not_checked(name, "no step with a draft was counted by position")
    share = accepted / steps
    hard = is_model_drafter(mode) and temperature <= ALIVE_HARD_TEMPERATURE
    sentence = f"the first drafted token was accepted in {accepted:g} of {steps:g} steps ({percent(share)})"
    return (failed if share < ALIVE else passed)(name, sentence, hard=hard, accepted=accepted, steps=steps)


# --- soft ---


def host_drift(drift: Drift | Withheld) -> Check:
    name = "drift"
    if isinstance(drift, Withheld):
        return not_checked(name, f"whether the host drifts inside a block: {drift.withheld}")
    evidence: dict[str, Any] = {"slope_per_position": drift.slope, "p": drift.p, "shift": drift.shift}
    if drift.flagged:
        sentence = (
            f"the result moves with the place in the block (p = {drift.p:.3f}): the speed-up shown is the regression's at equal places"
        )
        return failed(name, sentence, **evidence)
    return passed(name, f"the result does not move with the place in the block (p = {drift.p:.2f})", **evidence)


def order_balance(position_differences: Sequence[int]) -> Check:
    name = "order balance"
    if not position_differences:
        return not_checked(name, "no block has both arms")
    after = sum(d > 0 for d in position_differences)
    before = len(position_differences) - after
    sentence = f"the arm ran before the baseline in {before} block{'' if before == 1 else 's'} and after it in {after}"
    return (failed if abs(before - after) > 1 else passed)(name, sentence, before=before, after=after)


def few_prompts(n: int) -> Check:
    name = "distinct prompts"
    if n < FEW_PROMPTS:
        return failed(
            name, f"these prompts only: {n} distinct one{'' if n == 1 else 's'}, a claim on this kind of work needs {FEW_PROMPTS}", n=n
        )
    return passed(name, f"{n} distinct prompts", n=n)


def task_checks(quality: PassDifference | Withheld) -> Check:
    """Whether the arm's answers are as right as the baseline's. Not shown is not held."""
    if isinstance(quality, Withheld):
        return not_checked(TASK_CHECKS, f"quality not checked: {quality.withheld}")
    evidence: dict[str, Any] = {"n": quality.n, "baseline": quality.baseline, "arm": quality.arm, "low": quality.low, "high": quality.high}
    shares = f"{percent(quality.arm)} of the task checks passed in the arm, {percent(quality.baseline)} in the baseline"
    if quality.high < -QUALITY_TOLERANCE:
        return failed(TASK_CHECKS, f"quality lost: {shares}, n = {quality.n}", **evidence)
    if quality.low > -QUALITY_TOLERANCE:
        return passed(TASK_CHECKS, f"quality held: {shares}, n = {quality.n}", **evidence)
    return not_checked(TASK_CHECKS, f"quality not shown: {shares}, n = {quality.n}, needs about {quality.needed} prompts", **evidence)


def failed_trials(failures: Mapping[str, str], n_not_run: int = 0) -> Check:
    name = "failed trials"
    if not failures and n_not_run:
        trials = "1 trial of the plan was" if n_not_run == 1 else f"{n_not_run} trials of the plan were"
        return passed(name, f"no trial of the two arms failed; {trials} not run", n_not_run=n_not_run)
    if not failures:
        return passed(name, "every trial of the two arms has an attempt that counts, at the first try")
    trial, why = next(iter(failures.items()))
    return failed(name, f"{_n(failures, 'trial')} failed at least once, first {trial}: {why}", trials=dict(list(failures.items())[:NAMED]))


def evidence_whole(problems: Mapping[str, Sequence[str]]) -> Check:
    name = "evidence whole"
    broken = {trial: list(found) for trial, found in problems.items() if found}
    if not broken:
        return passed(name, "all evidence files are there and readable")
    trial, found = next(iter(broken.items()))
    return failed(name, f"evidence of {_n(broken, 'trial')} is missing or unreadable, first {trial}: {found[0]}", trials=broken)


def holm(speedup: Interval | Withheld, p_holm: float | None, level: float = HOLM_P) -> Check:
    """Warns where the interval excludes 1 and the p adjusted for the arms of the point does not, at the interval's own level."""
    name = "Holm"
    if p_holm is None or not isinstance(speedup, Interval) or speedup.low is None or speedup.high is None:
        return not_checked(name, "no p without 3 blocks")
    if (speedup.low > 1 or speedup.high < 1) and p_holm >= level:
        return failed(
            name,
            f"the interval excludes 1, but among the arms of this point such a result may be chance (adjusted p = {p_holm:.3f})",
            p=p_holm,
        )
    return passed(name, f"adjusted for the arms of this point p = {p_holm:.3f}", p=p_holm)


def _n(things: Any, noun: str) -> str:
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"
