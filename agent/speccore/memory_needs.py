"""What each arm of an experiment would need of memory on a host, beside what that has; and the largest context that should fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from .inventory import HostInventory, ModelInfo
from .measurement import Withheld
from .memory_estimate import Estimate, Room, What, estimate_arm, largest_context
from .spec import ExperimentSpec

_MIB = 2**20
_WHATS: tuple[What, ...] = ("weights", "cache", "buffers")


@dataclass(frozen=True)
class Need:
    """Of one arm. ``why_not``: why there is no estimate, and then the numbers are None. ``largest``: tokens per slot; 0: none."""

    arm: str
    mode: str
    needs_bytes: float | None
    room_bytes: int
    reserve_bytes: int
    place: str
    largest: int | None
    trained: int | None  # tokens that the target was trained for
    why_not: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)  # weights, cache, buffers: bytes of ``needs_bytes``, helper and all

    @property
    def fits(self) -> bool | None:
        return None if self.needs_bytes is None else self.needs_bytes + self.reserve_bytes <= self.room_bytes

    def words(self) -> str:
        """``needs about 12.3 GiB of 16 GiB of GPU memory; a context of up to 98,304 tokens should fit``."""
        if self.needs_bytes is None:
            return f"no estimate of its memory: {self.why_not}"
        said = f"needs about {size(self.needs_bytes)} of {size(self.room_bytes)} of {self.place}"
        if self.reserve_bytes:
            said += f", of which {size(self.reserve_bytes)} must stay free"
        return f"{said}; {self.context_words()}"

    def context_words(self) -> str:
        if not self.largest:
            return "no context should fit"
        if self.trained is not None and self.largest >= self.trained:
            return f"all {self.largest:,} tokens that the model was trained for should fit"
        return f"a context of up to {self.largest:,} tokens should fit"


def needs(spec: ExperimentSpec, inventory: HostInventory, target: ModelInfo, drafts: Mapping[str, ModelInfo]) -> list[Need]:
    """All arms in the experiment's order. ``drafts``: arm → its helper model."""
    room = Room.of(inventory)
    reserve = (spec.requirements.free_memory_mib or 0) * _MIB
    found = []
    for arm in spec.arms:
        draft = drafts.get(arm.name)
        estimate = estimate_arm(spec.engine, arm, target, draft, on_device=room.on_device)
        largest = largest_context(spec.engine, arm, target, draft, room, reserve_bytes=reserve)
        known = isinstance(estimate, Estimate) and not isinstance(largest, Withheld)
        found.append(
            Need(
                arm=arm.name,
                mode=arm.mode,
                needs_bytes=room.taken(estimate) if isinstance(estimate, Estimate) else None,
                room_bytes=room.n_bytes,
                reserve_bytes=reserve,
                place=room.place,
                largest=largest if isinstance(largest, int) else None,
                trained=target.context_length,
                why_not="" if known else _why(estimate, largest),
                parts=_parts(estimate, room) if isinstance(estimate, Estimate) else {},
            )
        )
    return found


def _parts(estimate: Estimate, room: Room) -> dict[str, float]:
    return {what: estimate.bytes_of(what=what, on_device=True if room.on_device else None) for what in _WHATS}


def _why(*found: object) -> str:
    return next((f.withheld for f in found if isinstance(f, Withheld)), "")


def too_large(spec: ExperimentSpec, found: list[Need], host: str) -> Iterator[tuple[str, str]]:
    """(field, words) of what should not fit on the host: the baseline by its context, an arm by its helper where the baseline fits."""
    baseline = next(n for n in found if n.arm == spec.baseline.name)
    for i, need in enumerate(found):
        if need.fits is not False or (baseline.fits is False and need is not baseline):
            continue
        field = "engine.context" if need is baseline else f"arms.{i}.{'draft_model' if spec.arms[i].draft_model else 'mode'}"
        yield field, f"{need.arm} {need.words()} (on {host})"


def size(n_bytes: float) -> str:
    """``12.3 GiB``; below one GiB in MiB."""
    return f"{n_bytes / 2**30:.3g} GiB" if n_bytes >= 2**30 else f"{n_bytes / _MIB:.3g} MiB"
