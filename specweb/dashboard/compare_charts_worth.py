"""Compare's chart of acceptance length against speed-up, with what each row needs on its host. No database access."""

from __future__ import annotations

import string
from typing import Any

from speccore.measurement import Number, Source, Withheld

from specweb.results.chart_queries import ChartRow

from .chart_frame import Chart, Lack, Table, TableHead
from .compare_charts import View, about, arm_of, panels_of, ratio_cell, ratio_point, where_words, work_words
from .compare_page import numbers_href
from .comparison_table import Cell, definition
from .marks import mark_of

#: Break-even is told in tokens per target pass. It may stand on an axis of lengths where the two are one number but for this share.
ALIKE = 0.05
NEEDED = "break_even_tokens_per_pass"


def worth(view: View) -> Chart:
    panels, lacks, table = [], [], []
    works, beyond = panels_of(view.rows, "")
    places: dict[str, str] = {}
    for rows in works.values():
        title, detail = work_words(rows[0].shown, view)
        points = []
        for row in rows:
            found = _point(row, view, places)
            if isinstance(found, Withheld):
                lacks.append(Lack(f"{where_words(row.shown, view)} · {arm_of(row.shown, view)}, {title}", found.withheld))
                continue
            points.append(found)
            table.append(_table_row(row, title, view, found["place"]))
        if points:
            panels.append({"title": title, "detail": detail, "points": points})
    n_points = sum(len(p["points"]) for p in panels)
    return Chart(
        name="worth",
        title="What acceptance is worth on each hardware",
        caption="mean acceptance length against speed-up, both log; the tick on 1× is what that row needs on its host: right of it it pays",
        label="Speed-up against mean acceptance length; the table has the same numbers",
        data={"margin": view.margin, "panels": panels, "places": [{"letter": v, "where": k} for k, v in places.items()]}
        if n_points > 1
        else None,
        empty="It needs two rows that have both figures. Measure another arm, or the same on another host.",
        remedy="Ask for it, starting from what was measured" if view.ask else "",
        remedy_href=view.ask,
        lacks=[*lacks, *beyond],
        table=Table(_heads(), table) if n_points > 1 else None,
        about=about(view),
    )


def _heads() -> list[TableHead]:
    return [
        TableHead("hardware", num=False),
        TableHead("work", num=False),
        TableHead("arm", num=False),
        TableHead("length", title=definition("mean_acceptance_length")),
        TableHead("per pass", title=definition("tokens_per_target_pass")),
        TableHead("needs", title=definition(NEEDED)),
        TableHead("speed-up", title=definition("speedup")),
    ]


def _point(row: ChartRow, view: View, places: dict[str, str]) -> dict[str, Any] | Withheld:
    shown, point, length = row.shown, ratio_point(row), _figure(row, "mean_acceptance_length")
    if isinstance(point, Withheld):
        return point
    if isinstance(length, Withheld):
        return length
    where = where_words(shown, view)
    letter = places.setdefault(where, _letter(len(places)))
    needed = drawn_break_even(row)
    words = f"length {length.value:.2f}" + (f", needs {needed.value:.2f} here" if isinstance(needed, Number) else "")
    return point | {
        "place": letter,
        "who": f"{where} · {arm_of(shown, view)}",
        "mode": shown.mode,
        "symbol": mark_of(shown.mode).symbol,
        "x": round(length.value, 4),
        "needs": round(needed.value, 4) if isinstance(needed, Number) else None,
        "words": words,
    }


def _letter(i: int) -> str:
    letters = string.ascii_uppercase
    return letters[i] if i < len(letters) else f"{letters[(i // len(letters) - 1) % 26]}{letters[i % len(letters)]}"


def _figure(row: ChartRow, name: str) -> Number | Withheld:
    kept = row.shown.figures.get(name, {})
    if "value" in kept:
        return Number(value=kept["value"], source=Source(file=""))
    return Withheld(withheld=kept.get("withheld", "not computed"), reason_code=kept.get("reason_code", ""))


def drawn_break_even(row: ChartRow) -> Number | Withheld:
    """What the row needs on its host, where that can stand on an axis of acceptance lengths."""
    needed: Number | Withheld = row.further.get(NEEDED, Withheld(withheld="not computed"))
    if isinstance(needed, Withheld):
        return needed
    if needed.value <= 0:
        return Withheld(withheld="no time of a plain step is known")
    length, per_pass = _figure(row, "mean_acceptance_length"), _figure(row, "tokens_per_target_pass")
    if isinstance(length, Withheld) or isinstance(per_pass, Withheld):
        return Withheld(withheld="tokens per target pass are not known, which it is told in")
    if abs(per_pass.value - length.value) > ALIKE * length.value:
        return Withheld(withheld="it drafts in some steps only, so that its length is not its tokens per pass, which break-even is told in")
    return needed


def _table_row(row: ChartRow, title: str, view: View, letter: str) -> list[Cell]:
    shown = row.shown
    cells = [Cell(f"{letter} {where_words(shown, view)}"), Cell(title), Cell(arm_of(shown, view))]
    for name in ("mean_acceptance_length", "tokens_per_target_pass"):
        cells.append(_cell(_figure(row, name), numbers_href(shown, name), definition(name)))
    cells.append(_needs_cell(row))
    return [*cells, ratio_cell(row)]


def _needs_cell(row: ChartRow) -> Cell:
    known, drawn = row.further.get(NEEDED, Withheld(withheld="not computed")), drawn_break_even(row)
    cell = _cell(known, numbers_href(row.shown, NEEDED), definition(NEEDED))
    if isinstance(known, Number) and isinstance(drawn, Withheld):
        return Cell(cell.text, cell.href, drawn.withheld, note="not drawn: " + drawn.withheld)
    return cell


def _cell(value: Number | Withheld, href: str, title: str) -> Cell:
    if isinstance(value, Withheld):
        return Cell("withheld", href, f"withheld: {value.withheld}", note=value.withheld, withheld=True)
    return Cell(f"{value.value:.2f}", href, title)
