"""What the pages about hosts read: each function one statement, however many hosts, jobs or attempts there are."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from django.db.models import Exists, JSONField, OuterRef, Subquery, Value
from django.db.models.functions import NullIf
from speccore.jobstate import HELD, JobState

from specweb.experiments.models import Experiment, Host, Job, Viewer

from .models import Attempt, AttemptQuerySet

_HEAVY = ("plan", "commands", "experiment__spec")


def hosts_listed(user: Viewer) -> list[Host]:
    """All hosts of a person's teams, revoked ones last, with what they offer."""
    hosts = Host.objects.visible_to(user).select_related("team", "inventory")
    return sorted(hosts, key=lambda h: (h.revoked_at is not None, h.team.name, h.name))


def host_shown(user: Viewer, host_id: UUID) -> Host | None:
    return Host.objects.visible_to(user).select_related("team", "inventory").filter(pk=host_id).first()


def jobs_at_work(user: Viewer, hosts: Sequence[Host]) -> dict[UUID, Job]:
    """Host → the job that it holds, whoever's; ``readable``: whether the person may know of which experiment it is."""
    readable = Exists(Experiment.objects.visible_to(user).filter(pk=OuterRef("experiment")))
    held = Job.objects.filter(host__in=hosts, state__in=list(HELD)).annotate(readable=readable)
    held = held.select_related("experiment").defer(*_HEAVY)
    return {job.host_id: job for job in held if job.host_id}


def jobs_of(user: Viewer, host: Host, n: int) -> list[Job]:
    """The newest jobs of a host, with those that wait for it."""
    jobs = Job.objects.visible_to(user).select_related("experiment").defer(*_HEAVY).order_by("-id")
    return list((jobs.filter(host=host) | jobs.filter(wanted_host=host, host=None))[:n])


def newest_failures(user: Viewer, hosts: Sequence[Host]) -> dict[UUID, Attempt]:
    """Host → the last attempt there that failed, of experiments that the person may read."""
    last = _failed(user).filter(lease__host=OuterRef("pk")).order_by("-received_at").values("pk")[:1]  # of each host in turn
    found = Attempt.objects.filter(pk__in=Host.objects.filter(pk__in=[h.pk for h in hosts]).annotate(last=Subquery(last)).values("last"))
    return {a.lease.host_id: a for a in found.select_related("lease")}


def _failed(user: Viewer) -> AttemptQuerySet:
    """Attempts that failed, of experiments that the person may read: by their leases, so that no trial need be looked at.

    That a reason was told is asked in a way of which the database has no statistics. By those, next to none has failed with one,
    and it would read them all rather than go through the newest.
    """
    readable = Experiment.objects.visible_to(user).filter(pk=OuterRef("lease__job__experiment"))
    told = NullIf("error", Value(None, JSONField()))
    return Attempt.objects.alias(told=told).filter(Exists(readable), outcome="failed", told__isnull=False)


def failures_of(user: Viewer, host: Host, n: int) -> list[Attempt]:
    """The newest attempts on a host that failed, of experiments that the person may read."""
    newest = _failed(user).filter(lease__host=host).order_by("-received_at").values("pk")[:n]
    failed = Attempt.objects.filter(pk__in=newest).order_by("-received_at")
    trial = ("trial", "trial__arm", "trial__job", "trial__job__experiment")
    return list(failed.select_related(*trial).defer("trial__job__plan", "trial__job__commands", "trial__job__experiment__spec"))


def failed_jobs_of(user: Viewer, host: Host, n: int) -> list[Job]:
    """The newest jobs that failed on a host."""
    failed = Job.objects.visible_to(user).filter(host=host, state=JobState.FAILED.value).exclude(error=None)
    return list(failed.select_related("experiment").defer(*_HEAVY).order_by("-ended_at")[:n])


def n_jobs_to_lose(host: Host) -> tuple[int, int]:
    """Jobs that would fail if the host were revoked now: those that it holds, and those that ask for this very host."""
    held = Job.objects.filter(host=host, state__in=list(HELD))
    bound = Job.objects.filter(wanted_host=host, state__in=[JobState.WAITING.value, JobState.QUEUED.value])
    return held.count(), bound.count()
