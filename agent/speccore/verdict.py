"""The verdict on an arm at a point: one pure function, whose rules apply in a fixed order.

1 does not fit · 2 invalid · 3 not engaged · (fewer than 3 blocks: nothing more is said) · 4 a requirement is lost ·
5 a shorter limit is better · 6 keep · 7 slower · 8 not worth it · 9 inconclusive.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from .formats import percent
from .measurement import Check, Interval, Verdict, VerdictWord, Withheld
from .next_steps import next_step
from .openloop import OVERLOADED
from .quality_results import GREEDY_ANSWERS, QualityMeasure
from .spec import is_model_drafter
from .stats import CONFIDENCE, MIN_BLOCKS, PassDifference, blocks_needed, too_few_blocks

#: An arm out of memory in so many blocks while the baseline ran does not fit.
OOM_BLOCKS = 2
#: Points of task checks (as a share) that an arm may lose.
QUALITY_TOLERANCE = 0.02
#: "So many more blocks" is advice up to here.
MOST_MORE_BLOCKS = 100


@dataclass(frozen=True)
class Shorter:
    """An arm of the same mode with a shorter draft limit. ``versus``: this arm's seconds ÷ the shorter one's, same blocks."""

    arm: str
    draft_limit: int
    worth_keeping: bool
    versus: Interval | Withheld


@dataclass(frozen=True)
class VerdictInput:
    """All that the verdict knows. ``noise_floor`` as a ratio minus 1; None: unknown, taken as 0."""

    mode: str
    margin: float
    speedup: Interval | Withheld
    total_time: Interval | Withheld
    noise_floor: float | None = None
    block_values: Sequence[float] = ()
    confidence: float = CONFIDENCE  # of the interval that more blocks would have, about
    control: bool = False  # mode off against the baseline: measures the host, is never kept
    explains: bool = False  # a control with what another arm's speculation implies: no second baseline
    together: bool = False  # several requests at once: the speed-up is one of tokens per second, not of prompts
    oom_blocks: int = 0  # blocks in which the arm ran out of memory and the baseline did not
    target_layers_moved: int = 0  # off the device, because of the helper
    failure: str = ""  # code of what kept the arm or its baseline from running at all
    failure_sentence: str = ""
    checks: Sequence[Check] = ()
    speculation_reported: bool | None = None  # by the engine; None: it doesn't say
    drafted: float | None = None  # over all probes of the arm; None: unknown
    not_engaged_why: str = ""
    required_context: int | None = None
    context: int | None = None
    required_slots: int | None = None
    slots: int | None = None
    required_free_bytes: float | None = None
    free_bytes: float | None = None  # left where the model runs, at its lowest; None: not known
    quality: PassDifference | Withheld | None = None  # of task checks
    measures: Sequence[QualityMeasure] = ()  # all that was looked at: task checks, greedy answers, the sampling rule
    required_quality: str = "not lost"
    shorter_that_holds: str = ""  # an arm with a shorter limit that holds the requirement
    shorter: Sequence[Shorter] = field(default_factory=tuple)


def judge(v: VerdictInput) -> Verdict:
    """Applies the rules in order; the first that speaks decides."""
    for rule in (_does_not_fit, _invalid, _not_engaged, _too_few_blocks, _explains, _requirement_lost, _shorten):
        verdict = rule(v)
        if verdict is not None:
            break
    else:
        verdict = _by_time(v)
    return verdict.model_copy(update={"next_step": next_step(verdict.word, verdict.reason)})


def holds_requirements(v: VerdictInput) -> bool:
    """Whether the arm was measured and is known to offer all that the experiment requires."""
    enough = isinstance(v.speedup, Interval) and v.speedup.n_blocks >= MIN_BLOCKS
    refused = _does_not_fit(v) or _invalid(v) or _not_engaged(v) or _requirement_lost(v)
    return enough and refused is None and not _unreported(v) and not _quality_owed(v)


def keep_threshold(margin: float, noise_floor: float | None) -> float:
    """What the interval's lower end must be over."""
    return 1 + max(margin, noise_floor or 0.0)


def slower_threshold(noise_floor: float | None) -> float:
    """What the interval's upper end must be under."""
    return 1 / (1 + (noise_floor or 0.0))


def _does_not_fit(v: VerdictInput) -> Verdict | None:
    if v.oom_blocks >= OOM_BLOCKS:
        sentence = f"ran out of memory in {v.oom_blocks} blocks in which the baseline ran"
    elif v.target_layers_moved > 0:
        sentence = f"the helper moved {_count(v.target_layers_moved, 'layer')} of the target off the device"
    else:
        return None
    return Verdict(word="disable", reason="does not fit", sentence=sentence)


def _invalid(v: VerdictInput) -> Verdict | None:
    for check in v.checks:
        if check.kind == "hard" and check.state == "failed":
            return Verdict(word="invalid", reason=check.name, sentence=check.sentence)
    if v.failure:
        return Verdict(word="invalid", reason=v.failure, sentence=v.failure_sentence)
    return None


