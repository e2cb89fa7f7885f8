"""What the charts of Compare have in common: who a row is, how lines look, what is said where nothing can be drawn. No database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from speccore.formats import reason
from speccore.measurement import Interval, Withheld
from speccore.questions import arm_words

from specweb.results.chart_queries import ChartRow, panel_key
from specweb.results.models import Listing

from . import formats
from .chart_frame import Lack
from .charts import interval_data
from .compare_chart import short_hardware
from .compare_page import detail_of, numbers_href, speedup_of
from .comparison_table import Cell, speedup_cell
from .marks import mark_of

#: Panels of one chart; further kinds of work are told.
MOST_PANELS = 12
#: Lines of one chart: more can't be told apart.
MOST_LINES = 18
#: Plotly's names; the first for the hardware that comes first.
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_APART = ("backend", "setup", "driver", "build")


@dataclass(frozen=True)
class View:
    """The rows that a view's charts are made of, and what to call things. ``ask``: address of the form, where the reader may ask."""

    rows: Sequence[ChartRow]
    names: Mapping[str, str]  # hash → what hosts call it
    chosen: Mapping[str, str]
    ask: str = ""

    @property
    def margin(self) -> float:
        return max((r.shown.margin for r in self.rows), default=0.03)

    @cached_property
    def apart(self) -> dict[str, list[str]]:
        """Hardware → the columns in which its rows differ."""
        alike: dict[str, list[Listing]] = defaultdict(list)
        for row in self.rows:
            alike[row.shown.hardware].append(row.shown)
        return {name: [c for c in _APART if len({getattr(s, c) for s in rows}) > 1] for name, rows in alike.items()}

    @cached_property
    def several_targets(self) -> bool:
        return len({r.shown.target_hash for r in self.rows}) > 1

    @cached_property
    def several_contexts(self) -> bool:
        return len({r.shown.question.get("settings.context") for r in self.rows}) > 1


def view_of(rows: Sequence[ChartRow], chosen: Mapping[str, str], ask: str = "") -> View:
    names = {r.shown.target_hash: r.shown.target for r in rows}
    names |= {str(r.shown.question.get("workload", "")): r.shown.workload for r in rows}
    names |= {str(r.shown.question.get("arm.draft", "")): r.shown.helper for r in rows}
    return View(rows, names, chosen, ask)


def where_words(shown: Listing, view: View) -> str:
    """The hardware, with what tells rows on it apart: ``GeForce GTX 1060, 560.1``."""
    differing = view.apart.get(shown.hardware, [])
    marks = ["not restarted"] * shown.not_restarted + [shown.origin_mark] * shown.self_run
    return ", ".join([short_hardware(shown.hardware), *marks, *(v for name in differing if (v := getattr(shown, name)))])


def arm_of(shown: Listing, view: View, axis: str = "") -> str:
    """The arm in words, without the part that the axis tells."""
    return arm_words({name: value for name, value in shown.question.items() if name != axis}, view.names)


def work_words(shown: Listing, view: View, axis: str = "") -> tuple[str, str]:
    """Title of a panel and what it fixes. Two works of one title differ in the detail, or in the model, which is told then too."""
    fields = {name: value for name, value in shown.question.items() if name != axis}
    detail = detail_of(fields)
    if view.several_targets:
        detail = f"{shown.target} · {detail}"
    if view.several_contexts:
        detail += f" · {fields.get('settings.context', 0):,} per slot"
    return shown.title, detail


@dataclass
class Legend:
    """Lines of one chart: one colour and marker for each mode, one dash for each place; no two lines look alike."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    _found: dict[tuple[str, str, str], int] = field(default_factory=dict)
    _dash_of: dict[str, int] = field(default_factory=dict)
    _taken: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))

    def line(self, where: str, arm: str, mode: str) -> int | None:
        """Its number; None when there are too many."""
        key = (where, arm, mode)
        if key not in self._found:
            if len(self.lines) >= MOST_LINES:
                return None
            dash = self._dash_of.setdefault(where, len(self._dash_of))
            while dash % len(DASHES) in self._taken[mode] and len(self._taken[mode]) < len(DASHES):
                dash += 1
            self._taken[mode].add(dash % len(DASHES))
            self._found[key] = len(self.lines)
            label = f"{where} · {arm}" if arm else where
            self.lines.append({"label": label, "mode": mode, "symbol": mark_of(mode).symbol, "dash": DASHES[dash % len(DASHES)]})
        return self._found[key]


def ratio_point(row: ChartRow) -> dict[str, Any] | Withheld:
    """Estimate and interval of a row with the way to what they were computed from. A verdict that judges no ratio shows none."""
    if not row.shown.judged:
        c = row.shown.comparison
        return Withheld(withheld=f"{c.verdict}{': ' + why if (why := reason(c.reason)) else ''}", reason_code="not_judged")
    speedup = speedup_of(row.shown)
    if isinstance(speedup, Withheld):
        return speedup
    return interval_data(speedup) | {"href": numbers_href(row.shown, "speedup")}


def ratio_cell(row: ChartRow) -> Cell:
    return speedup_cell(speedup_of(row.shown), numbers_href(row.shown, "speedup"))


def decided(row: ChartRow) -> str:
    """``faster`` or ``slower`` where the whole interval is, else empty."""
    speedup = speedup_of(row.shown)
    if not isinstance(speedup, Interval) or speedup.low is None or speedup.high is None:
        return ""
    return "faster" if speedup.low > 1 else "slower" if speedup.high < 1 else ""


def panels_of(rows: Sequence[ChartRow], axis: str) -> tuple[dict[str, list[ChartRow]], list[Lack]]:
    """Rows by the work that they share but for the axis, those with most rows first; works beyond what fits are lacks."""
    found: dict[str, list[ChartRow]] = defaultdict(list)
    for row in rows:
        found[panel_key(row.shown, axis)].append(row)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    beyond = ordered[MOST_PANELS:]
    lacks = [Lack(rows[0].shown.title, "more kinds of work than one chart shows: choose one above") for _, rows in beyond]
    return dict(ordered[:MOST_PANELS]), lacks


def about(view: View) -> list[str]:
    """What the name of a saved file says of the view."""
    return list(view.chosen.values()) or sorted({r.shown.target for r in view.rows})[:1]


def number_text(value: float) -> str:
    return formats.count(value) if value >= 1e5 else f"{value:,.1f}" if value < 100 else f"{value:,.0f}"
