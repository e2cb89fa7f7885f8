"""The demo's models as folders: the numbers of the GGUF files under the names of a checkpoint, and a shape with room for a head."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import gguf
import numpy as np

from demo.train import hf
from demo.train.export_gguf import interleaved


def read(path: Path) -> dict[str, np.ndarray]:
    """A reader of its own: length, header, numbers."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    body = data[8 + length :]
    found = {}
    for name, said in header.items():
        if name != "__metadata__":
            start, end = said["data_offsets"]
            found[name] = np.frombuffer(body[start:end], "<f4").reshape(said["shape"])
    return found


def test_the_pair_is_written_with_the_numbers_of_its_files(tmp_path: Path) -> None:
    hf.write_pair(tmp_path)
    for name, layers, width in (("target", 4, 256), ("draft", 1, 128)):
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (layers, width, 2048)
        assert config["rms_norm_eps"] == 1e-6
        weights = read(tmp_path / name / hf.WEIGHTS)
        source = {t.name: t for t in gguf.GGUFReader(hf.GGUFS / f"{name}.gguf").tensors}
        assert len(weights) == len(source)
        stored = source["blk.0.attn_q.weight"]
        query = weights["model.layers.0.self_attn.q_proj.weight"]
        assert np.array_equal(interleaved(query, 4), gguf.quants.dequantize(stored.data, stored.tensor_type))
        stored = source["blk.0.ffn_down.weight"]
        assert np.array_equal(weights["model.layers.0.mlp.down_proj.weight"], gguf.quants.dequantize(stored.data, stored.tensor_type))


def test_the_shape_with_a_head_is_the_same_model_with_biases_of_zero() -> None:
    config, weights = hf.checkpoint(hf.GGUFS / "draft.gguf")
    shaped_config, shaped = hf.as_mimo(config, weights)
    assert shaped_config["architectures"] == ["MiMoForCausalLM"]
    assert shaped_config["num_nextn_predict_layers"] == 1
    added = {n: v for n, v in shaped.items() if n not in weights}
    assert set(added) == {f"model.layers.0.self_attn.{p}_proj.bias" for p in "qkv"}
    assert not any(v.any() for v in added.values())
