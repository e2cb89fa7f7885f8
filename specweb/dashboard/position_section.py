"""How far drafts are accepted, for an experiment page: each arm with a model drafter at each kind of work. No database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speccore.measurement import ComparisonResult, JobAnalysis, Withheld
from speccore.position_text import NOTE as NOTE
from speccore.position_text import positions, told
from speccore.spec import ExperimentSpec, is_model_drafter

from .comparison_table import Cell, Head, NumbersUrl, definition, point_title, withheld_cell

_METRICS = ("accepted_by_position", "conditional_by_position")


@dataclass(frozen=True)
class PositionRow:
    arm: str
    mode: str
    cells: list[Cell]


@dataclass(frozen=True)
class PositionGroup:
    title: str
    detail: str
    rows: list[PositionRow]


def heads() -> list[Head]:
    accepted, reached = (definition(metric) for metric in _METRICS)
    return [Head("second token,\u00a0%", accepted), Head("up to each position,\u00a0%", accepted), Head("where reached,\u00a0%", reached)]


def position_groups(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[PositionGroup]:
    """By kind of work, without those at which no arm drafted with a model."""
    found = []
    for point in spec.points:
        title, detail = point_title(point, titles)
        rows = [row for c in analysis.comparisons if c.point == point.key and (row := _row(c, url))]
        if rows:
            found.append(PositionGroup(title, detail, rows))
    return found


def _row(c: ComparisonResult, url: NumbersUrl) -> PositionRow | None:
    counted = positions(c)
    if not counted or not is_model_drafter(c.mode):
        return None
    accepted, reached = (url(c.arm, c.point, metric) for metric in _METRICS)
    if isinstance(counted, Withheld):
        return PositionRow(c.arm, c.mode, [withheld_cell(counted, accepted), Cell(), Cell()])
    shares = [told([p.accepted for p in counted]), told([p.where_reached for p in counted if p.where_reached])]
    return PositionRow(c.arm, c.mode, [Cell(counted[0].accepted, accepted), Cell(shares[0], accepted), Cell(shares[1], reached)])
