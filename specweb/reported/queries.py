"""Reads about what other tools report. Comparisons and verdicts have no way to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q

from specweb.accounts.models import Team
from specweb.experiments.text import storable
from specweb.experiments.viewer import Viewer, teams_of

from .models import MappingTemplate, Report, ReportedRun
from .services import key_of

#: Fewer letters would be found in everything.
LEAST_KEY = 3
MOST_COUNTED = 100


@dataclass(frozen=True)
class Asked:
    """Filters of a list: empty ones ask nothing. ``tool`` is a slug, ``team`` one too; model and hardware are parts of words."""

    tool: str = ""
    team: str = ""
    model: str = ""
    hardware: str = ""


def reports_listed(user: Viewer, asked: Asked, *, before: UUID | None = None, n: int) -> list[Report]:
    """The newest first, each with team and person (1 statement)."""
    rows = Report.objects.visible_to(user).select_related("team", "imported_by")
    if asked.tool:
        rows = rows.filter(tool=storable(asked.tool))
    if asked.team:
        rows = rows.filter(team__slug=storable(asked.team))
    found = matching(asked.model, asked.hardware)
    if found is not None:
        rows = rows.filter(pk__in=ReportedRun.objects.filter(found).values("report"))
    if before is not None:
        rows = rows.filter(pk__lt=before)
    return list(rows.order_by("-id")[:n])


def matching(model: str, hardware: str) -> Q | None:
    """Runs whose words hold these; None if nothing is asked."""
    parts = [(f, key_of(storable(w))) for f, w in (("model_key__contains", model), ("hardware_key__contains", hardware)) if w.strip()]
    if not parts:
        return None
    found = Q()
    for lookup, key in parts:
        found &= Q(**{lookup: key}) if key else Q(pk=None)
    return found


def report_shown(user: Viewer, report_id: UUID) -> Report | None:
    """One that a person may read (1 statement)."""
    return Report.objects.visible_to(user).select_related("team", "imported_by").filter(pk=report_id).first()


def runs_of(report: Report, first: int, n: int) -> list[ReportedRun]:
    """Runs with their numbers, in the file's order (2 statements)."""
    return list(report.runs.order_by("index").prefetch_related("numbers")[first : first + n])


@dataclass(frozen=True)
class Beside:
    """Reported runs about something that was measured here: some of them, and how many there are, up to a hundred."""

    runs: list[ReportedRun]
    n: int

    @property
    def n_shown(self) -> str:
        return f"{MOST_COUNTED}+" if self.n > MOST_COUNTED else str(self.n)


def beside(user: Viewer, *, models: list[str], hardware: str, n: int) -> Beside:
    """Runs of one of these models (by any of its names) on this hardware, as far as either is asked (2 or 3 statements)."""
    keys = [k for k in (key_of(storable(m)) for m in models[:10]) if len(k) >= LEAST_KEY]
    rows = ReportedRun.objects.visible_to(user)
    if models:
        named = Q(pk=None)
        for key in keys:
            named |= Q(model_key__contains=key)
        rows = rows.filter(named)
    if hardware:
        key = key_of(storable(hardware))
        rows = rows.filter(hardware_key__contains=key) if len(key) >= LEAST_KEY else rows.none()
    found = list(rows.order_by("-report_id", "index").values_list("pk", flat=True)[: MOST_COUNTED + 1])
    shown = ReportedRun.objects.filter(pk__in=found[:n]).select_related("report").prefetch_related("numbers")
    return Beside(list(shown.order_by("-report_id", "index")) if found else [], len(found))


def templates_of(team: Team) -> list[MappingTemplate]:
    return list(MappingTemplate.objects.filter(team=team))


def templates_listed(user: Viewer) -> list[MappingTemplate]:
    """Of one's teams, each with its team (1 statement)."""
    return list(MappingTemplate.objects.filter(team__in=teams_of(user)).select_related("team").order_by("team__name", "name"))


def template_named(team: Team, name: str) -> MappingTemplate | None:
    return MappingTemplate.objects.filter(team=team, name=storable(name)).first()


def template_shown(user: Viewer, template_id: int) -> MappingTemplate | None:
    return MappingTemplate.objects.filter(team__in=teams_of(user), pk=template_id).select_related("team").first()


def teams_with_reports(user: Viewer) -> list[Any]:
    """For the list's filter (1 statement)."""
    return list(teams_of(user).order_by("name")) if user.pk else []
