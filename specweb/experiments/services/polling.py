"""The agent's poll: heartbeat, last words and the next job in one call, answered with the full desired state."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from speccore.errors import EngineError, ErrorBody, NotAllowed
from speccore.jobstate import HELD, JobState
from speccore.protocol import Finished, JobOffer, JobPlan, Looked, PollReply, PollRequest, Running

from specweb.experiments.models import Host, Job, Lease

from .jobs import claim_next_job, fail_job, is_newest, move_job
from .plans import spec_of_job

log = logging.getLogger(__name__)

#: ``take_stock(job, lease, now, clock_behind)`` names the trials that need no further attempt under a new lease.
TakeStock = Callable[[Job, Lease, datetime, timedelta], list[str]]

#: What is kept of an agent's words for people: characters of a text, lines of a log and characters of a line.
MAX_TEXT, MAX_LINES, MAX_LINE = 2000, 50, 400


@dataclass(frozen=True)
class Pace:
    idle_s: float
    running_s: float


def poll(host: Host, request: PollRequest, now: datetime, *, pace: Pace, take_stock: TakeStock) -> PollReply:
    """One heartbeat. Raises :class:`NotAllowed` if the agent speaks of a job that another host holds."""
    _note_heartbeat(host, request, now)
    acknowledged = [f.job_id for f in request.finished if _finish(host, f, now)]
    running = _progress(host, request.running, now) if request.running else None
    stop = request.running is not None and (running is None or running.cancel_requested_at is not None)
    send_inventory = host.inventory is None or host.inventory.hash != request.inventory_hash
    job = None
    if not (request.running or request.draining or send_inventory):
        job = _offer(host, now, now - (request.sent_at or now), take_stock)
    at_work = job[0] if job else running
    return PollReply(
        job=job[1] if job else None,
        cancel=[request.running.job_id] if request.running and stop else [],
        pause=[str(at_work.pk)] if at_work and at_work.pause_requested_at else [],
        acknowledged=acknowledged,
        looked=_looked(running),
        # A host that drains finishes what it holds: with such a job it is told at its next poll.
        drain=host.drain_requested_at is not None and job is None,
        send_inventory=send_inventory,
        poll_after_s=pace.running_s if job or request.running else pace.idle_s,
        server_time=now,
    )


def _note_heartbeat(host: Host, request: PollRequest, now: datetime) -> None:
    changes: dict[str, Any] = {"last_seen_at": now, "draining": request.draining}
    if request.agent_version:
        changes["agent_version"] = request.agent_version[:40]
    problem = _bounded(request.problem) if request.problem else None
    if problem != host.problem:
        changes |= {"problem": problem, "problem_at": now if problem else None}
    Host.objects.filter(pk=host.pk).update(**changes)


def _bounded(problem: ErrorBody) -> dict[str, Any]:
    """What is kept of a host's problem: pages show it with every host."""
    body = problem.model_dump(mode="json")
    fits = len(json.dumps(body["details"])) <= MAX_TEXT
    return body | {
        "code": problem.code[:80],
        "message": problem.message[:MAX_TEXT],
        "remedy": problem.remedy[:MAX_TEXT],
        "details": body["details"] if fits else {},
    }


def _offer(host: Host, now: datetime, clock_behind: timedelta, take_stock: TakeStock) -> tuple[Job, JobOffer] | None:
    done: list[str] = []
    claimed = claim_next_job(host, now, on_granted=lambda job, lease: done.extend(take_stock(job, lease, now, clock_behind)))
    if claimed is None:
        return None
    job, lease, secret = claimed
    assert job.runtime is not None
    assert job.target is not None
    offer = JobOffer(
        job_id=str(job.pk),
        experiment_id=str(job.experiment_id),
        lease=lease.n,
        lease_token=secret,
        spec=spec_of_job(job),
        plan=JobPlan.model_validate(job.plan),
        runtime_hash=job.runtime.manifest_hash,
        target_hash=job.target.manifest_hash,
        draft_hashes=job.draft_hashes,
        device_uuids=job.device_uuids,
        commands=job.commands,
        done_trials=done,
        block_runs={int(block): run for block, run in job.block_runs.items()},
        looked_after=job.looked_after,
        decided=job.decided,
    )
    return job, offer


def _progress(host: Host, running: Running, now: datetime) -> Job | None:
    """Notes what the agent does. None: it shall stop, since the job has ended or went under a newer lease."""
    job = _own_job(host, running.job_id)
    lease = Lease.objects.filter(job=job, n=running.lease).first() if job else None
    if job is None or lease is None or not is_newest(lease) or JobState(job.state) not in HELD:
        return None
    if lease.taken_up_at is None:
        Lease.objects.filter(pk=lease.pk, taken_up_at=None).update(taken_up_at=now)
    told = running.model_dump(mode="json") | {"at": now.isoformat()}
    told["note"] = running.note[:MAX_TEXT]
    told["log_tail"] = [line[:MAX_LINE] for line in running.log_tail[-MAX_LINES:]]
    Job.objects.filter(pk=job.pk, state__in=[s.value for s in HELD]).update(progress=told)
    move_job(job.pk, JobState.RUNNING, now=now, by=host.name, sources=(JobState.CLAIMED, JobState.STALLED))
    return job


def _looked(job: Job | None) -> Looked | None:
    if job is None or not job.looked_after:
        return None
    return Looked(job_id=str(job.pk), after_block=job.looked_after, decided=job.decided)


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
        by = job.cancel_requested_by
        reason = f"cancelled by {by}" if by else finished.error.message if finished.error else "stopped by the agent"
        move_job(job.pk, JobState.CANCELLED, reason=reason, **words)
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
