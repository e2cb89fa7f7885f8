"""The files of an attempt on disk: written whole, described by their hashes, read back for measuring."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from pydantic import BaseModel
from speccore import records
from speccore.protocol import EvidenceKind, EvidenceRef

from .filecache import file_sha256

KINDS: dict[str, EvidenceKind] = {
    records.LOG: "log",
    records.LAUNCH: "launch",
    records.MANIFEST: "manifest",
    records.RECORDS: "records",
    records.TEXTS: "texts",
    records.METRICS: "metrics",
    records.SAMPLES: "samples",
    records.ATTEMPT: "attempt",
    records.FIT: "attempt",
    records.SECOND_LOOK: "texts",
    records.CONTINUATIONS: "texts",
}
#: Files that hold prompts or answers.
PRIVATE = frozenset({records.TEXTS, records.SECOND_LOOK, records.CONTINUATIONS})


def write_json(path: Path, model: BaseModel) -> None:
    write_whole(path, model.model_dump_json(indent=1).encode() + b"\n")


def write_lines(path: Path, models: Iterable[BaseModel], *, sparse: bool = False) -> None:
    """``sparse``: what is not known is left out."""
    write_whole(path, b"".join(m.model_dump_json(exclude_none=sparse, exclude_defaults=sparse).encode() + b"\n" for m in models))


def write_whole(path: Path, data: bytes) -> None:
    """After this the file is there with all of its bytes, also after a power cut, or it is not there."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def refs(folder: Path) -> list[EvidenceRef]:
    """Name, kind, hash and size of each evidence file that is there."""
    return [
        EvidenceRef(name=name, kind=kind, sha256=file_sha256(folder / name), bytes=(folder / name).stat().st_size, private=name in PRIVATE)
        for name, kind in KINDS.items()
        if (folder / name).is_file()
    ]


def read(folder: Path) -> dict[str, bytes]:
    """The evidence of an attempt's folder by name, as the measuring takes it."""
    return {name: (folder / name).read_bytes() for name in KINDS if (folder / name).is_file()}
