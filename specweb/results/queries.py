"""Reads about results that API, workers and commands share; pages have their own."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from speccore.errors import EngineError, ErrorBody
from speccore.jobstate import JobState
from speccore.measurement import ComparisonResult, value_of
from speccore.plan import TrialOutcome, next_trials
from speccore.protocol import JobPlan
from speccore.table import analysis_text

from specweb.experiments.models import Experiment, Job

from .models import Analysis, Attempt, AttemptState, Comparison, EvidenceFile, Trial


def trial_outcomes(job: Job) -> list[TrialOutcome]:
    """The counted attempts in the order in which they came; those that were cancelled are no verdict on their trial."""
    rows = (
        Attempt.objects.filter(trial__job=job, counted=True)
        .exclude(outcome="cancelled")
        .order_by("received_at")
        .values_list("trial__plan_id", "n", "outcome", "error")
    )
    return [TrialOutcome(trial=trial, n=n, error=None if outcome == "ok" else error_of(error)) for trial, n, outcome, error in rows]


def error_of(stored: dict[str, Any] | None) -> ErrorBody:
    """A stored error; an attempt that failed without naming one gets a plain one."""
    if stored:
        return ErrorBody.model_validate(stored)
    return EngineError("the attempt failed and named no reason", remedy="Read its server log.").body()


def done_trials(job: Job) -> list[str]:
    """Trials that need no further attempt: measured, failed for good, of an arm that was given up or decided early."""
    plan = JobPlan.model_validate(job.plan)
    left = {trial.id for trial, _ in next_trials(job.experiment.parsed_spec, plan, trial_outcomes(job), job.decided)}
    return [t.id for t in plan.trials if t.id not in left]


def unparsed_attempts(job: Job) -> int:
    return Attempt.objects.filter(trial__job=job, state=AttemptState.RECEIVED).count()


def left_to_parse(received_before: datetime) -> list[UUID]:
    """Attempts that no worker has parsed, though they came a while ago."""
    rows = Attempt.objects.filter(state=AttemptState.RECEIVED, received_at__lt=received_before)
    return list(rows.order_by("received_at").values_list("pk", flat=True)[:500])


def left_to_compare() -> list[UUID]:
    """Jobs that the agent is done with, whose attempts are all parsed, and that have no analysis."""
    parsing = Attempt.objects.filter(trial__job=OuterRef("pk"), state=AttemptState.RECEIVED)
    accepted = Attempt.objects.filter(trial__job=OuterRef("pk"), accepted=True)
    done = Q(state=JobState.COMPLETED.value) | (
        Q(state__in=[JobState.FAILED.value, JobState.CANCELLED.value])
        & Exists(accepted)
        & ~Exists(Analysis.objects.filter(job=OuterRef("pk")))
    )
    return list(Job.objects.filter(done, ~Exists(parsing)).order_by("id").values_list("pk", flat=True)[:500])


def experiment_report(experiment: Experiment, url: str) -> dict[str, Any]:
    """An experiment's comparisons and evidence as plain JSON; a withheld number is null."""
    comparisons = (
        Comparison.objects.current()
        .filter(job__experiment=experiment)
        .exclude(job__retry__state=JobState.PROCESSED.value)  # until then the blocks that a failed job finished are all there is
        .select_related("job__host")
        .order_by("job_id", "point__position", "arm__position")
    )
    evidence = (
        EvidenceFile.objects.filter(attempt__trial__job__experiment=experiment)
        .order_by("attempt__trial__job_id", "attempt__trial__index", "attempt__n", "name")
        .values_list("attempt__trial__plan_id", "attempt_id", "name", "blob_id", "blob__bytes")
    )
    return {
        "experiment": str(experiment.pk),
        "url": url,
        "n_trials": Trial.objects.filter(job__in=experiment.jobs.current()).count(),
        "comparisons": [_comparison(c.job.host.name if c.job.host else "", c.parsed) for c in comparisons],
        "evidence": [
            {"trial": trial, "attempt": str(attempt), "file": name, "sha256": sha256, "bytes": n_bytes}
            for trial, attempt, name, sha256, n_bytes in evidence
        ],
    }


def experiment_text(experiment: Experiment) -> str:
    """What was found on each host, as tables for a terminal; empty where nothing is computed yet (2 statements)."""
    jobs = experiment.jobs.exclude(retry__state=JobState.PROCESSED.value).select_related("host").order_by("id")
    newest = {a.job_id: a for a in Analysis.objects.filter(job__in=jobs).order_by("id")}
    # Of blocks that were added the answer is that of all blocks, which stands at the first job already.
    told = {pk: a.numbers.get("comparisons") for pk, a in newest.items()}
    own = [job for job in jobs if job.pk in newest and not (job.extends_id and told[job.pk] and told[job.pk] == told.get(job.extends_id))]
    found = [(job.host.name if job.host else "", newest[job.pk].parsed) for job in own]
    return "\n\n".join(f"on {host}:\n{analysis_text(analysis)}" if len(found) > 1 else analysis_text(analysis) for host, analysis in found)


def _comparison(host: str, c: ComparisonResult) -> dict[str, Any]:
    speedup = getattr(c.speedup, "estimate", None)
    return {
        "host": host,
        "arm": c.arm,
        "mode": c.mode,
        "workload": c.workload,
        "concurrency": c.concurrency,
        "occupied_context": c.occupied_context,
        "temperature": c.temperature,
        "speedup": speedup,
        "ci_low": getattr(c.speedup, "low", None),
        "ci_high": getattr(c.speedup, "high", None),
        "n_blocks": getattr(c.speedup, "n_blocks", 0),
        "verdict": c.verdict.word,
        "reason": c.verdict.reason,
        "not_restarted": c.not_restarted,
        "acceptance_rate": value_of(c.acceptance_rate),
        "drafted_per_cycle": value_of(c.drafted_per_cycle),
        "mean_acceptance_length": value_of(c.mean_acceptance_length),
        "tokens_per_target_pass": value_of(c.tokens_per_target_pass),
        "memory_bill_bytes": None if (bill := value_of(c.memory_bill_bytes)) is None else round(bill),
    }
