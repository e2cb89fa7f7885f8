"""Writes the demo's models as folders that vLLM reads (safetensors), from the GGUF files: the same numbers for both engines.

The numbers are the dequantised ones of the GGUF files, so that greedy answers of both engines can be held beside each other.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from .export_gguf import END_OF_TEXT, MATRICES, NORMS

ROOT = Path(__file__).resolve().parents[2]
GGUFS = ROOT / "demo/models"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"
WEIGHTS = "model.safetensors"


def in_halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of a query or key projection in the order of a Llama checkpoint; what ``export_gguf.interleaved`` undoes."""
    half = rows.shape[0] // heads // 2
    return rows.reshape(heads, half, 2, rows.shape[1]).swapaxes(1, 2).reshape(rows.shape)


def write_safetensors(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """The format is a length, a JSON header, and the numbers one after the other: float32 here."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in tensors.items():
        header[name] = {"dtype": "F32", "shape": list(values.shape), "data_offsets": [offset, offset + 4 * values.size]}
        offset += 4 * values.size
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with path.open("wb") as f:
        f.write(struct.pack("<Q", len(words)) + words)
        for values in tensors.values():
            f.write(np.ascontiguousarray(values, dtype="<f4").tobytes())


def checkpoint(source: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A GGUF file of the llama architecture as the configuration and the tensors of a Llama checkpoint."""
    reader = gguf.GGUFReader(source)

    def number(name: str) -> Any:
        field = reader.get_field(f"llama.{name}")
        if field is None:
            raise ValueError(f"{source} lacks llama.{name}: only models of that architecture can be written so")
        return field.contents()

    values = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    heads, heads_kv = int(number("attention.head_count")), int(number("attention.head_count_kv"))
    weights = {"model.embed_tokens.weight": values["token_embd.weight"], "model.norm.weight": values["output_norm.weight"]}
    for layer in range(int(number("block_count"))):
        for ours, theirs in {**MATRICES, **NORMS}.items():
            rows = values[f"blk.{layer}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):
                rows = in_halves(rows, heads if ours == "attn_q" else heads_kv)
            weights[f"model.layers.{layer}.{theirs}.weight"] = rows
    theta = float(number("rope.freq_base"))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": int(values["token_embd.weight"].shape[0]),
        "hidden_size": int(number("embedding_length")),
        "intermediate_size": int(number("feed_forward_length")),
        "num_hidden_layers": int(number("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": heads_kv,
        "max_position_embeddings": int(number("context_length")),
        "rms_norm_eps": float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),  # stored as a 32-bit number
        "rope_theta": theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "hidden_act": "silu",
        "tie_word_embeddings": True,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }
    return config, weights


def as_mimo(config: dict[str, Any], weights: Mapping[str, np.ndarray]) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The same model in the shape of MiMo, which has room for a head: a Qwen2 body, that is a Llama with biases; these are zero."""
    shaped = dict(weights)
    for name, rows in weights.items():
        if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight")):
            shaped[name.removesuffix("weight") + "bias"] = np.zeros(rows.shape[0], np.float32)
    # The type stays: by "qwen2" another way to cut text would come with it, and other tokens.
    return {**config, "architectures": ["MiMoForCausalLM"], "num_nextn_predict_layers": 1}, shaped


def write_folder(folder: Path, config: Mapping[str, Any], weights: Mapping[str, np.ndarray]) -> None:
    """One model with its tokenizer and chat template."""
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / WEIGHTS, weights)
    write_words(folder, config)


def write_words(folder: Path, config: Mapping[str, Any]) -> None:
    said = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": config["max_position_embeddings"],
        "chat_template": TEMPLATE,
    }
    for name, content in (("config.json", dict(config)), ("tokenizer_config.json", said)):
        (folder / name).write_text(json.dumps(content, indent=1) + "\n")
    (folder / "tokenizer.json").write_bytes((GGUFS / "tokenizer.json").read_bytes())


def write_pair(out: Path) -> None:
    """``target`` and ``draft``."""
    for name in ("target", "draft"):
        write_folder(out / name, *checkpoint(GGUFS / f"{name}.gguf"))


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}
