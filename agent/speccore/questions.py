"""Why two results answer different questions, and what an arm is, in words that people use for the parts of the question key."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .keys import ARM

_WORDS = {
    "target": "target weights",
    "workload": "workload version",
    "settings.context": "context per slot",
    "settings.kv_type_k": "type of the K cache",
    "settings.kv_type_v": "type of the V cache",
    "point.concurrency": "requests at once",
    "point.occupied_context": "context occupied",
    "point.max_tokens": "most tokens of an answer",
    "point.rate_per_s": "requests a second",
    "point.warm": "prompts asked before",
    "point.sampling.temperature": "temperature",
    "arm.mode": "speculation mode",
    "arm.also": "drafters beside it",
    "arm.also_limit": "draft limit of those beside it",
    "arm.draft": "helper model",
    "arm.ngram_size": "n-gram size",
    "arm.ngram_min": "shortest n-gram",
    "arm.ngram_hits": "n-gram hits",
}
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Difference:
    """A part of the question in which two results differ, in words."""

    field: str
    here: str
    there: str


def field_words(name: str) -> str:
    return _WORDS.get(name) or name.removeprefix("arm.extra.").rpartition(".")[2].replace("_", " ")


def differences(here: Mapping[str, Any], there: Mapping[str, Any], names: Mapping[str, str] | None = None) -> list[Difference]:
    """The parts in which two questions (``keys.question_fields``) differ. ``names``: what to call a hash, beside its digits."""
    differing = [n for n in dict.fromkeys([*here, *there]) if here.get(n) != there.get(n)]
    return [Difference(field_words(n), value_words(here.get(n), names), value_words(there.get(n), names)) for n in differing]


def value_words(value: Any, names: Mapping[str, str] | None = None) -> str:
    """``131,072``, ``on``, ``demo-target (bbbbbbbb…)``; what a question doesn't have is unset."""
    match value:
        case None:
            return "unset"
        case True:
            return "on"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}"
        case list():
            return " + ".join(map(str, value))
    text = str(value)
    if not _HASH.fullmatch(text):
        return text
    known = (names or {}).get(text, "")
    return f"{known} ({text[:8]}…)" if known else f"{text[:12]}…"


def arm_words(fields: Mapping[str, Any], names: Mapping[str, str] | None = None) -> str:
    """Who drafts and how, e.g. ``draft + ngram-mod · demo-draft · limit 4 · p min 0.75``."""
    arm = {n.removeprefix(ARM): v for n, v in fields.items() if n.startswith(ARM)}
    words = [" + ".join([str(arm.pop("mode", "")), *arm.pop("also", [])])]
    if helper := str(arm.pop("draft", "")):
        words.append((names or {}).get(helper) or value_words(helper.removeprefix("named ")))
    if limit := arm.pop("draft_limit", None):
        words.append(f"limit {limit}")
    return " · ".join([*words, *(f"{field_words(ARM + n)} {value_words(v)}" for n, v in arm.items())])
