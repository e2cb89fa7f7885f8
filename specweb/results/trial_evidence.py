"""What a trial's page reads from stored evidence: launch, manifest, summary, passages of the log. Missing or damaged: None."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypeVar

import zstandard
from pydantic import BaseModel, ValidationError

from . import evidence_text
from .models import EvidenceFile
from .store import open_blob

_Shape = TypeVar("_Shape", bound=BaseModel)

#: Documents up to this size are read for the page, and logs up to the other.
MAX_DOCUMENT_BYTES = 4 * 1024**2
MAX_LOG_BYTES = 16 * 1024**2


def document(files: Sequence[EvidenceFile], name: str, shape: type[_Shape]) -> _Shape | None:
    """A JSON document of the attempt."""
    content = _content(files, name)
    if content is None:
        return None
    try:
        return shape.model_validate_json(content)
    except ValidationError:
        return None


def passages(files: Sequence[EvidenceFile], name: str, wanted: Collection[int], around: int) -> list[list[evidence_text.Line]]:
    """Lines of a file with what stands around them; none if the file is too large to be read on the way."""
    file = next((f for f in files if f.name == name), None)
    if file is None or file.blob.bytes > MAX_LOG_BYTES or not wanted:
        return []
    try:
        with open_blob(file.blob) as stream:
            return evidence_text.read_around(stream, wanted, around)
    except (OSError, zstandard.ZstdError):
        return []


def _content(files: Sequence[EvidenceFile], name: str) -> bytes | None:
    file = next((f for f in files if f.name == name), None)
    if file is None or file.blob.bytes > MAX_DOCUMENT_BYTES:
        return None
    try:
        with open_blob(file.blob) as stream:
            return stream.read(MAX_DOCUMENT_BYTES)
    except (OSError, zstandard.ZstdError):
        return None
