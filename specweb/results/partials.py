"""Uploads in parts: what came so far of a sender's file is kept until its last part, so that a cut line costs one part only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, Protocol
from uuid import UUID

from django.conf import settings
from speccore.errors import BlobTooLarge, HashMismatch, ServerError

from specweb.accounts.models import Team

from .models import Blob
from .store import CHUNK, INCOMING, Readable, held_blob, store_blob

PART_BYTES = 8 * 1024**2
#: Files that a sender may have under way; the one that rested longest makes room.
MAX_PARTIALS = 16
#: What was begun and not gone on with for this long is given up.
LIFE = timedelta(days=1)


class Sender(Protocol):
    """Who sends files: a host, or a person for a team. What it has under way is its own."""

    pk: UUID
    team: Team


_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})")


class BadRange(ServerError):
    code = "bad_range"
    retry = False
    remedy = "Send 'Content-Range: bytes FIRST-LAST/TOTAL' of the encoded body, and a body of just these bytes."


class PartTooLarge(ServerError):
    code = "part_too_large"
    retry = False
    remedy = f"Send parts of at most {PART_BYTES:,} bytes."


class WrongOffset(ServerError):
    code = "wrong_offset"
    remedy = "Go on from details.offset."


@dataclass(frozen=True)
class Part:
    """Bytes ``first`` to ``last`` of an encoded body of ``total`` bytes."""

    first: int
    last: int
    total: int

    @property
    def n_bytes(self) -> int:
        return self.last - self.first + 1


def part_of(content_range: str, length: int) -> Part:
    """Reads a ``Content-Range`` header. Raises :class:`BadRange` or :class:`PartTooLarge`."""
    found = _RANGE.fullmatch(content_range.strip())
    if not found:
        raise BadRange(f"Content-Range {content_range[:80]!r} can't be read")
    part = Part(*map(int, found.groups()))
    if not part.first <= part.last < part.total:
        raise BadRange(f"Content-Range {content_range!r} is no range of {part.total:,} bytes")
    if part.n_bytes != length:
        raise BadRange(f"Content-Range names {part.n_bytes:,} bytes, Content-Length {length:,}")
    if part.n_bytes > PART_BYTES:
        raise PartTooLarge(f"the part has {part.n_bytes:,} bytes", max_bytes=PART_BYTES)
    return part


def offset_of(sha256: str, sender: Sender) -> int:
    """How many bytes of the encoded file the sender has sent so far."""
    try:
        return _path(sha256, sender).stat().st_size
    except FileNotFoundError:
        return 0


def receive_part(sha256: str, body: Readable, sender: Sender, part: Part, *, zstd: bool, max_bytes: int) -> Blob | int:
    """Adds a part; returns how many bytes there are now, or the blob after the last one.

    A part counts whole or not at all: it is read to its end first, so neither a cut line nor a second sender can leave half
    of one. Raises :class:`WrongOffset` if the part doesn't begin where the file ends; :class:`HashMismatch` or
    :class:`BlobTooLarge` after the last part, and then nothing is kept.
    """
    if part.total > max_bytes:
        raise BlobTooLarge(f"the body has {part.total:,} bytes", max_bytes=max_bytes)
    path = _path(sha256, sender)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent) as piece:
        if (got := _copy(body, piece, part.n_bytes)) != part.n_bytes:
            raise BadRange(f"the body ended after {got:,} of {part.n_bytes:,} bytes", remedy="Send the part again.")
        piece.seek(0)
        with _locked(path) as file:
            if blob := held_blob(sha256, sender.team):  # another request ended meanwhile what this one sends again
                path.unlink(missing_ok=True)
                return blob
            there = os.fstat(file.fileno()).st_size
            if part.first != there:
                if not there:
                    path.unlink(missing_ok=True)
                raise WrongOffset(f"the part begins at byte {part.first:,}, {there:,} bytes are here", offset=there)
            if not there:
                _make_room(path)
            return _add(file, piece, path, sha256, sender, part, zstd=zstd, max_bytes=max_bytes)


def _add(
    file: IO[bytes], piece: IO[bytes], path: Path, sha256: str, sender: Sender, part: Part, *, zstd: bool, max_bytes: int
) -> Blob | int:
    if part.last + 1 < part.total:
        try:
            shutil.copyfileobj(piece, file, CHUNK)
            file.flush()
        except BaseException:
            file.truncate(part.first)  # the part can be sent again
            raise
        return part.last + 1
    # The last part is never added: a file that is all there but not stored could not be gone on with.
    file.seek(0)
    try:
        blob = store_blob(sha256, _OneAfterTheOther(file, piece), sender.team, zstd=zstd, max_bytes=max_bytes)
    except (HashMismatch, BlobTooLarge):
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    return blob


class _OneAfterTheOther:
    def __init__(self, *files: IO[bytes]) -> None:
        self._files = list(files)

    def read(self, n: int, /) -> bytes:
        while self._files:
            if piece := self._files[0].read(n):
                return piece
            self._files.pop(0)
        return b""


def forget_parts(sha256: str, sender: Sender) -> None:
    """The file came whole meanwhile."""
    _path(sha256, sender).unlink(missing_ok=True)


def sweep_incoming(now: datetime) -> int:
    """Removes what was begun and not gone on with for a day, of parts and of whole uploads; returns how many files."""
    n = 0
    for path in (Path(settings.SPECWEB_EVIDENCE_DIR) / INCOMING).rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # it was completed just now
            if path.is_file() and path.stat().st_mtime < (now - LIFE).timestamp():
                path.unlink()
                n += 1
    return n


def _path(sha256: str, sender: Sender) -> Path:
    return Path(settings.SPECWEB_EVIDENCE_DIR) / INCOMING / sender.pk.hex / f"{sha256}.partial"


def _copy(body: Readable, out: IO[bytes], at_most: int) -> int:
    n = 0
    while n < at_most and (piece := body.read(min(CHUNK, at_most - n))):
        out.write(piece)
        n += len(piece)
    return n


def _make_room(path: Path) -> None:
    def rested_since(partial: Path) -> float:
        try:
            return partial.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    others = sorted((p for p in path.parent.glob("*.partial") if p != path), key=rested_since)
    for partial in others[: max(0, len(others) + 1 - MAX_PARTIALS)]:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    """The file, opened for appending, for one request at a time over all processes."""
    while True:
        file = path.open("a+b")
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
        except FileNotFoundError:
            pass  # removed between the two looks
        except BaseException:
            file.close()
            raise
        file.close()  # who held the lock has removed the file
    with file:
        yield file
