"""What is wrong with data that a person wrote, in words: pydantic's errors told by field, constraint and what was given."""

from __future__ import annotations

import datetime
import difflib
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel
from pydantic.fields import FieldInfo

#: Patterns of the schema, with what they say to a person.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9 ._+/@-]*$"
TYPE_PATTERN = r"^[a-z0-9_]+$"
FLAG_PATTERN = r"--[a-z0-9][a-z0-9-]*"
SETTING_PATTERN = rf"{FLAG_PATTERN}|[a-z][a-z0-9_]*"  # a flag, or a key of an engine's own configuration
DEVICE_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.:,-]*$"
# Control characters are neither seen nor meant; those that turn the direction of writing turn what stands beside them too.
PLAIN_PATTERN = r"^[^\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]*$"
TEXT_PATTERN = r"^[^\x00-\x08\x0b-\x1f\x7f\u2028-\u202e\u2066-\u2069]*$"  # lines and tabs are part of a text
_PATTERN_WORDS = {
    NAME_PATTERN: "may hold letters, digits, spaces and . _ + / @ - and begins with a letter or digit",
    DEVICE_PATTERN: "may hold letters, digits and _ . : , - as in CUDA1",
    TYPE_PATTERN: "may hold lower-case letters, digits and _, as in q8_0",
    PLAIN_PATTERN: "holds a control character: remove it",
    TEXT_PATTERN: "holds a control character: remove it",
}
SHOWN = 80


def words_of(root: type[BaseModel], error: Mapping[str, Any]) -> str:
    """One error of pydantic's ``errors()`` about ``root``, for a person. The field itself is told beside it."""
    kind, loc, given = error["type"], error["loc"], error["input"]
    place, info = _place(root, loc)
    context = error.get("ctx") or {}
    if kind == "extra_forbidden":
        return _unknown_key(root, place, str(loc[-1]))
    if kind == "missing":
        return f"is required{_meaning(info)}"
    if kind == "invalid_key" or loc[-1:] == ("[key]",):
        return f"a key should be a text, not {given_in_words(given)}: put it in quotes"
    if kind == "string_too_long":
        return f"has {len(given):,} characters; at most {context['max_length']:,} are possible"
    if kind == "string_too_short":
        return f"is empty{_meaning(info)}"
    if kind == "string_pattern_mismatch":
        return _PATTERN_WORDS.get(context["pattern"], f"doesn't match {context['pattern']}")
    if kind == "string_unicode":
        return "holds half of a character (a lone surrogate): remove it"
    if kind in ("too_short", "too_long"):
        bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
        entries = str(loc[-1]) if not bound.endswith(" 1") else str(loc[-1]).removesuffix("s")
        return f"needs {bound} {entries}, has {context['actual_length'] if context['actual_length'] is not None else 'more'}"
    if kind == "value_error":
        return str(error["msg"]).removeprefix("Value error, ")
    if info is None:
        return f"should be {_due_of_type(kind)}, not {given_in_words(given)}"
    return _not_due(kind, info, given)


def given_in_words(value: Any) -> str:
    """What a person wrote, e.g. ``the text 'abc'``, ``nothing``, ``a list``."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value {str(value).lower()}"
    if isinstance(value, str):
        return f"the text {shown(value)}"
    if isinstance(value, int | float):
        return f"the number {shown(value)}"
    if isinstance(value, datetime.date | datetime.time):
        return f"the date {value}"
    kinds: dict[type, str] = {list: "a list", tuple: "a list", dict: "a mapping", set: "a set", bytes: "bytes"}
    return kinds.get(type(value), type(value).__name__)


def shown(value: Any) -> str:
    """A value as it was written, of a long one only the beginning; empty for a list or mapping."""
    if isinstance(value, dict | list | tuple | set) or value is None:
        return ""
    if isinstance(value, int) and value.bit_length() > 8 * SHOWN:
        return "a number of very many digits"
    text = repr(value[: SHOWN + 1] if isinstance(value, str | bytes) else value)
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)``, or nothing where none is near."""
    match = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def _not_due(kind: str, info: FieldInfo, given: Any) -> str:
    due = f"{_due(info)}{_meaning(info)}"
    if kind in ("greater_than_equal", "less_than_equal", "greater_than", "less_than") and given == given:  # not NaN
        return f"should be {due}"
    if kind == "literal_error":
        return f"should be {due}{nearest(given[:SHOWN], _choices(info.annotation)) if isinstance(given, str) else ''}"
    quotes = ": put it in quotes" if kind == "string_type" and isinstance(given, bool | int | float | datetime.date) else ""
    return f"should be {due}, not {given_in_words(given)}{quotes}"


