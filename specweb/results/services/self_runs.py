"""Takes a run that somebody's own agent made without this service, whole or not at all, as an experiment marked *self-run*."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid5

from django.db import IntegrityError, transaction
from speccore.errors import EngineError, ErrorBody, NotAllowed, SpecError
from speccore.jobstate import JobState
from speccore.protocol import AttemptReport
from speccore.selfrun import NO_LEASE, RunInvalid, RunUpload, SelfRun, read_run
from speccore.workload import Workload as WorkloadContent

from specweb import queue
from specweb.accounts.models import Team, User
from specweb.accounts.tokens import new_secret
from specweb.experiments.models import Experiment, HostInventory, Job, Lease, Model, Origin, Runtime, Visibility, Workload
from specweb.experiments.services.hosts import self_run_host
from specweb.experiments.services.jobs import fail_job, move_job
from specweb.experiments.services.submission import seed_workload, store_experiment
from specweb.results.models import Attempt
from specweb.results.store import held_blob

from .reports import create_trials, report_attempt

_PEOPLE = UUID("5be0fd2a-33e0-4b37-9d4c-2c9c8ff7f1a1")
#: Attempts of a run come at one moment; this keeps the order in which they ended.
_STEP = timedelta(microseconds=1)


@dataclass(frozen=True)
class PersonSending:
    """A person who sends evidence files for a team; what is half sent is told apart by ``pk``."""

    pk: UUID
    team: Team


def sender_of(user: User, team: Team) -> PersonSending:
    return PersonSending(uuid5(_PEOPLE, f"{user.pk}/{team.pk}"), team)


@dataclass(frozen=True)
class Taken:
    experiment: Experiment
    job: Job
    created: bool


def take_run(upload: RunUpload, team: Team, user: User, now: datetime) -> Taken | list[str]:
    """Stores a run as an experiment, or returns the hashes of the files to send first, and then nothing is stored.

    A run that is here already is returned as it is. Raises :class:`RunInvalid` for one that is not whole, or not as it was
    measured, and :class:`NotAllowed` for one that another team has uploaded.
    """
    run = read_run(upload)
    job_id = _job_id(run)
    if known := _known(job_id, team):
        return known
    refs = [ref for report in run.reports for ref in report.evidence]
    if missing := sorted({ref.sha256 for ref in refs if held_blob(ref.sha256, team) is None}):
        return missing
    try:
        with transaction.atomic():
            return _store(run, job_id, team, user, Visibility(upload.visibility), now)
    except IntegrityError:
        if known := _known(job_id, team):  # the same run was sent twice at once, and the other was first
            return known
        raise


def _job_id(run: SelfRun) -> UUID:
    try:
        return UUID(run.offer.job_id)
    except ValueError:
        raise RunInvalid(f"the run's job id {run.offer.job_id[:60]!r} is no UUID") from None


def _known(job_id: UUID, team: Team) -> Taken | None:
    job = Job.objects.filter(pk=job_id).select_related("experiment").first()
    if job is None:
        return None
    if job.experiment.team_id != team.pk or job.experiment.origin != Origin.SELF_RUN:
        raise NotAllowed("this run is here already, and not as one of your team", remedy="Ask who uploaded it.")
    return Taken(job.experiment, job, created=False)


def _store(run: SelfRun, job_id: UUID, team: Team, user: User, visibility: Visibility, now: datetime) -> Taken:
    workloads = {name: _workload(content, team, user) for name, content in run.workloads.items() if name in run.offer.plan.workloads}
    experiment = store_experiment(run.spec, team, user, visibility, workloads, submission_key=job_id, origin=Origin.SELF_RUN)
    inventory = self_run_host(team, run.inventory, run.inventory_hash, now)
    by = f"upload by {user.get_username()}"[:150]
    job = Job.objects.create(pk=job_id, experiment=experiment, reason="is being uploaded", decided=run.index.decided)
    lease = _as_if_run(job, run, inventory, now, by)
    for i, report in enumerate(run.reports, start=1):
        _report(lease, report, now + i * _STEP)
    _end(job, run, now + (len(run.reports) + 1) * _STEP, by)
    transaction.on_commit(lambda: queue.send("compare_job", str(job_id)))
    job.refresh_from_db()
    return Taken(experiment, job, created=True)


def _workload(content: WorkloadContent, team: Team, user: User) -> Workload:
    """The stored workload with this content, stored now as the sender's own if it isn't there. A built-in set's name is no free name."""
    if row := Workload.objects.of_team(team).filter(content_hash=content.content_hash()).order_by("team_id").first():
        return row
    if Workload.objects.filter(team=None, name=content.name).exists():
        raise RunInvalid(
            f"workload {content.ref!r} of the run is not the one that this service has under that name",
            remedy="Bring agent and service to the same release, or give a workload of your own a name of its own; then run again.",
        )
    try:
        return seed_workload(content, team, user)
    except SpecError as error:
        raise RunInvalid(error.message, remedy=error.remedy_text) from error


def _as_if_run(job: Job, run: SelfRun, inventory: HostInventory, now: datetime, by: str) -> Lease:
    """Takes the job along the states that one on a host goes through, and gives it the lease that its reports name."""
    offer, host = run.offer, inventory.host
    steps = {"now": now, "by": by}
    move_job(
        job.pk,
        JobState.QUEUED,
        reason=f"run on {host.name}",
        host=host,
        inventory=inventory,
        runtime=Runtime.objects.filter(manifest_hash=offer.runtime_hash).first(),
        target=Model.objects.filter(manifest_hash=offer.target_hash).first(),
        draft_hashes=offer.draft_hashes,
        device_uuids=offer.device_uuids,
        commands=offer.commands,
        plan=offer.plan.model_dump(mode="json"),
        **steps,
    )
    job.refresh_from_db()
    create_trials(job, offer.plan)
    move_job(job.pk, JobState.CLAIMED, **steps)
    _, nobodys = new_secret("lease")
    lease = Lease.objects.create(
        job=job, n=NO_LEASE, host=host, inventory=inventory, token_hash=nobodys, granted_at=run.index.started_at, taken_up_at=now
    )
    move_job(job.pk, JobState.RUNNING, **steps)
    return lease


def _report(lease: Lease, report: AttemptReport, now: datetime) -> None:
    if Attempt.objects.filter(pk=report.attempt_id).exists():
        raise RunInvalid(f"attempt {report.attempt_id} is here already, as one of another run")
    reply = report_attempt(lease.host, lease, report, now)
    if reply.missing:
        raise RunInvalid(f"evidence of attempt {report.attempt_id} went away while it was stored", remedy="Upload the run again.")


def _end(job: Job, run: SelfRun, now: datetime, by: str) -> None:
    index = run.index
    if index.outcome == "completed":
        why = "until every arm was decided" if index.decided and index.budget_s is None else "in the time it was given"
        whole = f"; {index.n_blocks} of {run.spec.blocks} blocks {why}" if index.n_blocks < run.spec.blocks else ""
        move_job(job.pk, JobState.COMPLETED, now=now, by=by, reason=f"self-run, uploaded{whole}; the numbers are being computed")
    elif index.outcome == "cancelled":
        move_job(job.pk, JobState.CANCELLED, now=now, by=by, reason="the run was stopped before its end")
    else:
        fail_job(job.pk, index.error or _unexplained(), now=now, by=by)


def _unexplained() -> ErrorBody:
    return EngineError("the run failed and named no reason", remedy="Read the attempts' logs.").body()
