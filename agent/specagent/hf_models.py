"""What a model folder is (config.json and safetensors, as vLLM reads them), told from its files without running any code of it."""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from speccore.canonical import sha256_of
from speccore.plain import one_line, read_json
from speccore.preflight import prefix_hashes

FORMAT = "hf"
CONFIG = "config.json"
_FACTS_VERSION = 3
FACT = f"hf-{_FACTS_VERSION}"
#: Besides weights: what decides which tokens a text is, and what is computed.
_FILES = (
    CONFIG,
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "tekken.json",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    "processor_config.json",
    "hf_quant_config.json",
    "quantize_config.json",
    "params.json",
)
#: How configurations say that a head for multi-token prediction follows the layers, and how its tensors are named.
_HEADS = ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers", "n_predict")
_HEAD_TENSOR = re.compile(r"(^|\.)mtp(_layers|_block|s)?\.|(^|\.)nextn\.")
_LAYER = re.compile(r"(^|\.)layers\.(\d+)\.")
_MOST_HEADER_BYTES = 100 << 20
_MOST_JSON_BYTES = 512 << 20
_LONGEST_NAME = 300


def is_model_folder(path: Path) -> bool:
    return (path / CONFIG).is_file() and any(path.glob("*.safetensors"))


def alias_of(folder: Path) -> str:
    """The folder's name; of a download cache (``models--org--name/snapshots/revision``) the model's."""
    if folder.parent.name == "snapshots" and (name := folder.parent.parent.name).startswith("models--"):
        return name.removeprefix("models--").replace("--", "/")
    return folder.name


def model_files(folder: Path) -> list[Path]:
    """The files that decide what the model answers; weights of other formats in the same folder are not among them."""
    weights = [p for pattern in ("*.safetensors", "*.safetensors.index.json") for p in folder.glob(pattern)]
    return sorted([p for name in _FILES if (p := folder / name).is_file()] + weights)


def hf_facts(folder: Path) -> dict[str, Any]:
    """The fields of :class:`speccore.inventory.ModelInfo` that stand in the folder's own files. Raises ValueError, OSError."""
    config = _json(folder / CONFIG)
    tensors = dict(_tensors(folder))
    if not tensors:
        remedy = " (weights in .bin or .pt files are programs that run when they are read: convert them)"
        raise ValueError(f"{folder} holds no weights as safetensors{remedy if any(folder.glob('*.bin')) else ''}")
    text = config.get("text_config") if isinstance(config.get("text_config"), dict) else {}
    both = {**config, **{k: v for k, v in (text or {}).items() if v is not None}}
    architectures = config.get("architectures")
    tokenizer, words = _read(folder / "tokenizer.json"), _read(folder / "tokenizer_config.json")
    template = _template(folder, words)
    n_layers = _number(both, "num_hidden_layers", "n_layer", "num_layers")
    return {
        "format": FORMAT,
        "architecture": str(architectures[0]) if isinstance(architectures, list) and architectures else "",
        "quantization": _quantization(both, tensors),
        "n_parameters": sum(n for _, n in tensors.values()),
        "n_layers": n_layers,
        "context_length": _number(both, "max_position_embeddings", "n_positions", "max_sequence_length", "seq_length"),
        "vocab_size": _number(both, "vocab_size"),
        "has_mtp": _has_head(both, tensors, n_layers),
        "tokenizer_hash": _tokenizer_hash(tokenizer, folder),
        "tokenizer": _tokenizer(tokenizer, words),
        "chat_template_hash": sha256_of(template) if template else "",
        "drafts_for": _verifier(config),
        "custom_code": "auto_map" in config or (isinstance(words, dict) and "auto_map" in words),
    }


