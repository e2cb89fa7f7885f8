"""Writes a trained demo model as GGUF (Q8_0), the format that llama-server reads.

    WORK/venv/bin/pip install gguf safetensors
    WORK/venv/bin/python demo/train/export_gguf.py WORK/target WORK/tokenizer.json demo/models/target.gguf

Takes the Llama checkpoint that train_pair.py saved.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Q8_0 = gguf.GGMLQuantizationType.Q8_0
END_OF_TEXT = "<|endoftext|>"
NORMAL, CONTROL = 1, 3  # kinds of token in GGUF
#: GGUF name of a layer's matrix: its name in the checkpoint.
MATRICES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NORMS = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}


def interleaved(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in the order of GGUF's llama: the two halves of each head, rotated as pairs, interleave."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, 2, half, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write_shape(writer: gguf.GGUFWriter, config: dict[str, Any], name: str) -> None:
    heads = config["num_attention_heads"]
    writer.add_name(name)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_dimension_count(config["hidden_size"] // heads)
    # Newer releases of transformers keep the base of the rotation in a mapping.
    writer.add_rope_freq_base(config.get("rope_theta") or config["rope_parameters"]["rope_theta"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def write_tokenizer(writer: gguf.GGUFWriter, tokenizer: dict[str, Any]) -> None:
    ids: dict[str, int] = tokenizer["model"]["vocab"]
    tokens = sorted(ids, key=ids.__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([CONTROL if t == END_OF_TEXT else NORMAL for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(ids[END_OF_TEXT])
    writer.add_eos_token_id(ids[END_OF_TEXT])
    writer.add_add_bos_token(False)
    writer.add_chat_template("{% for m in messages %}{{ m.content }}{% endfor %}")


def write_tensors(writer: gguf.GGUFWriter, weights: dict[str, np.ndarray], config: dict[str, Any]) -> None:
    def matrix(name: str, rows: np.ndarray) -> None:
        writer.add_tensor(name, gguf.quants.quantize(rows.astype(np.float32), Q8_0), raw_dtype=Q8_0)

    matrix("token_embd.weight", weights["model.embed_tokens.weight"])  # tied: also the output
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"].astype(np.float32))
    for layer in range(config["num_hidden_layers"]):
        for ours, theirs in NORMS.items():
            writer.add_tensor(f"blk.{layer}.{ours}.weight", weights[f"model.layers.{layer}.{theirs}.weight"].astype(np.float32))
        for ours, theirs in MATRICES.items():
            rows = weights[f"model.layers.{layer}.{theirs}.weight"]
            matrix(f"blk.{layer}.{ours}.weight", interleaved(rows, config["num_attention_heads"]) if ours in ("attn_q", "attn_k") else rows)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a trained demo model as GGUF.")
    parser.add_argument("model", type=Path, help="folder that train_pair.py saved")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    from safetensors.numpy import load_file  # only here: the rest is tested without it

    config = json.loads((given.model / "config.json").read_text())
    writer = gguf.GGUFWriter(given.out, "llama")
    write_shape(writer, config, given.model.name)
    write_tokenizer(writer, json.loads(given.tokenizer.read_text()))
    write_tensors(writer, load_file(given.model / "model.safetensors"), config)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
