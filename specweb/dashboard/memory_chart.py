"""What each arm holds of memory against what the card or the machine has: weights, cache and buffers, stacked. No database access."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple

from speccore.inventory import HostInventory
from speccore.memory_estimate import Room
from speccore.spec import Arm, ExperimentSpec

from specweb.results.memory_queries import TrialMemory

from . import formats
from .chart_frame import Chart, Lack
from .stacked import Key, Row, stacked

_MIB, _GIB = 2**20, 2**30
#: Bars that take less than this share of the room are drawn on an axis of their own, and the room is told in words.
LEAST_SHARE = 0.2

KEYS = (
    Key("target-weights", "target: weights", "part-verify", ""),
    Key("target-cache", "target: cache", "part-cache", "/"),
    Key("target-buffers", "target: buffers", "part-buffers", "."),
    Key("draft-weights", "helper: weights", "part-draft", ""),
    Key("draft-cache", "helper: cache", "part-decode", "x"),
    Key("draft-buffers", "helper: buffers", "part-rest", "."),
    Key("peak", "peak, not told apart", "part-prefill", "/"),
)


class _Bar(NamedTuple):
    arm: Arm
    parts: dict[str, float]  # bytes
    peak: float | None


def memory_chart(spec: ExperimentSpec, trials: Sequence[TrialMemory], inventory: HostInventory | None, href: str = "#memory") -> Chart:
    on_device = any(t.held_bytes or any(device for _, _, device in t.parts) for t in trials)
    room = _room(inventory, on_device=on_device)
    bars = [_bar(arm, [t for t in trials if t.arm == arm.name], on_device=on_device) for arm in spec.arms]
    drawn = [b for b in bars if b.parts]
    lacks = [Lack(b.arm.name, "no trial of it tells its memory") for b in bars if not b.parts]
    title, caption = "Memory against the machine’s", "what the engine holds in the host's memory"
    if on_device:
        title, caption = "Memory against the card’s", "what the engine holds on the device"
    largest = max((max(sum(b.parts.values()), b.peak or 0.0) for b in drawn), default=0.0)
    unit, size = ("GiB", _GIB) if largest >= 10 * _GIB else ("MiB", _MIB)
    line = (room.n_bytes / size, _name_of(room, inventory)) if room and largest >= LEAST_SHARE * room.n_bytes else None
    return Chart(
        "memory-bill",
        title,
        f"{unit}; {caption}, by its own log; the tick is the highest that was seen while probing",
        "Parts of the memory of each arm; the table of memory has the same numbers",
        kind="stacked",
        data=stacked(KEYS, [("", "", [_row(b, size, unit, href) for b in drawn])], unit=unit, mark_name="highest seen", line=line)
        if drawn
        else None,
        empty="" if drawn else "No trial tells what its engine took of memory.",
        lacks=lacks if drawn else (),
        numbers="the table of memory has",
        notes=_notes(room, inventory, largest, _beside(trials, on_device=on_device), on_device=on_device, drawn_line=line is not None),
        about=[spec.name],
    )


def _bar(arm: Arm, trials: Sequence[TrialMemory], *, on_device: bool) -> _Bar:
    own = next((t.parts for t in trials if t.parts), {})
    parts: dict[str, float] = {}
    for (owner, what, device), n in own.items():
        if device == on_device and n > 0:
            parts[f"{owner}-{what}"] = parts.get(f"{owner}-{what}", 0.0) + n
    peaks = [p for t in trials if (p := t.held_bytes if on_device else t.peak_bytes) is not None]
    peak = statistics.median(peaks) if peaks else None
    return _Bar(arm, parts or ({"peak": peak} if peak else {}), peak if parts else None)


def _row(bar: _Bar, size: int, unit: str, href: str) -> Row:
    total = sum(bar.parts.values())
    said = f"{total / size:,.1f} {unit}" + (f", highest seen {bar.peak / size:,.1f} {unit}" if bar.peak is not None else "")
    parts = {key: n / size for key, n in bar.parts.items()}
    return Row(bar.arm.name, bar.arm.mode, href, parts, said, None if bar.peak is None else bar.peak / size)


def _name_of(room: Room, inventory: HostInventory | None) -> str:
    gpus = [d for d in inventory.devices if d.kind == "gpu"] if inventory else []
    if room.on_device and len(gpus) == 1:
        return f"{formats.byte_size(room.n_bytes)} on {gpus[0].name}"
    what = f"of {len(gpus)} devices together" if room.on_device else "of memory in the machine"
    return f"{formats.byte_size(room.n_bytes)} {what}"


def _room(inventory: HostInventory | None, *, on_device: bool) -> Room | None:
    """Where the bars lie; None where the host doesn't say how large it is."""
    if inventory is None:
        return None
    size = sum(d.memory_bytes for d in inventory.devices if d.kind == "gpu") if on_device else inventory.memory_bytes
    return Room(size, "GPU memory" if on_device else "memory", on_device) if size > 0 else None


def _beside(trials: Sequence[TrialMemory], *, on_device: bool) -> float:
    """The most that an engine on a device holds in the host's memory too, by its own log."""
    return max((sum(n for (_, _, device), n in t.parts.items() if not device) for t in trials), default=0.0) if on_device else 0.0


def _notes(
    room: Room | None, inventory: HostInventory | None, largest: float, beside: float, *, on_device: bool, drawn_line: bool
) -> list[str]:
    if not largest:
        return []
    where = [] if on_device else ["The engine computes on the processors, so that the machine’s memory takes the card’s place."]
    if beside:
        where.append(f"Up to {formats.byte_size(beside)} that it holds in the host’s memory besides are not in the bars.")
    if room is None:
        return [*where, "How much memory there is, the host doesn’t tell."]
    share = f"The largest arm takes {_percent(largest / room.n_bytes)} of the {_name_of(room, inventory)}"
    return [*where, f"{share}." if drawn_line else f"{share}; their end lies far beyond the right edge."]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share < 0.1 else f"{100 * share:.0f} %"
