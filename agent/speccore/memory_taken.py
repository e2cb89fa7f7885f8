"""What the arms of an experiment took of memory, as measured: the engine's own parts, layers moved, memory left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .measurement import AttemptMeasurement, HostFacts
from .memory_estimate import Owner, What
from .pairs import BlockPairs

_MIB = 2**20
#: The engine's words for its buffers, and ours.
_WHATS: dict[str, What] = {"model": "weights", "KV": "cache", "RS": "cache", "compute": "buffers", "output": "buffers"}

#: (whose, what, on a device): bytes.
Parts = dict[tuple[Owner, What, bool], float]


def parts_of(memory_mib: Mapping[str, float], devices: Sequence[str]) -> Parts:
    """The engine's own breakdown; empty where its log told none.

    ``memory_mib`` and ``devices`` as in :class:`LogFacts`, e.g. ``{"target model CPU_Mapped": 118.2}``.
    """
    parts: Parts = {}
    for key, mib in memory_mib.items():
        owner, _, rest = key.partition(" ")
        word, _, where = rest.partition(" ")
        if word in _WHATS and owner in ("target", "draft"):
            name: tuple[Owner, What, bool] = ("target" if owner == "target" else "draft", _WHATS[word], where in devices)
            parts[name] = parts.get(name, 0.0) + mib * _MIB
    return parts


def layers_moved(blocks: Sequence[BlockPairs]) -> int:
    """Layers of the target that lay on a device in the baseline and not beside the helper, in the same block.

    So many as in two blocks at the least, where there are two: a single start may have met another program.
    """
    moved = sorted((m for b in blocks if (m := _moved(b.left.host, b.right.host)) is not None), reverse=True)
    return max(0, moved[min(1, len(moved) - 1)]) if moved else 0


def _moved(baseline: HostFacts, arm: HostFacts) -> int | None:
    if baseline.layers_placed is None or arm.layers_placed is None:
        return None
    return baseline.layers_placed[0] - arm.layers_placed[0]


def least_free_bytes(attempts: Sequence[AttemptMeasurement]) -> float | None:
    """What was left free where the model runs, the lowest of all trials; None where one doesn't tell."""
    known = [a.host.free_bytes for a in attempts]
    return min((k for k in known if k is not None), default=None) if None not in known else None
