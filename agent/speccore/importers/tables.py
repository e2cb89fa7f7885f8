"""What the importers share beyond reading JSON: a figure at a place, and statistics in their order."""

from __future__ import annotations

from collections.abc import Iterable

from .places import Place
from .shapes import Kind, Number, out_of_order


def number_of(place: Place, kind: Kind, scale: float = 1.0) -> Number | None:
    """The figure at a place, None where there is none. ``scale`` turns a tool's seconds into its own printed milliseconds only."""
    value = place.number(kind.unit)
    return None if value is None else Number(kind, value * scale)


def check_order(place: Place, numbers: Iterable[Number]) -> None:
    """Tells statistics that contradict each other, at ``place``."""
    for less, more in out_of_order(numbers):
        words = f"{less.kind.statistic} of {less.value:,.6g} above its {more.kind.statistic} of {more.value:,.6g}"
        inner = next((p for key in (less.kind.key, less.kind.key.partition(".")[0]) if (p := place.at(key))), place)
        inner.fault(f"has a {words} ({less.kind.name})", "The file is damaged or was edited: send it as the tool wrote it.")
