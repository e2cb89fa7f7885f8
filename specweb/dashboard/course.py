"""The course of an attempt: its phases along its time, without a script. No database access."""

from __future__ import annotations

from dataclasses import dataclass

from speccore.records import AttemptSummary

from . import formats


@dataclass(frozen=True)
class Band:
    """A phase; ``x`` and ``width`` are percent of the attempt's time."""

    name: str
    duration: str
    x: float
    width: float


@dataclass(frozen=True)
class Course:
    seconds: str
    bands: list[Band]


def course(summary: AttemptSummary | None, seconds: float | None) -> Course | None:
    """None if the attempt's length or its phases are unknown."""
    if summary is None or not seconds or not summary.phases:
        return None
    ends = [*(begin for _, begin in summary.phases[1:]), max(seconds, summary.phases[-1][1])]
    total = ends[-1]
    bands = [
        Band(name, formats.duration(max(0.0, end - begin)), round(100 * begin / total, 3), round(100 * max(0.0, end - begin) / total, 3))
        for (name, begin), end in zip(summary.phases, ends, strict=True)
    ]
    return Course(formats.duration(total), bands)
