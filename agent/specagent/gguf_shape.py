"""What of a GGUF file decides the memory that a model takes: weights by block, widths of its cache, state of its recurrent blocks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from speccore.inventory import BlockShape, MemoryShape

_BLOCK = re.compile(r"^blk\.(\d+)\.")
_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"
#: Looked up like the embedding, and kept where that is.
_BY_LAYER = "per_layer_token_embd.weight"
#: Keys under the architecture's name with which a cache is no product of heads and widths; and what the cache then is.
_OTHER_CACHES = {
    "attention.kv_lora_rank": "keeps its cache compressed (latent attention)",
    "attention.shared_kv_layers": "shares its cache among blocks",
    "wkv.head_size": "keeps a state of its own kind",
    "shortconv.l_cache": "keeps a state of its own kind",
    "kda.head_dim": "keeps a state of its own kind",
    "attention.chunk_size": "attends in chunks",
}
_MOST_BLOCKS = 10_000  # a file that promises more is broken, or wants to keep its reader busy
_STATE_BYTES = 4  # recurrent states are kept as 32-bit numbers


def memory_shape(readers: Sequence[Any], architecture: str) -> MemoryShape:
    """Of all parts of a model. What the file doesn't tell is named in ``unknown``."""
    keys = _Keys(readers[0], architecture)
    tensors = {t.name: t for r in readers for t in r.tensors}
    by_block: dict[int, dict[str, Any]] = {}
    rest = 0
    for name, tensor in tensors.items():
        if match := _BLOCK.match(name):
            by_block.setdefault(int(match[1]), {})[name[match.end() :]] = tensor
        elif name not in (_EMBEDDING, _BY_LAYER):
            rest += int(tensor.n_bytes)
    n_blocks = max(keys.number("block_count") or 0, max(by_block, default=-1) + 1)
    if n_blocks > _MOST_BLOCKS:
        raise ValueError(f"it says that it has {n_blocks:,} blocks")
    window = keys.number("attention.sliding_window") or 0
    pattern = keys.row("attention.sliding_window_pattern", n_blocks)
    blocks, faults = [], [f"it {said}" for key, said in _OTHER_CACHES.items() if keys.number(key)]
    if window and pattern is None:
        faults.append("some of its blocks attend to a window of the text only, and the file doesn't say which")
    for n in range(n_blocks):
        shape, fault = _block(keys, by_block.get(n, {}), n, n_blocks)
        blocks.append(shape.model_copy(update={"windowed": bool(window and pattern and pattern[n])}))
        faults += [fault] if fault else []
    if not by_block:
        faults.append("it names no blocks")
    return MemoryShape(
        blocks=blocks,
        n_next=min(keys.number("nextn_predict_layers") or 0, n_blocks),
        embedding_bytes=int(tensors[_EMBEDDING].n_bytes) if _EMBEDDING in tensors else 0,
        other_bytes=rest,
        host_bytes=int(tensors[_BY_LAYER].n_bytes) if _BY_LAYER in tensors else 0,
        tied=_EMBEDDING in tensors and _OUTPUT not in tensors,
        width=keys.number("embedding_length") or 0,
        feed_forward=max((int(w) for w in keys.row("feed_forward_length", n_blocks) or []), default=0),
        heads=max((int(h) for h in keys.row("attention.head_count", n_blocks) or []), default=0),
        window=window,
        hidden=keys.number("embedding_length_out") or 0,
        unknown=faults[0] if faults else "",
    )


def _block(keys: _Keys, tensors: dict[str, Any], n: int, n_blocks: int) -> tuple[BlockShape, str]:
    """A block's shape, and what can't be told of it."""
    weights = sum(int(t.n_bytes) for t in tensors.values())
    if any(name.startswith("ssm_") for name in tensors):
        state = _state_bytes(keys)
        return BlockShape(weights=weights, state=state), "" if state else "the file lacks the sizes of its recurrent state"
    if "attn_k.weight" in tensors and "attn_v.weight" in tensors:
        k, v = (int(tensors[f"attn_{what}.weight"].shape[1]) for what in "kv")
        return BlockShape(weights=weights, k=k, v=v), ""
    if not any(name.startswith("attn_") and name.endswith(".weight") and "norm" not in name for name in tensors):
        return BlockShape(weights=weights), ""
    heads, width = keys.row("attention.head_count_kv", n_blocks), keys.number("embedding_length")
    all_heads = keys.row("attention.head_count", n_blocks)
    if not heads or not width or not all_heads or not all_heads[n]:
        return BlockShape(weights=weights), "the file lacks the widths of its attention"
    usual = width // int(all_heads[n])
    k, v = (int(heads[n]) * (keys.number(f"attention.{what}_length") or usual) for what in ("key", "value"))
    return BlockShape(weights=weights, k=k, v=v), ""


def _state_bytes(keys: _Keys) -> int:
    """Of one sequence in one block: the convolution's last inputs, and the state itself; 0 where a size is missing."""
    conv, inner, state = (keys.number(f"ssm.{name}") or 0 for name in ("conv_kernel", "inner_size", "state_size"))
    groups = keys.number("ssm.group_count") or 0
    if not conv or not inner or not state:
        return 0
    return _STATE_BYTES * ((conv - 1) * (inner + 2 * groups * state) + state * inner)


class _Keys:
    """Metadata under the architecture's name."""

    def __init__(self, reader: Any, architecture: str) -> None:
        self._reader, self._architecture = reader, architecture

    def _value(self, name: str) -> Any:
        field = self._reader.get_field(f"{self._architecture}.{name}")
        return None if field is None else field.contents()

    def number(self, name: str) -> int | None:
        value = self._value(name)
        return int(value) if isinstance(value, int | float) else None

    def row(self, name: str, n: int) -> list[Any] | None:
        """One value for each block, also where the file has one for all; None where it has none that fits."""
        value = self._value(name)
        if isinstance(value, list):
            return value if len(value) >= n else None
        return None if value is None else [value] * n
