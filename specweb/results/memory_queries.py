"""What the trials of a job took of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, QuerySet
from speccore.fit import Fit
from speccore.memory_taken import Parts, parts_of

from .models import Attempt, Trial


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


def with_memory(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """Attempts with what :func:`memory_of_trials` needs of their measurements."""
    return attempts.annotate(**{f"told_{n}": F(f"measurement__numbers__{name}") for n, name in enumerate(_FIELDS)})


def memory_of_trials(trials: Sequence[Trial]) -> list[TrialMemory]:
    """Of trials with their attempts, which have been read ``with_memory``."""
    accepted = [(t.arm.name, a) for t in trials for a in t.attempts.all() if a.accepted and a.measurement_id]
    return [_trial(arm, *(getattr(a, f"told_{n}") for n in range(len(_FIELDS)))) for arm, a in accepted]


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
