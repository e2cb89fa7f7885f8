"""Numbers of a comparison that aggregate over probes; each names its formula and the probes that it came from."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .cycles import conditional, survival
from .measurement import AttemptMeasurement, DrafterCounts, Maybe, Number, ProbeMeasurement, Source, Withheld, value_of
from .pairs import BlockPairs, used_probes

#: The ``file`` of a number that was computed from several probes.
ANALYSIS = "analysis"


def computed(value: float, formula: str, what: str) -> Number:
    return Number(value=value, source=Source(file=ANALYSIS, field=f"{formula}, over {what}"))


def block_range(blocks: Iterable[int]) -> str:
    """``blocks 1–3, 5``."""
    runs: list[list[int]] = []
    for block in sorted(set(blocks)):
        if runs and block == runs[-1][-1] + 1:
            runs[-1].append(block)
        else:
            runs.append([block])
    text = ", ".join(f"{run[0]}" if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)
    return f"block{'' if text.isdigit() else 's'} {text}"


@dataclass(frozen=True)
class Pooled:
    """The valid probes of one arm at one point, with the blocks that they are from."""

    arm: str
    point: str
    probes: Sequence[ProbeMeasurement]
    blocks: Sequence[int]

    @classmethod
    def of(cls, arm: str, point: str, attempts: Sequence[AttemptMeasurement]) -> Pooled:
        return cls(arm, point, used_probes(attempts, point), [a.block for a in attempts])

    def label(self, n: int | None = None) -> str:
        n = len(self.probes) if n is None else n
        some = f"{n} of {len(self.probes)} probes" if n != len(self.probes) else f"{n} probe{'' if n == 1 else 's'}"
        return f"{some} of {self.arm} at {self.point}, {block_range(self.blocks)}"

    def sums(self, *names: str) -> tuple[list[float], int] | Withheld:
        """Sums of counters over the probes that have all of them, and how many those are."""
        rows: list[list[float]] = []
        reason: Withheld | None = None
        for probe in self.probes:
            numbers: list[Maybe] = [getattr(probe.counters, name) for name in names]
            missing = [n for n in numbers if isinstance(n, Withheld)]
            if missing:
                reason = reason or missing[0]
            else:
                rows.append([n.value for n in numbers if isinstance(n, Number)])
        if not rows:
            return reason or Withheld(withheld="no valid probe", reason_code="no_probes")
        return [sum(column) for column in zip(*rows)], len(rows)

    def ratio(self, top: str, bottom: str, formula: str, if_none: str, *, plus: float = 0.0) -> Maybe:
        """Σ top ÷ Σ bottom (token-weighted); withheld with ``if_none`` where there is nothing to divide by."""
        found = self.sums(top, bottom)
        if isinstance(found, Withheld):
            return found
        (above, below), n = found
        if below <= 0:
            return Withheld(withheld=if_none, reason_code="nothing_counted")
        return computed(plus + above / below, formula, self.label(n))


def speculation_numbers(arm: Pooled) -> dict[str, Maybe]:
    """Acceptance and its relatives by their metric ids."""
    return {
        "acceptance_rate": arm.ratio("accepted", "drafted", "Σ accepted ÷ Σ drafted", "nothing was drafted"),
        "mean_acceptance_length": arm.ratio("accepted", "verify_steps", "1 + Σ accepted ÷ Σ verify_steps", "no step had a draft", plus=1.0),
        "tokens_per_target_pass": arm.ratio("emitted", "decode_steps", "Σ emitted ÷ Σ decode_steps", "no decode step was counted"),
        "drafted_per_cycle": arm.ratio("drafted", "verify_steps", "Σ drafted ÷ Σ verify_steps", "no step had a draft"),
        "acceptance_rate_by_request": _acceptance_by_request(arm),
    }


def drafters_numbers(arm: Pooled) -> list[DrafterCounts]:
    """The tallies of drafters that stood beside each other, summed over the probes whose log tells them apart."""
    told = [p.counters.drafters for p in arm.probes if p.counters.drafters]
    found = []
    for name in dict.fromkeys(d.type for drafters in told for d in drafters):
        own = [d for drafters in told for d in drafters if d.type == name]
        found.append(
            DrafterCounts(type=name, **{field: _summed(arm, own, field) for field in ("drafts", "drafted", "accepted", "draft_ms")})
        )
    return found


def _summed(arm: Pooled, own: Sequence[DrafterCounts], field: str) -> Maybe:
    numbers: list[Maybe] = [getattr(d, field) for d in own]
    if missing := next((n for n in numbers if isinstance(n, Withheld)), None):
        return missing
    return computed(sum(n.value for n in numbers if isinstance(n, Number)), f"Σ {field}", arm.label(len(own)))


def _acceptance_by_request(arm: Pooled) -> Maybe:
    """Each request weighs the same, however much was drafted for it; those without a draft have no rate."""
    known: list[tuple[float, float]] = []
    reason: Withheld | None = None
    for probe in arm.probes:
        drafted, accepted = probe.counters.drafted, probe.counters.accepted
        if isinstance(drafted, Number) and isinstance(accepted, Number):
            known.append((accepted.value, drafted.value))
        else:
            reason = reason or (drafted if isinstance(drafted, Withheld) else accepted if isinstance(accepted, Withheld) else None)
    if not known:
        return reason or Withheld(withheld="no valid probe", reason_code="no_probes")
    rates = [accepted / drafted for accepted, drafted in known if drafted > 0]
    if not rates:
        return Withheld(withheld="nothing was drafted", reason_code="nothing_counted")
    return computed(statistics.fmean(rates), "mean of accepted ÷ drafted", arm.label(len(rates)))


def positions_numbers(arm: Pooled) -> dict[str, list[float] | Withheld]:
    """Acceptance by position, as a share of all verification steps and of those that accepted the position before."""
    counted = _counted_by_position(arm)
    if isinstance(counted, Withheld):
        return {"accepted_by_position": counted, "conditional_by_position": counted}
    return {"accepted_by_position": survival(*counted), "conditional_by_position": conditional(*counted)}


def _counted_by_position(arm: Pooled) -> tuple[list[float], float] | Withheld:
    """Acceptances at each position and the verification steps, over probes that have both."""
    steps = 0.0
    accepted: list[float] = []
    reason: Withheld | None = None
    for probe in arm.probes:
        n, positions = probe.counters.verify_steps, probe.counters.accepted_by_position
        if isinstance(n, Withheld) or isinstance(positions, Withheld):
            reason = reason or (n if isinstance(n, Withheld) else positions if isinstance(positions, Withheld) else None)
            continue
        steps += n.value
        accepted += [0.0] * (len(positions) - len(accepted))
        for i, count in enumerate(positions):
            accepted[i] += count
    if not steps:
        return reason or Withheld(withheld="no step had a draft", reason_code="nothing_counted")
    return accepted, steps


def cycle_numbers(arm: Pooled, baseline: Pooled) -> dict[str, Maybe]:
    """Time per cycle and its parts, the baseline's plain step, the break-even and the gain; both arms by the same clock."""
    decoding = [p.counters for side in (arm, baseline) for p in side.probes if value_of(p.counters.decode_steps) != 0]
    engine_clock = all(value_of(c.eval_ms) is not None for c in decoding)  # an answer of one token has no step, and no time of it
    clock = _engine_ms if engine_clock else _client_ms
    cycle, plain = _ms_per_step(arm, clock), _ms_per_step(baseline, clock)
    if isinstance(cycle, Number) and isinstance(plain, Number):
        even: Maybe = computed(cycle.value / plain.value, "cycle_ms ÷ plain_step_ms", f"{arm.label()} and {baseline.label()}")
    else:
        even = cycle if isinstance(cycle, Withheld) else plain
    return {
        "cycle_ms": cycle,
        "plain_step_ms": plain,
        "break_even_tokens_per_pass": even,
        "decoding_gain": _decoding_gain(arm, even),
        **_cycle_parts(arm),
    }


