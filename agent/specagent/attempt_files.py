"""What an attempt gathers while it runs, and the files and the report that it leaves."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from speccore import records
from speccore.errors import SpecWebError
from speccore.fit import Fit
from speccore.protocol import AttemptReport, TrialPlan

from . import __version__, continuing, evidence, second_look
from .launch import Ended
from .prepared import PreparedJob
from .probe import Probed, health_of

Outcome = Literal["ok", "failed", "cancelled"]


@dataclass(frozen=True)
class AttemptDone:
    """An attempt's report, and the folder in which its evidence lies uncompressed."""

    report: AttemptReport
    folder: Path
    retry: bool = False  # whether another try can help


@dataclass
class Gathered:
    """What there is of an attempt. ``phases``: each with the seconds after the attempt's start at which it began."""

    attempt_id: str
    n: int
    block_run: int
    started_at: datetime
    ended_at: datetime
    outcome: Outcome = "ok"
    error: SpecWebError | None = None
    phases: list[tuple[str, float]] = field(default_factory=list)
    launch: dict[str, Any] = field(default_factory=dict)
    probed: list[Probed] = field(default_factory=list)
    metrics: list[records.MetricsSnapshot] = field(default_factory=list)
    looks: list[records.SecondLook] = field(default_factory=list)
    continuations: list[records.Continuation] = field(default_factory=list)
    samples: list[records.Sample] = field(default_factory=list)
    ended: Ended | None = None
    fit: Fit | None = None


def write_attempt(folder: Path, job: PreparedJob, trial: TrialPlan, attempt: Gathered) -> AttemptDone:
    """Writes all files of an attempt, and describes them. Raises OSError if the disk is full, and may be called again then."""
    client = health_of([p for p in attempt.probed if not p.record.warmup])
    one: dict[str, BaseModel] = {records.ATTEMPT: _summary(job, trial, attempt, client), records.MANIFEST: _manifest(job, trial)}
    if attempt.fit:
        one[records.FIT] = attempt.fit
    if attempt.launch:
        ended = attempt.ended
        one[records.LAUNCH] = records.Launch(
            **attempt.launch, exit_code=ended.exit_code if ended else None, stopped_by=ended.stopped_by if ended else ""
        )
    for name, model in one.items():
        evidence.write_json(folder / name, model)
    evidence.write_lines(folder / records.RECORDS, [p.record for p in attempt.probed])
    evidence.write_lines(folder / records.TEXTS, [p.text for p in attempt.probed])
    evidence.write_lines(folder / records.METRICS, attempt.metrics)
    if attempt.looks:
        evidence.write_lines(folder / records.SECOND_LOOK, attempt.looks)
    if attempt.continuations:
        evidence.write_lines(folder / records.CONTINUATIONS, attempt.continuations)
    evidence.write_lines(folder / records.SAMPLES, attempt.samples, sparse=True)
    return AttemptDone(_report(folder, job, trial, attempt), folder, retry=bool(attempt.error and attempt.error.retry))


def _summary(job: PreparedJob, trial: TrialPlan, attempt: Gathered, client: records.ClientHealth) -> records.AttemptSummary:
    return records.AttemptSummary(
        attempt_id=attempt.attempt_id,
        job_id=job.offer.job_id,
        trial=trial.id,
        arm=trial.arm,
        block=trial.block,
        n=attempt.n,
        outcome=attempt.outcome,
        error=attempt.error.body() if attempt.error else None,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        phases=attempt.phases,
        leftover_pids=attempt.ended.left if attempt.ended else [],
        client_late_events=client.n_queued,
        client_events=client.n_events if client.stamps == "kernel" else 0,
        client=client,
    )


def _manifest(job: PreparedJob, trial: TrialPlan) -> records.Manifest:
    inventory = job.host.inventory
    draft = job.drafts.get(trial.arm)
    names = {job.offer.spec.point(p).workload for p in trial.points}
    return records.Manifest(
        runtime=job.runtime.info.manifest,
        runtime_hash=job.runtime.info.manifest_hash,
        runtime_version=job.runtime.info.version,
        target=job.target.manifest,
        target_hash=job.target.manifest_hash,
        draft=draft.manifest if draft else {},
        draft_hash=draft.manifest_hash if draft else "",
        workloads={name: job.workloads[name].content_hash() for name in sorted(names)},
        agent_version=__version__,
        inventory_hash=inventory.content_hash(),
        boot_id=inventory.boot_id,
        os=inventory.os,
    )


def _report(folder: Path, job: PreparedJob, trial: TrialPlan, attempt: Gathered) -> AttemptReport:
    return AttemptReport(
        attempt_id=attempt.attempt_id,
        job_id=job.offer.job_id,
        lease=job.offer.lease,
        trial=trial.id,
        n=attempt.n,
        outcome=attempt.outcome,
        error=attempt.error.body() if attempt.error else None,
        boot_id=job.host.inventory.boot_id,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        durations_s=_durations(attempt.phases),
        block_run=attempt.block_run,
        evidence=evidence.refs(folder),
    )


def _durations(phases: list[tuple[str, float]]) -> dict[str, float]:
    """Seconds in each phase, by the protocol's names."""
    names = {"starting": "start", "warm-up": "warmup", "probing": "probe", "stopping": "stop"}
    names |= {second_look.PHASE: "look", continuing.PHASE: "sampling"}
    ends = [began for _, began in phases[1:]]
    return {names[phase]: round(end - began, 6) for (phase, began), end in zip(phases, ends) if phase in names}
