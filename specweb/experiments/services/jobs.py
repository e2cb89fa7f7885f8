"""The one writer of a job's state, and the leases that say who may work on it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import IntegrityError, transaction
from django.db.models import Max
from speccore.errors import AgentKeepsDying, ErrorBody, HostError, NotAllowed, NotPossible
from speccore.jobstate import FINAL, HELD, JobState, may_move

from specweb import queue
from specweb.accounts import audit
from specweb.accounts.tokens import hash_of, new_secret
from specweb.experiments.models import Host, Job, JobMove, Lease, Origin

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

#: Leases in a row that an agent took up and under which no attempt ended, until the job is given up …
MAX_FRUITLESS_LEASES = 5
#: … and leases of which nothing more was heard; more, since a reply may be lost on its way without any fault of the agent.
MAX_UNHEARD_LEASES = 20

Claim = tuple[Job, Lease, str]


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


def claim_next_job(host: Host, now: datetime, *, on_granted: Callable[[Job, Lease], None] = lambda job, lease: None) -> Claim | None:
    """The job that ``host`` shall work on, with a new lease and its secret.

    A job that the host holds already comes first, even if the host takes no new ones: a host that asks while it holds one
    has lost the reply or its memory. ``on_granted(job, lease)`` runs in the transaction that grants the lease; if it raises
    a :class:`HostError`, the job fails with it, and so does one whose agent keeps dying.
    """
    for job_id, state in _candidates(host):
        try:
            granted = _grant(job_id, state, host, now, on_granted)
        except HostError as error:
            fail_job(job_id, error.body(), now=now, by=host.name)
            continue
        if granted:
            return granted
    return None


def _candidates(host: Host) -> list[tuple[UUID, str]]:
    """Jobs with their states: those that the host holds, then those that are queued on it, oldest first, at last what gives way."""
    states = [JobState.QUEUED.value, *(s.value for s in HELD)]
    jobs = Job.objects.filter(host=host, state__in=states).exclude(state=JobState.QUEUED.value, pause_requested_at__isnull=False)
    found = list(jobs.order_by("gives_way", "queued_at", "id").values_list("pk", "state"))
    return sorted(found, key=lambda job: job[1] == JobState.QUEUED)


def _grant(job_id: UUID, state: str, host: Host, now: datetime, on_granted: Callable[[Job, Lease], None]) -> Claim | None:
    with transaction.atomic():
        # The host's lock orders this with its revocation and draining, the job's with other polls: who comes second finds
        # the job claimed and gets a newer lease.
        here = Host.objects.select_for_update(no_key=True).filter(pk=host.pk, revoked_at=None).first()
        locked = Job.objects.select_for_update(of=("self",)).select_related("experiment", "runtime", "target").filter(pk=job_id).first()
        if here is None or locked is None or locked.host_id != host.pk or locked.state != state:
            return None
        if locked.state == JobState.QUEUED:
            if here.drain_requested_at or locked.pause_requested_at:
                return None
            move_job(locked.pk, JobState.CLAIMED, now=now, by=host.name)
        elif JobState(locked.state) not in HELD:
            return None
        elif locked.cancel_requested_at:
            # An agent that asks for work no longer works on it.
            by = locked.cancel_requested_by
            move_job(locked.pk, JobState.CANCELLED, now=now, by=by or host.name, reason=f"cancelled by {by}" if by else "cancelled")
            return None
        _refuse_an_agent_that_keeps_dying(locked)
        secret, digest = new_secret("lease")
        n = 1 + Lease.objects.filter(job=locked).count()
        Lease.objects.filter(job=locked, released_at=None).update(released_at=now)
        lease = Lease.objects.create(job=locked, n=n, host=host, inventory=host.inventory, token_hash=digest, granted_at=now)
        on_granted(locked, lease)
        return locked, lease, secret


def _refuse_an_agent_that_keeps_dying(job: Job) -> None:
    """Raises :class:`AgentKeepsDying` if too many leases in a row ended without a report of an attempt."""
    fruitful = Lease.objects.filter(job=job).exclude(reported_at=None).aggregate(last=Max("n"))["last"] or 0
    since = Lease.objects.filter(job=job, n__gt=fruitful)
    n_leases, n_taken_up = since.count(), since.exclude(taken_up_at=None).count()
    if n_taken_up >= MAX_FRUITLESS_LEASES:
        raise AgentKeepsDying(f"the agent took the job up {n_taken_up} times in a row and ended each time before a trial had ended")
    if n_leases >= MAX_UNHEARD_LEASES:
        raise AgentKeepsDying(f"the job was handed out {n_leases} times in a row and the agent never said that it runs")


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
    with transaction.atomic():
        if move_job(job.pk, JobState.CANCELLED, now=now, by=by, reason=f"cancelled by {by}", sources=NOT_AT_WORK):
            return _recorded(job, "cancel", by, after="cancelled")
        held = Job.objects.filter(pk=job.pk, state__in=[s.value for s in HELD], cancel_requested_at=None)
        asked = held.update(cancel_requested_at=now, cancel_requested_by=by)
        return bool(asked) and _recorded(job, "cancel", by, after="its host is told with its next poll")


def _recorded(job: Job, verb: str, by: str, *, before: str = "", after: str = "") -> bool:
    """Tells the audit log of a change that somebody made to a job. True, so that a caller can answer with it."""
    asked = job.experiment
    audit.record(f"job.{verb}", job.pk, asked.name_to_maintainers, team=asked.team, by=by, before=before, after=after)
    return True


def request_pause(job: Job, *, now: datetime, by: str) -> bool:
    """Lets a job rest: its agent after the trial that runs, one that no agent holds before it is handed out.

    False if it rests already or is done.
    """
    with transaction.atomic():
        open_ = Job.objects.filter(pk=job.pk, state__in=[s.value for s in PAUSABLE], pause_requested_at=None)
        return bool(open_.update(pause_requested_at=now, pause_requested_by=by)) and _recorded(job, "pause", by)


def resume_job(job: Job, *, now: datetime, by: str) -> bool:
    """Ends a job's pause. False if it had none."""
    with transaction.atomic():
        resumed = Job.objects.filter(pk=job.pk).exclude(pause_requested_at=None).update(pause_requested_at=None, pause_requested_by="")
        if resumed:
            _recorded(job, "resume", by)
    if resumed:
        queue.send("dispatch")
    return bool(resumed)


