"""Fewer points for a drawing without hiding an extreme: of each part of a series its least and its greatest value stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_Point = TypeVar("_Point")


def thinned(points: Sequence[_Point], most: int, value: Callable[[_Point], float]) -> list[_Point]:
    """At most ``most`` of the points, in their order: the first, the last, and of equal runs between them those of least and greatest value."""
    if len(points) <= most:
        return list(points)
    n_runs = max(1, (most - 2) // 2)
    inner = range(1, len(points) - 1)
    kept = {0, len(points) - 1}
    for run in range(n_runs):
        indexes = inner[len(inner) * run // n_runs : len(inner) * (run + 1) // n_runs]
        if indexes:
            kept.add(min(indexes, key=lambda i: value(points[i])))
            kept.add(max(indexes, key=lambda i: value(points[i])))
    return [points[i] for i in sorted(kept)]
