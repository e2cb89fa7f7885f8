"""Counts of one thing from several sources: the most trusted first, the others beside it, and what contradicts what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeGuard

from ..measurement import Counters, Maybe, Number, Source, Withheld, value_of
from ..records import METRICS, RECORDS, StreamRecord
from .shapes import MetricsPair, ProbeCounts


def missing(reason: str, code: str = "missing") -> Withheld:
    return Withheld(withheld=reason, reason_code=code)


def is_number(value: object) -> TypeGuard[int | float]:
    """A count or duration as an engine may tell it: finite, and not negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0


class OfRecord:
    """Numbers of one request's record, each with its line and the field that it stands in."""

    def __init__(self, record: StreamRecord, line: int) -> None:
        self.record, self.line = record, line

    def stream(self, value: float, field: str) -> Number:
        return Number(value=value, source=Source(file=RECORDS, line=self.line, field=field))

    def final(self, key: str) -> Number | None:
        """Of the answer's last counts; None where it isn't among them."""
        value = self.record.final.get(key)
        return self.stream(value, f"final.{key}") if is_number(value) else None


def trusted(sources: Sequence[Number | None], if_none: str) -> Maybe:
    """The first number, with what the others say beside it; withheld where all are silent."""
    numbers = [n for n in sources if n is not None]
    if not numbers:
        return missing(if_none)
    return numbers[0].model_copy(update={"also": numbers[1:]})


def differing(what: str, number: Maybe) -> list[str]:
    """A number whose sources don't all say the same, told with every value and its place."""
    if not isinstance(number, Number) or all(other.value == number.value for other in number.also):
        return []
    return [f"{what}: " + "; ".join(f"{n.value:g} by {n.place()}" for n in [number, *number.also])]


def contradictions(counters: Counters) -> list[str]:
    """Counts that are each possible and together are not, with their places."""
    found = []
    for less, more in (("accepted", "drafted"), ("verify_steps", "drafted"), ("verify_steps", "decode_steps"), ("emitted", "committed")):
        a, b = getattr(counters, less), getattr(counters, more)
        if isinstance(a, Number) and isinstance(b, Number) and a.value > b.value:
            found.append(f"{less}: {a.value:g} by {a.place()} against {b.value:g} {more} by {b.place()}")
    for steps in ("verify_steps", "decode_steps"):
        a, b = counters.drafted, getattr(counters, steps)
        if isinstance(a, Number) and isinstance(b, Number) and a.value > 0 and b.value == 0:
            found.append(f"drafted: {a.value:g} by {a.place()} against 0 {steps} by {b.place()}")
    if isinstance(counters.decode_steps, Withheld) and counters.decode_steps.reason_code == "impossible":
        found.append(f"decode_steps: {counters.decode_steps.withheld}")
    positions, accepted = counters.accepted_by_position, value_of(counters.accepted)
    if not isinstance(positions, Withheld) and accepted is not None and sum(positions) != accepted:
        found.append(f"accepted_by_position: {positions}, together {sum(positions)}, of {accepted:g} accepted")
    return found


def window_sums(counts: Sequence[ProbeCounts], metrics: MetricsPair, names: Mapping[str, str]) -> list[str]:
    """Where requests that ran together don't add up to the growth of the engine's counters around them.

    ``counts``: of every request in that window, all of them answered. A sum that lacks a request's count says nothing.
    ``names``: the counters of tokens, drafted, accepted, verify_steps.
    """
    found = []
    for what, metric in names.items():
        numbers: list[Maybe] = [c.completion_tokens if what == "tokens" else getattr(c.counters, what) for c in counts]
        grown, known = metrics.growth(metric), [n.value for n in numbers if isinstance(n, Number)]
        if grown is not None and len(known) == len(counts) and sum(known) != grown:
            found.append(
                f"{what}: {sum(known):g} in {len(counts)} requests by {RECORDS}; "
                f"{grown:g} by {METRICS} line {metrics.line} ({metric} after − before)"
            )
    return found


def trimmed(positions: Sequence[float]) -> list[float]:
    """Without trailing zeros, which say nothing."""
    end = max((i for i, n in enumerate(positions, 1) if n), default=0)
    return list(positions[:end])


def padded(values: Sequence[float], width: int) -> list[float]:
    """To ``width`` values, with zeros behind."""
    return [*values, *[0.0] * (width - len(values))]
