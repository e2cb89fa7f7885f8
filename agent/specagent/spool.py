"""Finished attempts on disk until the server has acknowledged them: compressed files named by their hash, and the report."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard
from speccore.protocol import AttemptReport, EvidenceRef

from . import evidence
from .attempt_files import AttemptDone

log = logging.getLogger(__name__)

_KEPT_UNFINISHED = 20  # attempts; older ones would fill the disk in the end
_LEVEL = 6
_REPORT, _LEASE = "report.json", "lease.json"


@dataclass(frozen=True)
class Spooled:
    """One attempt that waits for delivery."""

    folder: Path
    report: AttemptReport
    lease_token: str

    def blob(self, ref: EvidenceRef) -> Path:
        return self.folder / f"{ref.sha256}.zst"


class Spool:
    """``work`` holds what is being measured, ``attempts`` what waits, ``refused`` what the server will never take."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.work = root / "work"
        self._attempts = root / "attempts"
        self._refused = root / "refused"
        for folder in (self.work, self._attempts, self._refused):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def put_unfinished_aside(self) -> list[Path]:
        """Work that an agent left when it was killed. It is kept, and it is no result."""
        for part in self._attempts.glob("*.part"):
            shutil.rmtree(part)  # its work folder is still whole: the rename came never; or the server has it
        aside = self._root / "unfinished"
        moved = []
        try:
            for folder in sorted(self.work.iterdir()):
                aside.mkdir(exist_ok=True)
                moved.append(Path(shutil.move(folder, aside / folder.name)))
            for folder in sorted(aside.iterdir() if aside.exists() else [], key=lambda f: f.stat().st_mtime)[:-_KEPT_UNFINISHED]:
                shutil.rmtree(folder)
        except OSError as error:  # where it lies it is in nobody's way either
            log.warning("unfinished work stays in %s: %s", self.work, error.strerror)
        return moved

    def store(self, done: AttemptDone, lease_token: str) -> Spooled:
        """After this the attempt survives a power cut. Raises OSError, and then nothing is there but its work folder, as before."""
        part = self._attempts / f"{self._next_number():08d}-{done.report.attempt_id}.part"
        try:
            part.mkdir(mode=0o700)
            for ref in done.report.evidence:
                compress(done.folder / ref.name, part / f"{ref.sha256}.zst")
            evidence.write_json(part / _REPORT, done.report)
            evidence.write_whole(part / _LEASE, json.dumps({"token": lease_token}).encode())
            folder = part.with_suffix("")
            os.rename(part, folder)
        except OSError:
            shutil.rmtree(part, ignore_errors=True)
            raise
        evidence.sync_folder(self._attempts)
        shutil.rmtree(done.folder)
        return Spooled(folder, done.report, lease_token)

    def waiting(self) -> list[Spooled]:
        """What waits, in the order in which it was stored: no clock has a say in it."""
        return sorted(self._read_all(), key=lambda s: s.folder.name)

    def remove(self, spooled: Spooled) -> None:
        """The server has it. Half a folder, left by an agent that was killed here, would wait for ever: its new name says that it is none."""
        part = spooled.folder.with_name(spooled.folder.name + ".part")
        os.rename(spooled.folder, part)
        shutil.rmtree(part)

    def refuse(self, spooled: Spooled, reason: str) -> None:
        """The server will never take it: kept for a person, out of the way of the others."""
        with contextlib.suppress(OSError):  # a full disk must not keep it in the way
            evidence.write_whole(spooled.folder / "reason.txt", f"{reason}\n".encode())
        os.rename(spooled.folder, self._refused / spooled.folder.name)

    def n_bytes(self) -> int:
        """What waits, in bytes. Another thread may deliver meanwhile, so files may go while they are counted."""
        total = 0
        for folder, _, names in os.walk(self._attempts):
            for name in names:
                with contextlib.suppress(FileNotFoundError):
                    total += os.path.getsize(os.path.join(folder, name))
        return total

    def next_attempt(self, job_id: str, trial: str) -> int:
        """Counts attempts at a trial of a job over restarts of the agent."""
        store = self._root / "attempt-numbers.json"
        try:
            numbers = json.loads(store.read_text())
        except (OSError, ValueError):
            numbers = {}
        # a host runs one job at a time, so the numbers of others are not needed any more
        of_job = numbers.get(job_id, {})
        of_job[trial] = of_job.get(trial, 0) + 1
        evidence.write_whole(store, json.dumps({job_id: of_job}).encode())
        return int(of_job[trial])

    def _next_number(self) -> int:
        numbers = [int(found[0]) for folder in self._attempts.iterdir() if (found := re.match(r"\d+(?=-)", folder.name))]
        return max(numbers, default=0) + 1

    def _read_all(self) -> Iterator[Spooled]:
        for folder in self._attempts.iterdir():
            if folder.suffix == ".part":
                continue
            try:
                report = AttemptReport.model_validate_json((folder / _REPORT).read_bytes())
                token = json.loads((folder / _LEASE).read_text())["token"]
            except FileNotFoundError:  # delivered meanwhile, by another thread
                continue
            except (ValueError, KeyError, TypeError) as error:  # damaged: it must not keep the others from delivery
                log.error("%s can't be read and is put aside: %s", folder, error)
                with contextlib.suppress(OSError):  # another thread was first
                    os.rename(folder, self._refused / folder.name)
                continue
            yield Spooled(folder, report, token)


def compress(source: Path, target: Path) -> None:
    """One zstd frame with the content's size, written through to the disk."""
    size = source.stat().st_size
    with source.open("rb") as src, target.open("wb") as dst:
        zstandard.ZstdCompressor(level=_LEVEL).copy_stream(src, dst, size=size)
        dst.flush()
        os.fsync(dst.fileno())


def decompressed(path: Path) -> bytes:
    with path.open("rb") as f, zstandard.ZstdDecompressor().stream_reader(f) as reader:
        return bytes(reader.read())
