"""Splits the measured time of requests into prefill, drafting, verifying and the rest; what an engine doesn't tell is not guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from .derive import Pooled
from .measurement import Maybe, ProbeMeasurement, Withheld, value_of
from .time_split_results import PartName, TimePart, TimeSplit
from .times import CHUNK_S

#: The engine's clock and the client's differ by jitter of at most so much in one request; more is impossible.
JITTER_MS = 1000 * CHUNK_S

PrefillBy = Literal["engine", "client"]


class _Sums(NamedTuple):
    """Of one side, in ms, with tokens; ``decode_ms`` and ``draft_ms`` None where a request lacks them."""

    whole_ms: float
    tokens: float
    prefill_ms: float
    decode_ms: float | None
    draft_ms: float | None


def splits(arm: Pooled, baseline: Pooled, *, off: bool) -> dict[str, TimeSplit | Withheld]:
    """Both sides of a comparison by the same clocks, by field of ``ComparisonResult``. ``off``: the arm doesn't speculate either."""
    engine = all(value_of(p.prompt_ms) is not None for side in (arm, baseline) for p in side.probes)
    by: PrefillBy = "engine" if engine else "client"
    return {"arm_time_split": split(arm.probes, by, off=off), "baseline_time_split": split(baseline.probes, by, off=True)}


def split(probes: Sequence[ProbeMeasurement], by: PrefillBy, *, off: bool) -> TimeSplit | Withheld:
    """The requests of one side together; those without a whole or a first token are left out, and counted by ``n_probes``."""
    whole: list[ProbeMeasurement] = []
    reason: Withheld | None = None
    for p in probes:
        missing = [n for n in (p.e2e_s, _first(p, by), p.completion_tokens) if isinstance(n, Withheld)]
        if missing:
            reason = reason or missing[0]
        else:
            whole.append(p)
    if not whole:
        return reason or Withheld(withheld="no valid probe", reason_code="no_probes")
    sums = _sums(whole, by, off=off)
    if isinstance(sums, Withheld):
        return sums
    if sums.tokens <= 0 or sums.whole_ms <= 0:
        return Withheld(withheld="no token was counted", reason_code="nothing_counted")
    return TimeSplit(
        whole_ms=sums.whole_ms,
        tokens=sums.tokens,
        n_probes=len(whole),
        prefill_by=by,
        parts=_parts(sums, off=off),
        not_told=_not_told(whole, sums, off=off),
    )


def _first(p: ProbeMeasurement, by: PrefillBy) -> Maybe:
    return p.prompt_ms if by == "engine" else p.ttft_any_s


def _prefill_ms(p: ProbeMeasurement, by: PrefillBy) -> float:
    return (value_of(p.prompt_ms) or 0.0) if by == "engine" else 1000 * (value_of(p.ttft_any_s) or 0.0)


def _sums(probes: Sequence[ProbeMeasurement], by: PrefillBy, *, off: bool) -> _Sums | Withheld:
    whole = [1000 * (value_of(p.e2e_s) or 0.0) for p in probes]
    prefill = [_prefill_ms(p, by) for p in probes]
    decode = _of_all(probes, lambda p: _decode_ms(p))
    draft = None if off else _of_all(probes, lambda p: value_of(p.counters.draft_ms))
    for i, p in enumerate(probes):
        told = prefill[i] + (decode[i] if decode else 0.0)
        if told > whole[i] + JITTER_MS:
            said = f"the parts of {p.item} come to {told:.1f} ms, more than the {whole[i]:.1f} ms that the client saw"
            return Withheld(withheld=said, reason_code="impossible")
    # By at most the jitter of two clocks a part may exceed what is left for it: so the parts never come to more than the whole.
    prefill = [min(ms, all_) for ms, all_ in zip(prefill, whole, strict=True)]
    if decode:
        decode = [min(ms, all_ - before) for ms, all_, before in zip(decode, whole, prefill, strict=True)]
    if draft and decode and sum(draft) > sum(decode):
        return Withheld(withheld=f"{sum(draft):g} ms of drafting in {sum(decode):g} ms of decoding can't be", reason_code="impossible")
    tokens = sum(value_of(p.completion_tokens) or 0.0 for p in probes)
    return _Sums(sum(whole), tokens, sum(prefill), sum(decode) if decode else None, sum(draft) if draft else None)


def _decode_ms(p: ProbeMeasurement) -> float | None:
    """An answer of one token was decoded in no step, and has no time of it."""
    told = value_of(p.counters.eval_ms)
    return 0.0 if told is None and value_of(p.counters.decode_steps) == 0 else told


def _of_all(probes: Sequence[ProbeMeasurement], value: Callable[[ProbeMeasurement], float | None]) -> list[float]:
    """A number of each probe; empty where one lacks it."""
    found = [n for p in probes if (n := value(p)) is not None]
    return found if len(found) == len(probes) else []


def _parts(sums: _Sums, *, off: bool) -> list[TimePart]:
    parts: list[tuple[PartName, float]] = [("prefill", sums.prefill_ms)]
    if sums.decode_ms is None:
        return _as_parts([*parts, ("after_first", sums.whole_ms - sums.prefill_ms)])
    if off:
        parts.append(("verify", sums.decode_ms))
    elif sums.draft_ms is None:
        parts.append(("decode", sums.decode_ms))
    else:
        parts += [("draft", sums.draft_ms), ("verify", sums.decode_ms - sums.draft_ms)]
    return _as_parts([*parts, ("rest", sums.whole_ms - sum(ms for _, ms in parts))])


def _as_parts(parts: Sequence[tuple[PartName, float]]) -> list[TimePart]:
    return [TimePart(name=name, ms=max(0.0, ms)) for name, ms in parts]


def _not_told(probes: Sequence[ProbeMeasurement], sums: _Sums, *, off: bool) -> dict[str, str]:
    found = {}
    if sums.decode_ms is None:
        found["decode"] = _why([p.counters.eval_ms for p in probes])
    elif not off and sums.draft_ms is None:
        found["draft"] = _why([p.counters.draft_ms for p in probes])
    return found


def _why(numbers: Sequence[Maybe]) -> str:
    return next((n.withheld for n in numbers if isinstance(n, Withheld)), "not told")
