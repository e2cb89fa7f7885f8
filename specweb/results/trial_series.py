"""What the charts of a trial read from its evidence: records and samples, as much of them as one answer can hold. No text is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, Generic, TypeVar

import zstandard
from pydantic import BaseModel, ValidationError
from speccore.records import Sample, StreamRecord

from .evidence_text import capped_lines
from .models import Blob, EvidenceFile
from .store import open_at_line, open_blob

#: Of a file so many bytes are read for a chart, and of a line so many; the rest is told to be left out.
MOST_BYTES = 32 * 1024**2
MOST_LINE_BYTES = 8 * 1024**2

_Shape = TypeVar("_Shape", bound=BaseModel)


class Unreadable(Exception):
    """Nothing can be drawn; the message says why, for people."""


@dataclass
class Read(Generic[_Shape]):
    """Lines that could be read, each with its number from 1; ``n_bad`` could not. ``cut_at``: the line from which nothing was read."""

    lines: list[tuple[int, _Shape]] = field(default_factory=list)
    n_bad: int = 0
    cut_at: int | None = None

    def notes(self, name: str) -> list[str]:
        """What is missing from the lines, in words."""
        found = []
        if self.n_bad:
            found.append(f"{self.n_bad:,} line{'' if self.n_bad == 1 else 's'} of {name} can't be read and {_is(self.n_bad)} left out.")
        if self.cut_at is not None:
            found.append(f"{name} is too large to be read for a chart: it is drawn up to line {self.cut_at - 1:,}.")
        return found


def _is(n: int) -> str:
    return "is" if n == 1 else "are"


def all_records(file: EvidenceFile) -> Read[StreamRecord]:
    """The requests of a trial in their order. Raises :class:`Unreadable`."""
    return _read(file, StreamRecord)


def all_samples(file: EvidenceFile) -> Read[Sample]:
    """The samples of a trial in their order. Raises :class:`Unreadable`."""
    return _read(file, Sample)


def record_at(file: EvidenceFile, line: int) -> StreamRecord:
    """The request at a line. Raises :class:`Unreadable` where there is none, or none that can be read."""
    with _told(file), _opened_at(file.blob, line) as (stream, at):
        for number, raw, n_cut in capped_lines(stream, line, MOST_LINE_BYTES, at):
            if number < line:
                continue
            if n_cut:
                raise Unreadable(f"Line {line:,} of {file.name} is longer than {MOST_LINE_BYTES // 1024**2} MiB, too long to be drawn.")
            try:
                return StreamRecord.model_validate_json(raw)
            except ValidationError:
                raise Unreadable(f"Line {line:,} of {file.name} can't be read as a request: the file is damaged there.") from None
    raise Unreadable(f"{file.name} has no line {line:,}.")


def _read(file: EvidenceFile, shape: type[_Shape]) -> Read[_Shape]:
    found: Read[_Shape] = Read()
    n_bytes = 0
    with _told(file), open_blob(file.blob) as stream:
        for number, raw, n_cut in capped_lines(stream, 1, MOST_LINE_BYTES):
            n_bytes += len(raw) + n_cut
            if n_bytes > MOST_BYTES and number > 1:
                found.cut_at = number
                break
            if not raw.strip():
                continue
            try:
                found.lines.append((number, shape.model_validate_json(raw)))
            except ValidationError:  # of a line that was cut at its most bytes too
                found.n_bad += 1
    return found


@contextmanager
def _opened_at(blob: Blob, line: int) -> Iterator[tuple[BinaryIO, int]]:
    stream, at, _ = open_at_line(blob, line)
    with stream:
        yield stream, at


@contextmanager
def _told(file: EvidenceFile) -> Iterator[None]:
    """A file that is gone or damaged, in words."""
    try:
        yield
    except OSError:
        raise Unreadable(f"{file.name} is not in the store any more.") from None
    except (zstandard.ZstdError, ValueError):
        raise Unreadable(f"The stored {file.name} is damaged: it can't be decompressed.") from None
