"""The Compare page: finished ratios of one question across hardware, other questions apart with what differs. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any
from urllib.parse import urlencode

from django.urls import get_script_prefix, reverse
from speccore.formats import reason
from speccore.measurement import Interval, Maybe, Number, Source, Withheld
from speccore.questions import Difference, arm_words, differences, value_words

from specweb.results.compare_queries import Row
from specweb.results.models import Listing

from .comparison_table import Cell, Head, definition, metric_cell, speedup_cell

#: Figure of a row → its heading with the unit, and the metric that defines it.
COLUMNS = (
    ("baseline_tokens_per_s", "tokens/s without", "decode_tokens_per_s"),
    ("arm_tokens_per_s", "tokens/s with", "decode_tokens_per_s"),
    ("mean_acceptance_length", "length", "mean_acceptance_length"),
    ("tokens_per_target_pass", "per pass", "tokens_per_target_pass"),
    ("memory_bill_bytes", "memory, MiB", "memory_bill_bytes"),
)
_READ_FROM = Source(file="")


@dataclass(frozen=True)
class Integrity:
    """``word`` is the worst of what the checks say; ``sentence`` the worst one's own."""

    word: str
    state: str  # passed, warning, failed, not checked
    sentence: str


@dataclass(frozen=True)
class Run:
    """One job that answered a question on some hardware."""

    host: str
    href: str  # its experiment, at the row of this arm
    experiment: str
    speedup: Cell
    verdict: str
    at: datetime


@dataclass(frozen=True)
class CompareRow:
    hardware: str
    setup: list[str]
    arm: str
    not_restarted: bool
    self_run: str  # the mark of who ran it; empty: this service
    speedup: Cell
    verdict: str
    verdict_reason: str
    cells: list[Cell]
    integrity: Integrity
    build: str
    backend: str
    driver: str
    n_hosts: int
    n_runs: int
    n_blocks: int
    run: Run
    further: list[Run]
    key: str  # of the comparison that stands for it
    history: str  # address of all its runs over time


@dataclass(frozen=True)
class Question:
    """Rows of one question key: an arm of one work. ``why``: what differs from the first arm of the same work."""

    key: str
    mode: str
    arm: str
    why: list[Difference]
    rows: list[CompareRow]


@dataclass(frozen=True)
class Work:
    """Questions that differ in their arm only. ``why``: what differs from the first work of the page."""

    key: str
    title: str
    detail: str
    target: str
    fixed: list[str]
    why: list[Difference] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)


def heads() -> list[Head]:
    return [Head(text, definition(metric)) for _, text, metric in COLUMNS]


def works(rows: Sequence[Row]) -> list[Work]:
    """The rows by work and question, in their order."""
    names = {r.shown.target_hash: r.shown.target for r in rows}
    names |= {str(r.shown.question.get("workload", "")): r.shown.workload for r in rows}
    names |= {str(r.shown.question.get("arm.draft", "")): r.shown.helper for r in rows}
    found: list[Work] = []
    first: Mapping[str, Any] | None = None
    for key, group in groupby(rows, key=lambda r: r.shown.work_key):
        here = list(group)
        fields = here[0].shown.question
        why = differences(_work(fields), _work(first), names) if first is not None else []
        first = first if first is not None else fields
        found.append(_work_of(key, here, why, names))
    return found


