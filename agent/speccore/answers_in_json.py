"""Answers that are JSON: the value in a text, compared as a value, and the call of a tool in it."""

from __future__ import annotations

import json
import re
from typing import Any

from .workload import Check

#: How an answer may wrap its JSON: a code fence, or the tag around tool calls that many chat templates use.
_WRAPPED = re.compile(r"```[\w+-]*[ \t]*\r?\n?(?P<fence>.*?)(?:```|\Z)|<tool_call>(?P<tag>.*?)(?:</tool_call>|\Z)", re.DOTALL)
_SHOWN = 60

Found = tuple[bool, str]


class _NoJson(ValueError):
    pass


def judge_json(check: Check, answer: str, *, cut: bool) -> Found:
    """The first value of the answer equals the expected one: neither the order of keys nor white space matters.

    What follows it on further lines is not judged, since a model that completes text goes on.
    """
    try:
        value = _first_value(answer, cut=cut)
    except _NoJson as error:
        return False, str(error)
    where = _difference(check.expected, value, "")
    return (False, where) if where else (True, "the JSON is the expected value")


def judge_tool(check: Check, answer: str, *, cut: bool) -> Found:
    """The answer calls the expected tool with the expected arguments. Other keys of the call, such as an id, are not looked at."""
    try:
        call = _first_value(answer, cut=cut)
        if isinstance(call, list) and len(call) == 1:  # a list of calls with one in it
            call = call[0]
        if not isinstance(call, dict) or "name" not in call:
            raise _NoJson(f"no call of a tool but {_short(call)}")
        arguments = call.get("arguments", {})
        if isinstance(arguments, str):  # so do servers of OpenAI's interface write them
            arguments = _decoded(arguments)
    except _NoJson as error:
        return False, str(error)
    expected: Any = check.expected
    if call["name"] != expected["name"]:
        return False, f"calls {_short(call['name'])}, expected {_short(expected['name'])}"
    where = _difference(expected["arguments"], arguments, "arguments")
    return (False, where) if where else (True, f"calls {expected['name']} with the expected arguments")


def _first_value(answer: str, *, cut: bool) -> Any:
    wrapped = _WRAPPED.search(answer)
    text = answer
    if wrapped:
        text = wrapped["fence"] if wrapped["fence"] is not None else wrapped["tag"]
    text = text.lstrip()
    try:
        value, end = _DECODER.raw_decode(text)
    except (ValueError, RecursionError) as error:
        if cut:
            raise _NoJson("the answer was cut at the length limit before its JSON had ended, or it is none") from None
        said = error.msg if isinstance(error, json.JSONDecodeError) else str(error)[:_SHOWN]
        raise _NoJson(f"no JSON: {said}, in {text[:20]!r}") from None
    if cut and end == len(text) and _kind(value) == "number":
        raise _NoJson(f"the answer was cut at the length limit, so that {_short(value)} may be the beginning of a number")
    same_line = text[end:].split("\n", 1)[0].strip()
    if same_line:
        raise _NoJson(f"after the JSON stands {same_line[:20]!r}")
    return value


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        raise _NoJson(f"the arguments are no JSON: {text[:20]!r}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A key that is there twice has no one value."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is there twice")
    return found


_DECODER = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_pairs)


def _difference(expected: Any, found: Any, path: str) -> str:
    """Where two values differ first, in words; '' if they are equal. ``true`` is not 1, as Python has it; 1.0 is 1."""
    at = f" at {path}" if path else ""
    if _kind(expected) != _kind(found):
        return f"expected {_short(expected)}, found {_short(found)}{at}"
    if isinstance(expected, dict):
        if missing := sorted(expected.keys() - found.keys()):
            return f"key {_short(missing[0])} is missing{at}"
        if surplus := sorted(found.keys() - expected.keys()):
            return f"key {_short(surplus[0])} is too much{at}"
        inner = [(f"{path}.{key}" if path else str(key), value, found[key]) for key, value in expected.items()]
    elif isinstance(expected, list):
        if len(expected) != len(found):
            return f"expected {len(expected)} values, found {len(found)}{at}"
        inner = [(f"{path}[{i}]", *both) for i, both in enumerate(zip(expected, found))]
    else:
        return "" if expected == found else f"expected {_short(expected)}, found {_short(found)}{at}"
    return next((words for where, one, other in inner if (words := _difference(one, other, where))), "")


def _kind(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return str(value)
    return "number" if isinstance(value, int | float) else type(value).__name__


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
