"""The one check of an experiment, for form, API, YAML and command: every fault at once, beside the field that it is in."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from speccore import attached, engines
from speccore.errors import ArmNotSupported, ErrorBody, FlagNotAllowed, NoHostCanRun, SpecError, UnknownModel
from speccore.plan import plan_faults
from speccore.spec import ExperimentSpec, Placement, SpecProblem, as_written, parse_spec
from speccore.spec_words import shown
from speccore.sweeps import Swept, swept
from speccore.yamltext import YamlFault, read_document

from specweb.accounts.models import Team, User
from specweb.experiments.models import Host, HostModel, Workload

from .placement import asked_for, has_labels, labels_in_words

#: Names that a message lists where none is near to what was given.
NAMES_TOLD = 8
#: At a higher verbosity engines write prompts and answers into their log.
QUIET_LOG = 4


@dataclass(frozen=True)
class Checked:
    """``spec`` is None if there are problems."""

    spec: ExperimentSpec | None
    problems: list[SpecProblem]
    sweeps: Swept | None = None
    asked: ExperimentSpec | None = None  # sound in itself, whatever of what it names is missing

    def as_written(self, warnings: list[SpecProblem]) -> list[SpecProblem]:
        """What was found of the spec, beside the arms that the person wrote."""
        return as_written(self.sweeps, warnings) if self.sweeps else warnings


@dataclass(frozen=True)
class Resolved:
    """What a team's experiment names, found; ``jobs`` has one entry for each job: its host, or None where any that fits will do."""

    problems: list[SpecProblem] = field(default_factory=list)
    workloads: dict[str, Workload] = field(default_factory=dict)
    jobs: list[Host | None] = field(default_factory=list)


def check(data: Any, team: Team, user: User | None = None) -> Checked:
    """Checks data that a person sent, decoded already. Four statements, however much there is to check.

    ``user``: whose own workloads are there too.
    """
    spec, problems = parse_spec(data)
    if spec is None:
        return Checked(None, problems)
    sweeps = swept(data)
    problems = as_written(sweeps, resolve(spec, team, user).problems)
    return Checked(None if problems else spec, problems, sweeps, spec)


def check_yaml(text: bytes, team: Team, user: User | None = None) -> Checked:
    """The same for a file in YAML or JSON; problems tell the line where it is known."""
    try:
        document = read_document(text)
    except YamlFault as fault:
        return Checked(None, [SpecProblem(field="", message=f"is neither YAML nor JSON: {fault.words}", line=fault.line)])
    checked = check(document.data, team, user)
    lined = [p.model_copy(update={"line": document.line_of(p.field)}) for p in checked.problems]
    return replace(checked, problems=lined)


def resolve(spec: ExperimentSpec, team: Team, user: User | None = None) -> Resolved:
    """Finds what a spec names among what its team has, and tells every thing that can't be (4 statements)."""
    workloads, missing = workloads_of(spec, team, user)
    contents = {name: w.parsed for name, w in workloads.items()}
    hosts = list(Host.objects.filter(team=team, revoked_at=None).select_related("inventory").order_by("name"))
    jobs, unplaced = _jobs(spec.placement, hosts)
    planned = [_of_error(e.body()) for e in plan_faults(spec, contents)]
    problems = [
        *missing,
        *_told_in_the_log(spec, workloads),
        *planned,
        *_engine_problems(spec, hosts),
        *_model_problems(spec, team),
        *unplaced,
    ]
    return Resolved(problems, workloads, jobs)


def error_of(problems: Sequence[SpecProblem]) -> SpecError:
    """One error that tells all of them, of their own class if they share one."""
    kinds = {kind.code: kind for kind in (UnknownModel, NoHostCanRun, ArmNotSupported, FlagNotAllowed)}
    codes = {p.code for p in problems}
    kind = kinds.get(codes.pop(), SpecError) if len(codes) == 1 else SpecError
    words = "; ".join(f"{p.field}: {p.message}" if p.field else p.message for p in problems)
    return kind(words, remedy="", problems=[p.model_dump(mode="json") for p in problems])


def _of_error(body: ErrorBody, field: str = "") -> SpecProblem:
    """``field`` unless the error names its own."""
    words = body.message.removeprefix("engine.extra: ")
    value = body.details.get("value")
    return SpecProblem(
        field=field or str(body.details.get("field", "")),
        message=f"{words}. {body.remedy}" if body.remedy else words,
        value="" if value is None else shown(value),
        code=body.code,
    )


