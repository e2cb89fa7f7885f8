"""What became of an attempt at a trial, in a word and, where it doesn't count, the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specweb.results.models import Attempt


@dataclass(frozen=True)
class Fate:
    """``word`` is accepted, failed, cancelled, void or late."""

    word: str
    why: str = ""


def fate_of(attempt: Attempt, tries: Sequence[Attempt]) -> Fate:
    """``tries`` are all attempts at the same trial, each with its lease."""
    if attempt.accepted:
        return Fate("accepted")
    if attempt.void_reason:
        return Fate("void", attempt.void_reason)
    if attempt.outcome == "cancelled":
        return Fate("cancelled", "it was stopped before its end")
    if not attempt.counted:
        return Fate("late", _why_late(attempt, tries))
    return Fate("failed", str((attempt.error or {}).get("message") or "it named no reason"))


def _why_late(attempt: Attempt, tries: Sequence[Attempt]) -> str:
    lease = attempt.lease
    if lease.released_at is not None and lease.released_at <= attempt.received_at:
        return f"it came after lease {lease.n} of the job had ended"
    if any(other.accepted for other in tries if other.pk != attempt.pk):
        return "another attempt at the trial was accepted before"
    return "it came when the job took no more attempts"
