"""One configuration over time: its runs in order, and what changed between one and the next. No database access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby, pairwise
from typing import Any
from urllib.parse import urlencode

from django.urls import reverse
from speccore.formats import reason
from speccore.measurement import Withheld
from speccore.questions import arm_words

from specweb.results.chart_queries import figure_of
from specweb.results.models import Listing

from .chart_frame import Chart
from .charts import interval_data
from .compare_chart import short_hardware
from .compare_page import detail_of, integrity_of, numbers_href, speedup_of
from .comparison_table import Cell, metric_cell, speedup_cell
from .marks import mark_of

#: What may change between two runs of one question on one hardware: column → what it is called.
WATCHED = {
    "build": "build",
    "backend": "backend",
    "driver": "driver",
    "setup": "settings",
    "target": "name of the model",
    "not_restarted": "restarts",
    "self_run": "who ran it",
}
_WORDS = {"not_restarted": ("restarted", "not restarted"), "self_run": ("this service", "uploaded afterwards")}


@dataclass(frozen=True)
class Changed:
    """Of one run to the next: what, from what, to what."""

    what: str
    was: str
    now: str


@dataclass(frozen=True)
class HistoryRun:
    """``changes``: against the run before it; ``number``: of the mark in the chart, 0 without one."""

    at: datetime
    host: str
    href: str
    experiment: str
    speedup: Cell
    verdict: str
    verdict_reason: str
    without: Cell
    with_: Cell
    build: str
    integrity_word: str
    integrity_state: str
    integrity_sentence: str
    n_blocks: int
    changes: list[Changed]
    number: int


@dataclass(frozen=True)
class History:
    title: str
    about: list[str]
    mode: str
    runs: list[HistoryRun]
    chart: Chart
    more: bool
    note: str


def history(found: Sequence[Listing], *, more: bool, ask: str = "") -> History:
    """``found``: at least one, oldest first."""
    newest = found[-1]
    names = {newest.target_hash: newest.target, str(newest.question.get("arm.draft", "")): newest.helper}
    changes = [[]] + [_changes(a, b) for a, b in pairwise(found)]
    runs, number = [], 0
    for shown, changed in zip(found, changes, strict=True):
        number += bool(changed)
        runs.append(_run(shown, changed, number if changed else 0))
    arm = arm_words(newest.question, names)
    return History(
        title=f"{newest.title} on {short_hardware(newest.hardware)}",
        about=[arm, newest.target, newest.engine, detail_of(newest.question), *([newest.setup] if newest.setup else [])],
        mode=newest.mode,
        runs=runs[::-1],
        chart=_chart(found, runs, arm, ask),
        more=more,
        note=_note(found),
    )


def _changes(before: Listing, after: Listing) -> list[Changed]:
    found = [
        Changed(words, _value(before, name), _value(after, name))
        for name, words in WATCHED.items()
        if getattr(before, name) != getattr(after, name)
    ]
    if before.build == after.build and before.runtime_hash != after.runtime_hash:
        found.append(Changed("files of the build", before.runtime_hash[:12] or "not told", after.runtime_hash[:12] or "not told"))
    return found


def _value(shown: Listing, name: str) -> str:
    value = getattr(shown, name)
    return _WORDS[name][value] if name in _WORDS else value or "none"


def _run(shown: Listing, changed: list[Changed], number: int) -> HistoryRun:
    c, integrity = shown.comparison, integrity_of(shown.integrity)
    return HistoryRun(
        at=shown.measured_at,
        host=shown.host.name if shown.host else "",
        href=f"{reverse('experiment', args=[shown.experiment_id])}?{urlencode({'job': str(c.job_id)})}#{c.point.key}/{c.arm.name}",
        experiment=shown.experiment.name,
        speedup=speedup_cell(speedup_of(shown), numbers_href(shown, "speedup")),
        verdict=c.verdict,
        verdict_reason=reason(c.reason),
        without=_speed(shown, "baseline_tokens_per_s"),
        with_=_speed(shown, "arm_tokens_per_s"),
        build=shown.build,
        integrity_word=integrity.word,
        integrity_state=integrity.state,
        integrity_sentence=integrity.sentence,
        n_blocks=c.n_blocks,
        changes=changed,
        number=number,
    )


def _speed(shown: Listing, name: str) -> Cell:
    return metric_cell(figure_of(shown.figures.get(name, {})), "decode_tokens_per_s", numbers_href(shown, "decode_tokens_per_s"))


def _note(found: Sequence[Listing]) -> str:
    """What several hosts of one hardware, or several pair keys, mean for reading it."""
    hosts = {s.host.name for s in found if s.host}
    told = f"from {len(hosts)} hosts of this hardware" if len(hosts) > 1 else ""
    return f"{len(found)} runs{', ' + told if told else ''}; none is pooled with another, and no times of two runs are divided"


def _chart(found: Sequence[Listing], runs: Sequence[HistoryRun], arm: str, ask: str) -> Chart:
    newest = found[-1]
    data = {
        "margin": newest.margin,
        "mode": newest.mode,
        "symbol": mark_of(newest.mode).symbol,
        "runs": [_mark(shown) for shown in found],
        "changes": [{"before": i, "number": run.number} for i, run in enumerate(runs) if run.number],
        "builds": _builds(found),
    }
    n_drawn = sum("estimate" in run for run in data["runs"])
    return Chart(
        name="history",
        title="Speed-up of each run",
        caption="in the order of time, builds along the axis; a dotted line is a change, numbered as in the table; log axis, 95 % interval",
        label="Speed-up of each run with its interval; the table below has the same numbers",
        data=data if n_drawn > 1 else None,
        empty="A history begins with the second run: reproduce this one after the next update of the engine or the driver.",
        remedy="Start from the newest run" if ask else "",
        remedy_href=ask,
        numbers="the table below has",
        about=[newest.target, newest.title, short_hardware(newest.hardware), arm],
    )


def _mark(shown: Listing) -> dict[str, Any]:
    at = shown.measured_at.astimezone(UTC)
    data = {
        "mode": shown.mode,
        "host": shown.host.name if shown.host else "",
        "date": f"{at:%Y-%m-%d %H:%M} UTC",
        "day": f"{at.day} {at:%b}",
        "judged": shown.judged,
        "verdict": shown.comparison.verdict,
        "href": numbers_href(shown, "speedup"),
    }
    speedup = speedup_of(shown)
    return data if isinstance(speedup, Withheld) else data | interval_data(speedup)


def _builds(found: Sequence[Listing]) -> list[dict[str, Any]]:
    spans, i = [], 0
    for (build, _), group in groupby(found, key=lambda s: (s.build, s.runtime_hash)):
        n = len(list(group))
        spans.append({"from": i, "to": i + n - 1, "build": build or "not told"})
        i += n
    return spans
