"""What a host can't resolve: its noise floor from baseline-against-baseline contrasts, with their age, scope and evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np

from .inventory import Peer
from .measurement import Withheld
from .spec import Point
from .stats import MIN_AA_CONTRASTS, MIN_BLOCKS, noise_floor, standard_error

#: An older contrast says nothing of the host as it is now.
VALID_FOR = timedelta(days=30)


@dataclass(frozen=True)
class Scope:
    """What must be equal for one floor to hold: it is a bias of this host, with this driver, engine build and kind of load."""

    host: str
    driver: str
    runtime: str  # manifest hash
    point_class: str
    n_blocks: int


def point_class(point: Point) -> str:
    """Points that load a host alike: equal concurrency or rate, and occupied context. Prompts and sampling may differ."""
    clock = "" if point.rate_per_s is None else f"/r{point.rate_per_s:g}"
    return f"c{point.concurrency}/ctx{point.occupied_context}{clock}"


@dataclass(frozen=True)
class Contrast:
    """One job's baseline against itself: mean block value (ln) and its standard error."""

    job: str
    at: datetime
    scope: Scope
    estimate: float
    standard_error: float


@dataclass(frozen=True)
class HostFloor:
    """``floor`` is a ratio minus 1. ``contrasts`` are its evidence; it holds until ``valid_until``, if no further one comes."""

    floor: float
    contrasts: tuple[Contrast, ...]
    valid_until: datetime


class KnownFloor(Peer):
    """What a job is told of its host's floor at one class of points. ``floor`` None: unknown, and ``why``."""

    floor: float | None = None
    n_blocks: int = 0  # of each contrast: as many as the job has, else as it was planned with
    n_contrasts: int = 0
    valid_until: datetime | None = None
    jobs: list[str] = []  # whose contrasts they are
    why: str = ""


def told(found: HostFloor | Withheld, n_blocks: int) -> KnownFloor:
    if isinstance(found, Withheld):
        return KnownFloor(n_blocks=n_blocks, why=found.withheld)
    jobs = [c.job for c in found.contrasts]
    return KnownFloor(floor=found.floor, n_blocks=n_blocks, n_contrasts=len(jobs), valid_until=found.valid_until, jobs=jobs)


def of_job(find: Callable[[int], HostFloor | Withheld], n_blocks: int, n_planned: int) -> KnownFloor:
    """``find`` gives the floor from contrasts of so many blocks. Unknown for those that a job has, it is that of its plan.

    Blocks don't remove the bias, so a job that lost blocks, or looked before the last one, is not held to less.
    """
    found = find(n_blocks)
    if isinstance(found, Withheld) and n_planned != n_blocks and isinstance(planned := find(n_planned), HostFloor):
        return told(planned, n_planned)
    return told(found, n_blocks)


def contrast(job: str, at: datetime, scope: Scope, block_values: Sequence[Mapping[int, float]]) -> Contrast | Withheld:
    """One contrast of a job: ``block_values`` holds block → value for each of its controls and points of the scope's class.

    They are averaged by block first. Points share the starts of a block, and with them the bias that is looked for: counted
    apart they would look like many hosts that happen to agree.
    """
    whole = set.intersection(*(set(values) for values in block_values)) if block_values else set()
    if len(whole) < MIN_BLOCKS:
        return Withheld(withheld=f"a contrast needs {MIN_BLOCKS} blocks, {job} has {len(whole)}", reason_code="too_few_blocks")
    means = [float(np.mean([values[b] for values in block_values])) for b in sorted(whole)]
    return Contrast(job, at, scope, float(np.mean(means)), standard_error(means))


def host_floor(contrasts: Sequence[Contrast], scope: Scope, now: datetime) -> HostFloor | Withheld:
    """The floor for ``scope`` from the contrasts that count for it: same scope, at most 30 days old, the latest of each job."""
    latest: dict[str, Contrast] = {}
    left_out: Counter[str] = Counter()
    for c in sorted(contrasts, key=lambda c: c.at):
        why = _why_not(c, scope, now)
        if why:
            left_out[why] += 1
        else:
            latest[c.job] = c
    used = tuple(latest.values())
    if len(used) < MIN_AA_CONTRASTS:
        others = ", ".join(f"{n} {why}" for why, n in sorted(left_out.items()))
        words = f"needs {MIN_AA_CONTRASTS} A/A contrasts, has {len(used)}" + (f" (left out: {others})" if others else "")
        return Withheld(withheld=words, reason_code="too_few_contrasts")
    floor = noise_floor([c.estimate for c in used], [c.standard_error for c in used])
    if isinstance(floor, Withheld):
        return floor
    # It ends when so many have grown old that too few are left.
    ends = sorted((c.at for c in used), reverse=True)[MIN_AA_CONTRASTS - 1] + VALID_FOR
    return HostFloor(floor=floor, contrasts=used, valid_until=ends)


def _why_not(c: Contrast, scope: Scope, now: datetime) -> str:
    if c.scope.host != scope.host:
        return "of another host"
    if c.scope.driver != scope.driver:
        return "with another driver"
    if c.scope.runtime != scope.runtime:
        return "with another engine build"
    if c.scope.point_class != scope.point_class:
        return "at another concurrency, rate or occupied context"
    if c.scope.n_blocks != scope.n_blocks:
        return f"of another number of blocks than {scope.n_blocks}"
    return f"older than {VALID_FOR.days} days" if now - c.at > VALID_FOR else ""
