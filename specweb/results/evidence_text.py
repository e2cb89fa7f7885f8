"""Reading stored evidence as text for people: a range of lines at a time, never a whole big file in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

#: Longest part of a line that a page shows; stream records are long.
MAX_LINE_CHARS = 4_000
#: Once a page holds this many characters, its further lines are cut to the second length, so that a page stays one.
MAX_PAGE_CHARS = 1_000_000
SHORT_LINE_CHARS = 200
#: Longest record, in bytes, that is taken apart for reading.
MAX_RECORD_BYTES = 2 * 1024 * 1024
#: Bytes read at a time.
_BLOCK = 256 * 1024


@dataclass(frozen=True)
class Line:
    """``n`` counts from 1. ``n_cut`` bytes at the end are left out (where the whole line was at hand, characters)."""

    n: int
    text: str
    n_cut: int = 0


@dataclass(frozen=True)
class Lines:
    """Lines ``first`` … of a file; ``more`` says that others follow."""

    first: int
    lines: list[Line]
    more: bool


def read_lines(stream: BinaryIO, first: int, n: int, *, at: int = 1, whole: int = 0) -> Lines:
    """``n`` lines from line ``first`` (from 1). What is before is skipped without being kept.

    ``at``: the line that the stream begins in. ``whole``: a line that is shown in full length however much stands before it.
    """
    kept: list[Line] = []
    room = MAX_PAGE_CHARS
    for number, raw, n_cut in capped_lines(stream, first, MAX_LINE_CHARS * 4, at):  # UTF-8: at most four bytes a character
        if number < first:
            continue
        if len(kept) == n:
            return Lines(first, kept, more=True)
        kept.append(_line(number, raw, n_cut, MAX_LINE_CHARS if room > 0 or number == whole else SHORT_LINE_CHARS))
        room -= len(kept[-1].text)
    return Lines(first, kept, more=False)


def _line(number: int, raw: bytes, n_cut: int, most: int) -> Line:
    text = raw.decode("utf-8", errors="replace").rstrip("\r\n")
    return Line(number, visible(text[:most]), n_cut + max(0, len(text) - most))


def read_around(stream: BinaryIO, wanted: Collection[int], around: int) -> list[list[Line]]:
    """The wanted lines (from 1) with ``around`` lines before and after each, in one pass; what touches is one passage."""
    near = {n for line in wanted for n in range(line - around, line + around + 1) if n > 0}
    passages: list[list[Line]] = []
    last = max(near, default=0)
    for number, raw, n_cut in capped_lines(stream, min(near, default=1), MAX_LINE_CHARS * 4):
        if number > last:
            break
        if number not in near:
            continue
        line = _line(number, raw, n_cut, MAX_LINE_CHARS)
        if passages and passages[-1][-1].n == number - 1:
            passages[-1].append(line)
        else:
            passages.append([line])
    return passages


#: What colours a terminal or sets a window's title; it says nothing on a page.
TERMINAL_CODES = re.compile("\x1b\\[[0-9;:?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)")
_CONTROLS = {c: chr(0x2400 + c) for c in range(0x20) if c != 9} | {0x7F: "\u2421"}
_CONTROLS |= {c: f"<{c:04X}>" for c in (*range(0x80, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def visible(text: str) -> str:
    """Text without a terminal's codes; other control characters, and those that would turn the order of reading, as signs."""
    return (TERMINAL_CODES.sub("", text) if "\x1b" in text else text).translate(_CONTROLS)


def read_record(stream: BinaryIO, n: int, *, at: int = 1) -> list[str] | None:
    """Line ``n`` as JSON spread out for reading; None if it is no JSON or too long. ``at``: the line that the stream begins in."""
    for number, raw, n_cut in capped_lines(stream, n, MAX_RECORD_BYTES, at):
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


def capped_lines(stream: BinaryIO, keep_from: int, most: int, number: int = 1) -> Iterator[tuple[int, bytes, int]]:
    """(line number, its first ``most`` bytes, how many bytes were left out); lines before ``keep_from`` come empty."""
    head, length = bytearray(), 0
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