def _not_engaged(v: VerdictInput) -> Verdict | None:
    if v.control:
        return None
    if v.speculation_reported is False:
        why = v.not_engaged_why or "the engine does not report speculation as on"
    elif is_model_drafter(v.mode) and v.drafted is not None and v.drafted <= 0:
        why = v.not_engaged_why or "the helper model drafted 0 tokens"
    else:
        return None
    return Verdict(word="not engaged", reason="not engaged", sentence=f"speculation did not happen: {why}")


def _too_few_blocks(v: VerdictInput) -> Verdict | None:
    if isinstance(v.speedup, Interval) and v.speedup.n_blocks >= MIN_BLOCKS:
        return None
    sentence = too_few_blocks(v.speedup.n_blocks) if isinstance(v.speedup, Interval) else v.speedup.withheld
    behind = isinstance(v.speedup, Withheld) and v.speedup.reason_code == OVERLOADED
    return Verdict(word="inconclusive", reason=OVERLOADED if behind else "too few blocks", sentence=sentence)


def _explains(v: VerdictInput) -> Verdict | None:
    if not v.explains:
        return None
    assert isinstance(v.speedup, Interval)
    sentence = f"{ratio(v.speedup)} the baseline's speed with the settings that its extra names, without a draft"
    return Verdict(word="inconclusive", reason="explains only", sentence=sentence)


def _requirement_lost(v: VerdictInput) -> Verdict | None:
    if v.required_context is not None and v.context is not None and v.context < v.required_context:
        reason = "context"
        sentence = f"offers {v.context:,} tokens of context per slot, {v.required_context:,} are required"
    elif v.required_slots is not None and v.slots is not None and v.slots < v.required_slots:
        reason = "concurrency"
        sentence = f"offers {_count(v.slots, 'slot')}, {v.required_slots} are required"
    elif v.required_free_bytes is not None and v.free_bytes is not None and v.free_bytes < v.required_free_bytes:
        reason = "memory"
        sentence = f"leaves {_mib(v.free_bytes)} MiB free where the model runs, {_mib(v.required_free_bytes)} MiB are required"
    elif isinstance(v.quality, PassDifference) and v.quality.high < -QUALITY_TOLERANCE:
        reason = "quality"
        sentence = (
            f"passes {percent(v.quality.arm)} of the task checks against the baseline's {percent(v.quality.baseline)} "
            f"(difference {_points(v.quality.low)} to {_points(v.quality.high)} points over {v.quality.n} prompts)"
        )
    elif lost := next((m for m in v.measures if m.state == "lost"), None):
        reason, sentence = "quality", lost.sentence
    else:
        return None
    if v.shorter_that_holds:
        sentence += f"; {v.shorter_that_holds}, with a shorter limit, holds it"
    return Verdict(word="disable", reason=reason, sentence=sentence)


def _shorten(v: VerdictInput) -> Verdict | None:
    better = [
        (s.versus.estimate, s)
        for s in v.shorter
        if s.worth_keeping and isinstance(s.versus, Interval) and s.versus.low is not None and s.versus.low > 1 + v.margin
    ]
    if not better:
        return None
    best = max(better, key=lambda pair: (pair[0], -pair[1].draft_limit))[1]
    assert isinstance(best.versus, Interval)
    sentence = f"{best.arm} (limit {best.draft_limit}) is {ratio(best.versus)} as fast as this arm and worth keeping itself"
    return Verdict(word="shorten", reason="shorter limit is better", sentence=sentence)


def _by_time(v: VerdictInput) -> Verdict:
    assert isinstance(v.speedup, Interval)
    assert v.speedup.low is not None
    assert v.speedup.high is not None
    floor = v.noise_floor or 0.0
    decided: tuple[VerdictWord, str, str, bool] | None = None
    total = v.total_time.estimate if isinstance(v.total_time, Interval) else None
    if v.speedup.low > keep_threshold(v.margin, floor):
        decided = "keep", "faster", f"{ratio(v.speedup)} the baseline's speed", total is not None and total < 1
    elif v.speedup.high < slower_threshold(floor):
        decided = "disable", "slower", f"{ratio(v.speedup)} the baseline's speed", total is not None and total > 1
    elif floor <= v.margin and v.speedup.high < 1 + v.margin:
        sentence = f"{ratio(v.speedup)} the baseline's speed: no gain of {percent(v.margin)} or more"
        decided = "disable", "not worth it", sentence, total is not None and total > 1 + v.margin
    if decided is None:
        return _undecided(v, v.speedup.low, v.speedup.high, floor)
    word, reason, sentence, other_side = decided
    if other_side:
        assert total is not None
        sentence = f"{ratio(v.speedup)} by prompt, but {total:.2f}× in total time: the prompts disagree, look at each kind of work apart"
        if v.together:
            sentence = f"{ratio(v.speedup)} in tokens per second of all requests, but {total:.2f}× in the time that they take one by one"
        return Verdict(word="inconclusive", reason="prompts disagree", sentence=sentence)
    if v.control and reason != "not worth it":
        sentence += ", though it is the baseline once more: this host does not resolve so little"
        return Verdict(word="inconclusive", reason="floor-limited", sentence=sentence)
    if word == "keep":
        return _kept(v, sentence)
    return Verdict(word=word, reason=reason, sentence=sentence)


