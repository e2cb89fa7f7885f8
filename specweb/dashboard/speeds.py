"""How fast the trials so far decoded, as dots by work and arm, for who watches a job. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from speccore.spec import ExperimentSpec

from specweb.results.page_queries import TrialSpeed

from .comparison_table import point_title


@dataclass(frozen=True)
class Dot:
    """A trial: its place on the axis in percent, and what it says on hover. ``newest`` is the last that came of all."""

    x: float
    title: str
    newest: bool


@dataclass(frozen=True)
class ArmSpeeds:
    arm: str
    mode: str
    dots: list[Dot]
    middle: str  # median, tokens per second


@dataclass(frozen=True)
class WorkSpeeds:
    """One kind of work; its axis runs from 0 to a little beyond the fastest trial."""

    title: str
    detail: str
    unit: str  # of several requests under way each has its own speed, and all of them together have another
    arms: list[ArmSpeeds]


#: Room to the right of the fastest dot, in percent.
_RIGHT = 4.0


def speeds_by_work(spec: ExperimentSpec, speeds: Sequence[TrialSpeed], titles: Mapping[str, str]) -> list[WorkSpeeds]:
    """Points in the experiment's order, and in each its arms in the experiment's order; what has no trial yet is left out."""
    arms = {a.name: i for i, a in enumerate(spec.arms)}
    last = max((s.number for s in speeds), default=0)
    result = []
    for point in spec.points:
        here = sorted((s for s in speeds if s.point == point.key), key=lambda s: (arms.get(s.arm, 99), s.number))
        if not here:
            continue
        fastest = max(s.tokens_per_s for s in here)
        rows = [_arm(name, list(group), fastest, last) for name, group in groupby(here, key=lambda s: s.arm)]
        title, detail = point_title(point, titles)
        result.append(WorkSpeeds(title, detail, "tokens/s" if point.one_by_one else "tokens/s of one request", rows))
    return result


def _arm(name: str, speeds: Sequence[TrialSpeed], fastest: float, last: int) -> ArmSpeeds:
    dots = [
        Dot(round(s.tokens_per_s / fastest * (100 - _RIGHT), 2), f"trial {s.number}: {s.tokens_per_s:.1f} tokens/s", s.number == last)
        for s in speeds
    ]
    return ArmSpeeds(name, speeds[0].mode, dots, f"{median(s.tokens_per_s for s in speeds):.0f}")
