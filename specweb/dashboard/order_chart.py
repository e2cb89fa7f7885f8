"""The starts of a job along their order as data for a drawing: speed against the arm's own median, clocks, heat. No database access."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from django.urls import reverse

from specweb.experiments.models import Job
from specweb.results.order_queries import Start
from specweb.results.thinning import thinned

from .chart_frame import Chart
from .marks import mark_of

#: At most so many starts are drawn.
MOST = 2_000
MOST_ROWS = 400
#: A line through fewer says nothing.
LEAST_FOR_LINE = 6


def order_chart(job: Job, name: str) -> Chart:
    """The frame of the chart; its numbers come by a second request."""
    return Chart(
        "order-of-starts",
        "Order of starts, clocks and heat",
        "each start in the order in which it ran: its speed against the median of its arm at the same work; blocks are shaded",
        "Speed of each start along their order, with clock and temperature",
        source=reverse("order", args=[job.id]),
        numbers="the pages of the trials have",
        about=[name],
    )


def order_data(starts: Sequence[Start], titles: Mapping[str, str]) -> dict[str, Any]:
    """``starts`` with relative speeds in percent; or ``empty``, a sentence that says why there is nothing to draw."""
    medians = _medians(starts)
    placed = [(place, s, _relative(s, medians)) for place, s in enumerate(starts, 1)]
    known = [(place, s, p) for place, s, p in placed if p is not None]
    if not known:
        return {"empty": "No start of this job has a timed request whose speed is known." if starts else "Nothing was started yet."}
    drawn = thinned(placed, MOST, lambda p: p[2] if p[2] is not None else 0.0)
    counted = [(place, percent) for place, s, percent in known if s.accepted]
    line = _line(counted) if len(counted) >= LEAST_FOR_LINE else None
    return {
        "starts": [_row(place, s, percent, titles) for place, s, percent in drawn],
        "blocks": _blocks(placed),
        "line": line,
        "notes": [*_said(placed, line), *_drawn(len(placed), len(drawn)), *_without(starts)],
        "table": _table(placed, titles),
    }


def _medians(starts: Sequence[Start]) -> dict[tuple[str, str], float]:
    """Of each arm at each point over the starts that count; over all where none does."""
    found: dict[tuple[str, str], list[float]] = {}
    spare: dict[tuple[str, str], list[float]] = {}
    for s in starts:
        for point, speed in s.speeds.items():
            (found if s.accepted else spare).setdefault((s.arm, point), []).append(speed)
    return {key: statistics.median(speeds) for key, speeds in (spare | found).items()}


def _relative(s: Start, medians: Mapping[tuple[str, str], float]) -> float | None:
    """Geometric mean over points of speed ÷ median, in percent above or below."""
    logs = [math.log(speed / medians[s.arm, point]) for point, speed in s.speeds.items() if speed > 0 and medians[s.arm, point] > 0]
    return 100 * (math.exp(statistics.fmean(logs)) - 1) if logs else None


def _line(points: Sequence[tuple[int, float]]) -> list[list[float]]:
    """A straight line by least squares, by its ends."""
    fit = statistics.linear_regression([place for place, _ in points], [percent for _, percent in points])
    return [[place, round(fit.intercept + fit.slope * place, 3)] for place in (points[0][0], points[-1][0])]


def _row(place: int, s: Start, percent: float | None, titles: Mapping[str, str]) -> dict[str, Any]:
    return {
        "place": place,
        "number": s.number,
        "block": s.block,
        "arm": s.arm,
        "mode": s.mode,
        "symbol": mark_of(s.mode).symbol.removesuffix("-open"),
        "counts": s.accepted,
        "fate": _fate(s),
        "percent": None if percent is None else round(percent, 3),
        "speeds": [f"{titles.get(point, point)}: {speed:,.1f} tokens/s" for point, speed in s.speeds.items()],
        "clock": [round(mhz, 1) for mhz in s.clock_mhz] if s.clock_mhz else None,
        "heat": s.temperature_c,
        "href": reverse("attempt", args=[s.attempt]),
    }


def _fate(s: Start) -> str:
    if s.accepted:
        return "counts"
    return f"void: {s.void_reason}" if s.void_reason else "not counted" if s.outcome == "ok" else s.outcome


def _blocks(placed: Sequence[tuple[int, Start, float | None]]) -> list[list[int]]:
    """(block, first place, last place) of each run of starts of one block."""
    found: list[list[int]] = []
    for place, s, _ in placed:
        if found and found[-1][0] == s.block:
            found[-1][2] = place
        else:
            found.append([s.block, place, place])
    return found


def _said(placed: Sequence[tuple[int, Start, float | None]], line: list[list[float]] | None) -> list[str]:
    n_void = sum(not s.accepted for _, s, _ in placed)
    n = len(placed)
    told = [
        f"{n:,} start{'' if n == 1 else 's'}"
        + (f", of which {n_void:,} {'is' if n_void == 1 else 'are'} not counted: hollow and crossed." if n_void else ".")
    ]
    if line:
        change = line[1][1] - line[0][1]
        way = "rises" if change > 0 else "falls"
        told.append(
            f"The dotted line through those that count {way} by {abs(change):.1f} points from the first to the last; "
            "whether that is drift, the check of that name says."
        )
    return told


def _drawn(n: int, n_drawn: int) -> list[str]:
    return [] if n_drawn == n else [f"{n_drawn:,} of {n:,} are drawn: of each stretch of them the slowest and the fastest."]


def _without(starts: Sequence[Start]) -> list[str]:
    found = []
    if not any(s.clock_mhz for s in starts):
        found.append("No clock was sampled: neither a device nor the processors tell theirs on this host.")
    if all(s.temperature_c is None for s in starts):
        found.append("No temperature was sampled: no device tells it on this host.")
    return found


def _table(placed: Sequence[tuple[int, Start, float | None]], titles: Mapping[str, str]) -> dict[str, Any]:
    points = list(dict.fromkeys(point for _, s, _ in placed for point in s.speeds))
    rows, hrefs = [], []
    for place, s, percent in placed[:MOST_ROWS]:
        speeds = [f"{s.speeds[p]:,.1f}" if p in s.speeds else "" for p in points]
        clock = "" if s.clock_mhz is None else "–".join(dict.fromkeys(f"{mhz:,.0f}" for mhz in s.clock_mhz))
        heat = "" if s.temperature_c is None else f"{s.temperature_c:.0f}"
        relative = "" if percent is None else f"{percent:+.1f}".replace("-", "−")
        rows.append([f"{place}: {s.arm}", str(s.block), relative, *speeds, clock, heat, _fate(s)])
        hrefs.append(reverse("attempt", args=[s.attempt]))
    more = len(placed) - len(rows)
    heads = [
        "start",
        "block",
        "against its median, %",
        *(f"{titles.get(p, p)}, tokens/s" for p in points),
        "clock, MHz",
        "°C",
        "what became of it",
    ]
    return {"heads": heads, "words": [len(heads) - 1], "rows": rows, "hrefs": hrefs, "more": f"and {more:,} more" if more else ""}
