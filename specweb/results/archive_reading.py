"""Opens an archive from anywhere and believes nothing of it: names, sizes, seals and hashes are checked before a byte is used."""

from __future__ import annotations

import hashlib
import json
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar
from uuid import UUID

import zstandard
from pydantic import BaseModel, ValidationError
from speccore.errors import SpecError

from . import archive_format as form
from .store import CHUNK, MAX_WINDOW

Model = TypeVar("Model", bound=BaseModel)
#: Of all evidence together, unpacked: more would keep a processor busy for minutes.
MOST_EVIDENCE_BYTES = 16 * 1024**3
MOST_DIRECTORY_BYTES = 32 * 1024**2
MOST_PROBLEMS = 100
#: How a zip file ends that has no comment, and how a large one says where to look.
_END, _END64_AT = struct.Struct("<4s4H2LH"), struct.Struct("<4sLQL")
_END64 = struct.Struct("<4sQ2H2L4Q")


class ArchiveInvalid(SpecError):
    """An archive that can't be taken as it is. ``details.problems`` names what is wrong; nothing of it was stored."""

    code = "archive_invalid"
    retry = False
    remedy = "An archive is taken whole, as it was made, or not at all: make it again on its server, or copy it again."

    def __init__(self, *problems: str, remedy: str | None = None) -> None:
        more = f"; and {len(problems) - 3} more" if len(problems) > 3 else ""
        words = "the archive can't be taken: " + "; ".join(problems[:3]) + more
        super().__init__(words, remedy=remedy, problems=list(problems[:MOST_PROBLEMS]))


@dataclass
class Archive:
    """What an archive says, each document decoded; the evidence still lies in the file."""

    zip: zipfile.ZipFile
    manifest: form.ManifestOf
    experiment: form.ExperimentOf
    workloads: dict[str, form.WorkloadOf]
    jobs: list[form.JobOf]
    attempts: list[form.AttemptOf]
    inventories: dict[str, dict[str, Any]]
    analyses: dict[UUID, form.AnalysisOf]
    measurements: dict[UUID, tuple[int, str]]  # attempt → parser version, hash of what it read
    evidence: set[str] = field(default_factory=set)

    def open_evidence(self, sha256: str) -> IO[bytes]:
        """The compressed bytes."""
        return self.zip.open(f"evidence/{sha256}.zst")


@contextmanager
def opened(path: Path) -> Iterator[Archive]:
    """An archive whose every file has the size and the hash that its manifest says. Raises :class:`ArchiveInvalid`."""
    _refuse_a_large_directory(path)
    try:
        with zipfile.ZipFile(path) as file:
            yield _read(file, path.stat().st_size)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, struct.error) as error:
        raise ArchiveInvalid(f"it is no whole zip file: {error}") from None


