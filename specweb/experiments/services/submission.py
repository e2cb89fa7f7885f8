"""Taking an experiment: what it names is resolved and checked before anything is stored."""

from __future__ import annotations

import difflib

from django.db import transaction
from speccore import engines
from speccore.errors import ArmNotSupported, FlagNotAllowed, NoHostCanRun, SpecError
from speccore.plan import plan_job
from speccore.spec import ExperimentSpec
from speccore.workload import Workload as WorkloadContent

from specweb import queue
from specweb.accounts.models import Team, User
from specweb.experiments.models import Arm, Experiment, Host, HostModel, Job, Point, Visibility, Workload
from specweb.experiments.text import storable

from .placement import unknown_model


def submit(spec: ExperimentSpec, team: Team, user: User | None, visibility: Visibility = Visibility.TEAM) -> Experiment:
    """Stores an experiment with its jobs and wakes the dispatcher.

    Raises :class:`SpecError` (or a child) for a workload that isn't there, a plan that can't be made, what no build of the
    engine can do, a model that no host of the team ever advertised, and a host that the team doesn't have.
    """
    workloads = resolve_workloads(spec, team)
    plan_job(spec, {name: w.parsed for name, w in workloads.items()})  # raises what can't be planned
    _check_engine(spec)
    _check_models(spec, team)
    hosts = wanted_hosts(spec, team)
    with transaction.atomic():
        experiment = Experiment.objects.create(
            team=team,
            created_by=user,
            visibility=visibility,
            name=storable(spec.name),
            question=storable(spec.question),
            spec=storable(spec.model_dump(mode="json")),
            spec_hash=spec.spec_hash(),
        )
        Arm.objects.bulk_create(_arms(experiment, spec))
        Point.objects.bulk_create(_points(experiment, spec, workloads))
        for host in hosts:
            Job.objects.create(experiment=experiment, wanted_host=host, reason="waits to be dispatched")
        transaction.on_commit(lambda: queue.send("dispatch"))
    return experiment


def resolve_workloads(spec: ExperimentSpec, team: Team) -> dict[str, Workload]:
    """The workload behind each name that the points use: ``name@version``, or the newest of a bare name; a team's own first."""
    found: dict[str, Workload] = {}
    known = Workload.objects.of_team(team)
    for wanted in {p.workload for p in spec.points}:
        name, _, version = wanted.partition("@")
        rows = known.filter(name=name)
        if version:
            rows = rows.filter(version=int(version)) if version.isdecimal() else rows.none()
        row = rows.order_by("-version", "team_id").first()  # NULL, the built-in one, comes last
        if row is None:
            near = difflib.get_close_matches(wanted, [str(w) for w in known] + [w.name for w in known], n=3)
            hint = f"; near: {', '.join(near)}" if near else ""
            raise SpecError(f"points: there is no workload {wanted!r}{hint}", field="points", value=wanted)
        found[wanted] = row
    return found


def wanted_hosts(spec: ExperimentSpec, team: Team) -> list[Host | None]:
    """One entry for each job: the host that it must run on, or None where any that fits will do."""
    placement = spec.placement
    hosts = {h.name: h for h in Host.objects.filter(team=team, revoked_at=None)}
    for name in placement.hosts:
        if name not in hosts:
            near = difflib.get_close_matches(name, list(hosts), n=3)
            hint = f"; near: {', '.join(near)}" if near else ""
            raise NoHostCanRun(f"placement.hosts: this team has no host {name!r}{hint}", field="placement.hosts", value=name)
    if placement.hosts:
        return [hosts[name] for name in dict.fromkeys(placement.hosts)]
    if not placement.each:
        return [None] * placement.count
    matching: list[Host | None] = [h for h in hosts.values() if has_labels(h, placement.labels)]
    if not matching:
        raise NoHostCanRun(f"placement: this team has no host {labels_in_words(placement.labels)}".rstrip(), field="placement.labels")
    return matching


def has_labels(host: Host, labels: dict[str, str]) -> bool:
    return all(host.labels.get(k) == v for k, v in labels.items())


def labels_in_words(labels: dict[str, str]) -> str:
    return "with " + ", ".join(f"{k}={v}" for k, v in labels.items()) if labels else ""


def seed_workload(content: WorkloadContent, team: Team | None = None) -> Workload:
    """Stores a workload once. A changed content under a known version is refused: published numbers name versions."""
    row, created = Workload.objects.get_or_create(
        team=team,
        name=content.name,
        version=content.version,
        defaults={"title": content.title, "content_hash": content.content_hash(), "content": content.model_dump(mode="json")},
    )
    if not created and row.content_hash != content.content_hash():
        raise SpecError(f"workload {content.ref} exists with other content", remedy="Raise its version.", field="version")
    return row


def _check_engine(spec: ExperimentSpec) -> None:
    never = engines.engine(spec.runtime.engine).never_possible(spec.engine, spec.arms)
    if never:
        kind = FlagNotAllowed if never[0].code == FlagNotAllowed.code else ArmNotSupported
        raise kind("; ".join(error.message for error in never), remedy=never[0].remedy)


def _check_models(spec: ExperimentSpec, team: Team) -> None:
    known = HostModel.objects.filter(host__team=team).values_list("alias", "model__manifest_hash")
    names = {n for pair in known for n in pair}
    aliases = sorted({alias for alias, _ in known})
    for name in [spec.target.model, *(a.draft_model for a in spec.arms if a.draft_model)]:
        if name not in names:
            raise unknown_model(name, aliases)


def _arms(experiment: Experiment, spec: ExperimentSpec) -> list[Arm]:
    return [
        Arm(
            experiment=experiment,
            position=i,
            name=a.name,
            mode=a.mode,
            draft_limit=a.draft_limit,
            is_baseline=a.is_baseline,
            settings=a.model_dump(mode="json", exclude_none=True),
        )
        for i, a in enumerate(spec.arms)
    ]


def _points(experiment: Experiment, spec: ExperimentSpec, workloads: dict[str, Workload]) -> list[Point]:
    return [
        Point(
            experiment=experiment,
            position=i,
            key=p.key,
            workload=workloads[p.workload],
            concurrency=p.concurrency,
            occupied_context=p.occupied_context,
            temperature=p.sampling.temperature,
            max_tokens=p.max_tokens,
            probes=p.probes,
            settings=p.model_dump(mode="json"),
        )
        for i, p in enumerate(spec.points)
    ]
