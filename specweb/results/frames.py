"""Stored evidence as independent zstd frames with an index of lines behind them, so that a page begins reading near its line.

The index is a skippable frame of the zstd format: any decompressor passes over it. Files of one frame have none, and neither
have files that were stored before there was one; these are read from their beginning.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from dataclasses import dataclass
from typing import BinaryIO

import zstandard

#: Uncompressed bytes of a frame: what is decompressed at most before a wanted line is reached.
FRAME_BYTES = 4 * 1024**2
_SKIPPABLE = 0x184D2A57
_HEAD, _ENTRY, _TAIL = struct.Struct("<II"), struct.Struct("<QII"), struct.Struct("<IB7s")
_MARK = b"swlines"
#: No file has more frames; a tail that tells of more is no index.
_MOST_FRAMES = 1_000_000


@dataclass(frozen=True)
class LineIndex:
    """``stored_at``: where each frame begins in the stored file; ``newlines``: how many come before it. ``n_lines`` of the file."""

    stored_at: list[int]
    newlines: list[int]
    n_lines: int

    def begin(self, line: int) -> tuple[int, int]:
        """Where to begin reading for a line (from 1): offset in the stored file, and the number of the line that goes on there."""
        i = max(0, bisect_left(self.newlines, line - 1) - 1)
        return self.stored_at[i], self.newlines[i] + 1


class FrameWriter:
    """Writes bytes as frames of :data:`FRAME_BYTES`, and the index at the end."""

    def __init__(self, out: BinaryIO, level: int) -> None:
        self._out, self._compressor = out, zstandard.ZstdCompressor(level=level, write_checksum=True)
        self._frames: list[tuple[int, int, int]] = []  # stored bytes, uncompressed bytes, newlines
        self._last = b""
        self._begin()

    def write(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            if self._taken == FRAME_BYTES:
                self._end()
                self._begin()
            part = bytes(view[: FRAME_BYTES - self._taken])
            self._stored += self._out.write(self._frame.compress(part))
            self._taken += len(part)
            self._newlines += part.count(b"\n")
            self._last = part[-1:]
            view = view[len(part) :]

    def finish(self) -> None:
        self._end()
        if len(self._frames) < 2:
            return
        body = b"".join(_ENTRY.pack(*frame) for frame in self._frames)
        body += _TAIL.pack(len(self._frames), self._last == b"\n", _MARK)
        self._out.write(_HEAD.pack(_SKIPPABLE, len(body)) + body)

    def _begin(self) -> None:
        self._frame = self._compressor.compressobj()
        self._stored = self._taken = self._newlines = 0

    def _end(self) -> None:
        self._stored += self._out.write(self._frame.flush())
        self._frames.append((self._stored, self._taken, self._newlines))


def read_index(raw: BinaryIO) -> LineIndex | None:
    """The index at the end of a stored file; None if there is none that fits the file."""
    size = raw.seek(0, 2)
    if size < _HEAD.size + _TAIL.size:
        return None
    raw.seek(size - _TAIL.size)
    n, whole, mark = _TAIL.unpack(raw.read(_TAIL.size))
    begin = size - _TAIL.size - n * _ENTRY.size - _HEAD.size
    if mark != _MARK or not 0 < n <= _MOST_FRAMES or begin < 0:
        return None
    raw.seek(begin)
    head = raw.read(_HEAD.size)
    frames = list(_ENTRY.iter_unpack(raw.read(n * _ENTRY.size)))
    if head != _HEAD.pack(_SKIPPABLE, size - begin - _HEAD.size) or sum(stored for stored, _, _ in frames) != begin:
        return None
    stored_at, newlines, at, lines = [], [], 0, 0
    for stored, _, n_newlines in frames:
        stored_at.append(at)
        newlines.append(lines)
        at, lines = at + stored, lines + n_newlines
    return LineIndex(stored_at, newlines, lines + (0 if whole else 1))
