"""What an arm will take of memory, from the models' files alone: weights, cache and working buffers, of target and helper.

Weights and cache follow from the files; the working buffers are a guess, made after what llama-server reserves. A model whose
cache is no product of widths and tokens has no estimate, and says why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .fit import CONTEXT_STEP
from .inventory import HostInventory, MemoryShape, ModelInfo
from .measurement import Withheld
from .spec import BASELINE_MODE, Arm, EngineSettings

Owner = Literal["target", "draft"]
What = Literal["weights", "cache", "buffers"]

#: Bytes of one value in a cache, by its type.
VALUE_BYTES = {
    "f32": 4.0,
    "f16": 2.0,
    "bf16": 2.0,
    "q8_0": 34 / 32,
    "q4_0": 18 / 32,
    "q4_1": 20 / 32,
    "iq4_nl": 18 / 32,
    "q5_0": 22 / 32,
    "q5_1": 24 / 32,
}
_USUAL_TYPE, _USUAL_UBATCH, _USUAL_LIMIT = "f16", 512, 3
_FLOAT = 4
#: What moves weights or caches about in a way that this sum doesn't know.
_MOVERS = ("--override-tensor", "--n-cpu-moe", "--cpu-moe", "--n-cpu-ffn", "--no-kv-offload", "--split-mode", "--swa-full")


@dataclass(frozen=True)
class Part:
    owner: Owner
    what: What
    on_device: bool
    n_bytes: float


@dataclass(frozen=True)
class Estimate:
    """Of one arm at its context. ``device``: bytes on devices; all in the host's memory where the host computes itself."""

    parts: tuple[Part, ...]

    @property
    def device(self) -> float:
        return self.bytes_of(on_device=True)

    @property
    def host(self) -> float:
        return self.bytes_of(on_device=False)

    @property
    def total(self) -> float:
        return self.bytes_of()

    def bytes_of(self, owner: Owner | None = None, what: What | None = None, *, on_device: bool | None = None) -> float:
        return sum(
            p.n_bytes
            for p in self.parts
            if owner in (None, p.owner) and what in (None, p.what) and (on_device is None or on_device == p.on_device)
        )


@dataclass(frozen=True)
class Room:
    """Where the model runs. ``place``: ``GPU memory`` or ``memory``."""

    n_bytes: int
    place: str
    on_device: bool

    @classmethod
    def of(cls, inventory: HostInventory) -> Room:
        gpus = [d for d in inventory.devices if d.kind == "gpu"]
        if gpus:
            return cls(sum(d.memory_bytes for d in gpus), "GPU memory", True)
        return cls(inventory.memory_bytes, "memory", False)

    def taken(self, estimate: Estimate) -> float:
        """What of the estimate lies here."""
        return estimate.device if self.on_device else estimate.total


def estimate_arm(
    settings: EngineSettings, arm: Arm, target: ModelInfo, draft: ModelInfo | None, *, on_device: bool, context: int | None = None
) -> Estimate | Withheld:
    """``context``: tokens per slot in the place of the settings'. ``on_device``: whether the host has a GPU."""
    if moved := next((flag for flag in settings.extra if flag in _MOVERS), None):
        return Withheld(withheld=f"{moved} moves weights or caches about", reason_code="moved")
    per_slot = _rounded_up(settings.context if context is None else context)
    parts: list[Part] = []
    for load in _loads(settings, arm, target, draft, on_device):
        if fault := _unknown(load):
            return fault
        parts += [*_weights(load), *_cache(load, settings, per_slot), _buffers(load, settings, per_slot)]
    return Estimate(tuple(parts))