def _decoding_gain(arm: Pooled, even: Maybe) -> Maybe:
    """What the arm has in tokens per target pass ÷ what it needs."""
    has = speculation_numbers(arm)["tokens_per_target_pass"]
    if isinstance(has, Withheld) or isinstance(even, Withheld):
        return has if isinstance(has, Withheld) else even
    return computed(has.value / even.value, "tokens_per_target_pass ÷ (cycle_ms ÷ plain_step_ms)", arm.label())


def _cycle_parts(arm: Pooled) -> dict[str, Maybe]:
    """Drafting and the rest of a cycle by the engine's clock, over probes that have both times and their steps."""
    found = arm.sums("draft_ms", "eval_ms", "decode_steps")
    if isinstance(found, Withheld):
        return {"draft_ms_per_cycle": found, "verify_ms_per_cycle": found}
    (draft, decoding, steps), n = found
    if steps <= 0 or draft > decoding:
        said = "no decode step was counted" if steps <= 0 else f"{draft:g} ms of drafting in {decoding:g} ms of decoding can't be"
        impossible = Withheld(withheld=said, reason_code="nothing_counted" if steps <= 0 else "impossible")
        return {"draft_ms_per_cycle": impossible, "verify_ms_per_cycle": impossible}
    return {
        "draft_ms_per_cycle": computed(draft / steps, "Σ draft_ms ÷ Σ decode_steps", arm.label(n)),
        "verify_ms_per_cycle": computed((decoding - draft) / steps, "(Σ eval_ms − Σ draft_ms) ÷ Σ decode_steps", arm.label(n)),
    }


