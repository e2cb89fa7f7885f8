"""Reads about workloads: which there are, who asks with one, what its prompts took in tokens where they were asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import F, IntegerField
from django.db.models.expressions import Func
from django.db.models.functions import Coalesce

from specweb.experiments.models import Experiment, Point, Viewer, Workload
from specweb.experiments.text import storable

from .models import Probe

#: Of so many points the counts are looked for: newer ones first.
MOST_POINTS = 10


def workloads_listed(user: Viewer, *, team: str = "") -> list[Any]:
    """What a person may know of, each with ``n_items`` and ``n_warmup``, without the prompts (1 statement). ``team``: its own only."""
    rows = Workload.objects.visible_to(user).select_related("team", "owner").defer("content")
    rows = rows.annotate(n_items=_length("content__items"), n_warmup=_length("content__warmup"))
    rows = rows.filter(team__slug=storable(team)) if team else rows
    return list(rows.order_by("name", "team__slug", "-version"))


def _length(path: str) -> Coalesce:
    return Coalesce(Func(F(path), function="jsonb_array_length", output_field=IntegerField()), 0)


def workload_shown(user: Viewer, workload_id: int) -> Workload | None:
    """One that a person may know of (1 statement). Whether they may read its prompts is another question: :func:`may_read`."""
    return Workload.objects.visible_to(user).select_related("team", "owner").filter(pk=workload_id).first()


def may_read(user: Viewer, workload: Workload) -> bool:
    """Whether somebody may read its prompts (1 statement)."""
    return Workload.objects.readable_to(user).filter(pk=workload.pk).exists()


def versions_of(user: Viewer, workload: Workload) -> list[Workload]:
    """All versions under its name that a person may know of, newest first (1 statement)."""
    rows = Workload.objects.visible_to(user).filter(team=workload.team_id, name=workload.name).defer("content")
    return list(rows.order_by("-version"))


def users_of(user: Viewer, workload: Workload, n: int) -> tuple[list[Experiment], int]:
    """The newest experiments that ask with it and that a person may read, and how many there are (2 statements)."""
    rows = Experiment.objects.visible_to(user).filter(points__workload=workload).distinct().select_related("team").defer("spec")
    return list(rows.order_by("-id")[:n]), rows.count()


@dataclass(frozen=True)
class Counted:
    """What an engine read for a prompt with nothing before it: by which model, and where."""

    tokens: int
    model: str
    host: str


def tokens_counted(user: Viewer, workload: Workload, items: list[str]) -> dict[str, Counted]:
    """Item → tokens by the newest count of experiments that one may read (2 statements).

    Not of points with a chat template or a filled context: what these add belongs to the point.
    """
    points = Point.objects.filter(workload=workload, occupied_context=0, settings__thinking=None)
    points = points.filter(experiment__in=Experiment.objects.visible_to(user)).order_by("-pk")
    recent = list(points.values_list("pk", flat=True)[:MOST_POINTS])
    rows = Probe.objects.filter(point__in=recent, item__in=items, prompt_tokens__isnull=False).order_by("item", "-pk").distinct("item")
    job = "attempt__trial__job__"
    told = rows.values_list("item", "prompt_tokens", f"{job}target__architecture", f"{job}target__quantization", f"{job}host__name")
    return {item: Counted(n, " ".join(filter(None, (name, quantized))), host or "") for item, n, name, quantized, host in told}
