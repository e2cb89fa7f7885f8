"""What a trial left free of memory where its model runs, from the samples."""

from __future__ import annotations

from collections.abc import Sequence

from .records import Sample


def free_on_devices(probing: Sequence[Sample], used: set[str]) -> float | None:
    """Of the devices that the engine uses (of all where it was seen on none), the least that was free on any at any time."""
    totals = {uuid: d.total_bytes for s in probing for uuid, d in s.devices.items() if d.total_bytes is not None}
    free = [
        totals[uuid] - d.used_bytes
        for s in probing
        for uuid, d in s.devices.items()
        if uuid in totals and d.used_bytes is not None and (not used or uuid in used)
    ]
    return float(max(0, min(free))) if free else None


def free_in_host(probing: Sequence[Sample]) -> float | None:
    """What programs could still have taken of the host's memory without swapping, at its lowest."""
    return min((float(s.available_bytes) for s in probing if s.available_bytes is not None), default=None)