def _tensors(folder: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Name, type and number of values of each tensor, from the files' headers alone."""
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as f:
            head = f.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 0 < length <= _MOST_HEADER_BYTES:
                raise ValueError(f"{path} is no readable safetensors file: it has no header")
            try:
                header = read_json(f.read(length))
                for name, said in header.items():
                    if name != "__metadata__":
                        yield name, (str(said["dtype"]), math.prod(int(n) for n in said["shape"]))
            except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
                raise ValueError(f"{path} is no readable safetensors file: its header can't be read") from error


def _has_head(config: dict[str, Any], tensors: dict[str, Any], n_layers: int | None) -> bool:
    """By its tensors: a configuration promises a head in many copies that are stored without it, and some never speak of theirs.

    A layer behind the last one is a head only where the configuration says that one follows.
    """
    if any(_HEAD_TENSOR.search(name) for name in tensors):
        return True
    promised = n_layers is not None and any((_number(config, key) or 0) > 0 for key in _HEADS)
    return promised and any(int(m[2]) >= (n_layers or 0) for name in tensors if (m := _LAYER.search(name)))


def _verifier(config: dict[str, Any]) -> str:
    """The model that a folder in the form of *speculators* drafts for: an engine that is given it as a target loads that one."""
    said = config.get("speculators_config")
    if said is None:
        return ""
    verifier = said.get("verifier") if isinstance(said, dict) else None
    named = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    return one_line(named)[:_LONGEST_NAME] if isinstance(named, str) and named else "a model that it doesn't name"


def _quantization(config: dict[str, Any], tensors: dict[str, tuple[str, int]]) -> str:
    """As the configuration names it, with its bits; else the type that most values have."""
    said = config.get("quantization_config")
    if isinstance(said, dict) and said.get("quant_method"):
        bits = said.get("bits") or said.get("w_bit")
        return f"{said['quant_method']}{f'-{bits}bit' if isinstance(bits, int) else ''}"
    sums: dict[str, int] = {}
    for kind, n in tensors.values():
        sums[kind] = sums.get(kind, 0) + n
    return max(sums, key=lambda kind: sums[kind])


def _tokenizer_hash(tokenizer: Any, folder: Path) -> str:
    """Hash of what maps text to ids; '' where only a program of the folder's could tell."""
    if isinstance(tokenizer, dict):
        return sha256_of({k: tokenizer.get(k) for k in ("model", "normalizer", "pre_tokenizer", "post_processor", "added_tokens")})
    model = folder / "tokenizer.model"
    return sha256_of(model.read_bytes().hex()) if model.is_file() else ""


def _tokenizer(tokenizer: Any, words: Any) -> dict[str, Any] | None:
    """The fields of :class:`speccore.inventory.TokenizerInfo`; None where tokenizer.json doesn't list the tokens."""
    model = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    if not isinstance(model, dict):
        return None
    ids = _ids(model.get("vocab"))
    added = tokenizer.get("added_tokens") or []
    ids |= {str(t["content"]): int(t["id"]) for t in added if isinstance(t, dict) and "content" in t and "id" in t}
    if not ids:
        return None
    tokens = sorted(ids, key=ids.__getitem__)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model.get("merges") or []]
    said = words if isinstance(words, dict) else {}
    special = {name: ids.get(_content(said.get(f"{name}_token"))) for name in ("bos", "eos", "pad", "unk")}
    adds = {name: said.get(f"add_{name}_token") for name in ("bos", "eos")}
    return {
        "kind": str(model.get("type") or ""),
        "pre": sha256_of([tokenizer.get("normalizer"), tokenizer.get("pre_tokenizer")])[:12],
        "n_tokens": len(tokens),
        "tokens_hash": sha256_of(tokens),
        "prefix_hashes": prefix_hashes(tokens),
        "merges_hash": sha256_of(merges) if merges else "",
        "special": {name: value for name, value in special.items() if value is not None},
        **{f"add_{name}": value if isinstance(value, bool) else None for name, value in adds.items()},
    }


def _ids(vocab: Any) -> dict[str, int]:
    """Of a mapping, or of a list of [token, score]."""
    if isinstance(vocab, dict):
        return {str(token): int(n) for token, n in vocab.items()}
    return {str(entry[0]): n for n, entry in enumerate(vocab)} if isinstance(vocab, list) else {}


def _content(token: Any) -> str:
    return str(token.get("content", "")) if isinstance(token, dict) else str(token or "")


def _template(folder: Path, words: Any) -> str:
    """The chat template: a file of its own wins, as where it is used."""
    apart = folder / "chat_template.jinja"
    if apart.is_file():
        return apart.read_text(encoding="utf-8", errors="replace")
    found = _read(folder / "chat_template.json") or words
    template = found.get("chat_template") if isinstance(found, dict) else None
    if isinstance(template, list):  # several by name
        return json.dumps(template, sort_keys=True)
    return template if isinstance(template, str) else ""


def _number(config: dict[str, Any], *names: str) -> int | None:
    return next((int(v) for name in names if isinstance(v := config.get(name), int) and not isinstance(v, bool)), None)


def _json(path: Path) -> dict[str, Any]:
    try:
        said = _read_json(path)
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise ValueError(f"{path} is no mapping of settings")
    return said


def _read(path: Path) -> Any:
    """None where it is not there or can't be read."""
    try:
        return _read_json(path)
    except (OSError, ValueError):
        return None


def _read_json(path: Path) -> Any:
    if path.stat().st_size > _MOST_JSON_BYTES:
        raise ValueError(f"it has more than {_MOST_JSON_BYTES >> 20} MiB")
    return read_json(path.read_bytes(), lenient=True)
