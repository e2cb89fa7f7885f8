"""When an event of a stream arrived, and how well that is known."""

from __future__ import annotations

from typing import NamedTuple


class Arrival(NamedTuple):
    """Seconds of one clock. ``read_at_s`` is None where ``at_s`` is the moment of the read itself."""

    at_s: float  # of the last byte
    read_at_s: float | None = None
    queued: bool = False  # at_s is an upper bound: the kernel had joined these bytes to later ones


def arrival(at: float | Arrival) -> Arrival:
    """Of data whose source knows no more than a moment."""
    return at if isinstance(at, Arrival) else Arrival(at)
