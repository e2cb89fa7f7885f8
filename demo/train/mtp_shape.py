"""The shape of the demo model that drafts for itself: what its training and its export both go by."""

from __future__ import annotations

from dataclasses import dataclass

RECURRENT, ATTENTION = "R", "A"


@dataclass(frozen=True)
class Shape:
    """Of the model; the defaults are the demo's. ``pattern``: one letter for each layer of the trunk, R recurrent or A attention."""

    pattern: str = "RAAA"
    vocabulary: int = 2048
    width: int = 256
    feed_forward: int = 704
    context: int = 2048
    heads: int = 4
    kv_heads: int = 2
    head_width: int = 64
    rotated: int = 16
    rope_base: float = 10_000.0
    eps: float = 1e-6
    recurrent_heads: int = 4
    recurrent_width: int = 64
    kernel: int = 4

    @property
    def recurrent_inner(self) -> int:
        return self.recurrent_heads * self.recurrent_width

    @property
    def sections(self) -> list[int]:
        half = self.rotated // 2
        return [(half + 2) // 3, (half + 1) // 3, half // 3, 0]
