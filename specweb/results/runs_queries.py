"""Runs of one question: what the page reads that puts them side by side. Each function one statement."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Max, Min
from speccore.measurement import JoinedPart

from specweb.experiments.models import Experiment, Viewer

from .models import Analysis, Attempt, Comparison, Listing

#: Runs of other experiments that the page shows, the newest.
OTHERS_SHOWN = 100


@dataclass(frozen=True)
class Version:
    """A comparison of a job, superseded or not."""

    id: UUID
    job: UUID
    arm: str
    mode: str
    point: str
    speedup: float | None
    low: float | None
    high: float | None
    n_blocks: int
    verdict: str
    reason: str
    analysis: int
    analysis_version: int
    at: datetime
    superseded: bool
    block_values: dict[str, float]
    joined: dict[str, Any] | None


def versions(experiment: Experiment) -> list[Version]:
    """All comparisons that an experiment's jobs ever had, in the order of arm and point, the oldest first."""
    rows = Comparison.objects.filter(job__experiment=experiment).order_by("point__position", "arm__position", "job_id", "created_at", "pk")
    fields = ("id", "job_id", "arm__name", "arm__mode", "point__key", "speedup", "ci_low", "ci_high", "n_blocks", "verdict", "reason")
    more = ("analysis_id", "analysis_version", "created_at", "superseded_by_id", "numbers__block_values", "numbers__joined")
    return [
        Version(*row[:-3], superseded=row[-3] is not None, block_values=row[-2] or {}, joined=row[-1])
        for row in rows.values_list(*fields, *more)
    ]


def parts_told(experiment: Experiment) -> dict[UUID, list[JoinedPart]]:
    """Job → what its newest analysis says of the jobs that it was, or could not be, compared together with."""
    rows = Analysis.objects.filter(job__experiment=experiment, numbers__parts__0__isnull=False).order_by("id")
    return {job: [JoinedPart.model_validate(p) for p in parts] for job, parts in rows.values_list("job_id", "numbers__parts")}


def runs_listed(user: Viewer, experiment: Experiment) -> list[Listing]:
    """What is listed of this experiment's questions, here and in other experiments that a person may read, the newest first."""
    asked = Listing.objects.filter(experiment=experiment).values("question_key")
    rows = Listing.objects.visible_to(user).filter(question_key__in=asked)
    shown = rows.select_related("comparison", "comparison__arm", "comparison__point", "host", "experiment")
    return list(
        shown.defer("comparison__numbers", "experiment__spec", "question", "figures").order_by("-measured_at", "-comparison_id")[
            :OTHERS_SHOWN
        ]
    )


def block_seconds(jobs: Collection[UUID]) -> float | None:
    """What a block took on average in these jobs, from the first trial's start to the last one's end of each."""
    rows = (
        Attempt.objects.filter(trial__job__in=jobs, accepted=True)
        .values("trial__job_id", "trial__block")
        .order_by()
        .annotate(began=Min("started_at"), ended=Max("ended_at"))
        .values_list("began", "ended")
    )
    took = [(ended - began).total_seconds() for began, ended in rows]
    return sum(took) / len(took) if took else None