def retry_job(job: Job, *, now: datetime, by: str) -> Job:
    """A new, waiting job in the place of one that failed or was cancelled, which stays as history.

    Raises :class:`NotPossible` if the job has not failed, was retried before, or wants a host that was revoked.
    """
    old = Job.objects.select_related("wanted_host", "experiment").get(pk=job.pk)
    if old.experiment.origin != Origin.SERVICE:
        raise NotPossible(
            f"job {old.pk} was run without this service", remedy="Submit the experiment here, or run it again and upload that."
        )
    if old.state not in (JobState.FAILED, JobState.CANCELLED):
        raise NotPossible(f"job {old.pk} is {old.state}", remedy="Only a job that failed or was cancelled can be retried.")
    if old.wanted_host and old.wanted_host.revoked_at:
        raise NotPossible(f"{old.wanted_host}, which the job asks for, was revoked", remedy="Submit the experiment for another host.")
    if old.extends_id and Job.objects.filter(extends=old.extends_id).exclude(state__in=[s.value for s in FINAL]).exists():
        raise NotPossible("blocks are being added already, by another job", remedy="Wait for its end, or cancel it.")
    try:
        with transaction.atomic():
            new = Job.objects.create(
                experiment_id=old.experiment_id,
                wanted_host=old.wanted_host,
                retry_of=old,
                extends=old.extends,
                blocks=old.blocks,
                reason=f"waits to be dispatched again, as {by} asked",
            )
            _recorded(new, "retry", by, before=f"{old.state}: job {old.pk}", after="a new job")
            transaction.on_commit(lambda: queue.send("dispatch"))
    except IntegrityError:
        raise NotPossible(f"job {old.pk} was retried already", remedy="Look at the retry, the newest job of the experiment.") from None
    return new
