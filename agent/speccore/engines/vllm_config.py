"""vLLM's speculative config: which keys each method takes, from an arm's typed fields and its ``extra``, by allow-list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ..canonical import canonical_json
from ..spec import MODES_WITH_DRAFT_MODEL, Arm, FlagValue
from .vllm_flags import SPEC_TYPES

#: Fields of an arm that say something of speculation.
ARM_FIELDS = (
    "draft_limit",
    "draft_min",
    "p_min",
    "p_split",
    "draft_gpu_layers",
    "draft_device",
    "draft_kv_type_k",
    "draft_kv_type_v",
    "draft_threads",
    "ngram_size",
    "ngram_min",
    "ngram_hits",
    "also_limit",
)
_LIMIT = {"draft_limit": "num_speculative_tokens"}
_OF_MODELS = {**_LIMIT, "draft_kv_type_k": "kv_cache_dtype", "draft_kv_type_v": "kv_cache_dtype"}
#: speculation mode: {field of the arm: key of the config}
FIELD_KEYS: dict[str, dict[str, str]] = {
    **{mode: _OF_MODELS for mode, method in SPEC_TYPES.items() if method not in ("ngram", "suffix")},
    "ngram": {**_LIMIT, "ngram_size": "prompt_lookup_max", "ngram_min": "prompt_lookup_min"},
    "suffix": {**_LIMIT, "ngram_size": "suffix_decoding_max_tree_depth", "p_min": "suffix_decoding_min_token_prob"},
}
#: Where vLLM knows no limit of its own unless the helper's files hold one.
_NEEDS_LIMIT = frozenset({"draft", "mtp", "eagle", "eagle3", "ngram"})

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def _is_flag(value: FlagValue) -> bool:
    return isinstance(value, bool)


def _is_count(value: FlagValue) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: FlagValue) -> bool:
    return type(value) in (int, float) and value >= 0  # type: ignore[operator]


def _is_word(value: FlagValue) -> bool:
    return isinstance(value, str) and bool(_WORD.fullmatch(value))


class _Key(NamedTuple):
    fits: Callable[[FlagValue], bool]
    due: str  # in words, what it takes


def _one_of(*names: str) -> _Key:
    return _Key(lambda value: value in names, " or ".join(names))


_FLAG, _COUNT, _NUMBER = _Key(_is_flag, "true or false"), _Key(_is_count, "a whole number"), _Key(_is_number, "a number")
_NAME = _Key(_is_word, "a plain name")

#: ``synthetic`` accepts drafts by a dice instead of the target: never beside real answers.
_OF_ALL = {"rejection_sample_method": _one_of("standard", "block")}
_OF_DRAFTERS = {
    **_OF_ALL,
    "draft_tensor_parallel_size": _COUNT,
    "quantization": _NAME,
    "moe_backend": _NAME,
    "attention_backend": _NAME,
    "max_model_len": _COUNT,
    "enforce_eager": _FLAG,
    "draft_sample_method": _one_of("greedy", "probabilistic"),
    "disable_padded_drafter_batch": _FLAG,
    "use_local_argmax_reduction": _FLAG,
}
_OF_EAGLES = {**_OF_DRAFTERS, "parallel_drafting": _FLAG, "disable_eagle_block_drop": _FLAG}
#: speculation mode: {key that an arm's ``extra`` may hold: what it takes}. Whatever is not here is refused.
EXTRA_KEYS: dict[str, dict[str, _Key]] = {
    "draft": {**_OF_DRAFTERS, "parallel_drafting": _FLAG, "use_heterogeneous_vocab": _FLAG},
    "mtp": {**_OF_DRAFTERS, "index_share_for_mtp_iteration": _FLAG},
    "eagle": _OF_EAGLES,
    "eagle3": _OF_EAGLES,
    "medusa": _OF_DRAFTERS,
    "mlp-speculator": _OF_DRAFTERS,
    "dflash": _OF_EAGLES,
    "dspark": {**_OF_EAGLES, "enable_adaptive_verification": _FLAG, "dspark_draft_topk": _COUNT},
    "ngram": _OF_ALL,
    "suffix": {**_OF_ALL, "suffix_decoding_max_cached_requests": _COUNT, "suffix_decoding_max_spec_factor": _NUMBER},
}
#: Keys that are refused with more to say than that they are not on the list.
_REASONS = {
    "method": "is set by the arm's mode",
    "model": "is set by the arm's draft_model, a model of the host",
    "num_speculative_tokens": "is set by the arm's draft_limit",
    "prompt_lookup_max": "is set by the arm's ngram_size",
    "prompt_lookup_min": "is set by the arm's ngram_min",
    "suffix_decoding_max_tree_depth": "is set by the arm's ngram_size",
    "suffix_decoding_min_token_prob": "is set by the arm's p_min",
    "kv_cache_dtype": "is set by the arm's draft_kv_type_k and draft_kv_type_v",
    "synthetic_acceptance_length": "accepts drafts by chance, not by the target",
    "synthetic_acceptance_rates": "accepts drafts by chance, not by the target",
    "draft_load_config": "decides how files are read",
    "revision": "would fetch another model",
    "code_revision": "would fetch code",
    "tensor_parallel_size": "is a mistaken name: use draft_tensor_parallel_size",
}
#: What in the path of a helper makes vLLM take it for another method than it is told.
_NAMED_METHODS = (("eagle-", "eagle"), ("eagle3", "eagle3"), ("dflash", "dflash"), ("dspark", "dspark"))
_OBEYED = frozenset({"eagle", "eagle3", "dflash", "dspark"})


class Fault(NamedTuple):
    """What is wrong with an arm. ``flag``: the key of ``extra`` that must not be there, if it is one."""

    message: str
    remedy: str
    field: str = ""
    flag: str | None = None


def config_faults(arm: Arm) -> Iterator[Fault]:
    """What no build of vLLM and no host can do of an arm that speculates."""
    if arm.also:
        yield Fault(f"vLLM runs one drafter: {', '.join(arm.also)} can't stand beside {arm.mode}", "Remove also.", field="also")
    known = FIELD_KEYS[arm.mode]
    for field in ARM_FIELDS:
        if getattr(arm, field) is not None and field not in known and not (field == "also_limit" and arm.also):
            yield Fault(f"mode {arm.mode} of vLLM has no {field}", f"Remove {field}, or choose another mode.", field=field)
    if arm.mode in _NEEDS_LIMIT and arm.draft_limit is None:
        yield Fault(f"mode {arm.mode} of vLLM has no draft limit of its own", "Set draft_limit.", field="draft_limit")
    if arm.draft_kv_type_k != arm.draft_kv_type_v and "draft_kv_type_k" in known:
        remedy = "Set draft_kv_type_k and draft_kv_type_v to the same."
        yield Fault("vLLM has one type for the helper's keys and values", remedy, field="draft_kv_type_v")
    for key, value in arm.extra.items():
        yield from _key_faults(arm, key, value)


def _key_faults(arm: Arm, key: str, value: FlagValue) -> Iterator[Fault]:
    allowed = EXTRA_KEYS[arm.mode]
    remedy = f"Remove it from the arm's extra; mode {arm.mode} takes there: {', '.join(allowed)}."
    if key.startswith("--"):
        yield Fault(f"extra: {key} is a flag: of vLLM an arm's extra holds keys of the speculative config", remedy, flag=key)
    elif key not in allowed:
        why = _REASONS.get(key, f"is no key that SpecWeb lets into vLLM's speculative config for mode {arm.mode}")
        yield Fault(f"extra: {key} {why}", remedy, flag=key)
    elif not allowed[key].fits(value):
        due = allowed[key].due
        why = " (synthetic accepts drafts by chance, not by the target)" if value == "synthetic" else ""
        yield Fault(f"extra: {key} is {value!r}; it takes {due}{why}", f"Give {due}, or remove it.", flag=key)


def place_faults(arm: Arm, place: str) -> Iterator[Fault]:
    """What is wrong with where a helper lies: a name that vLLM would not read as a folder, or would take for another method's."""
    if is_import(place) or "://" in place:
        yield Fault(f"the draft model {place!r} would be read as code to import, or as an address", "Give the path of a folder.")
    lower, method = place.lower(), SPEC_TYPES[arm.mode]
    taken = next((m for part, m in _NAMED_METHODS if part in lower), method)
    if method not in _OBEYED and taken != method:
        remedy = f"Rename the folder, or use mode {taken} if that is what lies there."
        yield Fault(f"vLLM goes by the path {place!r} and would take what lies there for {taken}, not {method}", remedy)


def is_import(model: str) -> bool:
    """Whether vLLM would read it as ``package.Class`` and import that."""
    parts = model.split(".")
    return "/" not in model and len(parts) > 1 and all(part.isidentifier() for part in parts)


def speculative_config(arm: Arm, draft: str) -> str:
    """The config as canonical JSON, so that commands compare byte by byte. Only for an arm without faults."""
    config: dict[str, Any] = {"method": SPEC_TYPES[arm.mode]}
    if arm.mode in MODES_WITH_DRAFT_MODEL or arm.draft_model:
        config["model"] = draft
    for field, key in FIELD_KEYS[arm.mode].items():
        if (value := getattr(arm, field)) is not None:
            config[key] = value
    return canonical_json({**config, **_extra(arm)}).decode()


def _extra(arm: Arm) -> Mapping[str, FlagValue]:
    return {key: value for key, value in arm.extra.items() if key in EXTRA_KEYS[arm.mode]}
