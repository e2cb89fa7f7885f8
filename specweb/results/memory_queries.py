"""What the trials of a job took of memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import F
from speccore.fit import Fit
from speccore.memory_taken import Parts, parts_of

from specweb.experiments.models import Job

from .models import Attempt


@dataclass(frozen=True)
class TrialMemory:
    """Of one accepted trial. None, or no parts: not known."""

    arm: str
    parts: Parts  # the engine's own, bytes
    peak_bytes: float | None  # host and devices together
    context_per_slot: int | None
    slots: int | None
    layers_placed: tuple[int, int] | None
    free_bytes: float | None
    fit: Fit | None = None  # of all arms; beside the last trial
    held_bytes: float | None = None  # on devices, highest sample


_FIELDS = (
    "log__memory_mib",
    "log__devices",
    "peak_memory_bytes__value",
    "context_per_slot",
    "slots",
    "host__layers_placed",
    "host__free_bytes",
    "fit",
    "host__held_bytes",
)


def memory_of_trials(job: Job) -> list[TrialMemory]:
    """In the order of trials (1 statement)."""
    rows = (
        Attempt.objects.filter(trial__job=job, accepted=True, measurement__isnull=False)
        .order_by("trial__index")
        .values_list(F("trial__arm__name"), *(f"measurement__numbers__{name}" for name in _FIELDS))
    )
    return [_trial(*row) for row in rows]


def _trial(
    arm: str, memory: Any, devices: Any, peak: Any, context: Any, slots: Any, layers: Any, free: Any, fit: Any, held: Any
) -> TrialMemory:
    return TrialMemory(
        arm,
        parts_of(memory or {}, devices or []),
        peak,
        context,
        slots,
        tuple(layers) if layers else None,
        free,
        Fit.model_validate(fit) if fit else None,
        held,
    )
