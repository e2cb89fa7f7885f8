"""What time alone changes: silent hosts, jobs that wait too long, hosts that are lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Q
from speccore.errors import HostLost, HostRevoked, NoHostCanRun
from speccore.jobstate import JobState

from specweb.experiments.models import Host, Job

from .jobs import fail_job, move_job

BY = "sweep"


@dataclass(frozen=True)
class Limits:
    stalled_after: timedelta
    host_lost_after: timedelta
    waiting_for: timedelta

    @classmethod
    def of(cls, settings: Any) -> Limits:
        """As this installation has them."""
        return cls(
            stalled_after=timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S),
            host_lost_after=timedelta(seconds=settings.SPECWEB_HOST_LOST_AFTER_S),
            waiting_for=timedelta(seconds=settings.SPECWEB_WAITING_FOR_S),
        )


def host_state(host: Host, now: datetime, limits: Limits) -> str:
    """online, stalled, lost, never seen or revoked. Draining is told beside it."""
    if host.revoked_at:
        return "revoked"
    if host.last_seen_at is None:
        return "never seen"
    silent = now - host.last_seen_at
    if silent < limits.stalled_after:
        return "online"
    return "stalled" if silent < limits.host_lost_after else "lost"


def expire_silent_jobs(now: datetime, limits: Limits) -> list[Job]:
    """Stalls, requeues and fails jobs by the time that their host was last heard of. Returns the jobs that have failed."""
    jobs = Job.objects.select_related("host")
    silent = Q(host__last_seen_at__lt=now - limits.stalled_after)
    for job in jobs.filter(silent, state__in=[JobState.CLAIMED.value, JobState.RUNNING.value]):
        move_job(job.pk, JobState.STALLED, now=now, by=BY, reason=f"{job.host} is silent {_since(job)}")
    # A job that no agent has taken yet may go to another host.
    shut = Q(host__revoked_at__isnull=False) | Q(host__drain_requested_at__isnull=False)
    for job in jobs.filter(silent | shut, state=JobState.QUEUED.value):
        open_ = job.host is not None and not (job.host.revoked_at or job.host.drain_requested_at)
        reason = f"{job.host} is silent {_since(job)}" if open_ else f"{job.host} takes no new jobs"
        move_job(job.pk, JobState.WAITING, now=now, by=BY, reason=reason, host=None)
    # Nobody waits for an agent that is away to be told that its job was cancelled.
    for job in jobs.filter(state=JobState.STALLED.value).exclude(cancel_requested_at=None):
        by = job.cancel_requested_by or BY
        move_job(job.pk, JobState.CANCELLED, now=now, by=by, reason=f"cancelled by {by} while {job.host} was silent")
    failed = []
    for job in jobs.filter(state=JobState.STALLED.value, host__last_seen_at__lt=now - limits.host_lost_after):
        error = HostLost(f"{job.host} is silent {_since(job)}; what it sent before is kept")
        if fail_job(job.pk, error.body(), now=now, by=BY):
            failed.append(job)
    for job in Job.objects.select_related("wanted_host").filter(state=JobState.WAITING.value, wanted_host__revoked_at__isnull=False):
        if fail_job(job.pk, HostRevoked(f"{job.wanted_host}, which the job asks for, was revoked").body(), now=now, by=BY):
            failed.append(job)
    for job in jobs.filter(state=JobState.WAITING.value, created_at__lt=now - limits.waiting_for):
        error = NoHostCanRun(f"no host could take the job for {limits.waiting_for.days} days; at last: {job.reason}")
        if fail_job(job.pk, error.body(), now=now, by=BY):
            failed.append(job)
    return failed


def _since(job: Job) -> str:
    assert job.host is not None
    return f"since {job.host.last_seen_at:%Y-%m-%d %H:%M:%S} UTC"