def _work(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {n: v for n, v in fields.items() if not n.startswith("arm.")}


def _work_of(key: str, rows: list[Row], why: list[Difference], names: Mapping[str, str]) -> Work:
    top = rows[0].shown
    questions = []
    for question_key, group in groupby(rows, key=lambda r: r.shown.question_key):
        here = list(group)
        own = here[0].shown
        questions.append(
            Question(
                key=question_key,
                mode=own.mode,
                arm=arm_words(own.question, names),
                why=differences(own.question, top.question, names),
                rows=[_row(r) for r in here],
            )
        )
    fields = top.question
    fixed = [f"{top.engine}", f"{value_words(fields.get('settings.context'))} tokens of context per slot"]
    fixed += [f"{side} cache {v}" for side in ("K", "V") if (v := fields.get(f"settings.kv_type_{side.lower()}"))]
    fixed += ["prefix cache on"] if fields.get("settings.prefix_cache") else []
    return Work(key, top.title, detail_of(fields), value_words(top.target_hash, names), fixed, why, questions)


def detail_of(fields: Mapping[str, Any]) -> str:
    """What a point fixes beside its work: ``greedy · 4 at once · at most 64 tokens``."""
    heat = fields.get("point.sampling.temperature", 0)
    words = [f"temperature {heat:g}" if heat else "greedy"]
    words += [
        f"{n.upper().replace('_', '-')} {v:g}" for n in ("top_k", "top_p", "min_p") if (v := fields.get(f"point.sampling.{n}")) is not None
    ]
    words += [f"{n} at once"] if (n := fields.get("point.concurrency", 1)) > 1 else []
    words += [f"{rate:g} a second by the clock"] if (rate := fields.get("point.rate_per_s")) else []
    words += ["each prompt asked before"] if fields.get("point.warm") else []
    words += ["thinking on"] if fields.get("point.thinking") else []
    words += [f"{n:,} tokens of context occupied"] if (n := fields.get("point.occupied_context", 0)) else []
    return " · ".join([*words, f"at most {fields.get('point.max_tokens', 0):,} tokens"])


def _row(row: Row) -> CompareRow:
    shown = row.shown
    return CompareRow(
        hardware=shown.hardware or "not told",
        setup=shown.setup.split(", ") if shown.setup else [],
        arm=shown.comparison.arm.name,
        not_restarted=shown.not_restarted,
        self_run=shown.origin_mark,
        speedup=speedup_cell(speedup_of(shown), numbers_href(shown, "speedup")),
        verdict=shown.comparison.verdict,
        verdict_reason=reason(shown.comparison.reason),
        cells=[metric_cell(_figure(shown, name), metric, numbers_href(shown, metric)) for name, _, metric in COLUMNS],
        integrity=integrity_of(shown.integrity),
        build=shown.build,
        backend=shown.backend,
        driver=shown.driver,
        n_hosts=row.n_hosts,
        n_runs=row.n_runs,
        n_blocks=shown.comparison.n_blocks,
        run=_run(shown),
        further=[_run(r) for r in row.further],
        key=str(shown.pk),
        history=history_href(shown),
    )


def _run(shown: Listing) -> Run:
    c = shown.comparison
    return Run(
        host=shown.host.name if shown.host else "",
        href=f"{reverse('experiment', args=[shown.experiment_id])}?{urlencode({'job': str(c.job_id)})}#{c.point.key}/{c.arm.name}",
        experiment=shown.experiment.name,
        speedup=speedup_cell(speedup_of(shown), numbers_href(shown, "speedup")),
        verdict=c.verdict,
        at=shown.measured_at,
    )


def history_href(shown: Listing) -> str:
    """Of the runs of one question on one hardware with the same settings."""
    query = {"question": shown.question_key, "hardware": shown.hardware, "setup": shown.setup}
    return f"{reverse('compare-history')}?{urlencode(query)}"


def numbers_href(shown: Listing, metric: str) -> str:
    c = shown.comparison
    return f"{_numbers_address(get_script_prefix(), str(c.job_id), c.arm.name, c.point.key)}#{metric}"


@lru_cache(maxsize=4096)  # each number of a row leads there, in tables and in charts
def _numbers_address(prefix: str, job: str, arm: str, point: str) -> str:
    return f"{reverse('numbers', args=[job])}?{urlencode({'arm': arm, 'point': point})}"


def speedup_of(shown: Listing) -> Interval | Withheld:
    """The stored ratio with its interval, or why there is none."""
    c, why = shown.comparison, shown.figures.get("speedup", {})
    if c.speedup is None:
        return Withheld(withheld=why.get("withheld") or "not computed", reason_code=why.get("reason_code", ""))
    return Interval(estimate=c.speedup, low=c.ci_low, high=c.ci_high, n_blocks=c.n_blocks, withheld=why.get("withheld", ""))


def _figure(shown: Listing, name: str) -> Maybe:
    kept = shown.figures.get(name, {})
    if "value" in kept:
        return Number(value=kept["value"], source=_READ_FROM)
    return Withheld(withheld=kept.get("withheld", "not computed"), reason_code=kept.get("reason_code", ""))


def integrity_of(counts: Mapping[str, Any]) -> Integrity:
    failed, warnings, unchecked, worst = (counts.get(n, 0) for n in ("failed", "warnings", "unchecked", "worst"))
    if failed:
        return Integrity("failed" if failed == 1 else f"{failed} failed", "failed", worst)
    if warnings:
        return Integrity(f"{warnings} warning{'' if warnings == 1 else 's'}", "warning", worst)
    if not counts.get("passed", 0):
        return Integrity("not checked", "not checked", "what the checks need was not measured")
    return Integrity("sound", "passed", f"{counts['passed']} checks passed, {unchecked} had nothing to look at")
