"""Data of the Compare page's forest plot, drawn by ``static/specweb/forest.js`` like an experiment's. No database access."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from speccore.formats import reason
from speccore.measurement import Withheld

from specweb.results.compare_queries import Row

from . import formats
from .chart_frame import Chart
from .charts import AXIS_PX, GROUP_PX, ROW_PX, interval_data
from .compare_page import Work, numbers_href, speedup_of
from .marks import VERDICT_CLASSES, mark_of

_NOISE = re.compile(r"\((?:R|TM|C)\)|(?<=\S) (?:CPU|Processor)(?= )|^CPU · |^1 × |NVIDIA (?=\S)|AMD (?=Radeon)")


def short_hardware(name: str) -> str:
    """``CPU · Intel(R) Xeon(R) Processor @ 2.1GHz, 2 cores`` → ``Intel Xeon @ 2.1GHz, 2 cores``."""
    return " ".join(_NOISE.sub("", name).split()) or "not told"


def forest_chart(rows: Sequence[Row], works: Sequence[Work], chosen: Mapping[str, str]) -> Chart:
    """``chosen``: the filters of the view. Its tables are the page's."""
    data = forest(rows, works)
    widest = "" if data["one_margin"] else ", the widest of theirs"
    return Chart(
        name="forest",
        title="Speed-up by question and hardware",
        caption=f"log axis; interval of 95 %, or of the confidence that its verdict names; the band is the ±{100 * data['margin']:.3g} % margin{widest}",
        label="Speed-up on each hardware with its interval; the tables below have the same numbers",
        data=data,
        height=data["height"],
        about=list(chosen.values()),
    )


def forest(rows: Sequence[Row], works: Sequence[Work]) -> dict[str, Any]:
    """Ratios of finished comparisons with their intervals, a group for each question, a row for each hardware."""
    common = set.intersection(*[{w.target, *w.fixed} for w in works]) if works else set()
    heads = {}
    for w in works:
        own = [part for part in (w.target, *w.fixed) if part not in common]
        heads |= {q.key: (w.title, " · ".join([q.arm, *own, w.detail])) for q in w.questions}
    groups: dict[str, dict[str, Any]] = {}
    for key, (title, detail) in heads.items():
        here = [r for r in rows if r.shown.question_key == key]
        groups[key] = {"title": title, "detail": detail, "rows": [_row(r, _apart(r, here)) for r in here]}
    margin = max((r.shown.margin for r in rows), default=0.03)
    height = len(rows) * ROW_PX + len(groups) * GROUP_PX + AXIS_PX
    sizes = {"height": height, "row_px": ROW_PX, "group_px": GROUP_PX, "axis_px": AXIS_PX}
    return {"margin": margin, "one_margin": len({r.shown.margin for r in rows}) < 2, **sizes, "groups": list(groups.values())}


def _apart(row: Row, here: Sequence[Row]) -> list[str]:
    """What tells a row from others on the same hardware."""
    alike = [r.shown for r in here if r.shown.hardware == row.shown.hardware]
    differing = [name for name in ("backend", "setup", "driver", "build") if len({getattr(s, name) for s in alike}) > 1]
    return [value for name in differing if (value := getattr(row.shown, name))]


def _row(row: Row, apart: list[str]) -> dict[str, Any]:
    shown = row.shown
    marks = ["not restarted"] * shown.not_restarted + [shown.origin_mark] * shown.self_run
    data = {
        "arm": ", ".join([short_hardware(shown.hardware), *marks, *apart]),
        "mode": shown.mode,
        "symbol": mark_of(shown.mode).symbol,
        "verdict": shown.comparison.verdict,
        "verdict_class": VERDICT_CLASSES.get(shown.comparison.verdict, "v-open"),
        "href": numbers_href(shown, "speedup"),
    }
    speedup = speedup_of(shown)
    if isinstance(speedup, Withheld):
        return data | {"withheld": reason(shown.comparison.reason) or formats.shortened(speedup.withheld)}
    return data | interval_data(speedup)
