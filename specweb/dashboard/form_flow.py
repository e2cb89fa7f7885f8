"""A list or a mapping in one line of the form: words with commas between, and ``key: value, key: value`` as YAML writes it. Pure."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from speccore.yamltext import YamlFault, read_yaml

_BARE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_./=*+%-]*")
#: What JSON leaves as it is and YAML takes for the end of a line, or refuses.
_NOT_IN_LINE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff]")


def list_value(text: str) -> list[str] | str:
    """The words; the text itself where there is none in it."""
    bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    return [word for part in bare.split(",") if (word := part.strip())] or text


def map_value(text: str) -> dict[str, Any] | str:
    """The mapping; a key without a value is switched on. The text itself where it is none, see :func:`map_fault`."""
    try:
        found = read_yaml(_whole(text).encode("utf-8", "replace"))
    except YamlFault:
        return text
    if not isinstance(found, dict):
        return text
    return {key: True if value is None else value for key, value in found.items()}


def map_fault(text: str) -> str:
    """Why a text can't be read as a mapping; empty if it can."""
    try:
        found = read_yaml(_whole(text).encode("utf-8", "replace"))
    except YamlFault as fault:
        return f"can't be read: {fault.words}. Write key: value, with a comma before the next key"
    if not isinstance(found, dict):
        return "is no mapping: write key: value, with a comma before the next key"
    if merged := next((key for key, value in found.items() if value is None and len(str(key).split()) > 1), None):
        key, value = str(merged).split(maxsplit=1)
        return f"{merged!r} has no colon: write {key}: {value.removeprefix(':').strip()}, with a comma before the next key"
    return ""


def flow_text(value: Any) -> str | None:
    """What one types for a list of words or for a mapping; None where a line can't say it."""
    if isinstance(value, dict):
        text = ", ".join(f"{_scalar(k)}: {_flow(v)}" for k, v in value.items())
        return text if _same(map_value(text), value) or not value else None
    text = ", ".join(map(str, value))
    return text if _same(list_value(text), value) or not value else None


def _whole(text: str) -> str:
    return text if text.startswith("{") else "{" + text + "}"


def _flow(value: Any) -> str:
    return f"[{', '.join(map(_scalar, value))}]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and _reads_as(value, value):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    return _NOT_IN_LINE.sub(lambda m: f"\\u{ord(m[0]):04x}", json.dumps(value, ensure_ascii=False, default=str))


def _reads_as(text: str, value: Any) -> bool:
    try:
        return _same(read_yaml(f"[{text}]".encode()), [value])
    except ValueError:
        return False


def _same(one: Any, other: Any) -> bool:
    """Equal in kind too: 1 is not 1.0, and not true."""
    return bool(one == other) and repr(one) == repr(other)
