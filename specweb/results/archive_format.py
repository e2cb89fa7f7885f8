"""What an archive of an experiment holds, and its limits. Documents are JSON with sorted keys; docs/export.md tells of them."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import Field
from speccore.inventory import Peer
from speccore.jobstate import JobState

FORMAT, VERSION = "specweb-archive", 1
MANIFEST, README, EXPERIMENT, WORKLOADS, JOBS = "manifest.json", "README.txt", "experiment.json", "workloads.json", "jobs.json"
ATTEMPTS, COMPARISONS = "attempts.jsonl", "comparisons.json"
#: The only names that an archive may hold.
NAMES = re.compile(
    r"manifest\.json|README\.txt|experiment\.json|workloads\.json|jobs\.json|attempts\.jsonl|comparisons\.json"
    r"|inventories/[0-9a-f]{64}\.json|measurements/[0-9a-f-]{36}\.json|analyses/[0-9a-f-]{36}\.json|evidence/[0-9a-f]{64}\.zst"
)
#: An archive of more files is not taken.
MOST_FILES = 100_000
#: Of one document, and of all of them together, uncompressed.
MOST_DOCUMENT_BYTES, MOST_DOCUMENTS_BYTES = 64 * 1024**2, 1024**3
_HASH = r"^[0-9a-f]{64}$"
README_TEXT = """An experiment of SpecWeb as it was when this was made. manifest.json names every file with its SHA-256.

experiment.json   what was asked
workloads.json    the prompts, or their hashes where they are not for whom this was made
jobs.json         where it ran, with what, under which plan; inventories/ what those machines were
attempts.jsonl    each try at a trial with the names and hashes of its evidence
evidence/         the raw files, zstd; each is named by the SHA-256 of what is inside
measurements/     what was read from the evidence of each attempt
analyses/         what was computed for each job; comparisons.json the same in short

Take it back with: python manage.py import_archive FILE --team TEAM
"""


class Entry(Peer):
    """A file of the archive, by its bytes as they lie in it once they are unpacked."""

    path: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern=_HASH)


class Lacking(Peer):
    """Evidence that was not given to whom the archive was made for: its hash only."""

    attempt: UUID
    name: str
    sha256: str = Field(pattern=_HASH)
    bytes: int
    reason: str


class ManifestOf(Peer):
    """``sha256`` is of this document as canonical JSON without that field."""

    format: Literal["specweb-archive"]
    version: int
    server: str = Field(max_length=300)
    release: str = Field(max_length=40)
    parser_version: int
    analysis_version: int
    experiment: UUID
    lacking: list[Lacking] = Field(default=[], max_length=MOST_FILES)
    files: list[Entry] = Field(max_length=MOST_FILES)
    sha256: str = Field(pattern=_HASH)


class ExperimentOf(Peer):
    id: UUID
    name: str
    question: str = ""
    visibility: str = ""
    origin: str = ""
    measured_on: str = ""  # the server that measured it, if not the one that made the archive
    team: str = ""
    created_by: str = ""
    created_at: datetime
    spec: dict[str, Any]
    spec_hash: str


class WorkloadOf(Peer):
    """``content`` None: withheld, and why."""

    name: str
    version: int
    title: str = ""
    builtin: bool = False
    content_hash: str = Field(pattern=_HASH)
    content: dict[str, Any] | None = None
    withheld: str = ""


class LeaseOf(Peer):
    n: int
    inventory: str = ""
    granted_at: datetime
    taken_up_at: datetime | None = None
    released_at: datetime | None = None


class JobOf(Peer):
    """``inventory``: the hash under which it stands in the archive. ``moments``: when it came into which state."""

    id: UUID
    state: JobState
    reason: str = ""
    error: dict[str, Any] | None = None
    host: str = ""
    inventory: str = ""
    runtime_hash: str = ""
    target_hash: str = ""
    draft_hashes: dict[str, str] = {}
    device_uuids: list[str] = []
    commands: dict[str, Any] = {}
    plan: dict[str, Any] | None = None
    retry_of: UUID | None = None
    extends: UUID | None = None
    blocks: list[int] | None = None
    block_runs: dict[str, int] = {}
    looked_after: int = 0
    decided: dict[str, int] = {}
    moments: dict[str, datetime | None] = {}
    leases: list[LeaseOf] = Field(default=[], max_length=10_000)
    moves: list[dict[str, Any]] = []
    shares_machine: bool = False
    floors: dict[str, Any] = {}


class EvidenceOf(Peer):
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,119}$")
    kind: str = Field(max_length=20)
    sha256: str = Field(pattern=_HASH)
    bytes: int = Field(ge=0)
    private: bool = False


class AttemptOf(Peer):
    id: UUID
    job: UUID
    trial: str
    n: int = Field(ge=1)
    lease: int = Field(ge=0)
    state: str = ""
    outcome: Literal["ok", "failed", "cancelled"]
    block_run: int = Field(default=1, ge=1)
    counted: bool
    accepted: bool
    void_reason: str = ""
    error: dict[str, Any] | None = None
    boot_id: str = Field(default="", max_length=64)
    started_at: datetime
    ended_at: datetime
    durations_s: dict[str, float] = {}
    received_at: datetime
    evidence: list[EvidenceOf] = Field(default=[], max_length=1_000)


class MeasurementOf(Peer):
    parser_version: int
    numbers: dict[str, Any]


class AnalysisOf(Peer):
    analysis_version: int
    numbers: dict[str, Any]


def document(content: Any) -> bytes:
    """Canonical JSON: sorted keys, no spaces, UTF-8."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(content: Any) -> str:
    return hashlib.sha256(document(content)).hexdigest()


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    return manifest | {"sha256": digest(manifest)}


def seal_holds(manifest: dict[str, Any]) -> bool:
    return manifest.get("sha256") == digest({k: v for k, v in manifest.items() if k != "sha256"})
