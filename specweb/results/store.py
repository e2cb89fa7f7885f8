"""Evidence on disk: zstd files under the SHA-256 of their uncompressed bytes, checked while written and while read."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

import zstandard
from django.conf import settings
from speccore.errors import BlobTooLarge, HashMismatch

from specweb.accounts.models import Team

from .frames import FrameWriter, read_index
from .models import Blob

CHUNK = 256 * 1024
LEVEL = 6
#: Folder in the evidence folder for what is on its way.
INCOMING = "incoming"
#: A frame may ask for this much memory to be decompressed.
MAX_WINDOW = 64 * 1024**2


class Readable(Protocol):
    def read(self, n: int, /) -> bytes: ...


def held_blob(sha256: str, team: Team) -> Blob | None:
    """A blob that the team has sent and that is still whole on disk; of one that isn't, the agent sends the bytes again."""
    blob = Blob.objects.filter(sha256=sha256, teams=team).first()
    try:
        return blob if blob and _path(blob.path).stat().st_size == blob.stored_bytes else None
    except OSError:
        return None


def store_blob(sha256: str, body: Readable, team: Team, *, zstd: bool, max_bytes: int) -> Blob:
    """Reads ``body`` to its end and keeps it. Nothing is kept unless the uncompressed bytes have the hash ``sha256``.

    Raises :class:`HashMismatch` or :class:`BlobTooLarge` (more than ``max_bytes`` uncompressed).
    """
    folder = Path(settings.SPECWEB_EVIDENCE_DIR)
    incoming = folder / INCOMING
    incoming.mkdir(parents=True, exist_ok=True)
    with _Incoming(incoming) as file:
        n_bytes, digest = _copy(body, file.handle, zstd=zstd, max_bytes=max_bytes)
        if digest != sha256:
            raise HashMismatch(f"the bytes have SHA-256 {digest}, not {sha256}", expected=sha256, got=digest, bytes=n_bytes)
        path = _relative(sha256)
        stored_bytes = file.keep(folder / path)
    blob, _ = Blob.objects.update_or_create(
        sha256=sha256, defaults={"bytes": n_bytes, "stored_bytes": stored_bytes, "path": path, "encoding": "zstd"}
    )
    blob.teams.add(team)
    return blob


def open_blob(blob: Blob) -> BinaryIO:
    """The uncompressed bytes as a stream; the caller closes it. Raises ``OSError`` if the file is gone."""
    raw = _path(blob.path).open("rb")
    return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(raw, read_across_frames=True, closefd=True)


def open_stored(blob: Blob) -> BinaryIO:
    """The bytes as they are stored, compressed; the caller closes the file. Raises ``OSError`` if it is gone."""
    return _path(blob.path).open("rb")


def open_at_line(blob: Blob, line: int) -> tuple[BinaryIO, int, int | None]:
    """The uncompressed bytes from shortly before a line (from 1): the stream, the number of the line that it begins in, and
    how many lines the file has where that is known. The caller closes the stream. Raises ``OSError`` if the file is gone."""
    raw = _path(blob.path).open("rb")
    index = read_index(raw)
    offset, first = index.begin(line) if index else (0, 1)
    raw.seek(offset)
    stream = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(raw, read_across_frames=True, closefd=True)
    return stream, first, index.n_lines if index else None


def read_blob(blob: Blob) -> bytes:
    """All uncompressed bytes, hashed again. Raises :class:`HashMismatch` if they have changed on disk, ``OSError`` if gone."""
    try:
        with open_blob(blob) as stream:
            content = stream.read(blob.bytes + 1)
    except zstandard.ZstdError as error:
        raise HashMismatch(f"the stored file {blob.path} can't be decompressed: {error}", expected=blob.sha256) from None
    digest = hashlib.sha256(content).hexdigest()
    if digest != blob.sha256:
        raise HashMismatch(f"the stored file {blob.path} has SHA-256 {digest}", expected=blob.sha256, got=digest)
    return content


def forget_files(hashes: Iterable[str]) -> None:
    """Removes stored files that no row names: those of a transaction that came to nothing."""
    left = [sha256 for sha256 in hashes if not Blob.objects.filter(pk=sha256).exists()]
    for sha256 in left:
        _path(_relative(sha256)).unlink(missing_ok=True)


class _Incoming:
    """A temporary file that goes away unless it is kept under its final name."""

    def __init__(self, folder: Path) -> None:
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        self.name = Path(name)
        self.handle = os.fdopen(handle, "wb")

    def __enter__(self) -> _Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.close()
        self.name.unlink(missing_ok=True)

    def keep(self, path: Path) -> int:
        """Moves the file into place, durably; two that write the same bytes at once do no harm. Returns its size."""
        self.handle.flush()
        os.fsync(self.handle.fileno())
        size = os.fstat(self.handle.fileno()).st_size
        path.parent.mkdir(parents=True, exist_ok=True)
        self.name.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return size


def _copy(body: Readable, out: BinaryIO, *, zstd: bool, max_bytes: int) -> tuple[int, str]:
    """Writes ``body`` to ``out`` as zstd frames with their index; returns the number of uncompressed bytes and their SHA-256.

    A reader hands out decompressed bytes in pieces of ``CHUNK``, so a small body that grows without end is stopped.
    """
    digest, n_bytes = hashlib.sha256(), 0
    source: Readable = body
    if zstd:
        source = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(body, read_across_frames=True)
    sink = FrameWriter(out, LEVEL)
    try:
        while piece := source.read(CHUNK):
            n_bytes += len(piece)
            if n_bytes > max_bytes:
                raise BlobTooLarge(f"the file has more than {max_bytes:,} bytes", max_bytes=max_bytes)
            digest.update(piece)
            sink.write(piece)
    except zstandard.ZstdError as error:
        raise HashMismatch(f"the body can't be decompressed: {error}") from None
    sink.finish()
    return n_bytes, digest.hexdigest()


def _relative(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}/{sha256}.zst"


def _path(relative: str) -> Path:
    return Path(settings.SPECWEB_EVIDENCE_DIR) / relative
