"""What the pages about hosts show: whether a host is heard of, what it can run, what ails it. No database access of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse
from speccore.errors import ErrorBody
from speccore.inventory import HostInventory, ModelInfo, RuntimeInfo
from speccore.offered import offered

from specweb.experiments.models import Host, Job
from specweb.experiments.services.silence import Limits
from specweb.experiments.services.silence import host_state as state_of
from specweb.results.models import Attempt

from . import formats

#: Names that a line about a host repeats of its models.
N_MODELS_TOLD = 6


@dataclass(frozen=True)
class Work:
    """The job that a host holds."""

    name: str
    href: str
    state: str


def work_of(job: Job | None) -> Work | None:
    """``job`` as it was read with ``readable``, where that matters: whether the person may know what it is."""
    if job is None:
        return None
    state = "paused" if job.is_paused else job.state
    if not getattr(job, "readable", True):
        return Work("a private experiment", "", state)
    name = job.experiment.question or job.experiment.name
    return Work(name, f"{reverse('experiment', args=[job.experiment_id])}?job={job.pk}", state)


@dataclass(frozen=True)
class Trouble:
    """Something that went wrong on a host, with its remedy where there is one."""

    what: str
    error: ErrorBody | None
    at: datetime | None = None
    href: str = ""
    title: str = ""  # of what the address leads to


@dataclass(frozen=True)
class HostLine:
    """A host in a list. ``modes`` and ``models`` are what it offers by its newest inventory."""

    id: UUID
    name: str
    team: str
    state: str
    draining: bool
    hardware: str
    last_seen_at: datetime | None
    revoked_at: datetime | None
    work: Work | None
    engines: list[str]
    modes: list[str]
    models: list[str]
    n_more_models: int
    told: bool  # has said what it offers
    trouble: Trouble | None
    n_problems: int
    next_step: str


def line(host: Host, job: Job | None, failure: Attempt | None, now: datetime, limits: Limits) -> HostLine:
    told = host.inventory.parsed if host.inventory else None
    builds = told.runtimes if told else []
    names = [m.alias for m in told.models] if told else []
    state = state_of(host, now, limits)
    return HostLine(
        id=host.pk,
        name=host.name,
        team=host.team.name,
        state=state,
        draining=host.takes_no_jobs and state != "revoked",
        hardware=host.inventory.hardware if host.inventory else "",
        last_seen_at=host.last_seen_at,
        revoked_at=host.revoked_at,
        work=work_of(job),
        engines=[_build_name(r) for r in builds],
        modes=list(dict.fromkeys(m for r in builds for m in modes_of(r))),
        models=names[:N_MODELS_TOLD],
        n_more_models=max(0, len(names) - N_MODELS_TOLD),
        told=told is not None,
        trouble=_worst(host, failure),
        n_problems=len(told.problems) + len(told.broken_runtimes) if told else 0,
        next_step=standing(host, state, limits, at_work=job is not None).next_step if state != "online" else "",
    )


def _worst(host: Host, failure: Attempt | None) -> Trouble | None:
    """What ails the host now, else the last attempt that failed there."""
    if host.problem and not host.revoked_at:
        return Trouble("now", ErrorBody.model_validate(host.problem), host.problem_at)
    if failure is not None and failure.error:
        address = reverse("attempt", args=[failure.pk])
        return Trouble("last failed attempt", ErrorBody.model_validate(failure.error), failure.received_at, address)
    return None


def modes_of(runtime: RuntimeInfo) -> list[str]:
    """Speculation modes that an engine build offers, by what its help says."""
    return offered(runtime).modes


def _build_name(r: RuntimeInfo) -> str:
    kind = "" if r.kind == "process" else f" · {r.kind}"
    return f"{r.engine} {r.version}".strip() + (f" · {r.backend}" if r.backend else "") + kind


@dataclass(frozen=True)
class Standing:
    """How a host stands, in words; ``at`` is the moment that the words end with."""

    headline: str
    detail: str = ""
    at: datetime | None = None
    next_step: str = ""


def standing(host: Host, state: str, limits: Limits, *, at_work: bool) -> Standing:
    lost_after = formats.long_time(limits.host_lost_after)
    if state == "revoked":
        step = "Its token is refused for good. To bring the machine back, add it as a new host."
        return Standing("Revoked", "since", host.revoked_at, step)
    if state == "never seen":
        step = "Start its agent there: specweb-agent poll"
        return Standing("Enrolled, and never heard of", "enrolled", host.enrolled_at, step)
    if state == "stalled":
        step = f"See whether the machine, its network and its agent run. After {lost_after} of silence a job that it holds fails as lost."
        return Standing("Silent", "offline since", host.last_seen_at, step)
    if state == "lost":
        step = "Start its agent there (specweb-agent poll), or revoke the host if the machine is gone for good."
        return Standing(f"Lost: silent for more than {lost_after}", "offline since", host.last_seen_at, step)
    if host.drain_requested_at:
        headline = "Finishes its job, then takes no other" if at_work else "Drained: it takes no jobs"
        return Standing(headline, "draining since", host.drain_requested_at, "A maintainer can let it take jobs again.")
    if host.draining:
        return Standing("Its agent is about to end", "last heard of", host.last_seen_at, "Start it again there: specweb-agent poll")
    if host.inventory is None:
        return Standing("Online", "last heard of", host.last_seen_at, "It says what it offers with its next poll.")
    if at_work:
        return Standing("At work", "last heard of", host.last_seen_at)
    return Standing("Online and free", "last heard of", host.last_seen_at, "It gets the next job that fits with its next poll.")


@dataclass(frozen=True)
class ModelRow:
    alias: str
    facts: list[str]  # architecture, quantisation, parameters, …, empty where unknown
    size_bytes: int
    has_mtp: bool
    hash: str


@dataclass(frozen=True)
class Sensor:
    name: str
    ok: bool
    word: str


def offer(inventory: HostInventory) -> dict[str, Any]:
    """What a host says that it is and can run, ready for its page."""
    known = {flag for runtime in inventory.runtimes for flag in runtime.capabilities.flags}  # none where all are attached
    system = " ".join(v for k in ("system", "release", "machine") if (v := inventory.os.get(k)))
    return {
        "models": [_model_row(m) for m in inventory.models],
        "allowed_flags": [f for f in inventory.allowed_flags if f in known] if known else inventory.allowed_flags,
        "flags_of_no_build": [f for f in inventory.allowed_flags if f not in known] if known else [],
        "labels": sorted(inventory.labels.items()),
        "sensors": [Sensor(name, word == "ok", word) for name, word in sorted(inventory.sensors.items())],
        "devices": inventory.devices,
        "problems": inventory.problems,
        "machine": [
            ("system", system),
            ("processor", f"{inventory.cpu_model}, {inventory.n_cores} core{'' if inventory.n_cores == 1 else 's'}"),
            ("memory", formats.byte_size(inventory.memory_bytes)),
            ("threads of an engine", str(inventory.default_threads())),
            ("boot", inventory.boot_id),
            ("agent", inventory.agent_version),
        ],
    }


def _model_row(m: ModelInfo) -> ModelRow:
    facts = [
        m.architecture,
        m.quantization,
        formats.count(m.n_parameters) if m.n_parameters else "",
        str(m.n_layers) if m.n_layers else "",
        f"{m.context_length:,}" if m.context_length else "",
        f"{m.vocab_size:,}" if m.vocab_size else "",
    ]
    return ModelRow(m.alias, facts, m.size_bytes, m.has_mtp, m.manifest_hash)


MODEL_HEADS = ("architecture", "quantisation", "parameters", "layers", "context", "vocabulary")


def troubles(host: Host, attempts: Sequence[Attempt], jobs: Sequence[Job]) -> list[Trouble]:
    """The newest failures on a host, newest first."""
    found = [
        Trouble(
            f"attempt at trial {a.trial.index + 1}, {a.trial.arm.name}",
            ErrorBody.model_validate(a.error),
            a.received_at,
            reverse("attempt", args=[a.pk]),
            a.trial.job.experiment.name,
        )
        for a in attempts
    ]
    found += [
        Trouble(
            "job",
            ErrorBody.model_validate(j.error),
            j.ended_at,
            f"{reverse('experiment', args=[j.experiment_id])}?job={j.pk}",
            j.experiment.name,
        )
        for j in jobs
    ]
    return sorted(found, key=lambda t: t.at.timestamp() if t.at else 0.0, reverse=True)


@dataclass(frozen=True)
class JobLine:
    name: str
    short: str  # the experiment's name where the line begins with its question
    href: str
    state: str
    reason: str
    at: datetime


def job_line(job: Job) -> JobLine:
    work = work_of(job)
    assert work is not None
    at = job.ended_at or job.processed_at or job.running_at or job.queued_at or job.created_at
    return JobLine(work.name, job.experiment.name if job.experiment.question else "", work.href, work.state, job.reason, at)


def counted_states(lines: Sequence[HostLine]) -> list[tuple[str, int]]:
    """How many hosts are in each state, in the order that matters."""
    counts: Mapping[str, int] = {s: sum(x.state == s for x in lines) for s in ("online", "stalled", "lost", "never seen", "revoked")}
    return [(state, n) for state, n in counts.items() if n]
