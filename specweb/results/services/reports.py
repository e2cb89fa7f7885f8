"""Takes what agents report: one row for each attempt, at most one of a trial accepted."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from django.db import transaction
from speccore.errors import HashMismatch, NotAllowed
from speccore.jobstate import HELD, JobState
from speccore.protocol import AttemptReport, EvidenceRef, JobPlan, ReportReply

from specweb import queue
from specweb.experiments.models import Host, Job, Lease
from specweb.experiments.services.jobs import is_newest
from specweb.results.models import Attempt, Blob, EvidenceFile, Trial
from specweb.results.store import held_blob

#: States in which a report under the newest lease still counts. The agent's last word may overtake its last report.
OPEN = HELD | {JobState.COMPLETED}


def create_trials(job: Job, plan: JobPlan) -> None:
    """The trials of a plan. A job that is queued again has them already: its plan follows from its experiment."""
    arms = {a.name: a for a in job.experiment.arms.all()}
    Trial.objects.bulk_create(
        [
            Trial(job=job, plan_id=t.id, index=t.index, block=t.block, position=t.position, arm=arms[t.arm], points=t.points)
            for t in plan.trials
        ],
        ignore_conflicts=True,
    )


def report_attempt(host: Host, lease: Lease, report: AttemptReport, now: datetime) -> ReportReply:
    """Stores an attempt with its evidence. Told twice, it answers twice the same.

    A report whose blobs aren't all there is not stored: the reply names those to send. Raises :class:`NotAllowed` if
    attempt, lease, job and trial don't belong together, :class:`HashMismatch` if a size differs from the stored bytes.
    """
    known = Attempt.objects.filter(pk=report.attempt_id).select_related("lease").first()
    if known is not None:
        if known.lease.host_id != host.pk:
            raise NotAllowed("this attempt id belongs to another host", attempt=report.attempt_id)
        return ReportReply(stored=True, counted=_counts(known))
    if (report.job_id, report.lease) != (str(lease.job_id), lease.n):
        raise NotAllowed("the report names another job or lease than its lease token", job=report.job_id, lease=report.lease)
    blobs = {ref.sha256: held_blob(ref.sha256, host.team) for ref in report.evidence}
    if missing := sorted(sha256 for sha256, blob in blobs.items() if blob is None):
        return ReportReply(stored=False, counted=False, missing=missing)
    _check_evidence(report.evidence, blobs)
    with transaction.atomic():
        # The lock orders two reports of one trial, so that only the first good one is accepted.
        trial = Trial.objects.select_for_update().filter(job_id=lease.job_id, plan_id=report.trial).first()
        if trial is None:
            raise NotAllowed(f"the job has no trial {report.trial!r}", trial=report.trial)
        attempt = _create(report, trial, lease, now)
        EvidenceFile.objects.bulk_create(
            [EvidenceFile(attempt=attempt, name=r.name, kind=r.kind, blob_id=r.sha256, private=r.private) for r in report.evidence]
        )
        transaction.on_commit(lambda: queue.send("parse_attempt", str(attempt.pk)))
    return ReportReply(stored=True, counted=_counts(attempt))


def _create(report: AttemptReport, trial: Trial, lease: Lease, now: datetime) -> Attempt:
    state = Job.objects.filter(pk=lease.job_id).values_list("state", flat=True).get()
    decided = Attempt.objects.filter(trial=trial, accepted=True).exists()
    counted = is_newest(lease) and JobState(state) in OPEN and not decided
    return Attempt.objects.create(
        pk=report.attempt_id,
        trial=trial,
        n=report.n,
        lease=lease,
        outcome=report.outcome,
        counted=counted,
        accepted=counted and report.outcome == "ok",
        error=report.error.model_dump(mode="json") if report.error else None,
        boot_id=report.boot_id[:64],
        started_at=_aware(report.started_at),
        ended_at=_aware(report.ended_at),
        durations_s=report.durations_s,
        received_at=now,
    )


def _counts(attempt: Attempt) -> bool:
    return attempt.accepted if attempt.outcome == "ok" else attempt.counted


def _check_evidence(refs: Iterable[EvidenceRef], blobs: dict[str, Blob | None]) -> None:
    names = [ref.name for ref in refs]
    if twice := {n for n in names if names.count(n) > 1}:
        raise NotAllowed(f"evidence file {sorted(twice)[0]!r} is named twice")
    for ref in refs:
        blob = blobs[ref.sha256]
        if blob is not None and blob.bytes != ref.bytes:
            raise HashMismatch(f"{ref.name}: {ref.bytes} bytes are reported, {blob.bytes} are stored", file=ref.name)


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