def _engine_ms(probe: ProbeMeasurement) -> float | None:
    return value_of(probe.counters.eval_ms)


def _client_ms(probe: ProbeMeasurement) -> float | None:
    """Time after the first chunk, scaled to all tokens but the prefill's: the first chunk may hold a cycle's tokens too."""
    rate, emitted = value_of(probe.decode_tokens_per_s), value_of(probe.counters.emitted)
    return None if rate is None or emitted is None or rate <= 0 else 1000 * emitted / rate


def _ms_per_step(side: Pooled, clock: Callable[[ProbeMeasurement], float | None]) -> Maybe:
    ms = steps = 0.0
    n = 0
    for probe in side.probes:
        time, count = clock(probe), value_of(probe.counters.decode_steps)
        if time is not None and count is not None and count > 0:
            ms, steps, n = ms + time, steps + count, n + 1
    if not steps or ms <= 0:
        return Withheld(withheld="no probe has both its decoding time and its steps", reason_code="nothing_counted")
    formula = "Σ eval_ms ÷ Σ decode_steps" if clock is _engine_ms else "Σ client's decoding time ÷ Σ decode_steps"
    return computed(ms / steps, formula, side.label(n))


def side_numbers(blocks: Sequence[BlockPairs], point: str, arm: str, baseline: str) -> dict[str, Maybe]:
    """Times, speeds and lengths of both arms over matched prompts, by field of ``ComparisonResult``."""
    pairs = [m for b in blocks for m in b.matched]
    found: dict[str, Maybe] = {}
    for prefix, name, seconds, probes in (
        ("arm", arm, [m.right_s for m in pairs], [m.right for m in pairs]),
        ("baseline", baseline, [m.left_s for m in pairs], [m.left for m in pairs]),
    ):
        what = f"{len(pairs)} matched probes of {name} at {point}, {block_range(b.block for b in blocks if b.matched)}"
        found[f"{prefix}_equal_work_s"] = _summary(seconds, statistics.fmean, "mean equal_work_s", what)
        for field, ending, formula, of in (
            ("decode_tokens_per_s", "tokens_per_s", "median decode_tokens_per_s", statistics.median),
            ("e2e_s", "e2e_s", "mean e2e_s", statistics.fmean),
            ("completion_tokens", "tokens", "mean completion_tokens", statistics.fmean),
        ):
            values = [v for p in probes if (v := value_of(getattr(p, field))) is not None]
            found[f"{prefix}_{ending}"] = _summary(values, of, formula, what)
    return found


#: Metrics of the stream that a comparison shows. Chunk gaps stand for the arm alone: an event holds other numbers of
#: tokens in the baseline, so the two must not be held against each other.
_STREAM_OF_ARM = ("chunk_gap_ms_p50", "chunk_gap_ms_p95")
_STREAM_OF_BOTH = ("batch_ratio", "token_latency_ms", "token_latency_ms_p95", "peak_tokens_per_s")


def stream_numbers(arm: Pooled, baseline: Pooled) -> dict[str, Maybe]:
    """Medians over probes of what each answer's stream shows, by field of ``ComparisonResult``."""
    found = {f"arm_{name}": _median(arm, name) for name in (*_STREAM_OF_ARM, *_STREAM_OF_BOTH)}
    return found | {f"baseline_{name}": _median(baseline, name) for name in _STREAM_OF_BOTH}


def _median(side: Pooled, name: str) -> Maybe:
    """Withheld unless most probes have it: the rest would speak for those that can't."""
    numbers: list[Maybe] = [getattr(p, name) for p in side.probes]
    values = [n.value for n in numbers if isinstance(n, Number)]
    if 2 * len(values) <= len(numbers):
        reason = next((n for n in numbers if isinstance(n, Withheld)), None)
        return reason or Withheld(withheld="no valid probe", reason_code="no_probes")
    return computed(statistics.median(values), f"median {name}", side.label(len(values)))


def _summary(values: Sequence[float], of: Callable[[Sequence[float]], float], formula: str, what: str) -> Maybe:
    if not values:
        return Withheld(withheld="no matched prompt", reason_code="no_pairs")
    return computed(float(of(values)), formula, what)
