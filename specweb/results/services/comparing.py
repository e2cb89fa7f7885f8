"""Numbers → comparisons: what a job's accepted attempts say together."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.db import DatabaseError, transaction
from speccore.compare import JobFacts, analyse_job
from speccore.errors import EngineOutOfMemory, ErrorBody, HashMismatch, ServerError
from speccore.jobstate import JobState
from speccore.measurement import ComparisonResult, Interval, JobAnalysis
from speccore.outages import TrialFailure
from uuid_utils.compat import uuid7

from specweb.experiments.models import Job, Origin
from specweb.experiments.services.jobs import fail_job, move_job
from specweb.experiments.text import storable
from specweb.results.models import Analysis, Attempt, Comparison, EvidenceFile
from specweb.results.queries import error_of, unparsed_attempts

from .answers import answers_of
from .archive_facts import imported_facts, imported_floors, shares_machine
from .joining import basis_of, is_joined
from .listings import list_comparisons
from .noise_floor import floors_of_job
from .parsing import workloads_of

log = logging.getLogger(__name__)
BY = "comparison"
MAX_TRIES = 3


class AnalysisFault(ServerError):
    code = "analysis_fault"
    retry = False
    remedy = "Report the fault with the job's id; the evidence is kept. After an update, run reparse."


def compare_job(job_id: UUID, now: datetime, *, again: bool = False) -> bool:
    """Compares the arms of a job that the agent is done with, once all its attempts are parsed. Returns whether it did.

    A completed job becomes processed. One that failed or was cancelled keeps its state, and its finished blocks are
    compared. With ``again`` a newer analysis supersedes the one that there is.

    The numbers are computed without a lock, so that nobody waits for them, and stored under the job's lock if nothing that
    they rest on has changed meanwhile; else they are computed anew.
    """
    for _ in range(MAX_TRIES):
        job = Job.objects.select_related("experiment", "inventory", "runtime").filter(pk=job_id).first()
        if job is None or not _due(job, again=again):
            return False
        basis = _basis(job)
        try:
            outcome: JobAnalysis | ErrorBody = analyse(job)
        except DatabaseError:
            raise  # the sweep tries again
        except Exception as error:
            outcome = _fault(job, error)
        stored = _settle(job, basis, outcome, now)
        if stored is not None:
            return stored
    log.warning("job %s changed %d times while it was compared; the sweep tries again", job_id, MAX_TRIES)
    return False


def _basis(job: Job) -> tuple[object, ...]:
    """All that a comparison rests on and that may change while it is computed."""
    first = job.extends_id or job.pk
    family = list((Job.objects.filter(pk=first) | Job.objects.filter(extends=first)).order_by("pk").values_list("pk", "state"))
    attempts = Attempt.objects.filter(trial__job__in=[pk for pk, _ in family]).order_by("pk")
    newest = Analysis.objects.filter(job__in=[pk for pk, _ in family]).values_list("pk", flat=True).last()
    return (*family, newest, *attempts.values_list("pk", "state", "counted", "accepted", "measurement_id", "parse_error__code"))


def _settle(job: Job, basis: tuple[object, ...], outcome: JobAnalysis | ErrorBody, now: datetime) -> bool | None:
    """Stores what was computed. None: it rests on what is no longer so. False: the job failed instead."""
    with transaction.atomic():
        # Reports of the job take this lock too, so what is accepted is in the comparison.
        _lock(job)
        locked = Job.objects.select_related("experiment", "inventory", "runtime").get(pk=job.pk)
        if _basis(locked) != basis:
            return None
        if isinstance(outcome, JobAnalysis):
            try:
                with transaction.atomic():
                    _store(locked, outcome)
            except DatabaseError:
                raise
            except Exception as error:
                outcome = _fault(locked, error)
        if isinstance(outcome, ErrorBody):
            fail_job(locked.pk, outcome, now=now, by=BY, sources=(JobState.COMPLETED,))
            return False
        move_job(locked.pk, JobState.PROCESSED, now=now, by=BY, reason="")
    return True


def _store(job: Job, analysis: JobAnalysis) -> None:
    """With the job that an answer began with, where the blocks of several stand in it; the others keep the numbers only."""
    home = next((part.job for part in analysis.parts if not part.differs), None)
    if home is None or home == str(job.pk) or not is_joined(analysis.parts, job):
        store_analysis(job, analysis)
        return
    store_analysis(Job.objects.select_related("experiment", "inventory", "runtime", "target").get(pk=home), analysis)
    numbers = storable(analysis.model_dump(mode="json"))
    Analysis.objects.create(job=job, analysis_version=analysis.analysis_version, numbers=numbers)


def _lock(job: Job) -> None:
    """All jobs of an answer, the first one first, since a comparison may be stored with it."""
    first = job.extends_id or job.pk
    for pk in dict.fromkeys((first, job.pk)):
        Job.objects.select_for_update().values_list("pk").get(pk=pk)


def _fault(job: Job, error: Exception) -> ErrorBody:
    log.error("job %s can't be compared", job.pk, exc_info=error)
    body = AnalysisFault(f"the numbers can't be compared: {type(error).__name__}: {error}").body()
    return ErrorBody.model_validate(storable(body.model_dump()))


def _due(job: Job, *, again: bool) -> bool:
    if unparsed_attempts(job):
        return False
    state = JobState(job.state)
    if state is JobState.COMPLETED:
        return True
    if state is JobState.PROCESSED:
        return again
    if state in (JobState.FAILED, JobState.CANCELLED):
        compared = Analysis.objects.filter(job=job).exists()
        return (again or not compared) and Attempt.objects.filter(trial__job=job, accepted=True).exists()
    return False


def analyse(job: Job) -> JobAnalysis:
    """The analysis of a job from its stored numbers, with all whose blocks stand in one comparison with its own; writes nothing."""
    basis = basis_of(job)
    home = basis.home
    attempts = [
        a
        for a in Attempt.objects.filter(trial__job__in=basis.blocks, counted=True)
        .select_related("trial__arm", "measurement")
        .order_by("trial__job", "trial__index", "received_at")
        if a.trial.block in basis.blocks[a.trial.job_id]
    ]
    damaged = [
        f"{a.trial.plan_id}: {a.parse_error['message']}"
        for a in attempts
        if a.parse_error and a.parse_error.get("code") == HashMismatch.code
    ]
    experiment = home.experiment
    spec = experiment.parsed_spec
    measured = [a for a in attempts if a.accepted and a.measurement is not None]
    n_blocks = len({a.trial.block for a in measured if a.trial.arm.is_baseline})
    elsewhere = imported_facts(home) if experiment.origin == Origin.IMPORTED else None
    facts = JobFacts(
        floors=imported_floors(elsewhere) if elsewhere else floors_of_job(home, spec, n_blocks, _measured_at(job, measured)),
        shares_cores=elsewhere["shares_machine"] if elsewhere else shares_machine(home),
        hashes_verified=not damaged,  # every file was hashed again when it was parsed
        n_hashes=EvidenceFile.objects.filter(attempt__in=attempts).count(),
        hash_problem="; ".join(damaged),
        decided=home.decided,
    )
    found = analyse_job(
        spec,
        basis.plan,
        [a.measurement.parsed for a in measured if a.measurement is not None],
        [_failure(a) for a in attempts if not (a.accepted and a.measurement is not None) and a.outcome != "cancelled"],
        facts,
        workloads=workloads_of(experiment),
        answers_read=answers_of(measured, spec, basis.plan),
        joined=basis.joined,
    )
    return found.model_copy(update={"parts": basis.told})


def _measured_at(job: Job, measured: Sequence[Attempt]) -> datetime | None:
    """When the last attempt ended: by the agent's clock, but no later than the job was reported as done."""
    return min(filter(None, [max((a.ended_at for a in measured), default=None), job.completed_at]), default=None)


