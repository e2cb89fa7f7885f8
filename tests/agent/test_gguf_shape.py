"""What decides a model's memory, read from real files and from small ones written for what those lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from specagent.models import gguf_facts
from speccore.inventory import MemoryShape

Write = Callable[[dict[str, Any], dict[str, tuple[int, ...]]], MemoryShape]


def test_the_demo_target_is_read_whole(demo_models: Path) -> None:
    facts = gguf_facts(demo_models / "target.gguf")
    shape = MemoryShape(**facts["memory"])
    assert (shape.width, shape.feed_forward, shape.heads, shape.unknown, shape.tied) == (256, 704, 4, "", True)
    assert [(b.k, b.v, b.state) for b in shape.blocks] == [(256, 256, 0)] * 4
    tensors = gguf.GGUFReader(demo_models / "target.gguf").tensors
    parts = sum(b.weights for b in shape.blocks) + shape.embedding_bytes + shape.other_bytes
    assert parts == sum(int(t.n_bytes) for t in tensors)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file of architecture "toy" and reads its shape."""

    def written(keys: dict[str, Any], tensors: dict[str, tuple[int, ...]]) -> MemoryShape:
        writer = gguf.GGUFWriter(tmp_path / "toy.gguf", "toy")
        for name, value in ({"embedding_length": 8, "attention.head_count": 2} | keys).items():
            if isinstance(value, list):
                writer.add_array(f"toy.{name}", value)
            else:
                writer.add_uint32(f"toy.{name}", value)
        for name, shape in tensors.items():
            writer.add_tensor(name, np.zeros(shape, dtype=np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return MemoryShape(**gguf_facts(tmp_path / "toy.gguf")["memory"])

    return written


ATTENTION = {"attn_k.weight": (4, 8), "attn_v.weight": (2, 8)}


def blocks(*each: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {f"blk.{i}.{name}": shape for i, tensors in enumerate(each) for name, shape in tensors.items()}


def test_a_head_tells_the_width_of_the_states_that_it_takes(write: Write) -> None:
    assert write({"block_count": 1, "embedding_length_out": 32}, blocks(ATTENTION)).hidden == 32
    assert write({"block_count": 1}, blocks(ATTENTION)).hidden == 0


def test_widths_differ_from_block_to_block(write: Write) -> None:
    shape = write({"block_count": 2}, blocks(ATTENTION, {"attn_k.weight": (6, 8), "attn_v.weight": (6, 8)}))
    assert [(b.k, b.v) for b in shape.blocks] == [(4, 2), (6, 6)]


def test_joined_attention_is_told_by_heads(write: Write) -> None:
    joined = {"attn_qkv.weight": (24, 8)}
    shape = write({"block_count": 1, "attention.head_count_kv": 1, "attention.value_length": 3}, blocks(joined))
    assert [(b.k, b.v) for b in shape.blocks] == [(4, 3)]
    assert write({"block_count": 1}, blocks(joined)).unknown == "the file lacks the widths of its attention"


def test_a_recurrent_block_has_a_state_and_no_cache(write: Write) -> None:
    ssm = {"ssm.conv_kernel": 4, "ssm.inner_size": 256, "ssm.state_size": 64, "ssm.group_count": 4}
    shape = write(
        {"block_count": 2, "nextn_predict_layers": 1} | ssm, blocks({"ssm_out.weight": (8, 8), "attn_qkv.weight": (8, 8)}, ATTENTION)
    )
    assert [(b.k, b.state) for b in shape.blocks] == [(0, 74_752), (4, 0)]
    assert shape.n_next == 1


def test_a_window_counts_where_the_file_says_which_blocks_have_it(write: Write) -> None:
    keys = {"block_count": 2, "attention.sliding_window": 512}
    assert "doesn't say which" in write(keys, blocks(ATTENTION, ATTENTION)).unknown
    shape = write(keys | {"attention.sliding_window_pattern": [True, False]}, blocks(ATTENTION, ATTENTION))
    assert ([b.windowed for b in shape.blocks], shape.window, shape.unknown) == ([True, False], 512, "")


@pytest.mark.parametrize(("key", "said"), [("attention.kv_lora_rank", "compressed"), ("wkv.head_size", "of its own kind")])
def test_another_kind_of_cache_is_named(write: Write, key: str, said: str) -> None:
    assert said in write({"block_count": 1, key: 4}, blocks(ATTENTION)).unknown


def test_tables_that_are_looked_up_in_the_host_are_told_apart(write: Write) -> None:
    more = {"token_embd.weight": (16, 8), "per_layer_token_embd.weight": (16, 32), "output_norm.weight": (8,)}
    shape = write({"block_count": 1}, blocks(ATTENTION) | more)
    assert (shape.embedding_bytes, shape.host_bytes, shape.other_bytes, shape.tied) == (16 * 8 * 4, 16 * 32 * 4, 8 * 4, True)
