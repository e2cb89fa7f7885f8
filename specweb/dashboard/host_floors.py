"""A host's noise floors as its page shows them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.urls import reverse
from speccore.measurement import Withheld

from specweb.results.services.noise_floor import ShownFloor


@dataclass(frozen=True)
class ContrastLink:
    n: int
    href: str


@dataclass(frozen=True)
class FloorLine:
    """``floor`` in percent; empty where it is withheld, and ``why`` says what is missing."""

    build: str
    runtime: str
    load: str
    n_blocks: int
    driver: str
    floor: str
    why: str
    jobs: list[ContrastLink]
    valid_until: datetime | None


def floor_lines(shown: Sequence[ShownFloor]) -> list[FloorLine]:
    return [_line(s) for s in shown]


def _line(s: ShownFloor) -> FloorLine:
    found = s.found
    jobs = [ContrastLink(n, f"{reverse('experiment', args=[experiment])}?job={job}") for n, (experiment, job) in enumerate(s.jobs, 1)]
    return FloorLine(
        build=s.build or "not known any more",
        runtime=s.scope.runtime,
        load=load_in_words(s.scope.point_class),
        n_blocks=s.scope.n_blocks,
        driver=s.scope.driver,
        floor="" if isinstance(found, Withheld) else f"{100 * found.floor:.1f}",
        why=found.withheld if isinstance(found, Withheld) else "",
        jobs=jobs,
        valid_until=None if isinstance(found, Withheld) else found.valid_until,
    )


def load_in_words(point_class: str) -> str:
    """``one at a time, empty context`` for ``c1/ctx0``; what has no words yet stands as it is."""
    match = re.fullmatch(r"c(\d+)/ctx(\d+)(?:/r([\d.e+-]+))?(.*)", point_class)
    if match is None:
        return point_class
    at_once, context, rate, rest = int(match[1]), int(match[2]), match[3], match[4]
    load = f"{rate} a second by the clock" if rate else "one at a time" if at_once == 1 else f"{at_once} at once"
    return f"{load}, {f'{context:,} tokens of context' if context else 'empty context'}{rest}"
