"""What a model is, read from its file or folder: manifest, architecture, quantisation, tokenizer and template hashes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
from speccore.canonical import manifest_hash, sha256_of
from speccore.inventory import ModelInfo
from speccore.plain import one_line
from speccore.preflight import prefix_hashes

from . import hf_models
from .config import Config
from .filecache import FileCache
from .gguf_shape import memory_shape

_PART = re.compile(r"^(?P<stem>.+)-(?P<n>\d{5})-of-(?P<count>\d{5})\.gguf$")
_FACTS_VERSION = 4
_NAMES, _LONGEST_NAME = ("architecture", "quantization"), 80
_NOT_MEANT = (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, MemoryError)
_TOKENIZER, _ID = "tokenizer.ggml.", "_token_id"


def configured_models(config: Config) -> Iterator[tuple[str, Path]]:
    """(alias, path) of every model that the owner offers: the named ones first, then each file of the folders."""
    named = set()
    for entry in config.models:
        named.add(entry.path)
        yield entry.alias, entry.path
    for folder in config.model_folders:
        for path in sorted(folder.rglob("*.gguf")) if folder.is_dir() else []:
            part = _PART.match(path.name)
            if path in named or (part and part["n"] != "00001"):
                continue
            yield part["stem"] if part else path.stem, path
        for path in sorted(p.parent for p in folder.rglob(hf_models.CONFIG)) if folder.is_dir() else []:
            if path not in named and hf_models.is_model_folder(path):
                yield hf_models.alias_of(path), path


def model_info(alias: str, path: Path, cache: FileCache) -> ModelInfo:
    """Reads one model: a GGUF file, or a folder. Raises OSError if a file is missing, ValueError if it is no model."""
    manifest = {p.name: cache.sha256(p) for p in model_files(path)}
    try:
        facts = _folder_facts(path, manifest, cache) if path.is_dir() else _file_facts(path, cache)
    except _NOT_MEANT as error:  # whoever made it decides what stands in it
        raise ValueError(f"{path} holds what can't be read: {error}") from error
    return ModelInfo(
        alias=alias,
        manifest_hash=manifest_hash(manifest),
        manifest=manifest,
        path=str(path),
        size_bytes=sum(p.stat().st_size for p in model_files(path)),
        **{k: v for k, v in facts.items() if k not in ("version", "of", *_NAMES)},
        **{k: one_line(str(facts[k]))[:_LONGEST_NAME] for k in _NAMES},
    )


def _file_facts(path: Path, cache: FileCache) -> dict[str, Any]:
    facts: dict[str, Any] | None = cache.get(path, "gguf")
    if not isinstance(facts, dict) or facts.get("version") != _FACTS_VERSION:
        facts = gguf_facts(path) | {"version": _FACTS_VERSION}
        cache.put(path, "gguf", facts)
    return facts


def _folder_facts(path: Path, manifest: dict[str, str], cache: FileCache) -> dict[str, Any]:
    """Remembered by what the files hold: the folder's own time says nothing of it."""
    identity = manifest_hash(manifest)
    facts: dict[str, Any] | None = cache.get(path, hf_models.FACT)
    if not isinstance(facts, dict) or facts.get("of") != identity:
        facts = hf_models.hf_facts(path) | {"of": identity}
        cache.put(path, hf_models.FACT, facts)
    return facts


def model_files(path: Path) -> list[Path]:
    """The file, or all parts of a split model; of a folder, the files that decide what the model answers."""
    if path.is_dir():
        return hf_models.model_files(path)
    part = _PART.match(path.name)
    if not part:
        return [path]
    return [path.with_name(f"{part['stem']}-{n:05d}-of-{part['count']}.gguf") for n in range(1, int(part["count"]) + 1)]


def gguf_facts(path: Path) -> dict[str, Any]:
    """The fields of :class:`ModelInfo` that stand in the file's own metadata."""
    try:
        readers = [gguf.GGUFReader(p) for p in model_files(path)]
    except (ValueError, IndexError, KeyError) as error:
        raise ValueError(f"{path} is no readable GGUF file: {error}") from error
    head = readers[0]
    architecture = str(_value(head, "general.architecture") or "")
    tokens = head.get_field("tokenizer.ggml.tokens")
    template = _value(head, "tokenizer.chat_template")
    return {
        "architecture": architecture,
        "quantization": _quantization(_value(head, "general.file_type")),
        "n_parameters": sum(int(t.n_elements) for r in readers for t in r.tensors),
        "n_layers": _number(head, f"{architecture}.block_count"),
        "context_length": _number(head, f"{architecture}.context_length"),
        "vocab_size": len(tokens.data) if tokens else _number(head, f"{architecture}.vocab_size"),
        "has_mtp": (_number(head, f"{architecture}.nextn_predict_layers") or 0) > 0,
        "tokenizer_hash": _tokenizer_hash(head),
        "tokenizer": _tokenizer(head),
        "chat_template_hash": sha256_of(template) if template else "",
        "memory": memory_shape(readers, architecture).model_dump(),
    }


def _tokenizer_hash(reader: Any) -> str:
    """Hash of what maps text to ids: vocabulary, merges, special ids, kind and pre-tokenizer; '' without a vocabulary."""
    if reader.get_field(f"{_TOKENIZER}tokens") is None:
        return ""
    wanted = [f"{_TOKENIZER}{n}" for n in ("model", "pre", "tokens", "merges")]
    names = [n for n in reader.fields if n in wanted or _is_special(n)]
    return sha256_of({n: _value(reader, n) for n in sorted(names)})


def _tokenizer(reader: Any) -> dict[str, Any] | None:
    """The fields of :class:`speccore.inventory.TokenizerInfo`; None without a vocabulary."""
    tokens = _value(reader, f"{_TOKENIZER}tokens")
    if not isinstance(tokens, list):
        return None
    merges = _value(reader, f"{_TOKENIZER}merges")
    special = {n.removeprefix(_TOKENIZER).removesuffix(_ID): _number(reader, n) for n in reader.fields if _is_special(n)}
    adds = {name: _value(reader, f"{_TOKENIZER}add_{name}_token") for name in ("bos", "eos")}
    return {
        "kind": str(_value(reader, f"{_TOKENIZER}model") or ""),
        "pre": str(_value(reader, f"{_TOKENIZER}pre") or ""),
        "n_tokens": len(tokens),
        "tokens_hash": sha256_of(tokens),
        "prefix_hashes": prefix_hashes(tokens),
        "merges_hash": sha256_of(merges) if merges else "",
        "special": {name: value for name, value in special.items() if value is not None},
        **{f"add_{name}": value if isinstance(value, bool) else None for name, value in adds.items()},
    }


def _is_special(name: str) -> bool:
    return name.startswith(_TOKENIZER) and name.endswith(_ID)


def _value(reader: Any, name: str) -> Any:
    field = reader.get_field(name)
    return None if field is None else field.contents()


def _number(reader: Any, name: str) -> int | None:
    value = _value(reader, name)
    # some architectures give one value for each layer; then there is no single number
    return int(value) if isinstance(value, int | float) else None


def _quantization(file_type: Any) -> str:
    try:
        return gguf.LlamaFileType(int(file_type)).name.removeprefix("MOSTLY_").removeprefix("ALL_")
    except (TypeError, ValueError):
        return ""
