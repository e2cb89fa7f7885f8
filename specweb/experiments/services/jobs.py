"""The one writer of a job's state, and the leases that say who may work on it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from speccore.errors import ErrorBody, NotAllowed, NotPossible
from speccore.jobstate import HELD, JobState, may_move

from specweb import queue
from specweb.accounts.tokens import hash_of, new_secret
from specweb.experiments.models import Host, Job, JobMove, Lease

_STAMP = {
    JobState.WAITING: None,
    JobState.QUEUED: "queued_at",
    JobState.CLAIMED: "claimed_at",
    JobState.RUNNING: "running_at",
    JobState.STALLED: "stalled_at",
    JobState.COMPLETED: "completed_at",
    JobState.PROCESSED: "processed_at",
    JobState.FAILED: "ended_at",
    JobState.CANCELLED: "ended_at",
}
#: Nobody works on these, as far as is known: an agent that is silent learns it when it comes back.
NOT_AT_WORK = (JobState.WAITING, JobState.QUEUED, JobState.STALLED)
PAUSABLE = (JobState.WAITING, JobState.QUEUED, *HELD)


def move_job(
    job_id: UUID,
    to: JobState,
    *,
    now: datetime,
    by: str,
    reason: str = "",
    sources: Collection[JobState] | None = None,
    **frozen: Any,
) -> bool:
    """Moves a job if the table of moves (and ``sources``) allow it from the state that it is in.

    ``frozen`` are columns that change with the state. Returns False if the job is elsewhere or somebody was first.
    """
    with transaction.atomic():
        current = Job.objects.filter(pk=job_id).values_list("state", flat=True).first()
        if current is None or not may_move(src := JobState(current), to) or (sources is not None and src not in sources):
            return False
        changes: dict[str, Any] = {"state": to.value, "reason": reason, **frozen}
        if stamp := _STAMP[to]:
            changes[stamp] = now
        if to not in HELD:
            changes["progress"] = None
        if Job.objects.filter(pk=job_id, state=src.value).update(**changes) != 1:
            return False
        JobMove.objects.create(job_id=job_id, src=src.value, dst=to.value, at=now, by=by, reason=reason)
        if to not in HELD:
            Lease.objects.filter(job_id=job_id, released_at=None).update(released_at=now)
    return True


def fail_job(job_id: UUID, error: ErrorBody, *, now: datetime, by: str, sources: Collection[JobState] | None = None) -> bool:
    """Moves a job to failed with its error, typed for programs and in words for people."""
    return move_job(job_id, JobState.FAILED, now=now, by=by, reason=error.message, sources=sources, error=error.model_dump(mode="json"))


def claim_next_job(host: Host, now: datetime) -> tuple[Job, Lease, str] | None:
    """The job that ``host`` shall work on, with a new lease and its secret.

    A job that the host holds already comes first: a host that asks while it holds one has lost the reply or its memory.
    """
    for job in _candidates(host):
        granted = _grant(job, host, now)
        if granted:
            return job, *granted
    return None


def _candidates(host: Host) -> list[Job]:
    jobs = Job.objects.filter(host=host).select_related("experiment", "runtime", "target")
    return [*jobs.filter(state__in=[s.value for s in HELD]), *jobs.filter(state=JobState.QUEUED.value).order_by("queued_at")]


def _grant(job: Job, host: Host, now: datetime) -> tuple[Lease, str] | None:
    with transaction.atomic():
        # The row lock orders two polls of one host; who comes second finds the job claimed and gets a newer lease.
        state = Job.objects.select_for_update().filter(pk=job.pk).values_list("state", flat=True).first()
        if state == JobState.QUEUED.value:
            if job.state != state or not move_job(job.pk, JobState.CLAIMED, now=now, by=host.name):
                return None
        elif state != job.state or JobState(state) not in HELD:
            return None
        secret, digest = new_secret("lease")
        n = 1 + Lease.objects.filter(job=job).count()
        Lease.objects.filter(job=job, released_at=None).update(released_at=now)
        return Lease.objects.create(job=job, n=n, host=host, token_hash=digest, granted_at=now), secret


def lease_of(host: Host, secret: str, job_id: UUID | str | None = None) -> Lease:
    """The lease behind a token, newest or not. Raises :class:`NotAllowed` if it isn't this host's (or not this job's)."""
    lease = Lease.objects.filter(token_hash=hash_of(secret)).select_related("job").first() if secret else None
    if lease is None or lease.host_id != host.pk or (job_id is not None and str(lease.job_id) != str(job_id)):
        raise NotAllowed("the lease token is none of this host's", remedy="Send the lease token that came with the job (X-Lease-Token).")
    return lease


def is_newest(lease: Lease) -> bool:
    """Whether no later lease of the same job was granted."""
    return not Lease.objects.filter(job_id=lease.job_id, n__gt=lease.n).exists()


def request_cancel(job: Job, *, now: datetime, by: str) -> bool:
    """Cancels a job: at once if no agent works on it, else the agent is told at its next poll. False if it has ended.

    A stalled job's agent is told when it comes back; until then nobody has to wait for it.
    """
    if move_job(job.pk, JobState.CANCELLED, now=now, by=by, reason=f"cancelled by {by}", sources=NOT_AT_WORK):
        return True
    held = Job.objects.filter(pk=job.pk, state__in=[s.value for s in HELD], cancel_requested_at=None)
    return bool(held.update(cancel_requested_at=now, cancel_requested_by=by))


def request_pause(job: Job, *, now: datetime, by: str) -> bool:
    """Lets a job rest: its agent after the trial that runs, one that no agent holds before it is handed out.

    False if it rests already or is done.
    """
    open_ = Job.objects.filter(pk=job.pk, state__in=[s.value for s in PAUSABLE], pause_requested_at=None)
    return bool(open_.update(pause_requested_at=now, pause_requested_by=by))


def resume_job(job: Job, *, now: datetime, by: str) -> bool:
    """Ends a job's pause. False if it had none."""
    resumed = Job.objects.filter(pk=job.pk).exclude(pause_requested_at=None).update(pause_requested_at=None, pause_requested_by="")
    if resumed:
        queue.send("dispatch")
    return bool(resumed)


def retry_job(job: Job, *, now: datetime, by: str) -> Job:
    """A new, waiting job in the place of one that failed or was cancelled, which stays as history.

    Raises :class:`NotPossible` if the job has not failed, was retried before, or wants a host that was revoked.
    """
    old = Job.objects.select_related("wanted_host").get(pk=job.pk)
    if old.state not in (JobState.FAILED, JobState.CANCELLED):
        raise NotPossible(f"job {old.pk} is {old.state}", remedy="Only a job that failed or was cancelled can be retried.")
    if old.wanted_host and old.wanted_host.revoked_at:
        raise NotPossible(f"{old.wanted_host}, which the job asks for, was revoked", remedy="Submit the experiment for another host.")
    try:
        with transaction.atomic():
            new = Job.objects.create(
                experiment_id=old.experiment_id,
                wanted_host=old.wanted_host,
                retry_of=old,
                reason=f"waits to be dispatched again, as {by} asked",
            )
            transaction.on_commit(lambda: queue.send("dispatch"))
    except IntegrityError:
        raise NotPossible(f"job {old.pk} was retried already", remedy="Look at the retry, the newest job of the experiment.") from None
    return new
