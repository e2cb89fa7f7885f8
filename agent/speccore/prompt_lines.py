"""One line of a file of prompts, as somebody wrote it: JSON read with every fault in words, and the item that it stands for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .spec import SpecProblem
from .spec_words import given_in_words, nearest, shown, words_of
from .workload import Check, Item, Message, Turn

MAX_DEPTH = 20
#: Beyond it a number of JSON is not kept to the last digit everywhere.
MOST_EXACT = 2**53
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")

WARMUP = "warmup"
KINDS = ("prompt", "messages", "turns")
KEYS = (*KINDS, "id", "max_tokens", "reference_tokens", "check", WARMUP)


class LineFault(ValueError):
    """A line that is no JSON object as it is read here."""


class Written(BaseModel):
    """A line's keys. What may stand beside what is told apart from what each may be."""

    model_config = ConfigDict(extra="forbid", strict=True)
    prompt: str | None = Field(default=None, min_length=1)
    messages: list[Message] | None = Field(default=None, min_length=1, max_length=201)
    turns: list[Turn] | None = Field(default=None, min_length=1, max_length=50)
    id: str | None = Field(default=None, min_length=1, max_length=80, pattern=r"^[^\x00-\x1f\x7f\u2028-\u202e\u2066-\u2069]*$")
    max_tokens: int | None = Field(default=None, ge=2, le=131_072)
    reference_tokens: int | None = Field(default=None, ge=2, le=131_072)
    check: Check | None = None
    warmup: bool = False


@dataclass(frozen=True)
class Line:
    """A line that was understood. ``kind`` is the key that says what is asked."""

    n: int
    kind: str
    item: Item
    warmup: bool


def read_line(n: int, text: bytes) -> Line | list[SpecProblem]:
    """The item of line ``n`` (from 1), or all that is wrong with the line."""
    try:
        data = json_of(text)
    except LineFault as fault:
        return [SpecProblem(field="", message=str(fault), line=n)]
    if not isinstance(data, dict):
        return [problem(n, "", f'a line is an object such as {{"prompt": "…"}}, not {given_in_words(data)}', data)]
    faults = [problem(n, *fault) for fault in _no_text(data, "")]
    if faults:
        return faults
    try:
        written = Written.model_validate(data)
    except ValidationError as error:
        return [_told(n, data, dict(e)) for e in error.errors(include_url=False)]
    return _line(n, written, data)


def problem(n: int, field: str, message: str, value: Any = "") -> SpecProblem:
    return SpecProblem(field=field, message=message, value=shown(value) if value != "" else "", line=n)


def json_of(text: bytes) -> Any:
    """The JSON value in ``text``. Raises :class:`LineFault`; a key that is there twice is a fault, and so is what no number is."""
    try:
        return json.loads(text.decode("utf-8"), object_pairs_hook=_once, parse_int=_whole, parse_float=_fraction, parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise LineFault(f"is no UTF-8 text: byte {error.start + 1:,} of the line can’t be read. Save the file as UTF-8") from None
    except json.JSONDecodeError as error:
        raise LineFault(f"is no JSON: {error.msg}, column {error.colno:,}. Each line is one whole JSON object") from None
    except RecursionError:
        raise LineFault(f"is nested more than {MAX_DEPTH} deep: flatten it") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise LineFault(f"has the key {shown(key)} twice: remove one")
        found[key] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > 17 or abs(int(digits)) > MOST_EXACT:
        raise LineFault(
            f"holds the number {digits[:20]}{'…' if len(digits) > 20 else ''}, which is too large: put it in quotes, or correct it"
        )
    return int(digits)


def _fraction(digits: str) -> float:
    value = float(digits)
    if not abs(value) <= MOST_EXACT:
        raise LineFault(f"holds the number {digits[:20]}, which is too large: put it in quotes, or correct it")
    return value or 0.0  # a zero below zero is not kept


def _no_number(word: str) -> NoReturn:
    raise LineFault(f"holds {word}, which is no number that JSON knows: put it in quotes, or remove it")


def _no_text(value: Any, field: str, depth: int = 1) -> Iterator[tuple[str, str]]:
    """(field, words) of texts that no database keeps, and of what is nested too deeply."""
    if isinstance(value, str):
        if bad := _NOT_TEXT.search(value):
            what = "a NUL character" if bad[0] == "\x00" else "half of a character (a lone surrogate)"
            yield field, f"holds {what} after {bad.start():,} characters: remove it"
        return
    if not isinstance(value, dict | list):
        return
    if depth > MAX_DEPTH:
        yield field, f"is nested more than {MAX_DEPTH} deep: flatten it"
        return
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(key, str) and _NOT_TEXT.search(key):
            yield field, "has a key that is no text: it holds a NUL character or half of a character. Correct it"
        else:
            yield from _no_text(inner, f"{field}.{key}" if field else str(key), depth + 1)


def _told(n: int, data: dict[str, Any], error: dict[str, Any]) -> SpecProblem:
    loc = error["loc"]
    words = words_of(Written, error)
    if error["type"] == "value_error":
        inner, _, rest = words.partition(": ")
        if inner in Check.model_fields:  # a rule of the check that names its own field
            return problem(n, ".".join([*map(str, loc), inner]), rest)
    if error["type"] == "extra_forbidden" and len(loc) == 1:
        words = f"is no key of a line{nearest(str(loc[0]), KEYS)}: remove it. Keys: {', '.join(KEYS)}"
    if error["type"] == "literal_error" and loc[0] == "messages":
        words = "is a role that no single answer stands behind: system, user and assistant are read"
    return problem(n, ".".join(map(str, loc)), words, error["input"])


def _line(n: int, written: Written, data: dict[str, Any]) -> Line | list[SpecProblem]:
    kinds = [kind for kind in KINDS if getattr(written, kind) is not None]
    if len(kinds) != 1:
        words = "has nothing to ask" if not kinds else f"has {' and '.join(kinds)}"
        return [problem(n, "", f"{words}: give one of {', '.join(KINDS)}")]
    fields: dict[str, Any] = {"id": written.id or f"line-{n}"}
    fields |= {key: value for key in ("max_tokens", "reference_tokens", "check") if (value := getattr(written, key)) is not None}
    if written.messages is not None:
        *history, last = written.messages
        if last.role != "user":
            return [problem(n, f"messages.{len(history)}.role", "the last message is the user’s: it is what is answered", last.role)]
        fields |= {"prompt": last.content, "history": history}
    else:
        fields[kinds[0]] = getattr(written, kinds[0])
    try:
        item = Item(**fields)
    except ValidationError as error:
        words = (
            str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ").removeprefix(f"item {fields['id']!r}").lstrip(": ")
        )
        return [problem(n, "", words)]
    return Line(n, kinds[0], item, written.warmup)
