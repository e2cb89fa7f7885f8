"""Data of stacked bars, a group for each kind of work and a bar for each arm, drawn by ``static/specweb/stacked.js``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .marks import mark_of

ROW_PX, GROUP_PX = 26, 40


class Key(NamedTuple):
    """A part: its name, the token of its colour in ``parts.css``, and Plotly's pattern, so that colour is not the only difference."""

    key: str
    name: str
    token: str
    pattern: str


class Row(NamedTuple):
    """A bar. ``said`` is what stands under its name when it is pointed at; ``mark``: another quantity in the same unit, marked on it."""

    arm: str
    mode: str
    href: str
    parts: Mapping[str, float]
    said: str
    mark: float | None = None


def stacked(
    keys: Sequence[Key],
    groups: Sequence[tuple[str, str, Sequence[Row]]],
    *,
    unit: str,
    shares: bool = False,
    mark_name: str = "",
    line: tuple[float, str] | None = None,
) -> dict[str, Any]:
    """``groups``: (title, detail, bars). ``shares``: a second panel with the parts as percent. ``line``: a quantity that bars are held
    against, with its name."""
    used = {key for _, _, rows in groups for row in rows for key in row.parts}
    return {
        "unit": unit,
        "shares": shares,
        "mark_name": mark_name,
        "line": None if line is None else {"value": round(line[0], 4), "name": line[1]},
        "row_px": ROW_PX,
        "group_px": GROUP_PX,
        "keys": [k._asdict() for k in keys if k.key in used],
        "groups": [{"title": title, "detail": detail, "rows": [_row(r) for r in rows]} for title, detail, rows in groups],
    }


def _row(r: Row) -> dict[str, Any]:
    return {
        "arm": r.arm,
        "mode": r.mode,
        "symbol": mark_of(r.mode).symbol,
        "href": r.href,
        "parts": {key: round(value, 5) for key, value in r.parts.items()},
        "said": r.said,
        "mark": None if r.mark is None else round(r.mark, 4),
    }
