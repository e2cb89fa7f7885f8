"""What the pages of published versions read. Everybody may read them; nobody reads more by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from .models import EvidenceFile, Publication


@dataclass(frozen=True)
class Version:
    """A version in the row of its experiment's: what became of it."""

    version: int
    state: str  # newest, corrected, withdrawn
    reason: str  # of the next version, or of the withdrawal
    by: int | None  # the version that corrects it


def versions_of(experiment_id: UUID) -> list[Publication]:
    """All versions of an experiment without their content, oldest first (1 statement)."""
    rows = Publication.objects.filter(experiment=experiment_id).select_related("withdrawal").defer("content")
    return list(rows.order_by("version"))


def publication(experiment_id: UUID, version: int) -> Publication | None:
    """One version with its content (1 statement)."""
    return Publication.objects.filter(experiment=experiment_id, version=version).select_related("withdrawal").first()


def states(versions: Sequence[Publication]) -> dict[int, Version]:
    """What became of each: withdrawn, corrected by the next one that stands, or the newest that stands."""
    found = {}
    for i, v in enumerate(versions):
        later = next((other for other in versions[i + 1 :] if not other.withdrawn), None)
        if v.withdrawn:
            found[v.version] = Version(v.version, "withdrawn", v.withdrawn.reason, None)
        elif later:
            found[v.version] = Version(v.version, "corrected", later.reason, later.version)
        else:
            found[v.version] = Version(v.version, "newest", "", None)
    return found


def published_file(found: Publication, attempt_id: UUID, name: str) -> EvidenceFile | None:
    """The timings of an attempt that a version lists, if they are still those of the hash that it names."""
    for job in found.jobs:
        for file in job["evidence"]:
            if file["attempt"] == str(attempt_id) and file["file"] == name and file["kind"] == "records" and not file["private"]:
                rows = EvidenceFile.objects.select_related("blob").filter(private=False, blob_id=file["sha256"])
                return rows.filter(attempt=attempt_id, name=name).first()
    return None