def _due(info: FieldInfo) -> str:
    """What a field takes, e.g. ``a whole number from 1 to 1,024``."""
    kind = _bare(info.annotation)
    if kind in (int, float):
        return f"{'a whole number' if kind is int else 'a number'}{_range(info)}"
    if choices := _choices(kind):
        return choices[0] if len(choices) == 1 else f"one of {', '.join(choices)}"
    if kind is bool:
        return "true or false"
    origin = get_origin(kind) or kind
    if origin is list:
        return "a list"
    return "a text" if origin is str else "a mapping of keys"


def _range(info: FieldInfo) -> str:
    bounds: dict[type, Any] = {}
    for bound in info.metadata:
        for kind, name in ((Ge, "ge"), (Gt, "gt"), (Le, "le"), (Lt, "lt")):
            if isinstance(bound, kind):
                bounds[kind] = getattr(bound, name)
    low, over, high, below = (bounds.get(kind) for kind in (Ge, Gt, Le, Lt))
    if low is not None and high is not None:
        return f" from {low:,} to {high:,}"
    parts = [
        f"{word} {bound:,}"
        for word, bound in (("of at least", low), ("over", over), ("at most", high), ("below", below))
        if bound is not None
    ]
    return " " + " and ".join(parts) if parts else ""


def _due_of_type(kind: str) -> str:
    due = {
        "list_type": "a list",
        "string_type": "a text",
        "int_type": "a whole number",
        "float_type": "a number",
        "bool_type": "true or false",
    }
    return due.get(kind, "a mapping of keys")


def _meaning(info: FieldInfo | None) -> str:
    return f" ({info.description})" if info is not None and info.description else ""


def _unknown_key(root: type[BaseModel], place: type[BaseModel] | None, key: str) -> str:
    """With the nearest key of where it stands, else the place where it would be right."""
    words = f"unknown key {shown(key)}"
    known = list(place.model_fields) if place else []
    if near := nearest(key[:SHOWN], known):
        return words + near
    for where, model in ((w, m) for parent in (place, root) if parent for w, m in _children(parent)):
        if key in model.model_fields and model is not place:
            return f"{words}: it belongs under {where}"
    return f"{words}; known here: {', '.join(known)}"


def _children(model: type[BaseModel]) -> list[tuple[str, type[BaseModel]]]:
    """The models inside a model, each with its dotted name."""
    found: list[tuple[str, type[BaseModel]]] = []
    for name, info in model.model_fields.items():
        kind = _bare(info.annotation)
        inner = get_args(kind)[0] if get_origin(kind) is list else kind
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += [(name, inner), *((f"{name}.{deeper}", m) for deeper, m in _children(inner))]
    return found


def _place(root: type[BaseModel], loc: Sequence[str | int]) -> tuple[type[BaseModel] | None, FieldInfo | None]:
    """The model in which ``loc`` stands, and its field there; None for an entry of a list or of a plain mapping."""
    place: Any = root
    info: FieldInfo | None = None
    for i, step in enumerate(loc):
        if isinstance(place, type) and issubclass(place, BaseModel):
            info = place.model_fields.get(str(step))
            if info is None or i == len(loc) - 1:
                return place, info
            place = _bare(info.annotation)
        elif get_origin(place) in (list, dict):
            info, place = None, get_args(place)[-1]
        else:
            return None, None
    return (place if isinstance(place, type) and issubclass(place, BaseModel) else None), info


def _bare(annotation: Any) -> Any:
    """A type without ``None`` beside it."""
    if get_origin(annotation) in (Union, types.UnionType):
        kinds = [a for a in get_args(annotation) if a is not type(None)]
        return kinds[0] if len(kinds) == 1 else annotation
    return annotation


def _choices(annotation: Any) -> list[str]:
    kind = _bare(annotation)
    return [str(a) for a in get_args(kind)] if get_origin(kind) is Literal else []
