"""What a comparison rests on beside the evidence, and only the server that measured can know: it travels with an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.db.models import Max
from speccore.noise_floor import KnownFloor

from specweb.experiments.models import Job, Origin
from specweb.results.models import ArchiveImport, Attempt

from .noise_floor import floors_of_job


def facts_of(job: Job) -> dict[str, Any]:
    """``shares_machine`` and ``floors`` of a job as plain values."""
    if job.experiment.origin == Origin.IMPORTED:
        return imported_facts(job)
    found = Attempt.objects.filter(trial__job=job, accepted=True, measurement__isnull=False)
    blocks = found.filter(trial__arm__is_baseline=True).order_by().values("trial__block").distinct().count()
    ended = found.aggregate(at=Max("ended_at"))["at"]
    measured_at = min(filter(None, [ended, job.completed_at]), default=None)
    floors = floors_of_job(job, job.experiment.parsed_spec, blocks, measured_at)
    return {"shares_machine": shares_machine(job), "floors": {name: floor.model_dump(mode="json") for name, floor in floors.items()}}


def imported_facts(job: Job) -> dict[str, Any]:
    """As the archive told them; of no other job."""
    came = ArchiveImport.objects.filter(experiment=job.experiment_id).first()
    kept: dict[str, Any] = (came.facts if came else {}).get(str(job.pk), {})
    return {"shares_machine": bool(kept.get("shares_machine")), "floors": dict(kept.get("floors", {}))}


def imported_floors(facts: dict[str, Any]) -> dict[str, KnownFloor]:
    return {name: KnownFloor.model_validate(kept) for name, kept in facts["floors"].items()}


def shares_machine(job: Job) -> bool:
    """Whether the engine ran on the machine that this service runs on: both then name the same boot."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return False
    return job.inventory is not None and job.inventory.content.get("boot_id", "").strip() == boot_id
