"""Model files that an engine can't use, made for tests."""

from __future__ import annotations

from pathlib import Path

import gguf


def make_headless(path: Path) -> Path:
    """A GGUF file that reads well and holds no tensor: the engine refuses it."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def make_draft_of_another_vocabulary(source: Path, target: Path, *, merges_only: bool = False) -> None:
    """The same weights under a vocabulary with other tokens: the engine must refuse it as a draft. ``merges_only``: it won't."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        value = field.contents()
        if field.name == "tokenizer.ggml.tokens" and not merges_only:
            value = [f"x{i}" if i > 300 else token for i, token in enumerate(value)]
        if field.name == "tokenizer.ggml.merges":
            value = value[:-1] if merges_only else value[:1]
        writer.add_key_value(field.name, value, kind, sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