def _refuse_a_large_directory(path: Path) -> None:
    """Before the list of a zip file's entries is read, which is kept in memory."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _END.size))
        end = file.read(_END.size)
        if len(end) < _END.size or end[:4] != b"PK\5\6":
            raise ArchiveInvalid("it is no zip file as SpecWeb writes it, or its end is missing")
        _, _, _, _, n, n_bytes, _, _ = _END.unpack(end)
        file.seek(max(0, size - _END.size - _END64_AT.size))
        locator = file.read(_END64_AT.size)
        if len(locator) == _END64_AT.size and locator[:4] == b"PK\6\7":
            file.seek(min(_END64_AT.unpack(locator)[2], size))
            end64 = file.read(_END64.size)
            if len(end64) < _END64.size or end64[:4] != b"PK\6\6":
                raise ArchiveInvalid("its end can't be read")
            n, n_bytes = _END64.unpack(end64)[7:9]
    if n > form.MOST_FILES or n_bytes > MOST_DIRECTORY_BYTES:
        raise ArchiveInvalid(f"it names {n:,} files, at most {form.MOST_FILES:,} are taken")


def _read(file: zipfile.ZipFile, size: int) -> Archive:
    infos = file.infolist()
    _refuse(_odd_entries(infos, size))
    by_name = {info.filename: info for info in infos}
    manifest = _manifest(file, by_name)
    told = {entry.path: entry for entry in manifest.files}
    there = set(by_name) - {form.MANIFEST}
    _refuse(
        [
            *([f"{form.MANIFEST} names a file twice"] if len(told) < len(manifest.files) else []),
            *(f"{name} is not in {form.MANIFEST}" for name in sorted(there - told.keys())),
            *(f"{name} is missing" for name in sorted(told.keys() - there)),
            *(
                f"{name} has {by_name[name].file_size:,} bytes, {form.MANIFEST} says {told[name].bytes:,}"
                for name in sorted(there & told.keys())
                if by_name[name].file_size != told[name].bytes
            ),
        ]
    )
    documents = {name: _document(file, told[name]) for name in sorted(told) if not name.startswith(("evidence/", "measurements/"))}
    archive = _decoded(file, manifest, documents)
    # One at a time, since together they are most of an archive, and only their hashes are kept.
    for name in sorted(n for n in told if n.startswith("measurements/")):
        read = _model(form.MeasurementOf, _value(name, _document(file, told[name])), name)
        key = name.removeprefix("measurements/").removesuffix(".json")
        archive.measurements[_uuid(key, name)] = (read.parser_version, measurement_digest(read.numbers))
    _check_evidence(file, archive, told)
    return archive


def _odd_entries(infos: list[zipfile.ZipInfo], size: int) -> Iterator[str]:
    seen: set[str] = set()
    documents = packed = 0
    for info in infos:
        name, mode = info.filename, info.external_attr >> 16
        packed += info.compress_size
        if not form.NAMES.fullmatch(name) or name != info.orig_filename:
            yield f"{name[:80]!r} is no name of a file of an archive"
        if name in seen:
            yield f"{name[:80]!r} is there twice"
        seen.add(name)
        if stat.S_IFMT(mode) not in (0, stat.S_IFREG) or info.flag_bits & 0x1 or info.extra.startswith(b"up"):
            yield f"{name[:80]!r} is no plain file"
        if name.startswith("evidence/"):
            if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
                yield f"{name[:80]!r} is packed twice"
            continue
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            yield f"{name[:80]!r} is packed in a way that is not read here"
        documents += info.file_size
        if info.file_size > form.MOST_DOCUMENT_BYTES:
            yield f"{name[:80]!r} has {info.file_size:,} bytes, at most {form.MOST_DOCUMENT_BYTES:,} are read"
    if documents > form.MOST_DOCUMENTS_BYTES:
        yield f"its documents have {documents:,} bytes, at most {form.MOST_DOCUMENTS_BYTES:,} are read"
    if packed > size:
        yield "its files overlap"


def _manifest(file: zipfile.ZipFile, by_name: dict[str, zipfile.ZipInfo]) -> form.ManifestOf:
    if form.MANIFEST not in by_name:
        raise ArchiveInvalid(f"it has no {form.MANIFEST}")
    raw = _value(form.MANIFEST, _bytes(file, form.MANIFEST))
    if not isinstance(raw, dict) or raw.get("format") != form.FORMAT:
        raise ArchiveInvalid(f"{form.MANIFEST} is not that of an archive of SpecWeb")
    if raw.get("version") != form.VERSION:
        remedy = "Bring this service to the release of the one that made the archive."
        raise ArchiveInvalid(f"it is of version {str(raw.get('version'))[:20]}, version {form.VERSION} is read here", remedy=remedy)
    if not form.seal_holds(raw):
        raise ArchiveInvalid(f"{form.MANIFEST} is not as it was written: its own SHA-256 differs")
    return _model(form.ManifestOf, raw, form.MANIFEST)


def _bytes(file: zipfile.ZipFile, name: str) -> bytes:
    """All of a document, which may not be longer than the directory says."""
    with file.open(name) as entry:
        content = entry.read(form.MOST_DOCUMENT_BYTES + 1)
    if len(content) != file.getinfo(name).file_size:
        raise ArchiveInvalid(f"{name} is longer or shorter than it says")
    return content


def _document(file: zipfile.ZipFile, entry: form.Entry) -> bytes:
    content = _bytes(file, entry.path)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ArchiveInvalid(f"{entry.path} is not as it was written: its SHA-256 differs")
    return content


def _value(name: str, content: bytes) -> Any:
    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is no number")

    try:
        return json.loads(content, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise ArchiveInvalid(f"{name} is no JSON that is read here: {str(error)[:100]}") from None


def _model(kind: type[Model], raw: Any, name: str) -> Model:
    try:
        return kind.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ArchiveInvalid(f"{name} can't be read: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _decoded(file: zipfile.ZipFile, manifest: form.ManifestOf, documents: dict[str, bytes]) -> Archive:
    needed = (form.EXPERIMENT, form.WORKLOADS, form.JOBS, form.ATTEMPTS)
    _refuse(f"{name} is missing" for name in needed if name not in documents)
    experiment = _model(form.ExperimentOf, _value(form.EXPERIMENT, documents[form.EXPERIMENT]), form.EXPERIMENT)
    workloads, jobs = (_value(name, documents[name]) for name in (form.WORKLOADS, form.JOBS))
    if not isinstance(workloads, dict) or not isinstance(jobs, list):
        raise ArchiveInvalid(f"{form.WORKLOADS} is no object, or {form.JOBS} no list")
    lines = documents[form.ATTEMPTS].splitlines()
    if len(lines) > form.MOST_FILES:
        raise ArchiveInvalid(f"it names {len(lines):,} attempts, at most {form.MOST_FILES:,} are taken")
    found = Archive(
        file,
        manifest,
        experiment,
        {str(name): _model(form.WorkloadOf, raw, f"{form.WORKLOADS}: {str(name)[:80]}") for name, raw in workloads.items()},
        [_model(form.JobOf, raw, form.JOBS) for raw in jobs],
        [_model(form.AttemptOf, _value(form.ATTEMPTS, x), f"{form.ATTEMPTS} line {i}") for i, x in enumerate(lines, start=1)],
        {},
        {},
        {},
    )
    for name, content in documents.items():
        folder, _, rest = name.partition("/")
        key, raw = rest.removesuffix(".json"), _value(name, content) if rest else None
        if folder == "inventories":
            found.inventories[key] = raw
        elif folder == "analyses":
            found.analyses[_uuid(key, name)] = _model(form.AnalysisOf, raw, name)
    return found


def measurement_digest(numbers: dict[str, Any]) -> str:
    """Of what was read from an attempt's evidence, but for what may quote an answer, which not everybody gets."""
    probes = [{k: v for k, v in p.items() if k != "check_note"} for p in numbers.get("probes", []) if isinstance(p, dict)]
    return form.digest(numbers | {"probes": probes})


