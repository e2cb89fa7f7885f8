"""Charts of Compare along one part of the question: draft limit, requests at once, occupied context. No database access."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from speccore.measurement import Withheld

from specweb.results.chart_queries import CONCURRENCY, CONTEXT, DRAFT_LIMIT, ChartRow, line_key

from .chart_frame import Chart, Lack, Table, TableHead
from .compare_charts import Legend, View, about, arm_of, decided, number_text, panels_of, ratio_cell, ratio_point, where_words, work_words
from .compare_page import numbers_href
from .comparison_table import Cell, definition


@dataclass(frozen=True)
class Axis:
    """``field`` of the question along which a chart runs; ``value`` reads it of a row."""

    name: str
    field: str
    unit: str
    title: str
    caption: str
    value: Callable[[ChartRow], int | None]
    lacking: str  # why a row has no place on it
    empty: str


DRAFTS = Axis(
    "by-limit",
    DRAFT_LIMIT,
    "draft limit",
    "Speed-up by draft limit",
    "a line for each hardware and mode; points differ in the draft limit alone; both axes log",
    lambda r: r.shown.draft_limit,
    "it has no draft limit of its own",
    "A line needs one arm at two draft limits on one hardware, with one build and the same settings. Ask for an arm at several limits.",
)
AT_ONCE = Axis(
    "by-concurrency",
    CONCURRENCY,
    "requests at once",
    "Speed-up by requests at once",
    "points of a line differ in the concurrency alone; both axes log",
    lambda r: r.shown.concurrency,
    "",
    "A line needs one arm at two concurrencies on one hardware, with the same slots. Ask for the work at 1, 2, 4, … at once.",
)
OCCUPIED = Axis(
    "by-context",
    CONTEXT,
    "tokens of context occupied",
    "Speed-up by occupied context",
    "points of a line differ in the tokens in the cache alone; both axes log, the prompt alone at the left edge",
    lambda r: r.shown.occupied_context,
    "",
    "A line needs one arm at two occupied contexts on one hardware. Ask for the work with the cache filled to some thousand tokens too.",
)
#: Lines that are drawn, with their rows in the order of the axis.
Lines = list[tuple[int, list[ChartRow]]]


def ratios(view: View, axis: Axis) -> Chart:
    """Speed-ups with their intervals along an axis; a line for each hardware and arm, a panel for each work."""
    legend, panels, lacks, table, notes = Legend(), [], [], [], []
    works, beyond = panels_of([r for r in view.rows if axis.value(r) is not None], axis.field)
    lacks += [Lack(_row_words(r, view), axis.lacking) for r in view.rows if axis.value(r) is None]
    for rows in works.values():
        lines, without = _lines(rows, view, axis, legend)
        lacks += without
        if not lines:
            continue
        title, detail = work_words(rows[0].shown, view, axis.field)
        panels.append(_panel(title, detail, lines, axis))
        table += [_table_row(r, title, view, axis) for _, line in lines for r in line]
        if axis is AT_ONCE:
            notes += [told for i, line in lines if (told := crossing(legend.lines[i]["label"], title, line))]
    data = _data(view, axis, legend, panels) if panels else None
    heads = [TableHead("hardware", num=False), TableHead("work", num=False), TableHead("arm", num=False), TableHead(axis.unit)]
    return Chart(
        name=axis.name,
        title=axis.title,
        caption=axis.caption,
        label=f"{axis.title}, with intervals; the table has the same numbers",
        kind="curves",
        data=data,
        empty=axis.empty,
        remedy="Ask for it, starting from what was measured" if view.ask else "",
        remedy_href=view.ask,
        notes=notes,
        lacks=[*lacks, *beyond],
        table=Table([*heads, TableHead("speed-up", title=definition("speedup"))], table) if table else None,
        about=about(view),
    )


def _row_words(row: ChartRow, view: View) -> str:
    return f"{where_words(row.shown, view)} · {arm_of(row.shown, view)}, {row.shown.title}"


def _lines(rows: Sequence[ChartRow], view: View, axis: Axis, legend: Legend) -> tuple[Lines, list[Lack]]:
    """Those of at least two points; a row that is in none is named with the reason."""
    by_line: dict[Any, list[ChartRow]] = defaultdict(list)
    lacks = []
    for row in rows:
        point = ratio_point(row)
        if isinstance(point, Withheld):
            lacks.append(Lack(f"{_row_words(row, view)}, {_at(row, axis)}", point.withheld))
        else:
            by_line[line_key(row.shown, axis.field)].append(row)
    lines: Lines = []
    for line in by_line.values():
        first = line[0].shown
        words = _row_words(line[0], view) if axis.field == DRAFT_LIMIT else f"{_row_words(line[0], view)}, {_at(line[0], axis)}"
        if len(line) < 2:
            lacks.append(Lack(words, f"nothing else was measured that differs in the {axis.unit} alone"))
            continue
        i = legend.line(where_words(first, view), arm_of(first, view, axis.field), first.mode)
        if i is None:
            lacks.append(Lack(words, "more lines than can be told apart: choose a model, hardware or mode above"))
            continue
        lines.append((i, sorted(line, key=lambda r: axis.value(r) or 0)))
    return lines, lacks


def _at(row: ChartRow, axis: Axis) -> str:
    return f"{axis.value(row) or 0:,} {axis.unit}"


def position(value: float, zero: float) -> float:
    """Place on the axis, in powers of two; ``zero`` is where nothing stands, one step left of the smallest."""
    return round(math.log2(value), 4) if value > 0 else zero


def _zero(values: Sequence[float]) -> float:
    return math.log2(min((v for v in values if v > 0), default=2)) - 1


def _ticks(values: Sequence[int], zero: float) -> list[dict[str, Any]]:
    return [{"at": position(v, zero), "text": f"{v:,}" if v else "0"} for v in sorted(set(values))]


def _panel(title: str, detail: str, lines: Lines, axis: Axis) -> dict[str, Any]:
    values = [axis.value(r) or 0 for _, line in lines for r in line]
    zero = _zero(values)
    series = []
    for i, line in lines:
        points = []
        for row in line:
            point = ratio_point(row)
            assert not isinstance(point, Withheld)
            x = axis.value(row) or 0
            points.append(point | {"x": position(x, zero), "at": f"{x:,} {axis.unit}"})
        series.append({"line": i, "points": points})
    return {"title": title, "detail": detail, "ticks": _ticks(values, zero), "series": series}


def _data(view: View, axis: Axis, legend: Legend, panels: Sequence[dict[str, Any]], unit: str = "") -> dict[str, Any]:
    return {"margin": view.margin, "x": axis.unit, "unit": unit, "lines": legend.lines, "panels": panels}


def _table_row(row: ChartRow, title: str, view: View, axis: Axis) -> list[Cell]:
    shown = row.shown
    return [
        Cell(where_words(shown, view)),
        Cell(title),
        Cell(arm_of(shown, view, axis.field)),
        Cell(f"{axis.value(row) or 0:,}"),
        ratio_cell(row),
    ]


def crossing(label: str, work: str, line: Sequence[ChartRow]) -> str:
    """Where a line crosses 1, where the intervals on both sides of it are clear of 1; else what they do tell, if anything."""
    known = [(r.shown.concurrency, decided(r)) for r in line]
    clear = [(n, word) for n, word in known if word]
    if not clear:
        return ""
    turns = [(a, b, was, now) for (a, was), (b, now) in pairwise(clear) if was != now]
    who = f"{label}, {work}"
    if not turns:
        if len(clear) < len(known):
            open_at = ", ".join(f"{n}" for n, word in known if not word)
            return f"{who}: {clear[0][1]} at {_listed([n for n, _ in clear])} at once; at {open_at} the interval holds 1."
        return f"{who}: {clear[0][1]} at all that was measured, {known[0][0]} to {known[-1][0]} at once."
    told = []
    for a, b, was, now in turns:
        between = [n for n, word in known if a < n < b and not word]
        unclear = f" (at {_listed(between)} the interval holds 1)" if between else ""
        told.append(f"{was} at {a} at once, {now} at {b}: it crosses 1 between them{unclear}")
    return f"{who}: {'; '.join(told)}."


def _listed(values: Sequence[int]) -> str:
    texts = [f"{v}" for v in values]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


# --- absolute speeds ---


def speeds_by_context(view: View) -> Chart:
    """Decoding speed with and without, each in its own job; a line joins what one pair key holds and nothing else."""
    axis, legend, panels, table, lacks = OCCUPIED, Legend(), [], [], []
    works, beyond = panels_of(view.rows, axis.field)
    for rows in works.values():
        by_line: dict[Any, list[ChartRow]] = defaultdict(list)
        for row in rows:
            by_line[line_key(row.shown, axis.field)].append(row)
        long = [sorted(line, key=lambda r: axis.value(r) or 0) for line in by_line.values() if len(line) > 1]
        values = [axis.value(r) or 0 for line in long for r in line]
        title, detail = work_words(rows[0].shown, view, axis.field)
        series: list[dict[str, Any]] = []
        for line in long:
            series += _speed_series(line, view, legend, _zero(values))
            table += [_speed_row(row, title, view) for row in line]
            lacks += _speed_lacks(line, view)
        if series:
            panels.append({"title": title, "detail": detail, "ticks": _ticks(values, _zero(values)), "series": series})
    heads = [TableHead("hardware", num=False), TableHead("work", num=False), TableHead("arm", num=False), TableHead(axis.unit)]
    heads += [TableHead(f"tokens/s {word}", title=definition("decode_tokens_per_s")) for word in ("without", "with")]
    return Chart(
        name="speeds-by-context",
        title="Decoding speed by occupied context",
        caption="tokens a second of one request, both axes log; a line joins starts of one build on one host and nothing else",
        label="Decoding speed with and without speculation by occupied context; the table has the same numbers",
        kind="curves",
        data=_data(view, axis, legend, panels, "tokens/s") if panels else None,
        empty="It has the speeds of the rows above, and there are none yet.",
        lacks=[*lacks, *beyond],
        table=Table(heads, table) if table else None,
        about=about(view),
    )


_SIDES = (("baseline_tokens_per_s", "off"), ("arm_tokens_per_s", ""))


def _speed_series(line: Sequence[ChartRow], view: View, legend: Legend, zero: float) -> list[dict[str, Any]]:
    first = line[0].shown
    where, found = where_words(first, view), []
    for name, mode in _SIDES:
        words = "without" if mode else arm_of(first, view)
        i = legend.line(where, words, mode or first.mode)
        if i is None:
            continue
        pieces: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in line:
            if (value := row.shown.figures.get(name, {}).get("value")) is not None and value > 0:
                x = row.shown.occupied_context
                point = {"x": position(x, zero), "at": f"{x:,} {OCCUPIED.unit}", "estimate": value, "low": None, "high": None}
                point |= {"text": f"{number_text(value)} tokens/s", "range": words, "href": numbers_href(row.shown, "decode_tokens_per_s")}
                pieces[row.shown.pair_key or str(row.shown.pk)].append(point)
        found += [{"line": i, "points": points} for points in pieces.values()]
    return found


def _speed_row(row: ChartRow, title: str, view: View) -> list[Cell]:
    shown = row.shown
    cells = [Cell(where_words(shown, view)), Cell(title), Cell(arm_of(shown, view)), Cell(f"{shown.occupied_context:,}")]
    for name, _ in _SIDES:
        kept = shown.figures.get(name, {})
        if "value" in kept:
            cells.append(Cell(number_text(kept["value"]), numbers_href(shown, "decode_tokens_per_s"), definition("decode_tokens_per_s")))
        else:
            cells.append(Cell("withheld", title=kept.get("withheld", "not computed"), withheld=True))
    return cells


def _speed_lacks(line: Sequence[ChartRow], view: View) -> list[Lack]:
    return [
        Lack(f"{_row_words(row, view)}, {_at(row, OCCUPIED)}, {'without' if mode else 'with'}", kept.get("withheld", "not computed"))
        for row in line
        for name, mode in _SIDES
        if "value" not in (kept := row.shown.figures.get(name, {}))
    ]
