"""Makes a small GGUF model heavy without changing its answers, so that each of its tokens costs real memory traffic.

A model of 4 MB answers from the processor's cache: no drafter can be cheaper, so speculation could never pay. Two
changes add weights that are read and multiplied like any others, and whose results are zero:

* feed-forward layers ``width`` times as wide: gate and up projections repeated, down projection extended by zeros;
* ``layers`` further layers, copies of the last one whose two output projections are zero, so that the residual
  stream passes unchanged. A head for multi-token prediction (architecture qwen35) keeps its place behind them all.

    python -m demo.inflate demo/models/target.gguf heavy.gguf
"""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Q

WIDTH, LAYERS = 8, 20
RECIPE_KEY = "specweb.inflated_from"
#: Types in which bytes of zero mean the number zero and rows can be joined as they are stored.
ZERO_IS_ZERO = (Q.F32, Q.F16, Q.Q8_0)
#: Both call the projections that a block adds to the residual stream by these names, in a block of attention.
ARCHITECTURES = ("llama", "qwen35")
SILENT = ("attn_output.weight", "ffn_down.weight")


class CannotInflate(ValueError):
    """The model is of a kind that this recipe does not fit."""


def inflate(source: Path, target: Path, *, width: int = WIDTH, layers: int = LAYERS) -> None:
    """Writes the heavy form of ``source`` (architecture llama or qwen35; F32, F16 or Q8_0) to ``target``, by way of a partial file."""
    reader = gguf.GGUFReader(source)
    architecture = str(_value(reader, "general.architecture"))
    if architecture not in ARCHITECTURES:
        raise CannotInflate(f"{source}: architecture {architecture!r}; this recipe knows {' and '.join(ARCHITECTURES)}")
    for tensor in reader.tensors:
        if tensor.tensor_type not in ZERO_IS_ZERO:
            raise CannotInflate(f"{source}: tensor {tensor.name} is {tensor.tensor_type.name}; this recipe knows F32, F16 and Q8_0")
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    writer = gguf.GGUFWriter(partial, architecture)
    try:
        _write_fields(reader, writer, width, layers, recipe(source, width, layers))
        for name, data, kind in _tensors(reader, width, layers):
            writer.add_tensor(name, data, raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        partial.rename(target)
    finally:
        partial.unlink(missing_ok=True)


def recipe(source: Path, width: int = WIDTH, layers: int = LAYERS) -> str:
    """What an inflated file was made from and how; stored in it."""
    return f"sha256:{hashlib.sha256(source.read_bytes()).hexdigest()} width×{width} layers+{layers}"


def is_inflated_from(target: Path, source: Path) -> bool:
    """Whether ``target`` exists and was made from exactly this source with the default recipe."""
    if not target.exists():
        return False
    try:
        field = gguf.GGUFReader(target).get_field(RECIPE_KEY)
    except (ValueError, IndexError, OSError):
        return False  # cut off or no GGUF: make it again
    return field is not None and field.contents() == recipe(source)


def _value(reader: gguf.GGUFReader, key: str) -> object:
    field = reader.get_field(key)
    if field is None:
        raise CannotInflate(f"the file lacks {key}")
    return field.contents()


def _blocks(reader: gguf.GGUFReader) -> tuple[int, int]:
    """How many blocks the model has, and how many of them, the last ones, are heads for multi-token prediction."""
    architecture = _value(reader, "general.architecture")
    heads = reader.get_field(f"{architecture}.nextn_predict_layers")
    return int(str(_value(reader, f"{architecture}.block_count"))), int(heads.contents()) if heads else 0


def _write_fields(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, width: int, layers: int, made_from: str) -> None:
    architecture = _value(reader, "general.architecture")
    n_blocks, n_heads = _blocks(reader)
    changed = {
        "general.name": f"{_value(reader, 'general.name')} (inflated)",
        f"{architecture}.block_count": n_blocks + layers,
        f"{architecture}.feed_forward_length": int(str(_value(reader, f"{architecture}.feed_forward_length"))) * width,
    }
    recurrent = f"{architecture}.attention.recurrent_layers"  # one for each block, the heads among them
    if field := reader.get_field(recurrent):
        old = field.contents()
        changed[recurrent] = [*old[: n_blocks - n_heads], *[False] * layers, *old[n_blocks - n_heads :]]
    for field in reader.fields.values():
        # The writer itself sets the architecture; GGUF.* describe the file, not the model.
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, changed.get(field.name, field.contents()), kind, inner)
    writer.add_string(RECIPE_KEY, made_from)


def _tensors(reader: gguf.GGUFReader, width: int, layers: int) -> Iterator[tuple[str, np.ndarray, Q]]:
    """Every tensor of the heavy model: name, rows as stored, type."""
    n_blocks, n_heads = _blocks(reader)
    body = n_blocks - n_heads
    last: list[tuple[str, np.ndarray, Q]] = []
    heads: list[tuple[str, np.ndarray, Q]] = []
    for tensor in reader.tensors:
        data = _widened(tensor.name, tensor.data, width)
        block, _, name = tensor.name.removeprefix("blk.").partition(".")
        if tensor.name.startswith("blk.") and int(block) >= body:
            heads.append((f"blk.{int(block) + layers}.{name}", data, tensor.tensor_type))
            continue
        yield tensor.name, data, tensor.tensor_type
        if tensor.name.startswith(f"blk.{body - 1}."):
            last.append((name, data, tensor.tensor_type))
    if layers and not set(SILENT) <= {name for name, _, _ in last}:
        raise CannotInflate(f"block {body - 1} has no {' or no '.join(SILENT)}: only a block of attention can be repeated in silence")
    for block in range(body, body + layers):
        for name, data, kind in last:
            yield f"blk.{block}.{name}", np.zeros_like(data) if name in SILENT else data, kind
    yield from heads  # behind all else also in the file: who doesn't load them maps no more than the rest


def _widened(name: str, rows: np.ndarray, width: int) -> np.ndarray:
    if name.endswith(("ffn_gate.weight", "ffn_up.weight")):
        return np.tile(rows, (width, 1))
    if name.endswith("ffn_down.weight"):
        return np.concatenate([rows, *[np.zeros_like(rows)] * (width - 1)], axis=1)
    return np.asarray(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m demo.inflate", description="Make a small GGUF model heavy; its answers stay the same.")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--width", type=int, default=WIDTH, help="factor of the feed-forward width (default %(default)s)")
    parser.add_argument("--layers", type=int, default=LAYERS, help="further layers (default %(default)s)")
    given = parser.parse_args()
    inflate(given.source, given.target, width=given.width, layers=given.layers)
    print(f"{given.target}: {given.target.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
