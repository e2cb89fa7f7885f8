"""What a report to paste reads beside the page: the hashes of all evidence that counts."""

from __future__ import annotations

from dataclasses import dataclass

from specweb.experiments.models import Job

from .models import EvidenceFile


@dataclass(frozen=True)
class EvidenceHash:
    """``attempt``: the trial's name in the plan and the number of the try, e.g. ``b1-off.1``."""

    attempt: str
    name: str
    sha256: str


def evidence_hashes(job: Job) -> list[EvidenceHash]:
    """Of the attempts of a job that count, in the order of its trials (1 statement)."""
    files = EvidenceFile.objects.filter(attempt__trial__job=job, attempt__accepted=True).order_by("attempt__trial__index", "name")
    rows = files.values_list("attempt__trial__plan_id", "attempt__n", "name", "blob_id")
    return [EvidenceHash(f"{trial}.{n}", name, sha256) for trial, n, name, sha256 in rows]
