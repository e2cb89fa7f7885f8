"""What an importer hands on: runs as another tool reports them, each number beside its definition there, and what is wrong with a file."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

MAX_RUNS, MAX_NUMBERS = 2_000, 40_000
MOST_TOLD = 50
#: More than this is no measurement of today's machines but another unit, or a slip.
MOST = {
    "tokens/s": 1e7,
    "requests/s": 1e6,
    "ms": 3.6e8,
    "s": 3.6e5,
    "tokens": 1e9,
    "requests": 1e8,
    "drafts": 1e10,
    "%": 100.0,
    "share": 1.0,
    "×": 1e3,
    "MiB": 1e8,
    "W": 1e6,
    "J": 1e12,
    "": 1e12,
}
#: Statistics that stand in an order, smallest first.
ORDER = ("min", "p1", "p5", "p10", "p25", "median", "p75", "p90", "p95", "p99", "max")
SLACK = 1e-3


@dataclass(frozen=True)
class Kind:
    """What a number of a tool is. ``metric`` is the nearest of ours, which it still is not; ``caution`` what to know before reading it."""

    key: str
    name: str
    unit: str
    statistic: str
    definition: str
    metric: str = ""
    caution: str = ""


@dataclass(frozen=True)
class Number:
    """A figure as reported: ``value``, or a range from ``low`` to ``high`` that stays one. ``written`` is the cell or key's own text."""

    kind: Kind
    value: float | None = None
    low: float | None = None
    high: float | None = None
    written: str = ""
    note: str = ""
    line: int | None = None


@dataclass(frozen=True)
class Run:
    """One measured setting. Texts are the tool's own words; None is not told. Lengths are means in tokens, by the tool's count."""

    title: str = ""
    model: str = ""
    engine: str = ""
    hardware: str = ""
    devices: tuple[str, ...] = ()
    arm: str = ""
    concurrency: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    context_tokens: float | None = None
    n_requests: int | None = None
    n_failed: int | None = None
    at: str = ""
    contributor: str = ""
    notes: str = ""
    settings: dict[str, str] = field(default_factory=dict)
    numbers: tuple[Number, ...] = ()
    line: int | None = None


@dataclass(frozen=True)
class ImportFault:
    """Why a file is refused: where, what stands there, and what to do."""

    reason: str
    remedy: str
    field: str = ""
    value: str = ""
    line: int | None = None

    @property
    def words(self) -> str:
        place = f"line {self.line}: " if self.line else ""
        return f"{place}{self.field + ' ' if self.field else ''}{self.reason}. {self.remedy}"


@dataclass(frozen=True)
class Reading:
    """A file as understood. With faults there are no runs: nothing is taken of a file that is wrong in part."""

    tool: str
    version: str = ""
    runs: tuple[Run, ...] = ()
    warnings: tuple[str, ...] = ()
    faults: tuple[ImportFault, ...] = ()
    n_faults: int = 0


def reading(tool: str, version: str, runs: Sequence[Run], warnings: Iterable[str], faults: Sequence[ImportFault]) -> Reading:
    """Closes a reading: what no file may be, and no runs beside faults."""
    found = list(faults)
    if not found and not any(run.numbers for run in runs):
        found.append(ImportFault("holds no number that is known here", "Send the result file that the tool writes, unchanged."))
    n_numbers = sum(len(run.numbers) for run in runs)
    if len(runs) > MAX_RUNS or n_numbers > MAX_NUMBERS:
        words = f"holds {len(runs):,} runs with {n_numbers:,} numbers; at most {MAX_RUNS:,} and {MAX_NUMBERS:,} are taken"
        found.append(ImportFault(words, "Split it into several files."))
    if found:
        return Reading(tool, version, faults=tuple(found[:MOST_TOLD]), n_faults=len(found))
    return Reading(tool, version, tuple(runs), tuple(dict.fromkeys(warnings)))


def refused(tool: str, *faults: ImportFault, version: str = "") -> Reading:
    return Reading(tool, version, faults=faults[:MOST_TOLD], n_faults=len(faults))


def unlikely(value: float, unit: str) -> tuple[str, str] | None:
    """Reason and remedy if no measurement in ``unit`` can have this value."""
    if not math.isfinite(value):
        return "is no number", "A value that was not measured is left out, or null."
    if value < 0:
        return "is negative", "A time, count or rate is 0 or more: see what the tool wrote there."
    most = MOST.get(unit, MOST[""])
    if value > most:
        named = f" {unit}" if unit else ""
        return f"is {value:,.6g}{named}, more than {most:,.6g}{named} can be", "See whether it is in another unit."
    return None


def out_of_order(numbers: Iterable[Number]) -> list[tuple[Number, Number]]:
    """Pairs of one figure's statistics that contradict each other, such as a p99 below the median."""
    by_name: dict[tuple[str, str], dict[str, Number]] = {}
    for n in numbers:
        if n.value is not None and n.kind.statistic in ORDER:
            by_name.setdefault((n.kind.name, n.kind.unit), {})[n.kind.statistic] = n
    wrong = []
    for found in by_name.values():
        there = [found[s] for s in ORDER if s in found]
        for less, more in itertools.pairwise(there):
            if _value(less) > _value(more) * (1 + SLACK) + 1e-9:
                wrong.append((less, more))
    return wrong


def _value(number: Number) -> float:
    return number.value if number.value is not None else math.nan


def agree(one: float | None, other: float | None, slack: float = 0.02) -> bool:
    """Whether two ways to the same figure come to the same; what is not there contradicts nothing."""
    if one is None or other is None:
        return True
    return abs(one - other) <= slack * max(abs(one), abs(other)) + 1e-9
