"""Early looks at a job that runs: after each whole block the service says which arms its evidence decides."""

from __future__ import annotations

import logging
from uuid import UUID

from django.db import DatabaseError
from django.db.models import Min
from speccore import early
from speccore.compare import JobFacts
from speccore.jobstate import HELD
from speccore.measurement import AttemptMeasurement
from speccore.protocol import JobPlan
from speccore.stats import MIN_BLOCKS

from specweb.experiments.models import Job
from specweb.results.models import Attempt, AttemptState
from specweb.results.queries import trial_outcomes

from .noise_floor import floors_of_job
from .parsing import workloads_of

log = logging.getLogger(__name__)


def look_at_job(job_id: UUID) -> bool:
    """Takes the looks that the parsed attempts of a held job allow, if its experiment stops early. Returns whether anything is new.

    What is decided stays decided. Nothing is raised for a look that fails: the job goes on without, and its comparison tells.
    """
    jobs = Job.objects.filter(state__in=[s.value for s in HELD], experiment__spec__sequential=True, extends=None)
    job = jobs.select_related("experiment", "inventory", "runtime").filter(pk=job_id).first()
    if job is None:
        return False
    try:
        found = _looks(job)
    except DatabaseError:
        raise
    except Exception:
        log.exception("no early look at job %s", job.pk)
        return False
    if found is None:
        return False
    news = {"looked_after": found.after_block, "decided": {**found.decided, **job.decided}}
    # Swapped: of two workers that looked at once one has seen less.
    return Job.objects.filter(pk=job.pk, looked_after=job.looked_after, decided=job.decided).update(**news) == 1


def _looks(job: Job) -> early.Looks | None:
    """None: no block has become whole since the last look."""
    spec, plan, outcomes = job.experiment.parsed_spec, JobPlan.model_validate(job.plan), trial_outcomes(job)
    unread = Attempt.objects.filter(trial__job=job, counted=True, state=AttemptState.RECEIVED).aggregate(first=Min("trial__block"))["first"]
    at_most = spec.blocks if unread is None else unread - 1
    until = min(at_most, early.whole_until(spec, plan, outcomes, job.decided))
    if until <= job.looked_after or until < MIN_BLOCKS:
        return None
    good = list(
        Attempt.objects.filter(trial__job=job, accepted=True, measurement__isnull=False, trial__block__lte=until)
        .select_related("measurement", "trial")
        .order_by("trial__index")
    )
    measured: list[AttemptMeasurement] = [a.measurement.parsed for a in good if a.measurement is not None]
    again = {o.trial for o in outcomes if o.error is not None} & {m.trial for m in measured}
    floors = floors_of_job(job, spec, until, max((a.ended_at for a in good), default=None))
    basis = early.Basis(spec, plan, workloads_of(job.experiment), JobFacts(floors=floors).floor_at, again)
    return early.look_so_far(basis, outcomes, measured, at_most)
