"""Every start of a job in the order in which it ran: what became of it, how fast its timed requests were, clocks and heat meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db.models import Avg, Count, F, Max, Q

from specweb.experiments.models import Job

from .models import Attempt, Probe


@dataclass
class Start:
    """One attempt. ``clock_mhz`` is its lowest and highest; ``speeds`` are tokens per second by point, the mean over its timed requests."""

    attempt: UUID
    number: int  # of its trial, from 1
    block: int
    arm: str
    mode: str
    accepted: bool
    void_reason: str
    outcome: str
    started_at: datetime
    clock_mhz: tuple[float, float] | None
    temperature_c: float | None
    speeds: dict[str, float] = field(default_factory=dict)


_FIELDS = (
    "id",
    "trial__index",
    "trial__block",
    "trial__arm__name",
    "trial__arm__mode",
    "accepted",
    "void_reason",
    "outcome",
    "started_at",
    "measurement__numbers__clock_mhz",
    "measurement__numbers__host__clock_mhz",
    "measurement__numbers__temperature_c",
)


def starts_in_order(job: Job) -> list[Start]:
    """All attempts of a job by the time of their start (2 statements)."""
    rows = Attempt.objects.filter(trial__job=job).order_by("started_at", "trial__index").values_list(*_FIELDS)
    found = {
        id_: Start(id_, index + 1, block, arm, mode, accepted, void, outcome, at, _clock(ends, usual), heat)
        for id_, index, block, arm, mode, accepted, void, outcome, at, ends, usual, heat in rows
    }
    speeds = (
        Probe.objects.filter(attempt__trial__job=job, attempt__measurement=F("measurement"), warmup=False, ok=True)
        .exclude(decode_tokens_per_s=None)
        .order_by("point__position")
        .values_list("attempt", "point__key")
        .annotate(speed=Avg("decode_tokens_per_s"))
    )
    for attempt, point, speed in speeds:
        if attempt in found:
            found[attempt].speeds[point] = speed
    return list(found.values())


def _clock(ends: list[float] | None, usual: float | None) -> tuple[float, float] | None:
    """Of devices its ends, of processors its median."""
    if ends:
        return ends[0], ends[1]
    return None if usual is None else (usual, usual)


def state_of_order(job: Job) -> str:
    """What changes whenever the order would be told differently (1 statement)."""
    accepted, void = Count("id", filter=Q(accepted=True)), Count("id", filter=~Q(void_reason=""))
    found = Attempt.objects.filter(trial__job=job).aggregate(Count("id"), Max("measurement"), accepted=accepted, void=void)
    return " ".join(f"{name}={value}" for name, value in sorted(found.items()))