def _failure(attempt: Attempt) -> TrialFailure:
    """Why an attempt gave no numbers: its own error, or that its evidence couldn't be read."""
    error = error_of(attempt.parse_error if attempt.accepted else attempt.error)
    return TrialFailure(
        trial=attempt.trial.plan_id,
        arm=attempt.trial.arm.name,
        block=attempt.trial.block,
        code=error.code,
        message=error.message,
        oom=error.code == EngineOutOfMemory.code,
    )


def store_analysis(job: Job, analysis: JobAnalysis) -> Analysis:
    """Keeps an analysis and its comparisons; earlier ones stay and name what superseded them."""
    arms = {a.name: a.pk for a in job.experiment.arms.all()}
    points = {p.key: p.pk for p in job.experiment.points.all()}
    kept = Analysis.objects.create(job=job, analysis_version=analysis.analysis_version, numbers=storable(analysis.model_dump(mode="json")))
    new = [_comparison(job, kept, c, arms[c.arm], points[c.point]) for c in analysis.comparisons]
    for comparison in new:
        # Superseded first: only one of an arm and point may be current. The reference is checked at commit.
        old = Comparison.objects.current().filter(job=job, arm_id=comparison.arm_id, point_id=comparison.point_id)
        old.update(superseded_by_id=comparison.pk)
    Comparison.objects.bulk_create(new)
    list_comparisons(job, analysis, new)
    return kept


def _comparison(job: Job, analysis: Analysis, c: ComparisonResult, arm_id: int, point_id: int) -> Comparison:
    interval = c.speedup if isinstance(c.speedup, Interval) else None
    return Comparison(
        pk=uuid7(),
        job=job,
        analysis=analysis,
        arm_id=arm_id,
        point_id=point_id,
        analysis_version=c.analysis_version,
        numbers=storable(c.model_dump(mode="json")),
        speedup=interval.estimate if interval else None,
        ci_low=interval.low if interval else None,
        ci_high=interval.high if interval else None,
        n_blocks=interval.n_blocks if interval else 0,
        verdict=c.verdict.word,
        reason=c.verdict.reason[:80],
        recommended=c.recommended,
    )
