"""What the attempts of a job answered, read from their evidence: answers are private and stand in no table."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from speccore import quality
from speccore.errors import SpecWebError
from speccore.protocol import JobPlan
from speccore.quality import TrialAnswers
from speccore.spec import ExperimentSpec

from specweb.results.models import Attempt, EvidenceFile
from specweb.results.store import read_blob

log = logging.getLogger(__name__)
#: Of all attempts together. More would hold a worker up for minutes; then quality rests on the task checks alone.
MOST_BYTES = 1 << 30


def answers_of(attempts: Sequence[Attempt], spec: ExperimentSpec, plan: JobPlan) -> list[TrialAnswers] | None:
    """Of attempts that count (1 statement). A file that can't be read is as if it were not there: what it held isn't compared."""
    found = EvidenceFile.objects.filter(attempt__in=attempts, name__in=quality.FILES).select_related("blob")
    by_attempt: dict[object, list[EvidenceFile]] = {}
    for file in found:
        by_attempt.setdefault(file.attempt_id, []).append(file)
    if (size := sum(file.blob.bytes for file in found)) > MOST_BYTES:
        log.warning("the answers of job %s have %d bytes and are not compared", attempts[0].trial.job_id, size)
        return None
    trials = {t.id: t for t in plan.trials}
    return [quality.read_answers(_contents(by_attempt.get(a.pk, [])), spec, trials[a.trial.plan_id]) for a in attempts]


def _contents(files: Sequence[EvidenceFile]) -> dict[str, bytes]:
    read = {}
    for file in files:
        try:
            read[file.name] = read_blob(file.blob)
        except (OSError, SpecWebError):
            log.exception("%s of attempt %s can't be read", file.name, file.attempt_id)
    return read
