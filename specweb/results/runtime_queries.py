"""What the pages about engine builds read: each function one statement, however many hosts, builds or jobs there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from django.db.models import Count, Q
from speccore.inventory import RuntimeInfo
from speccore.jobstate import JobState

from specweb.experiments.models import Host, HostInventory, HostRuntime, Job, Runtime, Viewer

_HEAVY = ("plan", "commands", "experiment__spec")


def builds_seen(hosts: Sequence[Host]) -> list[HostRuntime]:
    """Every build that the hosts offer or once did, the longest known first."""
    return list(HostRuntime.objects.filter(host__in=hosts).select_related("runtime").order_by("first_seen_at", "pk"))


class JobsThere(NamedTuple):
    """Jobs that a build was chosen for on a host, and those of them that ended with an answer."""

    n: int
    n_answered: int


def jobs_by_build(hosts: Sequence[Host]) -> dict[tuple[UUID, int], JobsThere]:
    """(host, build) → its jobs there."""
    counted = Job.objects.filter(host__in=hosts, runtime__isnull=False).order_by().values_list("host_id", "runtime_id")
    counted = counted.annotate(n=Count("pk"), answered=Count("pk", filter=Q(state=JobState.PROCESSED.value)))
    return {(host, build): JobsThere(n, answered) for host, build, n, answered in counted}


def build_shown(user: Viewer, manifest_hash: str) -> Runtime | None:
    """A build that a host of the person's teams offers or once did."""
    found: Runtime | None = Runtime.objects.visible_to(user).filter(manifest_hash=manifest_hash).first()
    return found


def hosts_of_build(user: Viewer, build: Runtime) -> list[Host]:
    """The hosts of a person's teams that offer it or once did."""
    return list(Host.objects.visible_to(user).filter(hostruntime__runtime=build).select_related("team", "inventory").order_by("name"))


def last_told(host: Host, manifest_hash: str) -> RuntimeInfo | None:
    """What a host told of a build the last time that it had it."""
    told = HostInventory.objects.filter(host=host, content__runtimes__contains=[{"manifest_hash": manifest_hash}])
    inventory = told.order_by("-received_at").first()
    offered = inventory.parsed.runtimes if inventory else []
    return next((r for r in offered if r.manifest_hash == manifest_hash), None)


def jobs_of_build(user: Viewer, hosts: Sequence[Host], build: Runtime, n: int) -> list[Job]:
    """The newest jobs on these hosts that it was chosen for, of experiments that the person may read."""
    jobs = Job.objects.visible_to(user).filter(host__in=hosts, runtime=build).select_related("experiment", "host").defer(*_HEAVY)
    return list(jobs.order_by("-id")[:n])
