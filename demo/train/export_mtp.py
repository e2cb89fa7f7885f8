"""Writes the demo model that drafts for itself as GGUF (Q8_0, architecture qwen35), the format that llama-server reads.

    .venv/bin/python -m demo.train.export_mtp WORK/mtp.npz WORK/tokenizer.json demo/models/mtp.gguf

Takes the weights that train_mtp.py saved, under the names that they would have in a checkpoint of the Qwen3.5 family. What
llama.cpp wants of this architecture, beyond the names:

* the blocks of the trunk come first, the head for multi-token prediction (MTP) is the block behind them, and ``block_count``
  and the list of recurrent layers count it;
* at least one layer must be recurrent;
* norms multiply by their weight as it stands (checkpoints of the family keep the weight minus one);
* rotated are the first ``rotated`` numbers of each head, as two halves, so that rows need no other order;
* the rotation has sections (for time, height and width of images) that must sum to half of what is rotated.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np

from demo.train.export_gguf import write_tokenizer
from demo.train.mtp_shape import ATTENTION, RECURRENT, Shape

Q8_0 = gguf.GGMLQuantizationType.Q8_0
#: GGUF name of a tensor: its name in the checkpoint, for each kind of part. Matrices are quantised, all else is not.
ATTENTION_MATRICES = {f"attn_{ours}": f"self_attn.{theirs}_proj" for ours, theirs in (("q", "q"), ("k", "k"), ("v", "v"), ("output", "o"))}
ATTENTION_NORMS = {"attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm"}
RECURRENT_MATRICES = {
    "attn_qkv": "linear_attn.in_proj_qkv",
    "attn_gate": "linear_attn.in_proj_z",
    "ssm_beta": "linear_attn.in_proj_b",
    "ssm_alpha": "linear_attn.in_proj_a",
    "ssm_out": "linear_attn.out_proj",
}
MLP_MATRICES = {f"ffn_{name}": f"mlp.{name}_proj" for name in ("gate", "up", "down")}
BLOCK_NORMS = {"attn_norm": "input_layernorm", "post_attention_norm": "post_attention_layernorm"}
HEAD_NORMS = {"nextn.enorm": "pre_fc_norm_embedding", "nextn.hnorm": "pre_fc_norm_hidden", "nextn.shared_head_norm": "norm"}


def write_shape(writer: gguf.GGUFWriter, shape: Shape, name: str) -> None:
    layers = len(shape.pattern)
    writer.add_name(name)
    writer.add_block_count(layers + 1)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_rope_dimension_count(shape.rotated)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_sections(shape.sections)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_ssm_conv_kernel(shape.kernel)
    writer.add_ssm_inner_size(shape.recurrent_inner)
    writer.add_ssm_state_size(shape.recurrent_width)
    writer.add_ssm_time_step_rank(shape.recurrent_heads)
    writer.add_ssm_group_count(shape.recurrent_heads)
    recurrent = [kind == RECURRENT for kind in shape.pattern]
    writer.add_array("qwen35.attention.recurrent_layers", [*recurrent, False])  # the head is a block of attention
    writer.add_nextn_predict_layers(1)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def write_tensors(writer: gguf.GGUFWriter, weights: Mapping[str, np.ndarray], shape: Shape) -> None:
    def matrices(block: str, names: Mapping[str, str], prefix: str) -> None:
        for ours, theirs in names.items():
            rows = gguf.quants.quantize(weights[f"{prefix}{theirs}.weight"].astype(np.float32), Q8_0)
            writer.add_tensor(f"{block}{ours}.weight", rows, raw_dtype=Q8_0)

    def plain(name: str, values: np.ndarray) -> None:
        writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))

    def norms(block: str, names: Mapping[str, str], prefix: str) -> None:
        for ours, theirs in names.items():
            plain(f"{block}{ours}.weight", weights[f"{prefix}{theirs}.weight"])

    def layer(block: str, prefix: str, kind: str) -> None:
        norms(block, BLOCK_NORMS, prefix)
        if kind == ATTENTION:
            matrices(block, ATTENTION_MATRICES, prefix)
            norms(block, ATTENTION_NORMS, prefix)
        else:
            own = f"{prefix}linear_attn."
            matrices(block, RECURRENT_MATRICES, prefix)
            plain(f"{block}ssm_conv1d.weight", weights[f"{own}conv1d.weight"].reshape(-1, shape.kernel))
            plain(f"{block}ssm_dt.bias", weights[f"{own}dt_bias"])
            plain(f"{block}ssm_a", -np.exp(weights[f"{own}A_log"]))
            plain(f"{block}ssm_norm.weight", weights[f"{own}norm.weight"])
        matrices(block, MLP_MATRICES, prefix)

    matrices("", {"token_embd": "embed_tokens"}, "model.")  # tied: also the output
    plain("output_norm.weight", weights["model.norm.weight"])
    for i, kind in enumerate(shape.pattern):
        layer(f"blk.{i}.", f"model.layers.{i}.", kind)
    head = f"blk.{len(shape.pattern)}."
    layer(head, "mtp.layers.0.", ATTENTION)
    matrices(head, {"nextn.eh_proj": "fc"}, "mtp.")  # of what it joins, the embedding comes first and the hidden state second
    norms(head, HEAD_NORMS, "mtp.")


def export(weights: Mapping[str, np.ndarray], tokenizer: Path, out: Path, shape: Shape | None = None, name: str = "demo-mtp") -> None:
    writer = gguf.GGUFWriter(out, "qwen35")
    write_shape(writer, shape or Shape(), name)
    write_tokenizer(writer, json.loads(tokenizer.read_text()))
    write_tensors(writer, weights, shape or Shape())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the demo model with a head for multi-token prediction as GGUF.")
    parser.add_argument("weights", type=Path, help="file that train_mtp.py saved")
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    with np.load(given.weights) as weights:
        export(weights, given.tokenizer, given.out)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
