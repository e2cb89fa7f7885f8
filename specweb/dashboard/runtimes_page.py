"""What the pages about engine builds show: what each host can start, what is odd about it, what can't be used, what is gone. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from uuid import UUID

from django.urls import reverse
from speccore import attached, engines, oddities
from speccore.errors import SpecError
from speccore.inventory import BrokenRuntime, HostInventory, RuntimeInfo
from speccore.offered import offered

from specweb.experiments.models import Host, HostRuntime
from specweb.results.runtime_queries import JobsThere

KIND_WORDS = {
    "process": "a process of its own",
    "container": "a container",
    "attached": "stands already, never started and never stopped",
}
DIALECT_WORDS = {
    "spec-type": "today’s (--spec-type)",
    "draft-flag": "an older one: a draft model alone switches speculation on",
    "none": "none: its help knows no speculation",
    "vllm": "--speculative-config",
    "attached": "not asked: the servers were started by somebody else",
}


NO_JOBS = JobsThere(0, 0)


@dataclass(frozen=True)
class Oddity:
    text: str
    remedy: str


@dataclass(frozen=True)
class Build:
    """A build on a host. ``lacking``: (modes, what they need that the build doesn't have); ``n_jobs``: that it was chosen for there."""

    name: str
    version: str
    backend: str
    commit: str
    hash: str
    kind: str
    kind_words: str
    dialect: str
    modes: list[str]
    lacking: list[tuple[list[str], str]]
    no_baseline: str  # why not even an arm without speculation runs; empty if it does
    other_types: list[str]  # speculation types that SpecWeb has no mode for
    image: str
    executable: str
    servers: list[tuple[str, str]]
    oddities: list[Oddity]
    disproved: list[str]  # feared when it was looked at, and jobs have shown otherwise
    n_files: int
    first_seen_at: datetime | None = None
    n_jobs: int = 0
    n_answered: int = 0

    @property
    def href(self) -> str:
        return reverse("runtime", args=[self.hash])


@dataclass(frozen=True)
class Gone:
    """A build that a host once offered. ``at``: when it told that it has it no more."""

    name: str
    version: str
    backend: str
    hash: str
    first_seen_at: datetime | None
    at: datetime | None
    n_jobs: int

    @property
    def href(self) -> str:
        return reverse("runtime", args=[self.hash])


@dataclass(frozen=True)
class HostBuilds:
    """What a host can start. ``told``: it has said what it offers."""

    id: UUID
    name: str
    team: str
    state: str
    hardware: str
    told: bool
    told_at: datetime | None
    builds: list[Build] = field(default_factory=list)
    broken: list[BrokenRuntime] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)


def host_builds(host: Host, state: str, seen: Sequence[HostRuntime], n_jobs: Mapping[tuple[UUID, int], JobsThere]) -> HostBuilds:
    """``seen``: of all hosts or of this one; ``n_jobs`` by host and build."""
    inventory: HostInventory | None = host.inventory.parsed if host.inventory else None
    pairs = {pair.runtime.manifest_hash: pair for pair in seen if pair.host_id == host.pk}
    there = inventory.runtimes if inventory else []
    hashes = {r.manifest_hash for r in there}

    def count(pair: HostRuntime | None) -> JobsThere:
        return n_jobs.get((host.pk, pair.runtime_id), NO_JOBS) if pair else NO_JOBS

    return HostBuilds(
        id=host.pk,
        name=host.name,
        team=host.team.name,
        state=state,
        hardware=host.inventory.hardware if host.inventory else "",
        told=inventory is not None,
        told_at=host.inventory.received_at if host.inventory else None,
        builds=[build_of(r, pairs.get(r.manifest_hash), count(pairs.get(r.manifest_hash))) for r in there],
        broken=inventory.broken_runtimes if inventory else [],
        gone=[_gone(pair, count(pair).n) for pair in pairs.values() if pair.runtime.manifest_hash not in hashes],
    )


def build_of(r: RuntimeInfo, pair: HostRuntime | None = None, jobs: JobsThere = NO_JOBS) -> Build:
    found = offered(r)
    known = set(_types_of(r.engine).values())
    disproved = [odd for odd in r.oddities if jobs.n_answered and oddities.is_disproved_by_running(odd)]
    return Build(
        name=r.engine,
        version=r.version,
        backend=r.backend,
        commit=r.source_commit[:12],
        hash=r.manifest_hash,
        kind=r.kind,
        kind_words=KIND_WORDS[r.kind],
        dialect=DIALECT_WORDS.get(r.capabilities.dialect, r.capabilities.dialect),
        modes=found.modes,
        lacking=[(list(modes), need) for need, modes in _by_need(found.lacking)],
        no_baseline=found.baseline,
        other_types=[t for t in r.capabilities.spec_types if t not in known],
        image=r.image,
        executable=r.executable,
        servers=list(r.servers.items()),
        oddities=[Oddity(odd, oddities.remedy(odd)) for odd in r.oddities if odd not in disproved],
        disproved=disproved,
        n_files=len(r.manifest),
        first_seen_at=pair.first_seen_at if pair else None,
        n_jobs=jobs.n,
        n_answered=jobs.n_answered,
    )


def _by_need(lacking: Mapping[str, str]) -> list[tuple[str, list[str]]]:
    """What is needed, each once, with the modes that need it."""
    return [(need, [mode for mode, _ in part]) for need, part in groupby(lacking.items(), key=lambda item: item[1])]


def _types_of(name: str) -> Mapping[str, str]:
    try:
        types: Mapping[str, str] = engines.engine(name).SPEC_TYPES
    except SpecError:
        return {}
    return types


def _gone(pair: HostRuntime, n_jobs: int) -> Gone:
    r = pair.runtime
    return Gone(r.engine, r.version, r.backend, r.manifest_hash, pair.first_seen_at, pair.last_seen_at, n_jobs)


def counted(hosts: Sequence[HostBuilds]) -> list[str]:
    """How much there is, in words; empty where there is nothing."""
    counts = [
        (len({b.hash for h in hosts for b in h.builds}), "build", "builds"),
        (sum(bool(h.builds) for h in hosts), "host that offers some", "hosts that offer some"),
        (sum(bool(b.oddities) for h in hosts for b in h.builds), "with something odd", "with something odd"),
        (sum(len(h.broken) for h in hosts), "that can’t be used", "that can’t be used"),
    ]
    return [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]


@dataclass(frozen=True)
class Place:
    """Where a build is or was."""

    id: UUID
    name: str
    team: str
    there: bool
    first_seen_at: datetime | None
    last_seen_at: datetime | None


def places(hosts: Sequence[Host], seen: Sequence[HostRuntime], manifest_hash: str) -> list[Place]:
    pairs = {pair.host_id: pair for pair in seen if pair.runtime.manifest_hash == manifest_hash}
    return [
        Place(h.pk, h.name, h.team.name, offers(h, manifest_hash) is not None, pairs[h.pk].first_seen_at, pairs[h.pk].last_seen_at)
        for h in hosts
        if h.pk in pairs
    ]


def offers(host: Host, manifest_hash: str) -> RuntimeInfo | None:
    """The build as the host offers it now."""
    there = host.inventory.parsed.runtimes if host.inventory else []
    return next((r for r in there if r.manifest_hash == manifest_hash), None)


#: What the page says of attached servers beside what is odd.
UNCHECKED = ", ".join(attached.UNCHECKED)
