"""Experiments, hosts, workloads, what other tools report, and the audit log as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import django_filters as filters
from django.conf import settings
from django.db.models import F, IntegerField, Prefetch, QuerySet
from django.db.models.expressions import Func
from django.db.models.functions import Coalesce
from django.utils import timezone

from specweb.accounts.audit_models import AuditEntry
from specweb.accounts.audit_queries import COLUMNS
from specweb.experiments.models import Experiment, Host, Job, Viewer, Workload
from specweb.experiments.services.silence import Limits, host_state
from specweb.experiments.text import storable
from specweb.experiments.viewer import teams_of
from specweb.reported.models import MARK, ReportedNumber, ReportedRun
from specweb.reported.queries import matching

from .experiment_filter import ORDERS, ExperimentFilter
from .table import CHUNK, Table, address, columns
from .texts import Text


class OrderedExperiments(ExperimentFilter):
    by = Text(label="Who submitted it; of experiments of one's own teams.", method="by_person")

    def by_person(self, rows: Any, name: str, value: str) -> Any:
        return rows.filter(created_by__username=storable(value), team__in=teams_of(self.request.user))

    def as_it_is(self, rows: Any, name: str, value: str) -> Any:
        return rows.order_by(*ORDERS[value])


def _experiments(user: Viewer) -> QuerySet[Experiment]:
    return Experiment.objects.visible_to(user).order_by(*ORDERS["newest"])


def _experiment_lines(rows: QuerySet[Experiment], user: Viewer) -> Iterator[Sequence[Any]]:
    jobs = Job.objects.only("experiment_id", "state", "retry_of_id")
    found = rows.select_related("team", "created_by").prefetch_related(Prefetch("jobs", jobs)).defer("spec")
    own = set(teams_of(user).values_list("pk", flat=True))  # names of people are for their teams
    for e in found.iterator(CHUNK):
        by = e.created_by.get_username() if e.created_by and e.team_id in own else None
        names = (str(e.pk), e.name, e.question, e.team.slug, e.visibility, e.origin, str(e.state), len(e.jobs.all()))
        yield (*names, e.created_at, by, e.spec_hash, address(f"/experiments/{e.pk}/"))


EXPERIMENTS = Table(
    "experiments",
    "Experiments, the newest first.",
    (
        *columns("id", "id"),
        *columns("text", "name question team visibility origin state"),
        *columns("integer", "n_jobs"),
        *columns("time", "created_at"),
        *columns("text", "created_by"),
        *columns("id", "spec_hash"),
        *columns("text", "url"),
    ),
    OrderedExperiments,
    _experiments,
    _experiment_lines,
)


class HostsFilter(filters.FilterSet):
    team = Text("team__slug", label="Of this team.")

    class Meta:
        model = Host
        fields: list[str] = []


def _hosts(user: Viewer) -> QuerySet[Host]:
    return Host.objects.visible_to(user).filter(revoked_at=None).order_by("team__slug", "name")


def _host_lines(rows: QuerySet[Host], user: Viewer) -> Iterator[Sequence[Any]]:
    now, limits = timezone.now(), Limits.of(settings)
    for h in rows.select_related("team", "inventory").iterator(CHUNK // 10):
        offered = h.inventory.parsed if h.inventory else None
        machine = (offered.driver(), offered.cpu_model, offered.n_cores, offered.memory_bytes) if offered else (None,) * 4
        offers = (len(offered.models), len(offered.runtimes)) if offered else (None, None)
        names = (str(h.pk), h.name, h.team.slug, host_state(h, now, limits), h.takes_no_jobs, h.labels)
        hardware = h.inventory.hardware if h.inventory else None
        yield (*names, hardware, *machine, *offers, h.agent_version or None, h.last_seen_at, h.enrolled_at, address(f"/hosts/{h.pk}/"))


HOSTS = Table(
    "hosts",
    "Hosts of one's teams; numbers are empty until the agent has told of the machine.",
    (
        *columns("id", "id"),
        *columns("text", "name team state"),
        *columns("yes or no", "draining"),
        *columns("json", "labels"),
        *columns("text", "hardware driver cpu_model"),
        *columns("integer", "n_cores memory_bytes n_models n_runtimes"),
        *columns("text", "agent_version"),
        *columns("time", "last_seen_at enrolled_at"),
        *columns("text", "url"),
    ),
    HostsFilter,
    _hosts,
    _host_lines,
)


class WorkloadsFilter(filters.FilterSet):
    team = Text("team__slug", label="Of this team, without the built-in ones.")
    name = Text(label="All versions of one name.")

    class Meta:
        model = Workload
        fields: list[str] = []


def _workloads(user: Viewer) -> QuerySet[Workload]:
    return Workload.objects.visible_to(user).order_by("name", "team__slug", "-version")


def _workload_lines(rows: QuerySet[Workload], user: Viewer) -> Iterator[Sequence[Any]]:
    counts = {
        n: Coalesce(Func(F(f"content__{n}"), function="jsonb_array_length", output_field=IntegerField()), 0) for n in ("items", "warmup")
    }
    found = rows.select_related("team").defer("content").annotate(n_items=counts["items"], n_warmup=counts["warmup"])
    for w in found.iterator(CHUNK):
        names = (w.pk, str(w), w.name, w.version, w.title, w.team.slug if w.team else None, w.private, w.n_items, w.n_warmup)
        yield (*names, w.content_hash, w.created_at, w.archived_at, address(f"/workloads/{w.pk}/"))


WORKLOADS = Table(
    "workloads",
    "Workloads that one may know of, without their prompts.",
    (
        *columns("integer", "id"),
        *columns("text", "ref name"),
        *columns("integer", "version"),
        *columns("text", "title team"),
        *columns("yes or no", "private"),
        *columns("integer", "n_items n_warmup"),
        *columns("id", "content_hash"),
        *columns("time", "created_at archived_at"),
        *columns("text", "url"),
    ),
    WorkloadsFilter,
    _workloads,
    _workload_lines,
)


class ReportedFilter(filters.FilterSet):
    report = filters.UUIDFilter("run__report_id", label="Of one imported file.")
    tool = Text("run__report__tool", label="Of this tool.")
    team = Text("run__report__team__slug", label="Of this team.")
    model = filters.CharFilter(label="A part of the model's words.", method="by_words")
    hardware = filters.CharFilter(label="A part of the hardware's words.", method="by_words")

    class Meta:
        model = ReportedNumber
        fields: list[str] = []

    def by_words(self, rows: Any, name: str, value: str) -> Any:
        asked = matching(value, "") if name == "model" else matching("", value)
        return rows.filter(run__in=ReportedRun.objects.filter(asked)) if asked is not None else rows


def _reported(user: Viewer) -> QuerySet[ReportedNumber]:
    return ReportedNumber.objects.filter(run__in=ReportedRun.objects.visible_to(user)).order_by("-run__report_id", "run__index", "index")


def _reported_lines(rows: QuerySet[ReportedNumber], user: Viewer) -> Iterator[Sequence[Any]]:
    for n in rows.select_related("run__report__team").iterator(CHUNK):
        run, report = n.run, n.run.report
        names = (MARK, str(report.pk), report.title, report.team.slug, report.tool, report.tool_version or None, report.source_url or None)
        what = (run.index + 1, run.title, run.model, run.engine, run.hardware, run.arm, run.concurrency)
        number = (n.key, n.name, n.unit, n.statistic, n.value, n.low, n.high, n.written, n.definition, n.caution or None, n.metric or None)
        yield (*names, *what, *number, n.note or None, n.line, address(f"/reported/{report.pk}/"))


REPORTED = Table(
    "reported",
    "Numbers that other tools report, as they report them: not verified here, never part of a verdict.",
    (
        *columns("text", "mark"),
        *columns("id", "report"),
        *columns("text", "title team tool tool_version source_url"),
        *columns("integer", "run"),
        *columns("text", "run_title model engine hardware arm"),
        *columns("number", "concurrency"),
        *columns("text", "key name unit statistic"),
        *columns("number", "value low high"),
        *columns("text", "written definition caution nearest_metric note"),
        *columns("integer", "line"),
        *columns("text", "url"),
    ),
    ReportedFilter,
    _reported,
    _reported_lines,
)


class AuditFilter(filters.FilterSet):
    team = Text(label="The team's name, as it was then.")
    actor = Text(label="Who did it.")
    action = filters.CharFilter(label="An action, such as host.revoke, or a kind of thing, such as host.", method="by_action")
    object = Text("object_id", label="The id of the thing.")
    since = filters.DateFilter(label="On that day (UTC) or later.", method="by_day")
    until = filters.DateFilter(label="On that day (UTC) or earlier.", method="by_day")

    class Meta:
        model = AuditEntry
        fields: list[str] = []

    def by_action(self, rows: Any, name: str, value: str) -> Any:
        return rows.filter(action=value) if "." in value else rows.filter(kind=value)

    def by_day(self, rows: Any, name: str, value: date) -> Any:
        begin = datetime.combine(value, time.min, UTC)
        if name == "since":
            return rows.filter(at__gte=begin)
        return rows.filter(at__lt=begin + timedelta(days=1)) if value < date(9999, 12, 31) else rows


def _audit(user: Viewer) -> QuerySet[AuditEntry]:
    return AuditEntry.objects.visible_to(user).order_by("-id")


def _audit_lines(rows: QuerySet[AuditEntry], user: Viewer) -> Iterator[Sequence[Any]]:
    for entry in rows.iterator(CHUNK):
        yield tuple(getattr(entry, name) for name in COLUMNS)


AUDIT = Table(
    "audit",
    "The audit log of the teams that one maintains, and what one did oneself, the newest first.",
    (
        *columns("integer", "id"),
        *columns("time", "at"),
        *columns("text", " ".join(COLUMNS[2:])),
    ),
    AuditFilter,
    _audit,
    _audit_lines,
)
