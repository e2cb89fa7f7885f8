"""The quality section of an experiment page: whether each arm's answers are as good as the baseline's, and how that was seen. No database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from speccore.measurement import ComparisonResult, JobAnalysis, Withheld
from speccore.quality_results import (
    GREEDY_ANSWERS,
    SAMPLING_RULE,
    TASK_CHECKS,
    AgreementResult,
    QualityMeasure,
    SamplingJudged,
    SamplingResult,
)
from speccore.records import CONTINUATIONS, SECOND_LOOK
from speccore.spec import ExperimentSpec

from . import formats
from .comparison_table import NumbersUrl, point_title

#: Evidence file → address of the page that lists it; '' where the reader may not open it or there is none.
EvidenceUrl = Callable[[str], str]

_HEADS = {
    TASK_CHECKS: "Number sequence, code that parses, JSON and tool calls: share passed, over distinct prompts",
    GREEDY_ANSWERS: "Token by token beside the baseline’s; wrong is where they part although the target’s two likeliest tokens are over 0.2 nat apart",
    SAMPLING_RULE: "Short continuations under other seeds, compared position by position",
}
_CLASSES = {"held": "s-passed", "lost": "s-failed", "not shown": "s-warning", "not checked": "s-not-checked"}
_OUTCOMES = {"accused": "s-failed", "not accused": "s-passed", "control failed": "s-warning", "not tested": "s-not-checked"}


@dataclass(frozen=True)
class QualityCell:
    """``state``: held, lost, not shown, not checked."""

    head: str
    state: str
    state_class: str
    sentence: str
    href: str = ""
    link: str = ""


@dataclass(frozen=True)
class QualityRow:
    arm: str
    mode: str
    cells: list[QualityCell]


@dataclass(frozen=True)
class QualityGroup:
    """One kind of work. ``own``: how far the baseline agrees with itself; empty where answers are drawn."""

    title: str
    detail: str
    own: str
    own_href: str
    heads: list[tuple[str, str]]
    rows: list[QualityRow]


@dataclass(frozen=True)
class SamplingRow:
    arm: str
    mode: str
    outcome: str
    outcome_class: str
    words: str
    n: str
    positions: list[list[str]]


@dataclass(frozen=True)
class SamplingShown:
    """``withheld``: why the test says nothing."""

    about: str
    withheld: str
    n_positions: list[int]
    rows: list[SamplingRow]
    href: str


@dataclass(frozen=True)
class QualitySection:
    groups: list[QualityGroup]
    sampling: SamplingShown | None


def quality_section(
    spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl, evidence: EvidenceUrl
) -> QualitySection | None:
    """None for an analysis of before quality had a place in it."""
    groups = []
    for point in spec.points:
        title, detail = point_title(point, titles)
        here = [c for c in analysis.comparisons if c.point == point.key and c.mode != "off"]
        names = [n for n in _HEADS if any(m.name == n for c in here for m in c.quality)]
        if not names:
            continue
        own = next((c.own_agreement.words for c in here if isinstance(c.own_agreement, AgreementResult)), "")
        rows = [QualityRow(c.arm, c.mode, [_cell(c, m, url, evidence) for m in c.quality]) for c in here]
        groups.append(QualityGroup(title, detail, own, evidence(SECOND_LOOK) if own else "", [(n, _HEADS[n]) for n in names], rows))
    return QualitySection(groups, _sampling(spec, analysis, evidence(CONTINUATIONS))) if groups else None


def _cell(c: ComparisonResult, found: QualityMeasure, url: NumbersUrl, evidence: EvidenceUrl) -> QualityCell:
    name, sentence, href, link = found.name, _sentence(found), "", ""
    if name == TASK_CHECKS and found.n:
        href, link = url(c.arm, c.point, "probes"), "each answer"
    elif name == GREEDY_ANSWERS and isinstance(c.agreement, AgreementResult):
        sentence = f"{sentence}. {_capital(c.agreement.words)}"
        href, link = evidence("texts.jsonl"), "texts.jsonl"
    elif name == SAMPLING_RULE and found.n:
        href, link = evidence(CONTINUATIONS), CONTINUATIONS
    return QualityCell(name, found.state, _CLASSES[found.state], sentence, href, link if href else "")


def _sentence(found: QualityMeasure) -> str:
    interval = ""
    if found.low is not None and found.high is not None:
        interval = f" ({formats.signed_points(found.low)} to {formats.signed_points(found.high)} points, 95 %)"
    return _capital(found.sentence) + interval


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sampling(spec: ExperimentSpec, analysis: JobAnalysis, href: str) -> SamplingShown | None:
    found = analysis.sampling
    if found is None:
        return None
    if isinstance(found, Withheld):
        return SamplingShown("", found.withheld, [], [], href)
    modes = {a.name: a.mode for a in spec.arms}
    rows = [_sampling_row(a, a.arm, modes.get(a.arm, "draft")) for a in found.arms]
    rows.append(_sampling_row(found.control, "control", "off"))
    places = sorted({p.position for a in (found.control, *found.arms) for p in a.positions})
    return SamplingShown(_about(found), "", places, rows, href)


def _about(found: SamplingResult) -> str:
    return f"{found.workload} at temperature {found.temperature:g}; {found.n_baseline:,} continuations of the baseline, each under a seed of its own"


def _sampling_row(judged: SamplingJudged, name: str, mode: str) -> SamplingRow:
    positions = [
        [
            f"p {p.p:.2g}",
            f"≥ {100 * p.at_least:.1f} % elsewhere",
            f"finds {100 * p.found_at:.1f} %" if p.found_at is not None else "finds no shift",
        ]
        for p in judged.positions
    ]
    return SamplingRow(name, mode, judged.outcome, _OUTCOMES[judged.outcome], _capital(judged.words), f"{judged.n:,}", positions)
