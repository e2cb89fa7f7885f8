"""What came with speculation, for an experiment page: each setting that the engine settled otherwise than in the baseline. No database."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from speccore import settled
from speccore.measurement import JobAnalysis, LogFacts, Source
from speccore.records import LOG
from speccore.settled_results import SettledSide
from speccore.spec import ExperimentSpec

from .comparison_table import Cell
from .sources import source_url


@dataclass(frozen=True)
class SettledRow:
    setting: str
    name: str
    baseline: Cell
    arm: Cell


@dataclass(frozen=True)
class ArmSettled:
    arm: str
    mode: str
    rows: list[SettledRow]


def settled_section(spec: ExperimentSpec, analysis: JobAnalysis) -> list[ArmSettled]:
    """The arms that brought something with them, in the experiment's order. A setting that differs at several points stands once."""
    found = []
    for arm in spec.arms:
        rows: dict[str, SettledRow] = {}
        for c in analysis.comparisons:
            for change in (c.came_with or []) if c.arm == arm.name else []:
                row = SettledRow(
                    settled.words(change.name), change.name, _cell(change.baseline, change.name), _cell(change.arm, change.name)
                )
                rows.setdefault(change.name, row)
        if rows:
            found.append(ArmSettled(arm.name, arm.mode, list(rows.values())))
    return found


def settled_rows(attempt_id: UUID, log: LogFacts) -> list[tuple[str, Cell]]:
    """All that one attempt's log tells of such settings, as people read them."""
    sides = {n: SettledSide(value=value, attempt=str(attempt_id), line=log.settled_lines.get(n)) for n, value in log.settled.items()}
    return [(settled.words(n), _cell(sides[n], n)) for n in settled.in_order(sides)]


def _cell(side: SettledSide | None, name: str) -> Cell:
    if side is None:
        return Cell("not told", title="the engine's log says nothing of it", withheld=True)
    text = settled.shown(side.value)
    if not _is_uuid(side.attempt):
        return Cell(text)
    return Cell(text, source_url(side.attempt, Source(file=LOG, line=side.line, field=name)), "as the engine's log tells it")


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
