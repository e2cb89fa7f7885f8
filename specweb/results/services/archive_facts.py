"""What a comparison rests on beside the evidence, and only the server that measured can know: it travels with an archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from speccore.noise_floor import KnownFloor

from specweb.experiments.models import Job, Origin
from specweb.results.models import ArchiveImport, Attempt

from .joining import basis_of
from .noise_floor import floors_of_job


def facts_of(job: Job) -> dict[str, Any]:
    """``shares_machine`` and ``floors`` of a job as plain values."""
    if job.experiment.origin == Origin.IMPORTED:
        return imported_facts(job)
    if job.inventory_id is None:
        return {"shares_machine": False, "floors": {}}  # it ran nowhere
    floors = _floors(job) if job.plan is not None else {}
    return {"shares_machine": shares_machine(job), "floors": {name: floor.model_dump(mode="json") for name, floor in floors.items()}}


def _floors(job: Job) -> dict[str, KnownFloor]:
    """Those that the comparison rests on that is stored with the job, of all jobs whose blocks stand in it; else none."""
    basis = basis_of(job)
    if basis.home.pk != job.pk:
        return {}
    found = Attempt.objects.filter(trial__job__in=basis.blocks, counted=True, accepted=True, measurement__isnull=False)
    rows = found.order_by().values_list("trial__job_id", "trial__block", "trial__arm__is_baseline", "ended_at")
    measured = [(block, is_baseline, ended) for pk, block, is_baseline, ended in rows if block in basis.blocks[pk]]
    last = Job.objects.filter(pk__in=basis.blocks).order_by("-pk").values_list("completed_at", flat=True).first()
    measured_at = min(filter(None, [max((ended for _, _, ended in measured), default=None), last]), default=None)
    n_blocks = len({block for block, is_baseline, _ in measured if is_baseline})
    return floors_of_job(job, job.experiment.parsed_spec, n_blocks, measured_at)


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
