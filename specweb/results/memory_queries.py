"""What the trials of a job took of memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import F, Func, JSONField, QuerySet
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


#: What a measurement has much of and these pages don't read. Each field that is asked for by its name unpacks the whole again.
_MUCH = "{probes,loads,pair_fields,settlings,problems,disagreements}"


def with_facts(attempts: QuerySet[Attempt]) -> QuerySet[Attempt]:
    """Attempts with ``facts_told``: their measurement without its probes; None where there is none."""
    rest = Func(F("measurement__numbers"), template=f"(%(expressions)s - '{_MUCH}'::text[])", output_field=JSONField())
    return attempts.annotate(facts_told=rest)


def memory_of_trials(trials: Sequence[Trial]) -> list[TrialMemory]:
    """Of trials with their attempts, which have been read ``with_facts``."""
    accepted = [(t.arm.name, a) for t in trials for a in t.attempts.all() if a.accepted and a.measurement_id]
    return [_trial(arm, a.facts_told) for arm, a in accepted]


def _trial(arm: str, told: Mapping[str, Any]) -> TrialMemory:
    log, host, peak, fit = told.get("log") or {}, told.get("host") or {}, told.get("peak_memory_bytes") or {}, told.get("fit")
    layers = host.get("layers_placed")
    return TrialMemory(
        arm,
        parts_of(log.get("memory_mib") or {}, log.get("devices") or []),
        peak.get("value"),
        told.get("context_per_slot"),
        told.get("slots"),
        tuple(layers) if layers else None,
        host.get("free_bytes"),
        Fit.model_validate(fit) if fit else None,
        host.get("held_bytes"),
    )
