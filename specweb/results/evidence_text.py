"""Reading stored evidence as text for people: a range of lines at a time, never a whole big file in memory."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

#: Longest part of a line that a page shows; stream records are long.
MAX_LINE_CHARS = 4_000
#: Longest record, in bytes, that is taken apart for reading.
MAX_RECORD_BYTES = 2 * 1024 * 1024
#: Bytes read at a time.
_BLOCK = 256 * 1024


@dataclass(frozen=True)
class Line:
    """``n`` counts from 1. ``n_cut`` characters at the end are left out."""

    n: int
    text: str
    n_cut: int = 0


@dataclass(frozen=True)
class Lines:
    """Lines ``first`` … of a file; ``more`` says that others follow."""

    first: int
    lines: list[Line]
    more: bool


def read_lines(stream: BinaryIO, first: int, n: int) -> Lines:
    """``n`` lines from line ``first`` (from 1). What is before is skipped without being kept."""
    kept: list[Line] = []
    number = 0
    for number, raw, n_cut in _capped_lines(stream, first, MAX_LINE_CHARS * 4):  # UTF-8: at most four bytes a character
        if number < first:
            continue
        if len(kept) == n:
            return Lines(first, kept, more=True)
        text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        kept.append(Line(number, text[:MAX_LINE_CHARS], n_cut + max(0, len(text) - MAX_LINE_CHARS)))
    return Lines(first, kept, more=False)


def read_around(stream: BinaryIO, wanted: Collection[int], around: int) -> list[list[Line]]:
    """The wanted lines (from 1) with ``around`` lines before and after each, in one pass; what touches is one passage."""
    near = {n for line in wanted for n in range(line - around, line + around + 1) if n > 0}
    passages: list[list[Line]] = []
    last = max(near, default=0)
    for number, raw, n_cut in _capped_lines(stream, min(near, default=1), MAX_LINE_CHARS * 4):
        if number > last:
            break
        if number not in near:
            continue
        text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
        line = Line(number, text[:MAX_LINE_CHARS], n_cut + max(0, len(text) - MAX_LINE_CHARS))
        if passages and passages[-1][-1].n == number - 1:
            passages[-1].append(line)
        else:
            passages.append([line])
    return passages


def read_record(stream: BinaryIO, n: int) -> list[str] | None:
    """Line ``n`` as JSON spread out for reading; None if it is no JSON or too long."""
    for number, raw, n_cut in _capped_lines(stream, n, MAX_RECORD_BYTES):
        if number == n:
            return None if n_cut else spread_json(raw)
    return None


def spread_json(raw: bytes) -> list[str] | None:
    """JSON in lines: an object's keys one below the other, a list of objects with one object a line."""
    try:
        return _spread(json.loads(raw), "").split("\n")
    except (ValueError, RecursionError):
        return None


def _spread(value: Any, indent: str) -> str:
    inner = indent + "  "
    if isinstance(value, dict) and value and (not indent or any(isinstance(v, dict | list) for v in value.values()) or len(value) > 6):
        return "{\n" + ",\n".join(f"{inner}{_compact(k)}: {_spread(v, inner)}" for k, v in value.items()) + "\n" + indent + "}"
    if isinstance(value, list) and any(isinstance(v, dict) for v in value):
        return "[\n" + ",\n".join(inner + _compact(v) for v in value) + "\n" + indent + "]"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _capped_lines(stream: BinaryIO, keep_from: int, most: int) -> Iterator[tuple[int, bytes, int]]:
    """(line number, its first ``most`` bytes, how many bytes were left out); lines before ``keep_from`` come empty."""
    number, head, length = 1, bytearray(), 0
    while block := stream.read(_BLOCK):
        start = 0
        while (end := block.find(b"\n", start)) >= 0:
            if number >= keep_from:
                head += block[start : min(end, start + most - len(head))]
                length += end - start
            yield number, bytes(head), length - len(head)
            number, start = number + 1, end + 1
            head.clear()
            length = 0
        if number >= keep_from:
            head += block[start : start + most - len(head)]
            length += len(block) - start
    if length:
        yield number, bytes(head), length - len(head)
