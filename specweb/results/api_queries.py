"""What people's programs read: each function one or a few statements, however many experiments, jobs or files there are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Case, Count, Exists, F, OuterRef, Prefetch, Q, QuerySet, Subquery, When
from django.db.models.lookups import Exact
from speccore.jobstate import JobState

from specweb.accounts.models import User
from specweb.experiments.models import STATE_ORDER, Experiment, ExperimentQuerySet, Host, Job
from specweb.experiments.text import storable

from .models import Analysis, Attempt, Comparison, EvidenceFile, Trial


def experiments_listed(user: User) -> ExperimentQuerySet:
    """Experiments that a person may read, with their jobs (2 statements)."""
    jobs = Job.objects.read_by(user).select_related("host", "wanted_host").defer("plan", "commands", "progress")
    found = Experiment.objects.visible_to(user).select_related("team", "created_by").defer("spec")
    return found.prefetch_related(Prefetch("jobs", jobs))


def in_state(found: ExperimentQuerySet, state: JobState) -> ExperimentQuerySet:
    """Those that show ``state``: a job of theirs is in it, and none is in a state that goes before (see ``Experiment.state``)."""
    here = Job.objects.current().filter(experiment=OuterRef("pk"))
    order = Case(*(When(state=s.value, then=n) for n, s in enumerate(STATE_ORDER)))
    found = found.filter(Exact(Subquery(here.order_by(order).values("state")[:1]), state.value))
    # Most are processed, so that the newest of them are soon found; where few are in a state, those are where to begin.
    return found if state is JobState.PROCESSED else found.filter(Exists(here.filter(state=state.value)))


def job_with_what_it_ran_on(user: User, job_id: UUID) -> Job:
    """A job that the person may read, with host, build, target and machine (1 statement)."""
    return Job.objects.read_by(user).select_related("host", "wanted_host", "runtime", "target", "inventory").get(pk=job_id)


def analyses_of(job: Job) -> QuerySet[Analysis]:
    """Each with ``n``, its number of comparisons, and ``current``: whether none is newer."""
    newest = Analysis.objects.filter(job=job).order_by("-pk").values("pk")[:1]
    return Analysis.objects.filter(job=job).defer("numbers").annotate(n=Count("comparisons"), current=Exact(F("pk"), Subquery(newest)))


def analysis_of(job: Job, analysis_id: int) -> Analysis | None:
    return Analysis.objects.filter(job=job, pk=analysis_id).first() if analysis_id < 2**63 else None


def trials_of(job: Job) -> QuerySet[Trial]:
    """With their arms and attempts (2 statements)."""
    attempts = Attempt.objects.order_by("received_at").defer("parse_error", "measurement")
    return Trial.objects.filter(job=job).select_related("arm").prefetch_related(Prefetch("attempts", attempts))


def trials_counted(jobs: Sequence[Job]) -> dict[UUID, tuple[int, int]]:
    """Job → how many trials it has, and how many of them are measured (1 statement)."""
    rows = Trial.objects.filter(job__in=jobs).values("job_id").order_by("job_id")
    counted = rows.annotate(n=Count("id", distinct=True), done=Count("id", distinct=True, filter=Q(attempts__accepted=True)))
    return {row["job_id"]: (row["n"], row["done"]) for row in counted}


def comparisons_of(experiment: Experiment) -> list[Comparison]:
    """The current comparisons of all jobs of an experiment, those of a job that a finished retry replaced left out (1 statement)."""
    rows = Comparison.objects.current().filter(job__experiment=experiment).exclude(job__retry__state=JobState.PROCESSED.value)
    return list(rows.order_by("job_id", "point__position", "arm__position"))


def evidence_of_job(job: Job) -> QuerySet[EvidenceFile]:
    """Evidence files of a job (1 statement)."""
    return EvidenceFile.objects.filter(attempt__trial__job=job).select_related("blob", "attempt", "attempt__trial__arm")


def hosts_listed(user: User, *, team: str) -> list[Host]:
    """Hosts of a person's teams that are not revoked, with what they offer (1 statement)."""
    hosts = Host.objects.visible_to(user).filter(revoked_at=None).select_related("team", "inventory")
    return list((hosts.filter(team__slug=storable(team)) if team else hosts).order_by("team__slug", "name"))
