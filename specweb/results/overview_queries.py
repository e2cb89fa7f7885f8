"""What the overview reads: what runs, what was answered, the hosts; the number of statements doesn't grow with any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db.models import Case, Exists, OuterRef, Prefetch, Q, When
from speccore.jobstate import FINAL, HELD, JobState

from specweb.accounts.models import Membership, Role
from specweb.experiments.models import Arm, Experiment, Host, Job, Point, Viewer
from specweb.experiments.text import storable

from .models import Analysis, Attempt, Trial

#: Words of a search that count.
MAX_WORDS = 8
_FINAL = [str(s) for s in FINAL]


def experiments_shown(user: Viewer, start: int, n: int, words: str = "") -> list[Experiment]:
    """The newest experiments that a person may read and that have come to an end somewhere, with jobs, hosts, arms and points.

    ``words`` must all stand in the name or the question (5 statements).
    """
    mine = Job.objects.current().filter(experiment=OuterRef("pk"))
    unended = Exists(mine.exclude(state__in=_FINAL)) & ~Exists(mine.filter(state__in=_FINAL))
    found = Experiment.objects.visible_to(user).exclude(unended).select_related("team").defer("spec")
    for word in storable(words).split()[:MAX_WORDS]:
        found = found.filter(Q(name__icontains=word) | Q(question__icontains=word))
    jobs = Job.objects.read_by(user).select_related("host", "wanted_host").defer("plan", "commands", "progress")
    points = Point.objects.select_related("workload").defer("workload__content")
    return list(
        found.prefetch_related(Prefetch("jobs", jobs), Prefetch("points", points), Prefetch("arms", Arm.objects.defer("settings")))[
            start : start + n
        ]
    )


def jobs_unended(user: Viewer, n: int) -> list[Job]:
    """Jobs that wait, run or are being read, those that run first, then the newest (1 statement)."""
    order = Case(When(state__in=list(HELD), then=0), When(state=JobState.COMPLETED, then=1), When(state=JobState.QUEUED, then=2), default=3)
    jobs = Job.objects.visible_to(user).read_by(user).current().exclude(state__in=_FINAL)
    return list(
        jobs.select_related("experiment", "experiment__team", "host", "wanted_host")
        .defer("plan", "commands", "experiment__spec")
        .order_by(order, "-id")[:n]
    )


def trials_of_jobs(job_ids: Sequence[UUID]) -> dict[UUID, list[Trial]]:
    """Job → its trials in order, with what is needed to tell how far it is (2 statements)."""
    attempts = Attempt.objects.only("trial_id", "accepted", "counted", "outcome", "started_at", "ended_at", "received_at")
    trials = Trial.objects.filter(job__in=job_ids).select_related("arm").prefetch_related(Prefetch("attempts", attempts))
    found: dict[UUID, list[Trial]] = {}
    for trial in trials.order_by("job_id", "index"):
        found.setdefault(trial.job_id, []).append(trial)
    return found


def colleagues_who_submit(user: Viewer) -> list[str]:
    """Names of those in a person's teams who may submit experiments (1 statement)."""
    roles = (Role.SUBMITTER, Role.MAINTAINER)
    mine = Membership.objects.filter(user_id=user.pk).values("team")
    names = Membership.objects.filter(team__in=mine, role__in=roles, user__is_active=True).values_list("user__username", flat=True)
    return sorted(set(names))


def latest_answers(job_ids: Sequence[UUID]) -> dict[UUID, list[dict[str, Any]]]:
    """Job → the answers of its newest analysis; the rest of the analysis stays in the database (1 statement)."""
    rows = Analysis.objects.filter(job__in=job_ids).order_by("job_id", "-id").distinct("job_id").values_list("job_id", "numbers__answers")
    return {job_id: answers or [] for job_id, answers in rows}


def hosts_shown(user: Viewer) -> list[Host]:
    return list(Host.objects.visible_to(user).filter(revoked_at=None).select_related("inventory").defer("inventory__content"))


def hosts_offering(user: Viewer) -> list[Host]:
    """The person's hosts with all that they offer (1 statement)."""
    return list(Host.objects.visible_to(user).filter(revoked_at=None, inventory__isnull=False).select_related("inventory").order_by("name"))
