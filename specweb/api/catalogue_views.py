"""Models, engine builds and hardware of a person's hosts, and the best arms that were found there. Read, call, answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import django_filters as filters
from django.db.models import Q
from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.questions import arm_words

from specweb.experiments.models import Host, Model, Runtime
from specweb.experiments.text import storable
from specweb.results import best_queries, host_queries, model_queries, runtime_queries

from . import people_query as query
from . import people_shapes as shapes
from .describing import Answer, Query, describe, whole
from .paging import CURSOR, PAGE, Text, filtered, filters_of, next_place, no_cursor, page, place_in
from .people_auth import PeopleView

N_NAMES, MOST_NAMES = 50, 200
N_BEST, N_JOBS = 50, 20


class ModelPlace(Answer):
    """A host that has the model, or (`there` false) once had it."""

    host: UUID
    name: str
    team: str
    aliases: list[str]
    there: bool


class ModelLine(Answer):
    manifest_hash: str
    format: str
    size_bytes: int
    architecture: str
    quantization: str
    n_parameters: int | None
    n_layers: int | None
    context_length: int | None
    vocab_size: int | None
    has_mtp: bool
    first_seen_at: datetime
    n_experiments: int
    places: list[ModelPlace]
    url: str


class ModelsAnswer(Answer):
    models: list[ModelLine]
    next: str | None


class JobOfIt(Answer):
    id: UUID
    experiment: UUID
    name: str
    host: str | None
    state: str


class BestLine(Answer):
    """One work on some hardware with the arm to use for it; `recommended` false: measured, and no arm is recommended."""

    hardware: str
    workload: str
    title: str
    concurrency: int
    occupied_context: int
    target: str
    target_hash: str
    recommended: bool
    arm: str
    arm_in_words: str
    mode: str
    speedup: float | None
    low: float | None
    high: float | None
    verdict: str
    reason: str
    engine: str
    build: str
    measured_at: datetime
    self_run: bool
    n_results: int
    job: UUID
    experiment: UUID
    experiment_name: str
    url: str
    newer_verdict: str | None  # of the newest answer to the same question there, where it is another and no keep


class ModelAnswer(ModelLine):
    files: dict[str, str]
    tokenizer_hash: str | None
    chat_template_hash: str | None
    best: list[BestLine]
    jobs: list[JobOfIt]


class ModelFilter(filters.FilterSet):
    alias = Text(label="What a host calls it.", method="by_alias")
    architecture = Text(label="As its file says.")
    quantization = Text(label="As its file says.")
    host = filters.UUIDFilter(label="On this host now or once.", method="by_host")

    class Meta:
        model = Model
        fields: list[str] = []

    def by_alias(self, rows: Any, name: str, value: str) -> Any:
        return rows.filter(aliases__alias=storable(value), aliases__host__in=self.of_mine())

    def by_host(self, rows: Any, name: str, value: UUID) -> Any:
        return rows.filter(aliases__host=value, aliases__host__in=self.of_mine())

    def of_mine(self) -> Any:
        return Host.every.visible_to(self.request.user)


class ModelsView(PeopleView):
    @describe("Models that hosts of your teams have or had", tag="Models", answer=ModelsAnswer, query=[*filters_of(ModelFilter), *PAGE])
    def get(self, request: Request) -> Response:
        found, more = page(request, filtered(request, ModelFilter, Model.objects.visible_to(request.user)), ("pk",))
        return Response({"models": _model_lines(request, found), "next": more})


class ModelView(PeopleView):
    @describe("A model, where it is, and the best arms found for it", tag="Models", answer=ModelAnswer)
    def get(self, request: Request, model_hash: str) -> Response:
        found = model_queries.model_shown(request.user, storable(model_hash))
        if found is None:
            raise Http404
        told = model_queries.last_told(request.user, found.manifest_hash)
        more = {
            "files": told.manifest if told else {},
            "tokenizer_hash": told.tokenizer_hash or None if told else None,
            "chat_template_hash": told.chat_template_hash or None if told else None,
            "best": _best(request, Q(target_hash=found.manifest_hash)),
            "jobs": [_job(j) for j in model_queries.jobs_of_model(request.user, found, N_JOBS)],
        }
        return Response(_model_lines(request, [found])[0] | more)


def _model_lines(request: Request, found: Sequence[Model]) -> list[dict[str, Any]]:
    places = model_queries.places_of(request.user, found)
    offered = model_queries.offered_now(list({p.host_id for rows in places.values() for p in rows}))
    counts = model_queries.n_experiments(request.user, found)
    own = [f for f in ModelLine.model_fields if f not in ("n_experiments", "places", "url")]
    lines = []
    for m in found:
        hosts = {p.host_id: p.host for p in places[m.pk]}
        told = []
        for pk, host in hosts.items():
            now = sorted(offered.get(pk, {}).get(m.manifest_hash, ()))
            once = [p.alias for p in places[m.pk] if p.host_id == pk]
            told.append({"host": str(pk), "name": host.name, "team": host.team.slug, "aliases": now or once, "there": bool(now)})
        more = {"n_experiments": counts.get(m.pk, 0), "places": told, "url": shapes.address("model", m.manifest_hash)}
        lines.append({name: getattr(m, name) for name in own} | more)
    return lines


def _job(job: Any) -> dict[str, Any]:
    host = job.host.name if job.host else None
    return {"id": str(job.pk), "experiment": str(job.experiment_id), "name": job.experiment.name, "host": host, "state": job.state}


class BestAnswer(Answer):
    """`measured_on_hardware`, `measured_with_model`: whether the one alone has results, of whatever else."""

    best: list[BestLine]
    measured_on_hardware: bool | None
    measured_with_model: bool | None


class BestView(PeopleView):
    @describe(
        "What works on a card with a model",
        tag="Compare",
        answer=BestAnswer,
        query=[Query("hardware", "As results name it: `hardware/` lists the names."), Query("model", "As a host calls it.")],
    )
    def get(self, request: Request) -> Response:
        """For each kind of work that was measured there the arm to use. Without a parameter, of all hardware."""
        hardware, model = query.text(request, "hardware"), query.text(request, "model")
        targets = best_queries.targets_named(request.user, model) if model else set()
        where = (Q(hardware=storable(hardware)) if hardware else Q()) & (Q(target_hash__in=targets) if model else Q())
        on, of = best_queries.measured_apart(request.user, hardware, targets)
        told = {"measured_on_hardware": on if hardware else None, "measured_with_model": of if model else None}
        return Response({"best": _best(request, where)} | told)


def _best(request: Request, where: Q) -> list[dict[str, Any]]:
    return [_best_line(b) for b in best_queries.best_arms(request.user, where, N_BEST)]


def _best_line(best: best_queries.Best) -> dict[str, Any]:
    x, c = best.shown, best.shown.comparison
    own = (
        "hardware",
        "workload",
        "title",
        "concurrency",
        "occupied_context",
        "target",
        "target_hash",
        "mode",
        "engine",
        "build",
        "self_run",
    )
    return {name: getattr(x, name) for name in own} | {
        "recommended": best.found,
        "arm": c.arm.name,
        "arm_in_words": arm_words(x.question, {str(x.question.get("arm.draft", "")): x.helper}),
        "speedup": c.speedup,
        "low": c.ci_low,
        "high": c.ci_high,
        "verdict": c.verdict,
        "reason": c.reason,
        "measured_at": x.measured_at,
        "n_results": best.n_results,
        "job": str(c.job_id),
        "experiment": str(x.experiment_id),
        "experiment_name": x.experiment.name,
        "url": shapes.address("numbers", c.job_id, arm=c.arm.name, point=c.point.key),
        "newer_verdict": best.newer.comparison.verdict if best.newer else None,
    }


class HardwareLine(Answer):
    """`hosts` of your teams that are it; what was measured on it is null where nothing was."""

    name: str
    hosts: list[str]
    n_experiments: int
    n_results: int
    targets: list[str]
    last_measured_at: datetime | None


class HardwareAnswer(Answer):
    hardware: list[HardwareLine]
    next: str | None


class HardwareView(PeopleView):
    @describe(
        "Classes of devices that your hosts have or results were measured on",
        tag="Hosts",
        answer=HardwareAnswer,
        query=[whole("limit", "At most so many.", 1, MOST_NAMES, N_NAMES), CURSOR],
    )
    def get(self, request: Request) -> Response:
        """By name; what a job used, such as one card of two, is a class of its own."""
        n, after = query.whole_number(request, "limit", N_NAMES, 1, MOST_NAMES), place_in(request)
        if after is not None and not isinstance(after, str):
            raise no_cursor(request)
        measured = best_queries.hardware_measured(request.user)
        hosts = [h for h in host_queries.hosts_listed(request.user) if h.inventory and h.revoked_at is None]
        names = sorted({h.inventory.hardware for h in hosts if h.inventory} | set(measured) - {""})
        left = [name for name in names if after is None or name > after]
        lines = [_hardware(name, hosts, measured.get(name)) for name in left[:n]]
        return Response({"hardware": lines, "next": next_place(request, left[n - 1]) if len(left) > n else None})


def _hardware(name: str, hosts: Sequence[Host], m: best_queries.Measured | None) -> dict[str, Any]:
    return {
        "name": name,
        "hosts": [h.name for h in hosts if h.inventory and h.inventory.hardware == name],
        "n_experiments": m.n_experiments if m else 0,
        "n_results": m.n_results if m else 0,
        "targets": m.targets if m else [],
        "last_measured_at": m.last_at if m else None,
    }


class BuildPlace(Answer):
    """A host that offers the build, or (`there` false) once did."""

    host: UUID
    name: str
    there: bool
    first_seen_at: datetime | None
    last_seen_at: datetime | None
    n_jobs: int


class BuildLine(Answer):
    manifest_hash: str
    engine: str
    version: str
    source_commit: str | None
    backend: str | None
    first_seen_at: datetime
    url: str


class BuildsAnswer(Answer):
    runtimes: list[BuildLine]
    next: str | None


class BuildAnswer(BuildLine):
    """`files` and `capabilities` as a host told them last."""

    kind: str | None
    files: dict[str, str]
    capabilities: dict[str, Any] | None
    oddities: list[str]
    places: list[BuildPlace]
    jobs: list[JobOfIt]


class RuntimeFilter(filters.FilterSet):
    engine = Text(label="The engine's name.")
    backend = Text(label="What it computes with, such as cuda.")
    version = filters.CharFilter(label="Stands in the version.", lookup_expr="icontains")
    host = filters.UUIDFilter("hosts", label="Offered by this host now or once.")

    class Meta:
        model = Runtime
        fields: list[str] = []


class RuntimesView(PeopleView):
    @describe(
        "Engine builds that hosts of your teams offer or offered",
        tag="Runtimes",
        answer=BuildsAnswer,
        query=[*filters_of(RuntimeFilter), *PAGE],
    )
    def get(self, request: Request) -> Response:
        found, more = page(request, filtered(request, RuntimeFilter, Runtime.objects.visible_to(request.user)))
        return Response({"runtimes": [_build(r) for r in found], "next": more})


class RuntimeView(PeopleView):
    @describe("An engine build, where it is and what it is made of", tag="Runtimes", answer=BuildAnswer)
    def get(self, request: Request, manifest_hash: str) -> Response:
        build = runtime_queries.build_shown(request.user, storable(manifest_hash))
        if build is None:
            raise Http404
        hosts = runtime_queries.hosts_of_build(request.user, build)
        now = {h.pk for h in hosts if h.inventory and any(r.manifest_hash == build.manifest_hash for r in h.inventory.parsed.runtimes)}
        told = next((r for h in hosts if (r := runtime_queries.last_told(h, build.manifest_hash))), None)
        names, n_jobs = {h.pk: h.name for h in hosts}, runtime_queries.jobs_by_build(hosts)
        places = [
            {
                "host": str(s.host_id),
                "name": names[s.host_id],
                "there": s.host_id in now,
                "first_seen_at": s.first_seen_at,
                "last_seen_at": s.last_seen_at,
                "n_jobs": n_jobs[s.host_id, build.pk].n if (s.host_id, build.pk) in n_jobs else 0,
            }
            for s in runtime_queries.builds_seen(hosts)
            if s.runtime_id == build.pk
        ]
        more = {
            "kind": told.kind if told else None,
            "files": told.manifest if told else {},
            "capabilities": told.capabilities.model_dump(mode="json") if told else None,
            "oddities": told.oddities if told else [],
            "places": places,
            "jobs": [_job(j) for j in runtime_queries.jobs_of_build(request.user, hosts, build, N_JOBS)],
        }
        return Response(_build(build) | more)


def _build(r: Runtime) -> dict[str, Any]:
    found = shapes.runtime(r) | {"engine": r.engine, "version": r.version, "first_seen_at": r.first_seen_at}
    return found | {"url": shapes.address("runtime", r.manifest_hash)}
