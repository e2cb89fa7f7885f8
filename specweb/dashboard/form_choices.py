"""What the form suggests and starts with, from what a team's hosts offer. No database access of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from speccore import engines
from speccore.inventory import HostInventory, ModelInfo
from speccore.spec import MODES, MODES_BESIDE, RuntimeSelector, Warmup
from speccore.yamltext import read_yaml

from specweb.experiments.models import Host
from specweb.experiments.offers import WorkloadOffer
from specweb.experiments.services.silence import Limits

from . import formats, hosts_page
from .form_fields import MODE_WORDS

SAMPLE = Path(__file__).parent / "sample.yaml"
#: A draft model is at most this share of the target's size, else drafting costs what it saves.
LIKELY_DRAFT_SHARE = 0.5
#: Kinds of work that a new experiment asks for, with the temperature that each is usually sampled at.
USUAL_WORK = {"count": 0, "python-code": 0.1, "free-text": 0.8}


@dataclass(frozen=True)
class Offer:
    """A value with what tells it from others. ``group`` heads it in a list to choose from."""

    value: str
    words: str = ""
    group: str = ""


@dataclass(frozen=True)
class HostChoice:
    name: str
    hardware: str
    state: str
    ticked: bool = False
    known: bool = True  # a host of this team


@dataclass(frozen=True)
class Choices:
    """``lists`` holds the offers by the name of the list; ``inventories`` those of hosts that have said what they offer."""

    lists: dict[str, list[Offer]]
    hosts: list[HostChoice]
    inventories: list[HostInventory]
    work: list[WorkloadOffer]


def choices(hosts: Sequence[Host], work: list[WorkloadOffer], now: datetime, limits: Limits) -> Choices:
    states = {h.pk: hosts_page.state_of(h, now, limits) for h in hosts}
    # Online ones first: what is suggested first is what can run now.
    told = sorted((h for h in hosts if h.inventory), key=lambda h: states[h.pk] != "online")
    inventories = [h.inventory.parsed for h in told if h.inventory]
    shown = [HostChoice(h.name, h.inventory.hardware if h.inventory else "", states[h.pk]) for h in hosts]
    return Choices(_lists(hosts, inventories, work), shown, inventories, work)


def inventories_of(hosts: Iterable[Host]) -> list[HostInventory]:
    return [h.inventory.parsed for h in hosts if h.inventory]


def _lists(hosts: Sequence[Host], inventories: Sequence[HostInventory], work: list[WorkloadOffer]) -> dict[str, list[Offer]]:
    builds = [r for i in inventories for r in i.runtimes]
    labels = [(k, v) for h in hosts for k, v in h.labels.items()]
    return {
        "models": _once(Offer(m.alias, _model_words(m)) for i in inventories for m in i.models),
        "engines": [
            Offer(e, "" if not builds or any(r.engine == e for r in builds) else "no host of yours offers it") for e in engines.names()
        ],
        "versions": _once(Offer(r.version, r.backend) for r in builds),
        "commits": _once(Offer(r.source_commit, r.version) for r in builds),
        "backends": _once(Offer(r.backend) for r in builds),
        "builds": _once(Offer(r.manifest_hash, f"{r.engine} {r.version} {r.backend}".strip()) for r in builds),
        "flash": [Offer("", "engine’s default"), Offer("on"), Offer("off"), Offer("auto")],
        "warmups": [Offer("settled", "until the speed has settled"), Offer("fixed", "so many requests")],
        "qualities": [Offer("not lost"), Offer("held")],
        "second_looks": [Offer("once"), Offer("never")],
        "thinkings": [Offer("", "bare text"), Offer("true", "chat template, thinking on"), Offer("false", "chat template, thinking off")],
        "modes": _mode_offers(inventories),
        "beside": [Offer(mode, MODE_WORDS[mode]) for mode in MODES_BESIDE],
        "workloads": _work_offers(work),
        "flags": _once(Offer(flag) for i in inventories for flag in sorted(i.allowed_flags) if flag.startswith("--")),
        "label_keys": _once(Offer(k) for k, _ in labels),
        "label_values": _once(Offer(str(v), k) for k, v in labels),
    }


def _once(offers: Iterable[Offer]) -> list[Offer]:
    found: dict[str, Offer] = {}
    for offer in offers:
        if offer.value:
            found.setdefault(offer.value, offer)
    return list(found.values())


def _model_words(m: ModelInfo) -> str:
    parts = [m.architecture, f"{formats.count(m.n_parameters)} parameters" if m.n_parameters else "", m.quantization]
    return ", ".join(p for p in [*parts, formats.byte_size(m.size_bytes)] if p)


def _mode_offers(inventories: Sequence[HostInventory]) -> list[Offer]:
    offered = {"off"} | {mode for i in inventories for r in i.runtimes for mode in hosts_page.modes_of(r)}
    first, rest = ("your hosts offer", "no host of yours offers") if inventories else ("", "")
    ordered = [m for m in MODES if m in offered] + [m for m in MODES if m not in offered]
    return [Offer(m, MODE_WORDS[m], first if m in offered else rest) for m in ordered]


def _work_offers(work: Sequence[WorkloadOffer]) -> list[Offer]:
    """The newest version by its bare name, older ones by name and version."""
    offers: dict[str, Offer] = {}
    for w in work:
        words = f"{w.title}, {w.n_items} prompts"
        name = w.name if w.name not in offers else f"{w.name}@{w.version}"
        offers.setdefault(name, Offer(name, words, "your team’s" if w.own else "built in"))
    return sorted(offers.values(), key=lambda o: (o.group == "built in", "@" in o.value))


def sample_data() -> dict[str, Any]:
    """The sample experiment, on the two small models that come with the project."""
    data: dict[str, Any] = read_yaml(SAMPLE.read_bytes())
    return data


def usual_data(offered: Choices) -> dict[str, Any]:
    """What a new experiment starts with: a likely pair of models, the usual kinds of work, five blocks."""
    target, draft = likely_pair(offered.inventories)
    modes = {o.value for o in offered.lists["modes"] if o.group != "no host of yours offers"}
    arms: list[dict[str, Any]] = [{"name": "off", "mode": "off"}]
    if draft or not target or "ngram-simple" not in modes:
        drafted = {"draft_model": draft.alias} if draft else {}
        arms += [{"name": f"draft-{n}", "mode": "draft", **drafted, "draft_limit": n} for n in (3, 8)]
    if target and target.has_mtp and "mtp" in modes:
        arms.append({"name": "mtp-3", "mode": "mtp", "draft_limit": 3})
    if "ngram-simple" in modes:
        arms.append({"name": "ngram-simple", "mode": "ngram-simple", "ngram_size": 4, "draft_limit": 8})
    names = [n for n in USUAL_WORK if any(w.name == n for w in offered.work)] or list(dict.fromkeys(w.name for w in offered.work))[:3]
    points = [{"workload": n, "max_tokens": 128, "probes": 2, "sampling": {"temperature": USUAL_WORK.get(n, 0)}} for n in names]
    context = min(4096, target.context_length or 4096) if target else 4096
    return {
        "name": f"Speculation with {target.alias}" if target else "",
        "target": {"model": target.alias if target else ""},
        "runtime": {"engine": RuntimeSelector().engine},
        "engine": {"context": context, "slots": 1},
        "arms": arms,
        "points": points,
        "blocks": 5,
        "warmup": {"mode": Warmup().mode},
        "seed": 1,
        "margin": 0.03,
        "placement": {"count": 1},
    }


def likely_pair(inventories: Iterable[HostInventory]) -> tuple[ModelInfo | None, ModelInfo | None]:
    """The largest model with a much smaller one of the same tokenizer, of the first host that has such; else just a model."""
    alone: ModelInfo | None = None
    for inventory in inventories:
        models = sorted(inventory.models, key=lambda m: -m.size_bytes)
        for target in models:
            if draft := _likely_draft(target, models):
                return target, draft
        alone = alone or next(iter(models), None)
    return alone, None


def _likely_draft(target: ModelInfo, largest_first: Sequence[ModelInfo]) -> ModelInfo | None:
    small = (m for m in largest_first if m.size_bytes <= LIKELY_DRAFT_SHARE * target.size_bytes and _one_tokenizer(m, target))
    return next(small, None)


def pair_with(inventories: Iterable[HostInventory], alias: str) -> tuple[ModelInfo | None, ModelInfo | None]:
    """The model of that alias with one that may draft for it, of the first host that has both; else it alone, if any has it."""
    alone: ModelInfo | None = None
    for inventory in inventories:
        target = next((m for m in inventory.models if m.alias == alias), None)
        draft = _likely_draft(target, sorted(inventory.models, key=lambda m: -m.size_bytes)) if target else None
        if draft:
            return target, draft
        alone = alone or target
    return alone, None


def quantisations(inventories: Iterable[HostInventory]) -> tuple[ModelInfo, ModelInfo] | None:
    """The smallest model of which a host has another quantisation too, and the next larger one."""
    for inventory in inventories:
        models = sorted(inventory.models, key=lambda m: m.size_bytes)
        for i, small in enumerate(models):
            larger = [m for m in models[i + 1 :] if _one_model(m, small) and m.quantization != small.quantization]
            if larger:
                return small, larger[0]
    return None


def _one_model(one: ModelInfo, other: ModelInfo) -> bool:
    known = bool(one.n_parameters) and _one_tokenizer(one, other)
    return known and (one.architecture, one.n_parameters, one.n_layers) == (other.architecture, other.n_parameters, other.n_layers)


def _one_tokenizer(one: ModelInfo, other: ModelInfo) -> bool:
    return bool(one.tokenizer_hash) and one.tokenizer_hash == other.tokenizer_hash
