"""Whether two rows of Compare may be compared, and if not, why. No database access."""

from __future__ import annotations

from dataclasses import dataclass

from speccore.questions import Difference, arm_words, differences

from specweb.results.models import Listing

from .compare_chart import short_hardware
from .compare_page import detail_of, numbers_href, speedup_of
from .comparison_table import Cell, speedup_cell

#: Columns of a row that are no part of its question.
COLUMNS = {
    "hardware": "hardware",
    "engine": "engine",
    "build": "build",
    "backend": "backend",
    "driver": "driver",
    "setup": "settings of the engine on its host",
    "not_restarted": "restarts",
    "self_run": "who ran it",
    "margin": "margin",
}
_WORDS = {"not_restarted": ("restarted for each trial", "not restarted"), "self_run": ("this service", "uploaded afterwards")}


@dataclass(frozen=True)
class Side:
    """One of the two rows."""

    name: str
    href: str
    hardware: str
    arm: str
    mode: str
    work: str
    detail: str
    speedup: Cell
    verdict: str


@dataclass(frozen=True)
class Answer:
    """``ratios``: may the two speed-ups be held against each other; ``times``: may the seconds and tokens a second."""

    sides: list[Side]
    ratios: bool
    ratios_why: str
    times: bool
    times_why: str
    question: list[Difference]
    columns: list[Difference]


def answer(a: Listing, b: Listing) -> Answer:
    names = {s.target_hash: s.target for s in (a, b)}
    names |= {str(s.question.get("workload", "")): s.workload for s in (a, b)}
    names |= {str(s.question.get("arm.draft", "")): s.helper for s in (a, b)}
    question, columns = differences(a.question, b.question, names), _columns(a, b)
    ratios, ratios_why = _ratios(a, b, question)
    times, times_why = _times(a, b)
    return Answer([_side(s, names) for s in (a, b)], ratios, ratios_why, times, times_why, question, columns)


def _ratios(a: Listing, b: Listing, question: list[Difference]) -> tuple[bool, str]:
    if a.question_key == b.question_key:
        return True, "Both answer the same question: each ratio was taken on its own host, and may be held against the other."
    parts = f"{len(question)} part{'' if len(question) == 1 else 's'} of the question"
    if a.work_key == b.work_key:
        same_job = a.comparison.job_id == b.comparison.job_id
        where = "in the same job: its page says which of them is better, in the same blocks" if same_job else "in two jobs"
        return same_job, f"Two arms of the same work, {where}. They differ in {parts}."
    return (
        False,
        f"They answer different questions: {parts} differ{'s' if len(question) == 1 else ''}, so a ratio of one says nothing of the other.",
    )


def _times(a: Listing, b: Listing) -> tuple[bool, str]:
    if a.work_key != b.work_key:
        return False, "The work differs, so seconds and tokens a second of the two are of different things."
    if not a.pair_key or not b.pair_key:
        return (
            False,
            "Of one of them it is not known that all its trials share host, boot, build and settings, so no times of the two are divided.",
        )
    if a.pair_key == b.pair_key:
        return True, "Host, boot, build, driver and every setting but speculation are the same: their times may be divided."
    return (
        False,
        "Host, boot, build, driver or a setting differ, so no times of the two are divided: that ratio would measure the difference.",
    )


def _columns(a: Listing, b: Listing) -> list[Difference]:
    return [Difference(words, _value(a, name), _value(b, name)) for name, words in COLUMNS.items() if getattr(a, name) != getattr(b, name)]


def _value(shown: Listing, name: str) -> str:
    value = getattr(shown, name)
    if name in _WORDS:
        return _WORDS[name][value]
    return f"{100 * value:.3g} %" if name == "margin" else value or "none"


def _side(shown: Listing, names: dict[str, str]) -> Side:
    return Side(
        name=shown.experiment.name,
        href=numbers_href(shown, "speedup"),
        hardware=short_hardware(shown.hardware),
        arm=arm_words(shown.question, names),
        mode=shown.mode,
        work=shown.title,
        detail=detail_of(shown.question),
        speedup=speedup_cell(speedup_of(shown), numbers_href(shown, "speedup")),
        verdict=shown.comparison.verdict,
    )