def _kept(v: VerdictInput, sentence: str) -> Verdict:
    """What was not measured is not held: a required context or slot count must be known before an arm is kept."""
    unknown = _unreported(v)
    if unknown:
        sentence += f", but its {' and '.join(unknown)}, which the experiment requires, {'is' if len(unknown) == 1 else 'are'} not known"
        return Verdict(word="inconclusive", reason="requirement not checked", sentence=sentence)
    if owed := _quality_owed(v):
        sentence += f", but quality is required to be held and not shown to be: {owed}"
        return Verdict(word="inconclusive", reason="quality not shown", sentence=sentence)
    if isinstance(v.quality, PassDifference) and v.quality.low <= -QUALITY_TOLERANCE:
        sentence += f"; quality not shown, n = {v.quality.n}, needs about {v.quality.needed} prompts"
    if wrong := next((m for m in v.measures if m.name == GREEDY_ANSWERS and _is_worse(m)), None):
        sentence += f"; {wrong.sentence}"
    return Verdict(word="keep", reason="faster", sentence=sentence)


def _is_worse(m: QualityMeasure) -> bool:
    return m.arm is not None and m.baseline is not None and m.arm < m.baseline


def _quality_owed(v: VerdictInput) -> str:
    """In words what keeps required quality from being held; empty where it is held, or not required. Not checked is not held."""
    task_checks_held = isinstance(v.quality, PassDifference) and v.quality.low > -QUALITY_TOLERANCE
    if v.required_quality != "held" or task_checks_held or any(m.state == "held" for m in v.measures):
        return ""
    seen = [m for m in v.measures if m.needed is not None]
    said = [f"{m.name}, n = {m.n}, needs about {m.needed} prompts" for m in seen]
    return "; ".join(said) or "no prompt has a check, and none was answered at temperature 0"


def _unreported(v: VerdictInput) -> list[str]:
    sides = (
        ("context", v.required_context, v.context),
        ("number of slots", v.required_slots, v.slots),
        ("memory left free", v.required_free_bytes, v.free_bytes),
    )
    return [name for name, required, has in sides if required is not None and has is None]


def _undecided(v: VerdictInput, low: float, high: float, floor: float) -> Verdict:
    assert isinstance(v.speedup, Interval)
    if floor > v.margin and slower_threshold(floor) <= low and high <= 1 + floor:
        sentence = f"{ratio(v.speedup)}: this host can't resolve less than {percent(floor)}, and more blocks don't change that"
        return Verdict(word="inconclusive", reason="floor-limited", sentence=sentence)
    sentence = f"{ratio(v.speedup)} straddles the margin; {more_blocks(v, math.log(high / low) / 2)}"
    return Verdict(word="inconclusive", reason="noise-limited", sentence=sentence)


def more_blocks(v: VerdictInput, half_width: float) -> str:
    """How many more blocks would help, in words: enough to settle it at this estimate, or else to narrow the interval."""
    assert isinstance(v.speedup, Interval)
    estimate, n = math.log(v.speedup.estimate), v.speedup.n_blocks
    thresholds = (math.log(keep_threshold(v.margin, v.noise_floor)), math.log(slower_threshold(v.noise_floor)))
    to_settle = min(abs(estimate - t) for t in thresholds)
    coarse = math.log1p(v.margin) if half_width > math.log1p(v.margin) > 0 else half_width / 2
    for target, gain in ((to_settle, "to settle it, if it stays at this"), (coarse, f"for ±{_percent(math.expm1(coarse))}")):
        needed = blocks_needed(v.block_values, target, v.confidence)
        if needed is not None and n < needed <= n + MOST_MORE_BLOCKS:
            return f"needs {_count(needed - n, 'more block')} {gain}"
    return "it is too noisy here for more blocks to settle it soon: make the host quieter"


def ratio(interval: Interval) -> str:
    """``1.91× [1.89–1.92]``."""
    if interval.low is None or interval.high is None:
        return f"{interval.estimate:.2f}×"
    return f"{interval.estimate:.2f}× [{interval.low:.2f}–{interval.high:.2f}]"


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _mib(n_bytes: float) -> str:
    return f"{n_bytes / 2**20:,.0f}"


def _percent(share: float) -> str:
    return f"{share * 100:.0f} %" if share >= 0.01 else f"{share * 100:.1f} %"


def _points(share: float) -> str:
    return f"{min(1.0, max(-1.0, share)) * 100:+.0f}"
