"""What each arm needs in tokens per target pass to pay on this host, beside what it has. No database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speccore.measurement import ComparisonResult, JobAnalysis, Number
from speccore.spec import ExperimentSpec

from .comparison_table import Cell, NumbersUrl, metric_cell, point_title


@dataclass(frozen=True)
class BreakEvenRow:
    arm: str
    mode: str
    work: str
    needs: Cell
    has: Cell
    cycle: Cell
    plain: Cell
    gain: Cell
    sentence: str


def break_even_rows(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[BreakEvenRow]:
    """One for each arm with speculation at each point."""
    works = {p.key: ", ".join(part for part in point_title(p, titles) if part) for p in spec.points}
    return [_row(c, works.get(c.point, c.point), spec.margin, url) for c in analysis.comparisons if c.mode != "off"]


def _row(c: ComparisonResult, work: str, margin: float, url: NumbersUrl) -> BreakEvenRow:
    def cell(name: str, metric: str = "") -> Cell:
        metric = metric or name
        return metric_cell(getattr(c, name), metric, url(c.arm, c.point, metric))

    needs, has = c.break_even_tokens_per_pass, c.tokens_per_target_pass
    return BreakEvenRow(
        arm=c.arm,
        mode=c.mode,
        work=work,
        needs=cell("break_even_tokens_per_pass"),
        has=cell("tokens_per_target_pass"),
        cycle=cell("cycle_ms"),
        plain=cell("plain_step_ms"),
        gain=cell("decoding_gain"),
        sentence=_sentence(needs, has, margin),
    )


def _sentence(needs: object, has: object, margin: float) -> str:
    """What the two come to. Neither has an interval, so that less than the margin is called no difference."""
    if not isinstance(needs, Number) or not isinstance(has, Number):
        return ""
    told = f"needs {needs.value:.2f}, has {has.value:.2f}"
    if has.value <= 1:
        return f"{told}: no draft was accepted, which can gain nothing"
    if has.value > needs.value * (1 + margin):
        return f"{told}: decoding is faster"
    if has.value * (1 + margin) < needs.value:
        return f"{told}: decoding lacks {needs.value - has.value:.2f} a pass"
    return f"{told}: decoding is about as fast"
