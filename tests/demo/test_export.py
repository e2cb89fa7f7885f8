"""The exporter of the training scripts: given the numbers of the demo's target, it writes the demo's target."""

import json
from pathlib import Path

import gguf
import numpy as np

from demo.train.export_gguf import MATRICES, NORMS, write_shape, write_tensors, write_tokenizer

MODELS = Path(__file__).resolve().parents[2] / "demo/models"
HEADS = 4
CONFIG = {
    "num_hidden_layers": 4,
    "max_position_embeddings": 2048,
    "hidden_size": 256,
    "intermediate_size": 704,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_theta": 10000.0},
    "vocab_size": 2048,
}


def checkpoint(reader: gguf.GGUFReader) -> dict[str, np.ndarray]:
    """The file's numbers under the names and in the order of rows of a Llama checkpoint."""
    values = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    weights = {"model.embed_tokens.weight": values["token_embd.weight"], "model.norm.weight": values["output_norm.weight"]}
    for layer in range(CONFIG["num_hidden_layers"]):
        for ours, theirs in {**MATRICES, **NORMS}.items():
            rows = values[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):  # pairs side by side: back to halves of a head
                rows = rows.reshape(HEADS, rows.shape[0] // HEADS // 2, 2, -1).swapaxes(1, 2).reshape(rows.shape)
            weights[f"model.layers.{layer}.{theirs}.weight"] = rows
    return weights


def test_the_exporter_writes_the_demo_target(tmp_path):
    wanted = gguf.GGUFReader(MODELS / "target.gguf")
    writer = gguf.GGUFWriter(tmp_path / "again.gguf", "llama")
    write_shape(writer, CONFIG, "target")
    write_tokenizer(writer, json.loads((MODELS / "tokenizer.json").read_text()))
    write_tensors(writer, checkpoint(wanted), CONFIG)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    written = gguf.GGUFReader(tmp_path / "again.gguf")
    for name, field in wanted.fields.items():
        if not name.startswith("GGUF."):
            assert written.get_field(name).contents() == field.contents(), name
    assert len(written.tensors) == len(wanted.tensors)
    got = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in written.tensors}
    for tensor in wanted.tensors:
        before = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        # Quantising again may round a scale differently; an order of rows gone wrong would differ by as much as the numbers.
        assert np.abs(got[tensor.name] - before).max() <= 0.01 * np.abs(before).max() + 1e-7, tensor.name
