"""The best arms that were found, as pages show them, and what to start with where nobody measured. No database access."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from urllib.parse import urlencode

from django.urls import reverse
from speccore import workloads
from speccore.formats import reason
from speccore.inventory import HostInventory
from speccore.presets import preset
from speccore.questions import arm_words

from specweb.results.best_queries import Best

from . import compare_page, form_choices, formats
from .comparison_table import Cell, speedup_cell

MAX_NAME = 200
#: What to start with: where a smaller model of the same vocabulary is there to draft, and where not.
WITH_DRAFT, ALONE = "draft-limit-sweep", "ngram-or-nothing"


@dataclass(frozen=True)
class BestLine:
    """One work on some hardware with the arm to use for it; ``found`` False: measured, and no arm is recommended."""

    title: str
    detail: str
    target: str
    found: bool
    arm: str
    words: str
    mode: str
    speedup: Cell
    verdict: str
    reason: str
    href: str
    experiment: str
    build: str
    at: datetime
    self_run: str  # the mark of who ran it; empty: this service
    not_restarted: bool
    n_results: int
    compare: str  # address of all results on this work and hardware
    newer: str  # what the newest run of the same question says, if that is no keep
    newer_at: datetime | None


@dataclass(frozen=True)
class OnHardware:
    hardware: str
    lines: list[BestLine]


def by_hardware(found: Iterable[Best]) -> list[OnHardware]:
    return [OnHardware(name, [_line(b) for b in part]) for name, part in groupby(found, key=lambda b: b.shown.hardware)]


def _line(best: Best) -> BestLine:
    shown, c = best.shown, best.shown.comparison
    setup = [shown.engine, shown.build, shown.backend, shown.setup]
    newer = best.newer
    where = {"target": shown.target, "engine": shown.engine, "work": shown.workload, "concurrency": shown.concurrency}
    return BestLine(
        title=shown.title,
        detail=compare_page.detail_of(shown.question),
        target=shown.target,
        found=best.found,
        arm=c.arm.name,
        words=arm_words(shown.question, {str(shown.question.get("arm.draft", "")): shown.helper}),
        mode=shown.mode,
        speedup=speedup_cell(compare_page.speedup_of(shown), compare_page.numbers_href(shown, "speedup")),
        verdict=c.verdict,
        reason=reason(c.reason),
        href=f"{reverse('experiment', args=[shown.experiment_id])}?{urlencode({'job': str(c.job_id)})}#{c.point.key}/{c.arm.name}",
        experiment=shown.experiment.name,
        build=" · ".join(word for word in setup if word),
        at=shown.measured_at,
        self_run=shown.origin_mark,
        not_restarted=shown.not_restarted,
        n_results=best.n_results,
        compare=compare_href(**where, context=shown.occupied_context, hardware=shown.hardware),
        newer=f"{newer.comparison.verdict}{_ratio(newer.comparison.speedup)}" if newer else "",
        newer_at=newer.measured_at if newer else None,
    )


def _ratio(speedup: float | None) -> str:
    return f", {formats.ratio(speedup)}" if speedup else ""


def compare_href(**filters: object) -> str:
    return f"{reverse('compare')}?{urlencode({name: value for name, value in filters.items() if value not in ('', None)})}"


def question_href(hardware: str = "", model: str = "") -> str:
    """The overview with this hardware and model chosen."""
    asked = {name: value for name, value in (("hardware", hardware), ("model", model)) if value}
    return f"{reverse('overview')}?{urlencode(asked)}#works"


def start_href(preset_name: str, model: str = "") -> str:
    """The form with a preset, and its target where one is chosen."""
    return f"{reverse('experiment-new')}?{urlencode({'preset': preset_name} | ({'model': model} if model else {}))}"


def not_measured(found: Iterable[Best]) -> list[str]:
    """Titles of the usual kinds of work that have no result among these."""
    names = {b.shown.workload.partition("@")[0] for b in found}
    titles = {name: w.title for name, w in workloads.builtin().items()}
    return [titles.get(name, name) for name in form_choices.USUAL_WORK if name not in names]


@dataclass(frozen=True)
class Asked:
    hardware: str
    model: str

    def __bool__(self) -> bool:
        return bool(self.hardware or self.model)


def asked_of(query: Mapping[str, str]) -> Asked:
    return Asked(*(query.get(name, "").strip()[:MAX_NAME] for name in ("hardware", "model")))


@dataclass(frozen=True)
class Start:
    """What to measure first. ``hosts``: own hosts of the hardware that have the model, by name."""

    preset: str
    question: str
    href: str
    draft: str
    hosts: list[str]
    lacks_model: list[str]  # own hosts of the hardware that have no such model


def start_for(asked: Asked, hosts: Sequence[tuple[str, HostInventory]]) -> Start:
    """``hosts``: the person's own, by name with what they offer. Without a model named, the likeliest of that hardware."""
    there = [(name, i) for name, i in hosts if not asked.hardware or _has(i, asked.hardware)]
    have = [(name, i) for name, i in there if not asked.model or any(m.alias == asked.model for m in i.models)]
    offered = [i for _, i in have] or [i for _, i in hosts]
    target, draft = form_choices.pair_with(offered, asked.model) if asked.model else form_choices.likely_pair(offered)
    model = asked.model or (target.alias if target else "")
    name = WITH_DRAFT if draft else ALONE
    return Start(
        preset=name,
        question=preset(name).question,
        href=start_href(name, model),
        draft=draft.alias if draft else "",
        hosts=[name for name, _ in have],
        lacks_model=[name for name, i in there if asked.hardware and (name, i) not in have],
    )


def _has(inventory: HostInventory, hardware: str) -> bool:
    """It is that, or has one of its cards: a job may have been given one of several."""
    cards = {d.name for d in inventory.devices if d.kind == "gpu"}
    return inventory.hardware_name()[:MAX_NAME] == hardware or any(card in hardware for card in cards)
