"""What the overview reads: what runs, what was answered, the hosts; the number of statements doesn't grow with any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Case, Exists, F, OuterRef, Prefetch, Q, Subquery, When
from django.db.models.functions import JSONObject
from speccore.jobstate import FINAL, HELD, JobState
from speccore.person import STORED
from speccore.spec import Point as PointSpec

from specweb.accounts.models import Membership, Role
from specweb.experiments.models import Arm, Experiment, Host, Job, Point, Viewer
from specweb.experiments.text import storable

from .models import Analysis, Attempt, Trial
from .related import keep_related

#: Words of a search that count.
MAX_WORDS = 8
_FINAL = [s.value for s in FINAL]
_OPEN = [s.value for s in JobState if s not in FINAL]


def experiments_shown(user: Viewer, start: int, n: int, words: str = "") -> list[Experiment]:
    """The newest experiments that a person may read and that have come to an end somewhere, with jobs, hosts and newest answers.

    Each has ``modes`` of its arms and ``points_told`` (:class:`PointTold`), each job ``answers``; the rest of their rows and of the
    analyses stays in the database. ``words`` must all stand in the name or the question (2 statements).
    """
    # From the few jobs that have not ended: asked of each experiment in turn, all of them would be read.
    ended = Job.objects.current().filter(experiment=OuterRef("experiment"), state__in=_FINAL)
    unended = Job.objects.current().filter(~Exists(ended), state__in=_OPEN).values("experiment")
    found = Experiment.objects.visible_to(user).exclude(pk__in=unended)
    for word in storable(words).split()[:MAX_WORDS]:
        found = found.filter(Q(name__icontains=word) | Q(question__icontains=word))
    newest = Analysis.objects.filter(job=OuterRef("pk")).order_by("-id").values("numbers__answers")[:1]
    jobs = Job.objects.read_by(user).select_related("host", "wanted_host").defer("plan", "commands", "progress")
    arms = Arm.objects.filter(experiment=OuterRef("pk")).values_list(JSONObject(name="name", mode="mode"))
    points = Point.objects.filter(experiment=OuterRef("pk")).values_list(JSONObject(**{n: n for n in _OF_POINT}, title="workload__title"))
    # Which ones, first: else arms and points of all those on the pages before would be gathered too.
    page = Experiment.objects.filter(pk__in=found.values("pk")[start : start + n]).select_related("team").defer("spec")
    page = page.annotate(arms_told=ArraySubquery(arms), points_listed=ArraySubquery(points))
    shown = list(page.prefetch_related(Prefetch("jobs", jobs.annotate(newest=Subquery(newest)))))
    for experiment in shown:
        experiment.modes = {a["name"]: a["mode"] for a in experiment.arms_told}
        experiment.points_told = {p["key"]: PointTold(**p) for p in experiment.points_listed}
        for job in experiment.jobs.all():
            job.answers = job.newest or []
    return shown


@dataclass(frozen=True)
class PointTold:
    """A point with the title of its workload, as far as an answer is told by it."""

    key: str
    title: str
    temperature: float
    occupied_context: int
    settings: dict[str, Any]

    @property
    def parsed(self) -> PointSpec:
        return PointSpec.model_validate(self.settings, context=STORED)


_OF_POINT = ("key", "temperature", "occupied_context", "settings")


def jobs_unended(user: Viewer, n: int) -> list[Job]:
    """Jobs that wait, run or are being read, those that run first, then the newest (1 statement)."""
    order = Case(When(state__in=list(HELD), then=0), When(state=JobState.COMPLETED, then=1), When(state=JobState.QUEUED, then=2), default=3)
    jobs = Job.objects.visible_to(user).read_by(user).current().filter(state__in=_OPEN)
    return list(
        jobs.select_related("experiment", "experiment__team", "host", "wanted_host")
        .defer("plan", "commands", "experiment__spec")
        .order_by(order, "-id")[:n]
    )


_OF_ATTEMPT = ("id", "accepted", "counted", "outcome", "started_at", "ended_at", "received_at")


def trials_of_jobs(job_ids: Sequence[UUID]) -> dict[UUID, list[Trial]]:
    """Job → its trials in order with their attempts, as far as needed to tell how far it is (1 statement)."""
    told = {f"of_{name}": F(f"attempts__{name}") for name in _OF_ATTEMPT}
    rows = Trial.objects.filter(job__in=job_ids).select_related("arm").annotate(**told).order_by("job_id", "index", "of_received_at")
    found: dict[UUID, list[Trial]] = {}
    attempts: dict[int, list[Attempt]] = {}
    for trial in rows:  # a row for each attempt, and one for a trial without any
        if trial.pk not in attempts:
            attempts[trial.pk] = []
            found.setdefault(trial.job_id, []).append(trial)
        if trial.of_id is not None:
            attempts[trial.pk].append(Attempt(trial_id=trial.pk, **{name: getattr(trial, f"of_{name}") for name in _OF_ATTEMPT}))
    for trials in found.values():
        for trial in trials:
            keep_related(trial, "attempts", attempts[trial.pk])
    return found


def colleagues_who_submit(user: Viewer) -> list[str]:
    """Names of those in a person's teams who may submit experiments (1 statement)."""
    roles = (Role.SUBMITTER, Role.MAINTAINER)
    mine = Membership.objects.filter(user_id=user.pk).values("team")
    names = Membership.objects.filter(team__in=mine, role__in=roles, user__is_active=True).values_list("user__username", flat=True)
    return sorted(set(names))


def hosts_shown(user: Viewer) -> list[Host]:
    return list(Host.objects.visible_to(user).filter(revoked_at=None).select_related("inventory").defer("inventory__content"))


def hosts_offering(user: Viewer) -> list[Host]:
    """The person's hosts with all that they offer (1 statement)."""
    return list(Host.objects.visible_to(user).filter(revoked_at=None, inventory__isnull=False).select_related("inventory").order_by("name"))
