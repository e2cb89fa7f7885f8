"""Takes what agents report: one row for each attempt, at most one of a trial accepted."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from django.db import transaction
from speccore.errors import HashMismatch, NotAllowed
from speccore.jobstate import HELD, JobState
from speccore.protocol import AttemptReport, EvidenceRef, JobPlan, ReportReply

from specweb import queue
from specweb.experiments.models import Host, Job, Lease
from specweb.experiments.services.checking import QUIET_LOG
from specweb.experiments.services.jobs import is_newest
from specweb.results.models import Attempt, Blob, EvidenceFile, Trial
from specweb.results.store import held_blob

from .blocks import void_block

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
#: States in which a report under the newest lease still counts. The agent's last word may overtake its last report.
OPEN = HELD | {JobState.COMPLETED}
#: Why an agent runs a block anew by itself; its report doesn't say which of these it was.
ANEW = "the agent saw the machine started anew, its inventory changed, or a gap of more than 10 minutes"


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
    if (report.job_id, report.lease) != (str(lease.job_id), lease.n):
        raise NotAllowed("the report names another job or lease than its lease token", job=report.job_id, lease=report.lease)
    blobs = {ref.sha256: held_blob(ref.sha256, host.team) for ref in report.evidence}
    if missing := sorted(sha256 for sha256, blob in blobs.items() if blob is None):
        return ReportReply(stored=False, counted=False, missing=missing)
    _check_evidence(report.evidence, blobs)
    with transaction.atomic():
        # The lock orders reports of one job with each other and with its comparison: of a trial only the first good
        # attempt is accepted, and what is accepted is in the comparison.
        job = Job.objects.select_for_update(of=("self",)).select_related("experiment").get(pk=lease.job_id)
        if known := _known(host, report):
            return ReportReply(stored=True, counted=_counts(known))
        trial = Trial.objects.filter(job=job, plan_id=report.trial).first()
        if trial is None:
            raise NotAllowed(f"the job has no trial {report.trial!r}", trial=report.trial)
        counts = is_newest(lease) and JobState(job.state) in OPEN
        if counts and "block_run" not in report.model_fields_set:
            # An agent that knows no runs: what it measures under the newest lease is of the run that the lease began with.
            report = report.model_copy(update={"block_run": job.run_of(trial.block)})
        if counts and report.block_run > job.run_of(trial.block):
            void_block(job, trial.block, report.block_run, ANEW)
        attempt = _create(report, trial, lease, job.run_of(trial.block), now, counts=counts)
        log_holds_text = job.experiment.parsed_spec.engine.log_verbosity > QUIET_LOG
        Lease.objects.filter(pk=lease.pk).update(reported_at=now)
        EvidenceFile.objects.bulk_create(
            [
                EvidenceFile(
                    attempt=attempt,
                    name=r.name,
                    kind=r.kind,
                    blob_id=r.sha256,
                    private=r.private or (r.kind == "log" and log_holds_text),
                )
                for r in report.evidence
            ]
        )
        transaction.on_commit(lambda: queue.send("parse_attempt", str(attempt.pk)))
    return ReportReply(stored=True, counted=_counts(attempt))


def _known(host: Host, report: AttemptReport) -> Attempt | None:
    """The attempt with this id, if it was told before. Raises :class:`NotAllowed` if it is another host's."""
    known = Attempt.objects.filter(pk=report.attempt_id).select_related("lease").first()
    if known is not None and known.lease.host_id != host.pk:
        raise NotAllowed("this attempt id belongs to another host", attempt=report.attempt_id)
    return known


def _create(report: AttemptReport, trial: Trial, lease: Lease, run: int, now: datetime, *, counts: bool) -> Attempt:
    """``run`` is the one of the trial's block that counts; ``counts`` whether the lease and the job's state let an attempt count."""
    decided = Attempt.objects.filter(trial=trial, accepted=True).exists()
    void = counts and report.block_run < run
    counted = counts and not void and not decided
    return Attempt.objects.create(
        pk=report.attempt_id,
        trial=trial,
        n=report.n,
        lease=lease,
        outcome=report.outcome,
        block_run=report.block_run,
        void_reason=f"block {trial.block} was run anew before this came" if void else "",
        counted=counted,
        accepted=counted and report.outcome == "ok",
        error=report.error.model_dump(mode="json") if report.error else None,
        boot_id=report.boot_id[:64],
        started_at=report.started_at,
        ended_at=report.ended_at,
        durations_s=report.durations_s,
        received_at=now,
    )


def _counts(attempt: Attempt) -> bool:
    return attempt.accepted if attempt.outcome == "ok" else attempt.counted


def _check_evidence(refs: Iterable[EvidenceRef], blobs: dict[str, Blob | None]) -> None:
    names = [ref.name for ref in refs]
    if odd := [n for n in names if not _FILE_NAME.fullmatch(n)]:
        raise NotAllowed(f"evidence file {odd[0]!r} has a name that is none", remedy="Use letters, digits, '.', '_' and '-'.")
    if twice := sorted(n for n, times in Counter(names).items() if times > 1):
        raise NotAllowed(f"evidence file {twice[0]!r} is named twice")
    for ref in refs:
        blob = blobs[ref.sha256]
        if blob is not None and blob.bytes != ref.bytes:
            raise HashMismatch(f"{ref.name}: {ref.bytes} bytes are reported, {blob.bytes} are stored", file=ref.name)