def workloads_of(
    spec: ExperimentSpec, team: Team, user: User | None = None, *, archived: bool = False
) -> tuple[dict[str, Workload], list[SpecProblem]]:
    """The workload behind each name that points and sampling test use: ``name@version``, or the newest of a bare name; a team's own first.

    ``archived``: those too, for what was submitted before.
    """
    offered = Workload.objects.of_team(team).filter(private=False) if archived else Workload.objects.offered_to(user, team)
    known = sorted(offered.defer("content"), key=lambda w: (w.name, -w.version, w.team_id is None))
    names = list(dict.fromkeys([*(w.name for w in known), *map(str, known)]))
    chosen: dict[str, Workload] = {}
    problems = []
    wanted = [(f"points.{i}.workload", point.workload) for i, point in enumerate(spec.points)]
    wanted += [("sampling_test.workload", spec.sampling_test.workload)] if spec.sampling_test else []
    for field_, asked in wanted:
        name, _, version = asked.partition("@")
        found = next((w for w in known if w.name == name and version in ("", str(w.version))), None)
        if found is not None and not (found.private and field_.startswith("sampling_test")):
            chosen[asked] = found
            continue
        words = f"there is no workload {shown(asked)}{_near(asked, names) or _there(names)}"
        if found is not None:  # what is drawn there is text that the whole team reads
            words = f"workload {found} is private, and the test's answers are for the team: share it first, or name another"
        problems.append(SpecProblem(field=field_, message=words, value=shown(asked)))
    whole = Workload.objects.in_bulk([w.pk for w in chosen.values()])
    return {name: whole[w.pk] for name, w in chosen.items()}, problems


def _told_in_the_log(spec: ExperimentSpec, workloads: dict[str, Workload]) -> list[SpecProblem]:
    """The engine's log is the team's to read, while it runs and after."""
    private = next((w for w in workloads.values() if w.private), None)
    if private is None or spec.engine.log_verbosity <= QUIET_LOG:
        return []
    words = f"over {QUIET_LOG} the engine writes prompts to its log, and workload {private} is private: lower it, or share the workload"
    return [SpecProblem(field="engine.log_verbosity", message=words, value=shown(spec.engine.log_verbosity))]


def _engine_problems(spec: ExperimentSpec, hosts: Sequence[Host]) -> list[SpecProblem]:
    """What no build of the engine can do; flags that none of the builds has that the team's hosts told of, or that no host allows."""
    try:
        engine = engines.engine(spec.runtime.engine)
    except SpecError as error:
        return [_of_error(error.body(), "runtime.engine")]
    if problem := _offered_nowhere(spec.runtime.engine, hosts):
        return [problem]
    never = [*engine.never_possible(spec.engine, spec.arms), *engine.never_asked(spec)]
    problems = [_of_error(error, _place_of(error, spec)) for error in never]
    told = {p.field for p in problems}
    extras = {"engine.extra": spec.engine.extra, **{f"arms.{i}.extra": a.extra for i, a in enumerate(spec.arms)}}
    offered = [h.inventory.parsed for h in hosts if h.inventory] if any(extras.values()) else []
    builds = [r.capabilities for inventory in offered for r in inventory.runtimes if r.engine == spec.runtime.engine]
    for where, extra in extras.items() if builds else ():
        flags = {flag: value for flag, value in extra.items() if flag.startswith("--")}  # others are keys of a configuration
        for flag, near in engine.unknown_flags(spec.engine.model_copy(update={"extra": flags}), builds).items():
            if (field := f"{where}.{flag}") not in told:
                words = f"no engine build on this team's hosts has a flag {flag}{near}: correct it, or remove it"
                problems.append(SpecProblem(field=field, message=words, code=FlagNotAllowed.code))
    told = {p.field for p in problems}
    return problems + [p for p in (_forbidden(spec, engine, hosts) if spec.engine.extra else ()) if p.field not in told]


def _offered_nowhere(name: str, hosts: Sequence[Host]) -> SpecProblem | None:
    """An engine that no host tells of. Where none has told of anything, its models are what is missing."""
    there = {str(r.get("engine")) for h in hosts if h.inventory for r in h.inventory.content.get("runtimes", [])}
    if name in there or not there:
        return None
    words = f"no host of this team offers {name}; there is {', '.join(sorted(there))}: choose that, or name a build of {name} in a host's configuration"
    return SpecProblem(field="runtime.engine", message=words, value=shown(name), code=NoHostCanRun.code)