def largest_context(
    settings: EngineSettings, arm: Arm, target: ModelInfo, draft: ModelInfo | None, room: Room, *, reserve_bytes: int = 0
) -> int | Withheld:
    """Most tokens per slot for which the estimate stays within the room, in steps of 256, up to what the target was trained for; 0: none."""
    top = target.context_length or settings.context
    low, high = 0, max(top // CONTEXT_STEP, 1)
    while low < high:
        middle = (low + high + 1) // 2
        found = estimate_arm(settings, arm, target, draft, on_device=room.on_device, context=middle * CONTEXT_STEP)
        if isinstance(found, Withheld):
            return found
        if room.taken(found) + reserve_bytes <= room.n_bytes:
            low = middle
        else:
            high = middle - 1
    return min(low * CONTEXT_STEP, top)


@dataclass(frozen=True)
class _Load:
    """A model that is opened. ``held`` and ``cached``: numbers of its blocks whose weights it loads, and that have a cache here."""

    owner: Owner
    model: ModelInfo
    types: tuple[str, str]  # of K and V
    layers: int | None  # on devices; None: all
    device: bool
    held: range
    cached: range
    copies: int = 1  # of a recurrent state: those to go back to where a draft is refused

    @property
    def shape(self) -> MemoryShape:
        return self.model.memory or MemoryShape(blocks=[], embedding_bytes=0, other_bytes=0, width=0, unknown="is not known")

    def on_device(self, block: int) -> bool:
        """llama-server puts the last blocks there first; the output, one beyond them, before all."""
        return self.device and (self.layers is None or block > len(self.shape.blocks) - self.layers)


def _loads(settings: EngineSettings, arm: Arm, target: ModelInfo, draft: ModelInfo | None, on_device: bool) -> list[_Load]:
    types = settings.kv_type_k or _USUAL_TYPE, settings.kv_type_v or _USUAL_TYPE
    whole, body, head = _ranges(target)
    mtp = arm.mode == "mtp"
    copies = 1 + (arm.draft_limit or _USUAL_LIMIT) if mtp else 1
    own_head = mtp and draft is None
    found = [_Load("target", target, types, settings.gpu_layers, on_device, whole if own_head else body, body, copies)]
    types = arm.draft_kv_type_k or _USUAL_TYPE, arm.draft_kv_type_v or _USUAL_TYPE
    there, layers = on_device and arm.draft_device != "none", arm.draft_gpu_layers
    if own_head:
        found.append(_Load("draft", target, types, layers, there, range(0), head))
    elif draft is not None and arm.mode != BASELINE_MODE:
        whole, body, head = _ranges(draft)
        found.append(_Load("draft", draft, types, layers, there, whole if mtp else body, head if mtp else body))
    return found


def _ranges(model: ModelInfo) -> tuple[range, range, range]:
    """All blocks, those of the model proper, and those of its head for mtp."""
    n = len(model.memory.blocks) if model.memory else 0
    first = n - (model.memory.n_next if model.memory else 0)
    return range(n), range(first), range(first, n)


def _unknown(load: _Load) -> Withheld | None:
    alias = load.model.alias
    if load.model.memory is None:
        return Withheld(withheld=f"the host has not told what {alias} is made of", reason_code="not_told")
    if load.shape.unknown:
        return Withheld(withheld=f"{alias}: {load.shape.unknown}", reason_code="other_cache")
    if odd := next((t for t in load.types if t not in VALUE_BYTES), None):
        return Withheld(withheld=f"the size of a cache of type {odd} is not known", reason_code="unknown_type")
    return None


def _rounded_up(tokens: int) -> int:
    return -(-tokens // CONTEXT_STEP) * CONTEXT_STEP


def _weights(load: _Load) -> list[Part]:
    if not load.held:
        return []  # of a model that is open already
    shape = load.shape
    held = {True: 0.0, False: float(shape.embedding_bytes + shape.host_bytes)}
    for i in load.held:
        held[load.on_device(i)] += shape.blocks[i].weights
    output_there = load.on_device(len(shape.blocks))
    held[output_there] += shape.other_bytes
    if output_there and shape.tied:
        held[True] += shape.embedding_bytes  # a second copy
    return [Part(load.owner, "weights", there, size) for there, size in held.items() if size]


def _cache(load: _Load, settings: EngineSettings, per_slot: int) -> list[Part]:
    shape = load.shape
    key, value = (VALUE_BYTES[t] for t in load.types)
    window = min(per_slot, _rounded_up(shape.window + (settings.ubatch or _USUAL_UBATCH)))
    held = {True: 0.0, False: 0.0}
    for i in load.cached:
        block = shape.blocks[i]
        cells = window if block.windowed else per_slot
        held[load.on_device(i)] += settings.slots * (cells * (block.k * key + block.v * value) + load.copies * block.state)
    return [Part(load.owner, "cache", there, size) for there, size in held.items() if size]


def _buffers(load: _Load, settings: EngineSettings, per_slot: int) -> Part:
    """A guess after what llama-server was seen to reserve for a batch: scores or the widest layer, the mask, the output."""
    shape, vocabulary = load.shape, load.model.vocab_size or 0
    batch = min(settings.ubatch or _USUAL_UBATCH, per_slot * settings.slots)
    # Scores of each token of a batch are computed by the target alone; a helper's are of the last one.
    attention = vocabulary + 4 * shape.width if load.owner == "target" else 6 * shape.width
    mask = 2 * per_slot
    if settings.flash_attention == "off":
        n_bytes = batch * _FLOAT * max(attention, _feed_forward(load, 0), (shape.heads + 1) * per_slot + 7 * shape.width)
    else:
        n_bytes = batch * (_FLOAT * max(attention, _feed_forward(load, mask)) + mask)
    return Part(load.owner, "buffers", load.on_device(len(shape.blocks)), float(n_bytes + settings.slots * vocabulary * _FLOAT))


def _feed_forward(load: _Load, mask: int) -> int:
    """Numbers of a token that its feed-forward layer holds at once, beside the mask of so many bytes a token.

    Behind a model's last attention the mask's room is free again, and takes what of three rows fits in; earlier layers keep it.
    """
    shape = load.shape
    if len(load.cached) > 1:
        return 3 * shape.feed_forward + 3 * shape.width
    n_reused = min(3, mask // max(1, _FLOAT * shape.feed_forward))
    return (3 - n_reused) * shape.feed_forward + shape.width
