"""What the arms of an experiment took of memory, as measured: the engine's own parts, layers moved, memory left."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Literal

from . import settled
from .derive import block_range, computed
from .measurement import AttemptMeasurement, HostFacts, Maybe, Number, Withheld, value_of
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


def lost(
    baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement], field: Literal["context_per_slot", "slots"]
) -> int | None:
    """The least that a start of the baseline had of it, less the least that one of the arm's had; None where one side doesn't tell."""
    has = [min((n for a in side if (n := getattr(a, field)) is not None), default=None) for side in (baseline, arm)]
    return None if has[0] is None or has[1] is None else has[0] - has[1]


def kv_tokens_lost(blocks: Sequence[BlockPairs]) -> float | None:
    """Tokens of KV cache that the arm lacks at the same budget of memory, median over blocks; None where the logs don't tell."""
    lost = [n for b in blocks if (n := settled.kv_tokens_lost(b.left.log.settled, b.right.log.settled)) is not None]
    return statistics.median_low(lost) if lost else None


def bill(blocks: Sequence[BlockPairs]) -> Maybe:
    """The arm's peak minus the baseline's in the same block; median over blocks. Both must have been measured in one way.

    An engine that fills a budget of memory with its cache has the same peak with a helper: what the helper takes is missing from the
    cache. There the bytes of the lost tokens are added, as the baseline's cache holds them.
    """
    bills: dict[int, float] = {}
    reason: Withheld | None = None
    budgeted = False
    for block in blocks:
        peaks = (block.left.peak_memory_bytes, block.right.peak_memory_bytes)
        missing = [p for p in peaks if isinstance(p, Withheld)]
        ways = sorted({p.source.field for p in peaks if isinstance(p, Number)})
        cache = _cache_lost(block)
        if missing:
            reason = reason or missing[0]
        elif len(ways) > 1:
            reason = reason or Withheld(withheld=f"one arm has {ways[0]}, the other {ways[1]}", reason_code="measured_differently")
        elif isinstance(cache, Withheld):
            reason = reason or cache
        else:
            budgeted = budgeted or cache is not None
            bills[block.block] = (value_of(peaks[1]) or 0.0) - (value_of(peaks[0]) or 0.0) + (cache or 0.0)
    if not bills:
        return reason or Withheld(withheld="no block has both arms", reason_code="no_blocks")
    formula = "arm's peak − baseline's peak" + (" + bytes of KV cache lost" if budgeted else "")
    return computed(statistics.median(bills.values()), f"median of ({formula})", block_range(bills))


def _cache_lost(block: BlockPairs) -> float | Withheld | None:
    """Bytes of KV cache that the arm lacks; None for engines that allocate as much as is asked for."""
    sides = (block.left.log.settled, block.right.log.settled)
    if not any("kv_cache_tokens" in side for side in sides):
        return None
    lost = settled.kv_bytes_lost(*sides)
    return Withheld(withheld="an arm's log doesn't tell the size of its KV cache", reason_code="not_told") if lost is None else lost


def least_free_bytes(attempts: Sequence[AttemptMeasurement]) -> float | None:
    """What was left free where the model runs, the lowest of all trials; None where one doesn't tell."""
    known = [a.host.free_bytes for a in attempts]
    return min((k for k in known if k is not None), default=None) if None not in known else None
