"""Which of a host's engine builds and models fit an experiment, the launch command of each arm there, and which host is taken first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.db import models
from speccore import attached, engines, heads, model_formats, preflight
from speccore.engines import Bindings
from speccore.errors import ErrorBody
from speccore.inventory import HostInventory, ModelInfo, RuntimeInfo
from speccore.jobstate import HELD, JobState
from speccore.rendering import render
from speccore.spec import Arm, ExperimentSpec, Placement, RuntimeSelector

from specweb.experiments.models import Host

REFUSALS_TOLD = 3


@dataclass(frozen=True)
class Fit:
    """What is frozen when a job is queued."""

    runtime_hash: str
    target_hash: str
    draft_hashes: dict[str, str]  # arm: manifest hash
    commands: dict[str, list[str]]  # arm: argv with symbolic bindings
    device_uuids: list[str]


@dataclass(frozen=True)
class NoFit:
    """``refusals`` are all that the first build that was asked for can't do; none where there is no such build or no model."""

    reason: str  # in words, one clause
    runtime_hash: str = ""
    refusals: tuple[ErrorBody, ...] = ()


@dataclass
class Offer:
    """A host in question, with what it can do for the experiment."""

    host: Host
    n_jobs: int  # that it has queued or holds
    online: bool  # and takes jobs
    answer: Fit | NoFit


def able(offers: Iterable[Offer]) -> list[Offer]:
    """The hosts that can take a job now, in the order in which they get one: the idlest first."""
    found = [o for o in offers if o.online and isinstance(o.answer, Fit)]
    return sorted(found, key=lambda o: (o.n_jobs, o.host.name))


def hosts_of(team_id: int) -> models.QuerySet[Host]:
    """A team's hosts with what they offer, each with ``n_jobs`` that it has queued or holds."""
    busy = [JobState.QUEUED.value, *(s.value for s in HELD)]
    found = Host.objects.filter(team_id=team_id, revoked_at=None).select_related("inventory").order_by("name")
    return found.annotate(n_jobs=models.Count("jobs", filter=models.Q(jobs__state__in=busy)))


def fit(spec: ExperimentSpec, inventory: HostInventory) -> Fit | NoFit:
    """The first engine build of the host that can run every arm, with the models that the arms need."""
    helpers = {a.name: name for a in spec.arms if (name := attached.helper(spec, a))}
    wanted = {spec.target.model, *helpers.values()}
    found = {name: find_model(name, inventory.models) for name in wanted}
    if missing := sorted(name for name, model in found.items() if model is None):
        return NoFit(f"has no model {', '.join(repr(m) for m in missing)}")
    runtimes = [r for r in inventory.runtimes if selects(spec.runtime, r)]
    if not runtimes:
        what = describe(spec.runtime)
        if spec.runtime.attached:
            return NoFit(f"has no {what}: its configuration names no such servers that stand already")
        return NoFit(f"has no engine build that is {what}")
    target = found[spec.target.model]
    assert target is not None
    drafts = {arm: m for arm, name in helpers.items() if (m := found[name])}
    refused: NoFit | None = None
    for runtime in runtimes:
        commands, refusals = _render_all(spec, inventory, runtime, dict.fromkeys((a.name for a in spec.arms), engines.SYMBOLIC))
        refusals += model_formats.refusals(target, drafts, runtime).values()
        refusals += heads.refusals(spec, target, drafts, runtime).values()
        refusals += [r for arm, draft in drafts.items() if (r := _unfit(spec.arm(arm), target, draft, runtime))]
        if not refusals:
            hashes = {arm: draft.manifest_hash for arm, draft in drafts.items()}
            return Fit(runtime.manifest_hash, target.manifest_hash, hashes, commands, [d.uuid for d in inventory.devices])
        words = f"can't run it: {_in_short(list(dict.fromkeys(r.message for r in refusals)))}"
        refused = refused or NoFit(words, runtime.manifest_hash, tuple(refusals))
    assert refused is not None
    return refused


def _in_short(messages: list[str]) -> str:
    rest = f"; and {len(messages) - REFUSALS_TOLD} more" if len(messages) > REFUSALS_TOLD else ""
    return "; ".join(messages[:REFUSALS_TOLD]) + rest


def find_model(name: str, models: Iterable[ModelInfo]) -> ModelInfo | None:
    """By alias, or by manifest hash."""
    return next((m for m in models if name in (m.alias, m.manifest_hash)), None)


def _unfit(arm: Arm, target: ModelInfo, draft: ModelInfo, runtime: RuntimeInfo) -> ErrorBody | None:
    return preflight.refusal(target, draft, arm.mode, runtime, translated=preflight.translates(arm))


def selects(selector: RuntimeSelector, runtime: RuntimeInfo) -> bool:
    """Whether a build is what the selector asks for. A version holds if it stands in what the build says of itself."""
    return (
        runtime.engine == selector.engine
        and (runtime.kind == "attached") == selector.attached
        and (selector.manifest_hash is None or runtime.manifest_hash == selector.manifest_hash)
        and (selector.version is None or selector.version in runtime.version)
        and (
            selector.source_commit is None or (bool(runtime.source_commit) and _same_commit(runtime.source_commit, selector.source_commit))
        )
        and (selector.backend is None or runtime.backend == selector.backend)
    )


def describe(selector: RuntimeSelector) -> str:
    """The selector in words, e.g. ``llama-server with backend cuda``."""
    parts = [f"{k.replace('_', ' ')} {v}" for k, v in selector.model_dump(exclude={"engine", "attached"}).items() if v is not None]
    return ("attached " if selector.attached else "") + selector.engine + (" with " + ", ".join(parts) if parts else "")


def has_labels(host: Host, labels: dict[str, str]) -> bool:
    return all(host.labels.get(k) == v for k, v in labels.items())


def asked_for(placement: Placement, host: Host) -> bool:
    """Whether a host is among those that the placement names or whose labels it wants."""
    return host.name in placement.hosts if placement.hosts else has_labels(host, placement.labels)


def labels_in_words(labels: dict[str, str]) -> str:
    return "with " + ", ".join(f"{k}={v}" for k, v in labels.items()) if labels else ""


def _same_commit(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def real_commands(spec: ExperimentSpec, inventory: HostInventory, found: Fit) -> dict[str, list[str]]:
    """The commands of a fit with the paths that the host has; the port, which is drawn at each start, stays ``{port}``."""
    runtime = next(r for r in inventory.runtimes if r.manifest_hash == found.runtime_hash)
    paths = {m.manifest_hash: m.path for m in inventory.models}
    bound = {
        a.name: Bindings(
            executable=runtime.executable,
            target=paths[found.target_hash],
            draft=paths[found.draft_hashes[a.name]] if a.name in found.draft_hashes else "",
            port="{port}",
        )
        for a in spec.arms
    }
    return _render_all(spec, inventory, runtime, bound)[0]


def _render_all(
    spec: ExperimentSpec, inventory: HostInventory, runtime: RuntimeInfo, bindings: Mapping[str, Bindings]
) -> tuple[dict[str, list[str]], list[ErrorBody]]:
    commands: dict[str, list[str]] = {}
    refusals: list[ErrorBody] = []
    for arm in spec.arms:
        rendered = render(
            runtime,
            spec.engine,
            arm,
            bindings[arm.name],
            allowed_flags=inventory.allowed_flags,
            threads=spec.engine.threads or inventory.default_threads(),
        )
        commands[arm.name] = rendered.argv
        refusals += rendered.refusals
    return commands, refusals
