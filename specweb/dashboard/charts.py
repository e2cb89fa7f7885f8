"""Data for plots, as plain JSON that the page carries; the drawing is in ``static/specweb/forest.js`` and ``scatter.js``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speccore.formats import reason
from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Number, Withheld
from speccore.spec import ExperimentSpec

from . import formats
from .chart_frame import Chart, Lack
from .comparison_table import NumbersUrl, point_title
from .marks import VERDICT_CLASSES, mark_of

ROW_PX, GROUP_PX, AXIS_PX = 26, 40, 44


def forest_chart(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> Chart:
    """Its table is the comparison of the page."""
    data = forest(spec, analysis, titles, url)
    added = any(c.joined for c in analysis.comparisons)
    interval = (
        "interval of the look" if spec.sequential else "interval at the confidence that the verdict names" if added else "95 % interval"
    )
    return Chart(
        name="forest",
        title="Speed-up by work and arm",
        caption=f"log axis; {interval}; the band is the ±{100 * spec.margin:.3g} % margin",
        label="Speed-up of each arm with its interval; the table below has the same numbers",
        data=data if data["groups"] else None,
        height=data["height"],
        empty="No arm was compared with the baseline.",
        about=[spec.target.model, spec.name],
    )


def scatter_chart(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> Chart | None:
    """None where no arm speculates."""
    data = scatter(spec, analysis, titles, url)
    lacks = [Lack(f"{arm}, {work}", why) for arm, work, why in left_out(spec, analysis, titles)]
    if not data["panels"] and not lacks:
        return None
    return Chart(
        name="scatter",
        title="What acceptance is worth here",
        caption="tokens per target pass against speed-up, both log; the tick on the line of 1× is what the arm needs on this host: right"
        " of its tick it pays",
        label="Speed-up against tokens per target pass; the tables have the same numbers",
        data=data if data["panels"] else None,
        empty="No arm has both figures.",
        lacks=lacks,
        about=[spec.target.model, spec.name],
    )


def forest(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> dict[str, Any]:
    """Speed-ups with their intervals, by point and arm: ``{margin, height, groups: [{title, detail, rows: […]}]}``.

    A withheld speed-up is a row with its reason and no position. ``height`` is in pixels, so that the page can keep
    the place before the plot is drawn.
    """
    groups = []
    for point in spec.points:
        rows = [_row(c, url) for c in analysis.comparisons if c.point == point.key]
        if rows:
            title, detail = point_title(point, titles)
            groups.append({"title": title, "detail": detail, "rows": rows})
    n_rows = sum(len(g["rows"]) for g in groups)
    height = n_rows * ROW_PX + len(groups) * GROUP_PX + AXIS_PX
    return {"margin": spec.margin, "height": height, "row_px": ROW_PX, "group_px": GROUP_PX, "axis_px": AXIS_PX, "groups": groups}


def scatter(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> dict[str, Any]:
    """Tokens per target pass against speed-up: ``{margin, panels: [{title, detail, points: […]}]}``, a panel for each point."""
    panels = []
    for point in spec.points:
        points = [p for c in analysis.comparisons if c.point == point.key and (p := _pass_point(c, url))]
        if points:
            title, detail = point_title(point, titles)
            panels.append({"title": title, "detail": detail, "points": points})
    return {"margin": spec.margin, "panels": panels}


def left_out(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(arm, work, reason) of each comparison that the scatter lacks."""
    names = {p.key: " ".join(point_title(p, titles)) for p in spec.points}
    found = []
    for c in analysis.comparisons:
        reason = next((v.withheld for v in (c.speedup, c.tokens_per_target_pass) if isinstance(v, Withheld)), "")
        if reason and c.mode != "off":
            found.append((c.arm, names.get(c.point, c.point), reason))
    return found


def _pass_point(c: ComparisonResult, url: NumbersUrl) -> dict[str, Any] | None:
    per_pass, needed = c.tokens_per_target_pass, c.break_even_tokens_per_pass
    if c.mode == "off":  # a control: its mark would be noise
        return None
    if isinstance(c.speedup, Withheld) or isinstance(per_pass, Withheld) or per_pass.value <= 0:
        return None
    row = {
        "arm": c.arm,
        "mode": c.mode,
        "symbol": mark_of(c.mode).symbol,
        "verdict_class": VERDICT_CLASSES[c.verdict.word],
        "href": url(c.arm, c.point, "tokens_per_target_pass"),
        "x": round(per_pass.value, 4),
        "break_even": None,
        "passes": f"{per_pass.value:.2f} tokens per target pass",
    }
    if isinstance(needed, Number) and needed.value > 0:
        row |= {"break_even": round(needed.value, 4), "passes": f"{row['passes']}, needs {needed.value:.2f} here"}
    return row | interval_data(c.speedup)


def _row(c: ComparisonResult, url: NumbersUrl) -> dict[str, Any]:
    row: dict[str, Any] = {
        "arm": c.arm,
        "mode": c.mode,
        "symbol": mark_of(c.mode).symbol,
        "verdict": c.verdict.word,
        "verdict_class": VERDICT_CLASSES[c.verdict.word],
        "href": url(c.arm, c.point, "speedup"),
    }
    if isinstance(c.speedup, Withheld):
        return row | {"withheld": reason(c.verdict.reason) or formats.shortened(c.speedup.withheld)}
    return row | interval_data(c.speedup)


def interval_data(s: Interval) -> dict[str, Any]:
    known = s.low is not None and s.high is not None
    return {
        "estimate": round(s.estimate, 6),
        "low": round(s.low, 6) if s.low is not None else None,
        "high": round(s.high, 6) if s.high is not None else None,
        "text": formats.ratio(s.estimate),
        "range": formats.ratio_range(s.low or 0, s.high or 0) if known else formats.shortened(s.withheld),
        "n_blocks": s.n_blocks,
    }
