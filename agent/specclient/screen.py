"""What a person sees: tables cut to the terminal, colours only where they are wanted, one live line; and JSON for programs.

Results go to standard output, what happens meanwhile to standard error. No name that others chose reaches a terminal with its
control characters.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TextIO

from speccore.plain import one_line

_CLEAR_LINE = "\r\x1b[2K"
_COLOURS = {
    "keep": "32",
    "shorten": "33",
    "disable": "31",
    "inconclusive": "33",
    "invalid": "35",
    "not engaged": "35",
    "failed": "31",
    "online": "32",
    "error": "31",
}
#: In JSON these stand only inside texts, where an escape is the same text.
_ESCAPED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


@dataclass(frozen=True)
class Column:
    """``least``: so narrow it may become where the terminal is; 0: its cells are never cut."""

    head: str
    right: bool = False
    least: int = 0


class Screen:
    def __init__(self, out: TextIO | None = None, err: TextIO | None = None, environ: Mapping[str, str] = os.environ) -> None:
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        for stream in (self.out, self.err):
            _take_any_text(stream)
        self.out_is_tty, self.err_is_tty = _is_tty(self.out), _is_tty(self.err)
        plain = bool(environ.get("NO_COLOR")) or environ.get("TERM") == "dumb"
        self.colours = self.out_is_tty and not plain
        self.live = self.err_is_tty and environ.get("TERM") != "dumb"
        self._shown = ""

    @property
    def width(self) -> int:
        """Of the terminal; 0 where there is none, and nothing is cut."""
        return shutil.get_terminal_size((100, 24)).columns if self.out_is_tty else 0

    # Results

    def print(self, text: str = "") -> None:
        """A line of ours; names in it have been through :func:`safe`."""
        self.clear()
        self.out.write(f"{text}\n")

    def json(self, value: Any) -> None:
        self.clear()
        readable = (self.out.encoding or "").lower().replace("-", "") == "utf8"
        text = json.dumps(value, indent=1, ensure_ascii=not readable)
        self.out.write(_ESCAPED.sub(lambda m: f"\\u{ord(m[0]):04x}", text) + "\n")

    def table(self, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        for line in table_lines(columns, rows, self.width, self.painted if self.colours else None):
            self.print(line)

    def painted(self, text: str) -> str:
        """In the colour of the word that it begins with, where there are colours."""
        word = next((w for w in _COLOURS if text.strip() == w or text.startswith((f"{w} ", f"{w}:"))), "")
        return f"\x1b[{_COLOURS[word]}m{text}\x1b[0m" if word and self.colours else text

    # What happens meanwhile

    def note(self, text: str) -> None:
        self.clear()
        self.err.write(f"{text}\n")
        self.err.flush()

    def show(self, text: str) -> None:
        """A line that is written over, at a terminal only."""
        if self.live and text != self._shown:
            room = max(10, shutil.get_terminal_size((100, 24)).columns - 1)
            self.err.write(f"{_CLEAR_LINE}{cut(text, room)}")
            self.err.flush()
            self._shown = text

    def clear(self) -> None:
        if self._shown:
            self.err.write(_CLEAR_LINE)
            self.err.flush()
            self._shown = ""

    def complain(self, message: str, remedy: str = "") -> None:
        lines = [one_line(line) for line in message.splitlines()] or [""]
        self.note("\n".join([f"error: {lines[0]}", *(f"  {line}" for line in lines[1:]), *([f"  → {one_line(remedy)}"] if remedy else [])]))


def safe(text: object) -> str:
    """A text that somebody else chose, as it can stand in a line."""
    return one_line(str(text))


def width_of(text: str) -> int:
    """Columns that it takes at a terminal."""
    return sum(0 if unicodedata.category(c) in ("Mn", "Me", "Cf") else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut(text: str, room: int) -> str:
    if width_of(text) <= room:
        return text
    taken = ""
    for c in text:
        if width_of(taken + c) > room - 1:
            break
        taken += c
    return f"{taken}…"


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int, paint: Any = None) -> list[str]:
    """Aligned lines, the head first. ``room`` 0: as wide as the cells are."""
    cells = [[safe(cell) for cell in row] for row in rows]
    widths = [max(width_of(c.head), *(width_of(row[i]) for row in cells), 1) if cells else width_of(c.head) for i, c in enumerate(columns)]
    if room:
        widths = _narrowed(columns, widths, room)

    def line(row: Sequence[str], painter: Any = None) -> str:
        parts = []
        for column, cell, width in zip(columns, row, widths, strict=True):
            shown = cut(cell, width)
            pad = " " * (width - width_of(shown))
            shown = painter(shown) if painter else shown
            parts.append(pad + shown if column.right else shown + pad)
        joined = "  ".join(parts).rstrip()
        return joined if painter or not room else cut(joined, room)

    return [line([c.head for c in columns]), line(["─" * w for w in widths]), *(line(row, paint) for row in cells)]


def _narrowed(columns: Sequence[Column], widths: list[int], room: int) -> list[int]:
    """Takes from the widest that may be cut, until the line fits or none may."""
    found = list(widths)
    while sum(found) + 2 * (len(found) - 1) > room:
        able = [i for i, c in enumerate(columns) if c.least and found[i] > max(c.least, 1)]
        if not able:
            break
        widest = max(able, key=lambda i: found[i])
        found[widest] -= 1
    return found


def _is_tty(stream: TextIO) -> bool:
    with suppress(ValueError, OSError):
        return stream.isatty()
    return False


def _take_any_text(stream: TextIO) -> None:
    """No name may end the program because a locale lacks its letters; where the locale has none but ASCII, UTF-8 is meant."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is None:
        return
    ascii_only = (stream.encoding or "").lower() in ("ascii", "us-ascii", "ansi_x3.4-1968", "646")
    with suppress(ValueError, OSError):
        reconfigure(encoding="utf-8" if ascii_only else None, errors="replace")
