"""Finding text in stored evidence: one pass in little memory, that ends at a count and at a time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

from .evidence_text import TERMINAL_CODES

#: Lines with a hit are counted up to here.
MOST_HITS = 1_000
#: Longest text that is looked for, in characters.
MOST_CHARS = 200
#: A search ends after this long and says how far it came.
SECONDS = 3.0
_BLOCK = 1024**2
_CODES = re.compile(TERMINAL_CODES.pattern.encode("latin-1"))


@dataclass
class Found:
    """Lines that hold a text, around line ``current`` (0: the first of them). ``more``: others may follow those that were counted.

    ``searched_to``: the line at which time was up; 0 if it was not.
    """

    current: int
    n: int = 0
    n_to_current: int = 0  # of these, up to and with the current line; 0 where there are more than were counted
    first: int = 0
    previous: int = 0
    following: int = 0
    more: bool = False
    searched_to: int = 0
    _last: int = field(default=0, repr=False)

    def add(self, line: int) -> None:
        if line == self._last:
            return
        self._last = line
        self.first = self.first or line
        self.current = self.current or line
        if line < self.current:
            self.previous = line
        elif line > self.current and not self.following:
            self.following = line
        if self.n == MOST_HITS:
            self.more = True
            return
        self.n += 1
        if line <= self.current:
            self.n_to_current += 1

    @property
    def is_over(self) -> bool:
        """All that is told is known."""
        return self.more and bool(self.following)


def search(stream: BinaryIO, text: str, current: int, *, at: int = 1, since: int = 1, seconds: float = SECONDS) -> Found:
    """Lines that hold ``text``, capital letters of A–Z or not. ``at``: the line that the stream begins in; ``since``: the first that counts."""
    needle, found, line = text[:MOST_CHARS].encode(errors="replace").lower(), Found(current), at
    if not needle:
        return found
    until = time.monotonic() + seconds
    for piece in _pieces(stream, len(needle) - 1):
        n_lines = piece.count(b"\n")
        if line + n_lines >= since:
            _search_piece(piece, needle, found, line, since)
        line += n_lines
        if found.is_over:
            break
        if time.monotonic() > until:
            found.more, found.searched_to = True, line
            break
    if found.more and found.n_to_current == MOST_HITS:
        found.n_to_current = 0
    return found


def _search_piece(piece: bytes, needle: bytes, found: Found, line: int, since: int) -> None:
    """Adds a piece's hits; ``line`` is the one that it begins in."""
    if found.more and line + piece.count(b"\n") < found.current:  # nothing is counted any more, and only the last one may matter
        if (last := piece.rfind(needle)) >= 0:
            found.add(line + piece.count(b"\n", 0, last))
        return
    start = 0
    while (hit := piece.find(needle, start)) >= 0 and not found.is_over:
        line += piece.count(b"\n", start, hit)
        if line >= since:
            found.add(line)
        start = piece.find(b"\n", hit) + 1
        if not start:
            return
        line += 1


def _pieces(stream: BinaryIO, overlap: int) -> Iterator[bytes]:
    """The stream in small letters and without terminal codes, cut behind lines; one that is longer than a block is cut with an overlap."""
    held = b""
    while block := stream.read(_BLOCK):
        held += block
        cut = held.rfind(b"\n") + 1
        if cut:
            yield _plain(held[:cut])
            held = held[cut:]
        elif len(held) >= _BLOCK:
            yield _plain(held)
            held = held[len(held) - overlap :]
    if held:
        yield _plain(held)


def _plain(piece: bytes) -> bytes:
    return (_CODES.sub(b"", piece) if b"\x1b" in piece else piece).lower()
