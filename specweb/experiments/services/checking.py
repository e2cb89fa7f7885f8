"""The one check of an experiment, for form, API, YAML and command: every fault at once, beside the field that it is in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from speccore import engines
from speccore.errors import ArmNotSupported, ErrorBody, FlagNotAllowed, NoHostCanRun, SpecError, UnknownModel
from speccore.plan import plan_faults
from speccore.spec import ExperimentSpec, SpecProblem, parse_spec
from speccore.yamltext import read_yaml

from specweb.accounts.models import Team
from specweb.experiments.models import Host, HostModel, Workload

from .placement import has_labels, labels_in_words


@dataclass(frozen=True)
class Checked:
    """``spec`` is None if there are problems."""

    spec: ExperimentSpec | None
    problems: list[SpecProblem]


@dataclass(frozen=True)
class Resolved:
    """What a team's experiment names, found; ``jobs`` has one entry for each job: its host, or None where any that fits will do."""

    problems: list[SpecProblem] = field(default_factory=list)
    workloads: dict[str, Workload] = field(default_factory=dict)
    jobs: list[Host | None] = field(default_factory=list)


def check(data: Any, team: Team) -> Checked:
    """Checks data that a person sent, decoded already. Reads the database four times, however much there is to check."""
    spec, problems = parse_spec(data)
    if spec is None:
        return Checked(None, problems)
    problems = resolve(spec, team).problems
    return Checked(None if problems else spec, problems)


def check_yaml(text: bytes, team: Team) -> Checked:
    """The same for a file in YAML or JSON; problems tell the line where it is known."""
    try:
        data = read_yaml(text)
    except ValueError as error:
        return Checked(None, [SpecProblem(field="", message=str(error))])
    return check(data, team)


def resolve(spec: ExperimentSpec, team: Team) -> Resolved:
    """Finds what a spec names among what its team has, and tells every thing that can't be."""
    workloads, missing = _workloads(spec, team)
    contents = {name: w.parsed for name, w in workloads.items()}
    jobs, unplaced = _jobs(spec, team)
    planned = [_of_error(e) for e in plan_faults(spec, contents)]
    problems = [*missing, *planned, *_engine_problems(spec), *_model_problems(spec, team), *unplaced]
    return Resolved(problems, workloads, jobs)


def error_of(problems: Sequence[SpecProblem]) -> SpecError:
    """One error that tells all of them, of their own class if they share one."""
    kinds = {kind.code: kind for kind in (UnknownModel, NoHostCanRun, ArmNotSupported, FlagNotAllowed)}
    codes = {p.code for p in problems}
    kind = kinds.get(codes.pop(), SpecError) if len(codes) == 1 else SpecError
    words = "; ".join(f"{p.field}: {p.message}" if p.field else p.message for p in problems)
    return kind(words, remedy="", problems=[p.model_dump(mode="json") for p in problems])


def _of_error(error: SpecError | ErrorBody) -> SpecProblem:
    body = error if isinstance(error, ErrorBody) else error.body()
    value = body.details.get("value")
    return SpecProblem(
        field=str(body.details.get("field", "")),
        message=f"{body.message}. {body.remedy}".strip(". ") + "." if body.remedy else body.message,
        value="" if value is None else repr(value)[:80],
        code=body.code,
    )


def _workloads(spec: ExperimentSpec, team: Team) -> tuple[dict[str, Workload], list[SpecProblem]]:
    """The workload behind each name that the points use: ``name@version``, or the newest of a bare name; a team's own first."""
    known = list(Workload.objects.of_team(team).defer("content"))
    known.sort(key=lambda w: (w.name, -w.version, w.team_id is None))
    names = list(dict.fromkeys([w.name for w in known] + [str(w) for w in known]))
    chosen: dict[str, Workload] = {}
    problems = []
    for i, point in enumerate(spec.points):
        name, _, version = point.workload.partition("@")
        found = next((w for w in known if w.name == name and version in ("", str(w.version))), None)
        if found is not None:
            chosen[point.workload] = found
            continue
        words = f"there is no workload {point.workload!r}{_near(point.workload, names)}"
        problems.append(SpecProblem(field=f"points.{i}.workload", message=words, value=repr(point.workload)))
    whole = Workload.objects.in_bulk([w.pk for w in chosen.values()])
    return {wanted: whole[w.pk] for wanted, w in chosen.items()}, problems


def _engine_problems(spec: ExperimentSpec) -> list[SpecProblem]:
    try:
        engine = engines.engine(spec.runtime.engine)
    except SpecError as error:
        words = f"{error.message}. {error.remedy_text}"
        return [SpecProblem(field="runtime.engine", message=words, value=repr(spec.runtime.engine))]
    return [_of_refusal(spec, error) for error in engine.never_possible(spec.engine, spec.arms)]


def _of_refusal(spec: ExperimentSpec, error: ErrorBody) -> SpecProblem:
    if flag := error.details.get("flag"):
        field_ = f"engine.extra.{flag}"
    else:
        names = [a.name for a in spec.arms]
        field_ = f"arms.{names.index(error.details['arm'])}.mode" if error.details.get("arm") in names else "arms"
    return SpecProblem(field=field_, message=f"{error.message}. {error.remedy}".strip(), code=error.code)


def _model_problems(spec: ExperimentSpec, team: Team) -> list[SpecProblem]:
    pairs = list(HostModel.objects.filter(host__team=team).values_list("alias", "model__manifest_hash"))
    known, aliases = {n for pair in pairs for n in pair}, sorted({alias for alias, _ in pairs})
    wanted = [("target.model", spec.target.model)]
    wanted += [(f"arms.{i}.draft_model", a.draft_model) for i, a in enumerate(spec.arms) if a.draft_model]
    return [
        SpecProblem(
            field=where,
            message=f"no host of this team ever had a model {name!r}{_near(name, aliases)}",
            value=repr(name)[:80],
            code=UnknownModel.code,
        )
        for where, name in wanted
        if name not in known
    ]


def _jobs(spec: ExperimentSpec, team: Team) -> tuple[list[Host | None], list[SpecProblem]]:
    placement = spec.placement
    hosts = {h.name: h for h in Host.objects.filter(team=team, revoked_at=None).order_by("name")}
    if placement.hosts:
        problems = [
            SpecProblem(
                field=f"placement.hosts.{i}",
                message=f"this team has no host {name!r}{_near(name, hosts)}",
                value=repr(name)[:80],
                code=NoHostCanRun.code,
            )
            for i, name in enumerate(placement.hosts)
            if name not in hosts
        ]
        return [hosts[n] for n in dict.fromkeys(placement.hosts) if n in hosts], problems
    matching: list[Host | None] = [h for h in hosts.values() if has_labels(h, placement.labels)]
    if not matching and (placement.labels or placement.each):
        words = f"this team has no host {labels_in_words(placement.labels)}".rstrip()
        return [], [SpecProblem(field="placement.labels", message=words, code=NoHostCanRun.code)]
    return (matching if placement.each else [None] * placement.count), []


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=3)
    return f"; near: {', '.join(near)}" if near else ""