def _uuid(text: str, name: str) -> UUID:
    if not re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text):
        raise ArchiveInvalid(f"{name} is not named after a UUID")
    return UUID(text)


def _check_evidence(file: zipfile.ZipFile, archive: Archive, told: dict[str, form.Entry]) -> None:
    """Each file has the hash that is its name once it is unpacked, and the size that the attempts say."""
    sizes = {f.sha256: f.bytes for a in archive.attempts for f in a.evidence}
    if sum(sizes.values()) > MOST_EVIDENCE_BYTES:
        raise ArchiveInvalid(f"its evidence has {sum(sizes.values()):,} bytes unpacked, at most {MOST_EVIDENCE_BYTES:,} are taken")
    for name, entry in told.items():
        if not name.startswith("evidence/"):
            continue
        sha256 = name.removeprefix("evidence/").removesuffix(".zst")
        if sha256 not in sizes:
            raise ArchiveInvalid(f"{name} is of none of its attempts")
        with file.open(name) as stored:
            outer, inner, n_bytes = _hashes(stored, sizes[sha256])
        if outer != entry.sha256:
            raise ArchiveInvalid(f"{name} is not as it was written: its SHA-256 differs")
        if (inner, n_bytes) != (sha256, sizes[sha256]):
            raise ArchiveInvalid(f"{name} does not hold the {sizes[sha256]:,} bytes with the SHA-256 that it is named by")
        archive.evidence.add(sha256)


class _Hashing:
    """Hands on what it reads, and hashes it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self.sha256 = stream, hashlib.sha256()

    def read(self, n: int = -1) -> bytes:
        piece = self._stream.read(n)
        self.sha256.update(piece)
        return piece


def _hashes(stored: IO[bytes], most: int) -> tuple[str, str, int]:
    """SHA-256 of the bytes as they lie there, and of what is in them with its length; unpacking ends soon after ``most`` bytes."""
    source, inner, n_bytes = _Hashing(stored), hashlib.sha256(), 0
    unpacked = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW).stream_reader(source, read_across_frames=True)
    try:
        while n_bytes <= most and (piece := unpacked.read(CHUNK)):
            n_bytes += len(piece)
            inner.update(piece)
    except zstandard.ZstdError:
        return source.sha256.hexdigest(), "", n_bytes
    while source.read(CHUNK):
        pass
    return source.sha256.hexdigest(), inner.hexdigest(), n_bytes


def _refuse(problems: Any) -> None:
    if found := list(problems):
        raise ArchiveInvalid(*found)
