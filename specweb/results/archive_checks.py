"""Whether the parts of an archive belong together. No database access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError
from speccore.errors import ErrorBody
from speccore.inventory import HostInventory
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec, read_stored_spec
from speccore.workload import Workload

from .archive_format import AttemptOf, JobOf
from .archive_reading import Archive, ArchiveInvalid


def spec_of(archive: Archive) -> ExperimentSpec:
    try:
        return read_stored_spec(archive.experiment.spec)
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        raise ArchiveInvalid(f"its experiment can't be read here: {str(error)[:200]}") from None


def faults(archive: Archive, spec: ExperimentSpec) -> Iterator[str]:
    if archive.manifest.experiment != archive.experiment.id:
        yield "manifest.json is that of another experiment"
    yield from _workload_faults(archive, spec)
    ids = Counter(j.id for j in archive.jobs)
    yield from (f"job {pk} is there twice" for pk, n in ids.items() if n > 1)
    if not archive.jobs:
        yield "it has no job"
    for job in archive.jobs:
        yield from _job_faults(job, archive, spec)
    yield from _attempt_faults(archive)
    attempts = {a.id for a in archive.attempts}
    yield from (f"measurements/{pk}.json is of none of its attempts" for pk in archive.measurements if pk not in attempts)
    yield from (f"analyses/{pk}.json is of none of its jobs" for pk in archive.analyses if pk not in ids)


def _workload_faults(archive: Archive, spec: ExperimentSpec) -> Iterator[str]:
    for point in spec.points:
        if point.workload not in archive.workloads:
            yield f"workload {point.workload[:80]!r} is missing"
    for name, told in archive.workloads.items():
        if told.content is None:
            continue
        content = _read(Workload, told.content)
        if content is None or content.content_hash() != told.content_hash:
            yield f"workload {name[:80]!r} can't be read, or its content has another hash"
        elif (content.name, content.version) != (told.name, told.version):
            yield f"workload {name[:80]!r} has another name inside"


def _job_faults(job: JobOf, archive: Archive, spec: ExperimentSpec) -> Iterator[str]:
    known = {j.id for j in archive.jobs}
    if (job.retry_of and job.retry_of not in known) or (job.extends and job.extends not in known):
        yield f"job {job.id} names an earlier one that is not in the archive"
    if job.error is not None and _read(ErrorBody, job.error) is None:
        yield f"the error of job {job.id} can't be read"
    for key in {job.inventory, *(x.inventory for x in job.leases)} - {""}:
        if key not in archive.inventories or _read(HostInventory, archive.inventories[key]) is None:
            yield f"the inventory of job {job.id} is missing, or can't be read"
    if len({x.n for x in job.leases}) < len(job.leases):
        yield f"job {job.id} names a lease twice"
    if job.plan is None:
        return
    if not job.inventory:
        yield f"job {job.id} ran on a machine without an inventory"
    plan = _read(JobPlan, job.plan)
    if plan is None:
        yield f"the plan of job {job.id} can't be read"
        return
    arms, points = {a.name for a in spec.arms}, {p.key for p in spec.points}
    if any(t.arm not in arms or not set(t.points) <= points for t in plan.trials):
        yield f"the plan of job {job.id} has arms or points that the experiment doesn't have"
    if len({t.id for t in plan.trials}) < len(plan.trials) or len({t.index for t in plan.trials}) < len(plan.trials):
        yield f"the plan of job {job.id} has a trial twice"


def _attempt_faults(archive: Archive) -> Iterator[str]:
    trials = {j.id: {t.get("id") for t in (j.plan or {}).get("trials", []) if isinstance(t, dict)} for j in archive.jobs}
    leases = {j.id: {x.n for x in j.leases} for j in archive.jobs}
    lacking = {(x.attempt, x.name, x.sha256) for x in archive.manifest.lacking}
    ids = Counter(a.id for a in archive.attempts)
    yield from (f"attempt {pk} is there twice" for pk, n in ids.items() if n > 1)
    accepted = Counter((a.job, a.trial) for a in archive.attempts if a.accepted)
    yield from (f"trial {trial[:80]!r} has {n} attempts that count" for (_, trial), n in accepted.items() if n > 1)
    for a in archive.attempts:
        if a.trial not in trials.get(a.job, set()) or a.lease not in leases.get(a.job, set()):
            yield f"attempt {a.id} is at no trial, or under no lease, of a job of the archive"
        if a.accepted and not (a.counted and a.outcome == "ok"):
            yield f"attempt {a.id} is accepted and did not end well"
        if a.error is not None and _read(ErrorBody, a.error) is None:
            yield f"the error of attempt {a.id} can't be read"
        yield from _file_faults(a, archive, lacking)


def _file_faults(a: AttemptOf, archive: Archive, lacking: set[Any]) -> Iterator[str]:
    if len({f.name for f in a.evidence}) < len(a.evidence):
        yield f"attempt {a.id} names an evidence file twice"
    for f in a.evidence:
        if f.sha256 not in archive.evidence and (a.id, f.name, f.sha256) not in lacking:
            yield f"{f.name} of attempt {a.id} is missing"


def _read(kind: Any, raw: Any) -> Any:
    try:
        return kind.model_validate(raw)
    except (ValidationError, ValueError, TypeError, RecursionError):
        return None