def _forbidden(spec: ExperimentSpec, engine: ModuleType, hosts: Sequence[Host]) -> list[SpecProblem]:
    """Flags that no host allows which the placement could take. Where one does, the others' answers name the flag."""
    asked = [h for h in hosts if h.inventory and asked_for(spec.placement, h)]
    offered = [h.inventory.parsed for h in asked if h.inventory]
    places = [([r.capabilities for r in o.runtimes if r.engine == spec.runtime.engine], o.allowed_flags) for o in offered]
    names = ", ".join(h.name for h in asked[:NAMES_TOLD]) + (" and others" if len(asked) > NAMES_TOLD else "")
    who = f"host {names} doesn't allow" if len(asked) == 1 else f"none of the hosts {names} allows"
    found = engine.forbidden_flags(spec.engine, places) if asked else []
    return [_of_error(FlagNotAllowed(f"{who} {flag}").body(), f"engine.extra.{flag}") for flag in found]


def _place_of(error: ErrorBody, spec: ExperimentSpec) -> str:
    if place := error.details.get("place"):
        return str(place)
    i = next((i for i, a in enumerate(spec.arms) if a.name == error.details.get("arm")), None)
    if i is None and (flag := error.details.get("flag")):
        return f"engine.extra.{flag}"
    return "arms" if i is None else f"arms.{i}.{error.details.get('field', 'mode')}"


def _model_problems(spec: ExperimentSpec, team: Team) -> list[SpecProblem]:
    pairs = list(HostModel.objects.filter(host__team=team).values_list("alias", "model__manifest_hash"))
    known, aliases = {n for pair in pairs for n in pair}, sorted({alias for alias, _ in pairs})
    wanted = [("target.model", spec.target.model)]
    wanted += [(f"arms.{i}.draft_model", name) for i, a in enumerate(spec.arms) if (name := attached.helper(spec, a))]
    problems = []
    for field_, name in wanted:
        if name in known:
            continue
        words = f"no host of this team ever had a model {shown(name)}{_near(name, aliases)}. {UnknownModel.remedy}"
        if not pairs:
            words = "no host of this team has told of any model yet: add a host first (see the Hosts page)"
        problems.append(SpecProblem(field=field_, message=words, value=shown(name), code=UnknownModel.code))
    return problems


def _jobs(placement: Placement, hosts: Sequence[Host]) -> tuple[list[Host | None], list[SpecProblem]]:
    by_name = {h.name: h for h in hosts}
    if placement.hosts:
        problems = [
            _unplaced(f"hosts.{i}", f"this team has no host {shown(name)}{_near(name, by_name) or _there(by_name)}", shown(name))
            for i, name in enumerate(placement.hosts)
            if name not in by_name
        ]
        return [by_name[n] for n in dict.fromkeys(placement.hosts) if n in by_name], problems
    matching: list[Host | None] = [h for h in hosts if has_labels(h, placement.labels)]
    if not matching and (placement.labels or placement.each):
        return [], _labels_that_are_nowhere(placement.labels, hosts)
    return (matching if placement.each else [None] * placement.count), []


def _labels_that_are_nowhere(labels: dict[str, str], hosts: Sequence[Host]) -> list[SpecProblem]:
    problems = []
    for key, value in labels.items():
        there = sorted({str(h.labels[key]) for h in hosts if key in h.labels})
        if value not in there:
            others = (
                f"; there is {', '.join(f'{key}={v}' for v in there[:NAMES_TOLD])}" if there else f"; none has a label {key}: remove it"
            )
            problems.append(_unplaced(f"labels.{key}", f"this team has no host with {key}={value}{others}", shown(value)))
    if not problems:
        words = f"this team has no host {labels_in_words(labels)}".rstrip()
        problems.append(_unplaced("labels" if labels else "each", f"{words}: add one, or ask for fewer labels" if labels else words))
    return problems


def _unplaced(field: str, words: str, value: str = "") -> SpecProblem:
    return SpecProblem(field=f"placement.{field}", message=words, value=value, code=NoHostCanRun.code)


def _near(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=3)
    return f"; near: {', '.join(near)}" if near else ""


def _there(known: Iterable[str]) -> str:
    names = list(known)
    more = f" and {len(names) - NAMES_TOLD} more" if len(names) > NAMES_TOLD else ""
    return f"; there is {', '.join(names[:NAMES_TOLD])}{more}" if names else "; there is none yet"
