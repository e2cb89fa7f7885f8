"""The agent's poll: heartbeat, last words and the next job in one call, answered with the full desired state."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from speccore.errors import EngineError, ErrorBody, NotAllowed
from speccore.jobstate import HELD, JobState
from speccore.protocol import Finished, JobOffer, JobPlan, PollReply, PollRequest, Running

from specweb.experiments.models import Host, Job, Lease

from .jobs import claim_next_job, fail_job, is_newest, move_job

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Pace:
    idle_s: float
    running_s: float


def poll(host: Host, request: PollRequest, now: datetime, *, pace: Pace, done_trials: Callable[[Job], list[str]]) -> PollReply:
    """One heartbeat. ``done_trials(job)`` names the trials that need no further attempt.

    Raises :class:`NotAllowed` if the agent speaks of a job that another host holds.
    """
    Host.objects.filter(pk=host.pk).update(
        last_seen_at=now, draining=request.draining, agent_version=request.agent_version[:40] or host.agent_version
    )
    acknowledged = [f.job_id for f in request.finished if _finish(host, f, now)]
    cancel = []
    if request.running and not _progress(host, request.running, now):
        cancel.append(request.running.job_id)
    send_inventory = host.inventory is None or host.inventory.hash != request.inventory_hash
    job = None
    if not (request.running or request.draining or send_inventory):
        job = _offer(host, now, done_trials)
    busy = job is not None or request.running is not None
    return PollReply(
        job=job,
        cancel=cancel,
        acknowledged=acknowledged,
        send_inventory=send_inventory,
        poll_after_s=pace.running_s if busy else pace.idle_s,
        server_time=now,
    )


def _offer(host: Host, now: datetime, done_trials: Callable[[Job], list[str]]) -> JobOffer | None:
    claimed = claim_next_job(host, now)
    if claimed is None:
        return None
    job, lease, secret = claimed
    assert job.runtime is not None
    assert job.target is not None
    return JobOffer(
        job_id=str(job.pk),
        experiment_id=str(job.experiment_id),
        lease=lease.n,
        lease_token=secret,
        spec=job.experiment.parsed_spec,
        plan=JobPlan.model_validate(job.plan),
        runtime_hash=job.runtime.manifest_hash,
        target_hash=job.target.manifest_hash,
        draft_hashes=job.draft_hashes,
        device_uuids=job.device_uuids,
        commands=job.commands,
        done_trials=done_trials(job),
    )


def _progress(host: Host, running: Running, now: datetime) -> bool:
    """Notes what the agent does. False: it shall stop, since the job was cancelled, has ended, or went under a newer lease."""
    job = _own_job(host, running.job_id)
    lease = Lease.objects.filter(job=job, n=running.lease).first() if job else None
    if job is None or lease is None or not is_newest(lease) or JobState(job.state) not in HELD:
        return False
    Job.objects.filter(pk=job.pk).update(progress=running.model_dump(mode="json") | {"at": now.isoformat()})
    move_job(job.pk, JobState.RUNNING, now=now, by=host.name, sources=(JobState.CLAIMED, JobState.STALLED))
    return job.cancel_requested_at is None


def _finish(host: Host, finished: Finished, now: datetime) -> bool:
    """Takes the agent's last word on a job. True: heard, whether or not it still changed anything."""
    job = _own_job(host, finished.job_id)
    lease = Lease.objects.filter(job=job, n=finished.lease).first() if job else None
    if job is None or lease is None or not is_newest(lease):
        log.info("%s finished job %.80r under a lease that no longer counts", host.name, finished.job_id)
        return True
    words: dict[str, Any] = {"now": now, "by": host.name, "sources": HELD}
    if finished.outcome == "completed":
        move_job(job.pk, JobState.COMPLETED, reason="all trials ended; the numbers are being computed", **words)
    elif finished.outcome == "cancelled":
        move_job(job.pk, JobState.CANCELLED, reason=finished.error.message if finished.error else "stopped by the agent", **words)
    else:
        fail_job(job.pk, finished.error or _unexplained(), **words)
    return True


def _own_job(host: Host, job_id: str) -> Job | None:
    try:
        job = Job.objects.filter(pk=UUID(job_id)).first()
    except ValueError:
        return None
    if job is not None and job.host_id != host.pk:
        raise NotAllowed(f"job {job_id} belongs to another host", remedy="Stop working on it.", job=job_id)
    return job


def _unexplained() -> ErrorBody:
    return EngineError("the agent gave up on the job and named no reason", remedy="Read the attempts' logs.").body()
