"""Models of a team's hosts as their pages show them, and the classes of hardware. No database access."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.urls import reverse
from speccore.inventory import ModelInfo

from specweb.experiments.models import Host, HostModel, Model
from specweb.experiments.services.silence import Limits, host_state
from specweb.results.best_queries import Measured

from . import best_page, formats

#: Host → hash → aliases, of its newest inventory.
Offered = Mapping[UUID, Mapping[str, set[str]]]
FORMATS = {"gguf": "GGUF file", "hf": "folder with config.json", "served": "known by a server’s word only"}


@dataclass(frozen=True)
class Place:
    """A host with the model's names there, those of now or else those of once. ``there``: its newest inventory has it.

    A machine of an uploaded run has no page.
    """

    id: UUID
    name: str
    team: str
    aliases: list[str]
    there: bool
    self_run: bool


@dataclass(frozen=True)
class ModelLine:
    hash: str
    aliases: list[str]
    architecture: str
    quantization: str
    parameters: str
    context: str
    has_mtp: bool
    size_bytes: int
    places: list[Place]
    n_experiments: int

    @property
    def href(self) -> str:
        return reverse("model", args=[self.hash])

    @property
    def gone(self) -> bool:
        return not any(p.there for p in self.places)


def line(model: Model, rows: Sequence[HostModel], offered: Offered, n_experiments: int) -> ModelLine:
    found = places(model, rows, offered)
    return ModelLine(
        hash=model.manifest_hash,
        aliases=_names(found),
        architecture=model.architecture,
        quantization=model.quantization,
        parameters=formats.count(model.n_parameters) if model.n_parameters else "",
        context=f"{model.context_length:,}" if model.context_length else "",
        has_mtp=model.has_mtp,
        size_bytes=model.size_bytes,
        places=found,
        n_experiments=n_experiments,
    )


def _names(found: Sequence[Place]) -> list[str]:
    """What hosts call it now, those that most use first; where none has it any more, what they called it."""
    used = Counter(a for p in found if p.there for a in p.aliases) or Counter(a for p in found for a in p.aliases)
    return sorted(used, key=lambda a: (-used[a], len(a), a))


def places(model: Model, rows: Sequence[HostModel], offered: Offered) -> list[Place]:
    hosts, found = {r.host_id: r.host for r in rows}, []
    for pk, host in hosts.items():
        now = sorted(offered.get(pk, {}).get(model.manifest_hash, ()))
        once = [r.alias for r in rows if r.host_id == pk]
        found.append(Place(pk, host.name, host.team.name, now or once, there=bool(now), self_run=host.self_run))
    return found


def facts(model: Model, told: ModelInfo | None) -> list[tuple[str, str]]:
    """What its file says, as (name, value); an empty value was not told."""
    found = [
        ("format", FORMATS.get(model.format, model.format)),
        ("architecture", model.architecture),
        ("quantisation", model.quantization),
        ("parameters", formats.count(model.n_parameters) if model.n_parameters else ""),
        ("layers", str(model.n_layers or "")),
        ("context it was trained for", f"{model.context_length:,} tokens" if model.context_length else ""),
        ("vocabulary", f"{model.vocab_size:,} tokens" if model.vocab_size else ""),
        ("MTP head", "yes" if model.has_mtp else "no"),
        ("size", formats.byte_size(model.size_bytes)),
    ]
    if told:
        found += [("drafts for", told.drafts_for)] if told.drafts_for else []
        found += [("code of its own", "in its folder, never run")] if told.custom_code else []
        kind = told.tokenizer.kind if told.tokenizer else ""
        found += [("tokenizer", kind)] if kind else []
    return found


def hashes(model: Model, told: ModelInfo | None) -> list[tuple[str, str, str]]:
    """Name, hash, and what it is for."""
    return [
        ("identity", model.manifest_hash, "of all its files; an experiment may name it in place of an alias"),
        ("tokenizer", told.tokenizer_hash if told else "", "another model must share it to draft for this one"),
        ("chat template", told.chat_template_hash if told else "", "of another template prompts become other text"),
    ]


@dataclass(frozen=True)
class There:
    """A host that is of a class. ``since``: since when it is offline."""

    pk: UUID
    name: str
    state: str
    since: datetime | None


@dataclass(frozen=True)
class HardwareLine:
    """A class of devices: own hosts that are it, what was measured on it, the best arms there."""

    name: str
    hosts: list[There]
    measured: Measured | None
    best: list[best_page.BestLine] = field(default_factory=list)

    @property
    def asked(self) -> str:
        return best_page.question_href(hardware=self.name)

    @property
    def compare(self) -> str:
        return best_page.compare_href(hardware=self.name)

    @property
    def last_at(self) -> datetime | None:
        return self.measured.last_at if self.measured else None


def hardware_names(measured: Iterable[str], hosts: Iterable[Host]) -> list[str]:
    """Own hardware first, then what only others' results are of; by name."""
    own = {h.inventory.hardware for h in hosts if h.inventory and h.inventory.hardware}
    return sorted(own | {name for name in measured if name}, key=lambda n: (n not in own, n.lower()))


def hardware_lines(
    names: Sequence[str],
    hosts: Sequence[Host],
    measured: Mapping[str, Measured],
    best: Sequence[best_page.OnHardware],
    now: datetime,
    limits: Limits,
) -> list[HardwareLine]:
    found = {b.hardware: b.lines for b in best}
    return [
        HardwareLine(
            name,
            [_there(h, now, limits) for h in hosts if h.inventory and h.inventory.hardware == name],
            measured.get(name),
            found.get(name, []),
        )
        for name in names
    ]


def _there(host: Host, now: datetime, limits: Limits) -> There:
    state = host_state(host, now, limits)
    return There(host.pk, host.name, state, None if state == "online" else host.last_seen_at)
