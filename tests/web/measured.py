"""Jobs with numbers of the test's choice: submitted, dispatched and compared by the real services, measured by nobody."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from speccore.jobstate import JobState
from speccore.measurement import AttemptMeasurement
from speccore.protocol import ProbePlan, TrialPlan
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Host, Job
from specweb.experiments.services.jobs import move_job
from specweb.results.models import Attempt, MeasurementSet
from specweb.results.services.comparing import compare_job
from tests.core import made
from tests.remembered import remembered
from tests.web import sample

Noise = Callable[[TrialPlan, ProbePlan], float]


def scatter(seed: int, between: float, within: float = 0.0) -> Noise:
    """Times that vary by start and by probe, normal in their logarithm, the same in each run."""

    def noise(trial: TrialPlan, probe: ProbePlan) -> float:
        start, own = random.Random(f"{seed}/{trial.id}"), random.Random(f"{seed}/{trial.id}/{probe.id}")
        return float(2.718281828459045 ** (start.gauss(0, between) + own.gauss(0, within)))

    return noise


@remembered
def job_of(
    who: sample.People,
    host: Host,
    spec: ExperimentSpec,
    speeds: dict[str, float],
    noise: Noise,
    *,
    at: datetime | None = None,
    without: Iterable[str] = (),
    change: Callable[[AttemptMeasurement], AttemptMeasurement] = lambda a: a,
) -> Job:
    """A processed job of ``spec`` on ``host``; an arm of speed s needs 2 ÷ s seconds for each probe, times the noise.

    ``at``: when its last attempt ended. ``without``: trials that gave no numbers.
    """
    run = sample.claimed(sample.submitted(who.team, who.owner, spec), host)
    now, at = datetime.now(UTC), at or datetime.now(UTC) - timedelta(minutes=1)
    for m in made.attempts(spec, run.plan, speeds, noise=noise, without=without):
        attempt = Attempt.objects.create(
            id=uuid.uuid4(),
            trial=run.job.trials.get(plan_id=m.trial),
            n=1,
            lease=run.lease,
            state="parsed",
            outcome="ok",
            counted=True,
            accepted=True,
            boot_id="b",
            started_at=at - timedelta(seconds=20),
            ended_at=at,
            durations_s={"start": 5.0},
            received_at=now,
        )
        numbers = change(m).model_copy(update={"attempt_id": str(attempt.pk)}).model_dump(mode="json")
        attempt.measurement = MeasurementSet.objects.create(attempt=attempt, parser_version=m.parser_version, numbers=numbers)
        attempt.save(update_fields=["measurement"])
    move_job(run.job.pk, JobState.COMPLETED, now=now, by="test")
    assert compare_job(run.job.pk, now)
    run.job.refresh_from_db()
    return run.job
