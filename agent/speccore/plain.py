"""JSON and text from engines, servers and model folders: whoever wrote it, what is read can be hashed, stored, sent on and printed."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from typing import Any

#: Nothing that is read here nests a tenth as deep.
MAX_DEPTH = 100
MAX_DIGITS = 300
#: What is not seen, moves a terminal's cursor, or turns the direction of writing.
_UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def read_json(text: str | bytes, *, lenient: bool = False) -> Any:
    """Raises ValueError in words. Half of a character is replaced: of a text that holds one, only the text suffers.

    ``lenient``: numbers that aren't finite are None, since configurations of models do hold them.
    """
    words = text.decode(json.detect_encoding(text), "replace") if isinstance(text, bytes) else text
    try:
        value = json.loads(
            words, parse_constant=_nothing if lenient else _refuse, parse_float=_finite_or_nothing if lenient else _finite, parse_int=_short
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    return value if words.isascii() and "\\u" not in words else _whole(value)


def _refuse(word: str) -> float:
    raise ValueError(f"it holds {word}, which is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"it holds the number {digits[:20]}, which is too large")
    return number


def _nothing(_: str) -> None:
    return None


def _finite_or_nothing(digits: str) -> float | None:
    return number if math.isfinite(number := float(digits)) else None


def _short(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"it holds a number of {len(digits)} digits")
    return int(digits)


def _check_depth(value: Any) -> None:
    """Level by level, so that the check itself is no recursion."""
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for outer in level for inner in _inner(outer) if isinstance(inner, dict | list)]
        if not level:
            return
    raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


def _inner(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole_text(value)
    if isinstance(value, dict):
        return {whole_text(k): _whole(v) for k, v in value.items()}
    return [_whole(v) for v in value] if isinstance(value, list) else value


def whole_text(text: str) -> str:
    """Without halves of characters, which no file, hash or database takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def one_line(text: str) -> str:
    """As a terminal or a page can show it: white space as single spaces, what is not seen replaced."""
    return _UNSEEN.sub("\ufffd", " ".join(whole_text(text).split()))
