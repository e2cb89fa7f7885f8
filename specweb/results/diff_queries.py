"""What a trial can be held against: its pair in the block, the same arm's other blocks, its other attempts."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from .models import Attempt


@dataclass(frozen=True)
class Candidate:
    id: UUID
    trial: int  # from 1
    n: int
    arm: str
    mode: str
    block: int
    accepted: bool


def candidates(attempt: Attempt) -> list[Candidate]:
    """In the order of trials (1 statement). Of each other trial the accepted attempt, else the newest; of its own all others."""
    trial = attempt.trial
    found = (
        Attempt.objects.filter(Q(trial__block=trial.block) | Q(trial__arm=trial.arm_id), trial__job=trial.job_id)
        .exclude(pk=attempt.pk)
        .order_by("trial__index", "accepted", "received_at")
        .values_list("id", "trial__index", "n", "trial__arm__name", "trial__arm__mode", "trial__block", "accepted")
    )
    rows = [Candidate(id_, index + 1, *rest) for id_, index, *rest in found]
    standing = {c.trial: c for c in rows}  # of several the last one stands
    return [c for c in rows if c.trial == trial.index + 1 or standing[c.trial] is c]
