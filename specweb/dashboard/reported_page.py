"""What the pages of other tools' results show: lines of the list, runs with their numbers, definitions beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.urls import reverse
from speccore.importers import Run
from speccore.metrics import METRICS

from specweb.reported.models import Report, ReportedNumber, ReportedRun

#: Up to so many numbers a run, runs stand as rows of one table.
MOST_ACROSS = 8


@dataclass(frozen=True)
class Shown:
    """A figure as text, with what is to be known of it."""

    name: str
    text: str
    unit: str
    statistic: str
    definition: str
    caution: str
    near: str
    key: str
    exact: str = ""
    note: str = ""
    line: int | None = None


@dataclass(frozen=True)
class RunShown:
    title: str
    anchor: str
    about: list[tuple[str, str]]
    settings: list[tuple[str, str]]
    numbers: list[Shown]
    notes: str = ""
    failed: int | None = None
    run: Any = field(default=None, repr=False)

    def cells(self, heads: Sequence[Shown]) -> list[Shown | None]:
        """Its numbers under the heads of a table."""
        own = {(n.name, n.unit, n.statistic): n for n in self.numbers}
        return [own.get((h.name, h.unit, h.statistic)) for h in heads]


def figure_text(value: float | None, low: float | None, high: float | None) -> str:
    if value is not None:
        return f"{value:,.5g}"
    return f"{low:,.5g}–{high:,.5g}" if low is not None and high is not None else ""


def number(n: ReportedNumber) -> Shown:
    exact = n.written or (repr(n.value) if n.value is not None else "")
    return Shown(
        n.name,
        figure_text(n.value, n.low, n.high),
        n.unit,
        n.statistic,
        n.definition,
        n.caution,
        _near(n.metric),
        n.key,
        exact,
        n.note,
        n.line,
    )


def _near(metric: str) -> str:
    known = METRICS.get(metric)
    return known.name if known else ""


def run_shown(run: ReportedRun) -> RunShown:
    return _shown(run, [number(n) for n in run.numbers.all()], f"run-{run.index + 1}", run.title or f"run {run.index + 1}")


def run_previewed(run: Run, index: int) -> RunShown:
    """A run that isn't stored yet."""
    numbers = [
        Shown(
            n.kind.name,
            figure_text(n.value, n.low, n.high),
            n.kind.unit,
            n.kind.statistic or "not told",
            n.kind.definition,
            n.kind.caution,
            _near(n.kind.metric),
            n.kind.key,
            n.written or (repr(n.value) if n.value is not None else ""),
            n.note,
            n.line,
        )
        for n in run.numbers
    ]
    return _shown(run, numbers, f"run-{index + 1}", run.title or f"run {index + 1}")


def _shown(run: Any, numbers: list[Shown], anchor: str, title: str) -> RunShown:
    told = (
        ("model", run.model),
        ("hardware", run.hardware),
        ("engine", run.engine),
        ("speculation", run.arm),
        ("requests at once", _plain(run.concurrency)),
        ("prompt", _tokens(run.prompt_tokens)),
        ("output", _tokens(run.output_tokens)),
        ("context", _tokens(run.context_tokens)),
        ("requests", _plain(run.n_requests)),
        ("measured", run.at),
        ("by", run.contributor),
        ("line", _plain(run.line)),
    )
    about = [(name, text) for name, text in told if text]
    settings = sorted(run.settings.items())
    return RunShown(title, anchor, about, settings, numbers, run.notes, run.n_failed, run)


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:,.10g}"


def _tokens(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g} tokens"


def heads(runs: Sequence[RunShown], *, of_a_table: bool) -> list[Shown]:
    """The columns where all runs fit one table: each figure once, in order. Empty where they don't.

    Rows of somebody's table have gaps; runs of a tool that lack a figure are of another kind, and stand for themselves.
    """
    found: dict[tuple[str, str, str], Shown] = {}
    for run in runs:
        for x in run.numbers:
            found.setdefault((x.name, x.unit, x.statistic), x)
    fits = len(runs) > 1 and 0 < len(found) <= MOST_ACROSS
    return list(found.values()) if fits and (of_a_table or all(len(run.numbers) == len(found) for run in runs)) else []


def in_common(runs: Sequence[RunShown]) -> list[tuple[str, str]]:
    """What is said of every one of several runs."""
    if len(runs) < 2:
        return []
    first, *others = [[*run.about, *run.settings] for run in runs]
    return [pair for pair in first if pair[0] not in ("model", "hardware") and all(pair in other for other in others)]


def apart(runs: Sequence[RunShown], common: Sequence[tuple[str, str]]) -> list[RunShown]:
    """The runs without what is said of all of them."""
    said = set(common)
    return [
        replace(run, about=[p for p in run.about if p not in said], settings=[p for p in run.settings if p not in said]) for run in runs
    ]


@dataclass(frozen=True)
class BesideRow:
    """One reported run about something that was measured here, in a line."""

    href: str
    title: str
    model: str
    hardware: str
    arm: str
    numbers: list[Shown]
    n_more: int
    report: Report
    contributor: str


def beside_row(run: ReportedRun) -> BesideRow:
    """The figures that are nearest to what Compare shows come first; at most three."""
    numbers = [number(n) for n in run.numbers.all()]
    first = [n for n in numbers if n.near and n.statistic in ("mean", "median", "whole run", "not told")]
    shown = list({n.name: n for n in reversed(first or numbers)}.values())[::-1][:3]
    page = run.index // RUNS_A_PAGE + 1
    href = reverse("reported-one", args=[run.report_id]) + (f"?page={page}" if page > 1 else "") + f"#run-{run.index + 1}"
    return BesideRow(href, run.title, run.model, run.hardware, run.arm, shown, len(numbers) - len(shown), run.report, run.contributor)


#: Runs on one page of a report.
RUNS_A_PAGE = 50
