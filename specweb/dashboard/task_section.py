"""Where the time of whole tasks goes, arm beside baseline: a faster decode loop may not shorten the task. No database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Maybe, Withheld
from speccore.spec import ExperimentSpec

from .comparison_table import Cell, Head, NumbersUrl, definition, metric_cell, point_title, speedup_cell

#: Columns of the split: head, metric, field after ``arm_`` or ``baseline_``.
COLUMNS = (
    ("whole task,\u00a0s", "equal_work_s", "equal_work_s"),
    ("reading", "task_prefill_s", "task_prefill_s"),
    ("decoding", "task_decode_s", "task_decode_s"),
    ("tools", "task_tool_wait_s", "task_tool_wait_s"),
    ("rest", "task_rest_s", "task_rest_s"),
    ("passed, %", "task_passed", "task_passed"),
)


def heads() -> list[Head]:
    return [Head(head, definition(metric)) for head, metric, _ in COLUMNS]


@dataclass(frozen=True)
class TaskRow:
    """``decode`` and ``whole``: ratios to the baseline, which has none of its own."""

    arm: str
    mode: str
    cells: list[Cell]
    decode: Cell | None = None
    whole: Cell | None = None


@dataclass(frozen=True)
class TaskGroup:
    title: str
    detail: str
    rows: list[TaskRow]
    sentences: list[str]


def task_groups(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[TaskGroup]:
    """One for each point whose items are tasks, arms in the experiment's order, the baseline first."""
    found = []
    for point in spec.points:
        here = [c for a in spec.arms for c in analysis.comparisons if (c.point, c.arm) == (point.key, a.name) and is_task(c)]
        if not here:
            continue
        baseline = TaskRow(spec.baseline.name, spec.baseline.mode, _cells(here[0], "baseline", url))
        rows = [
            TaskRow(
                c.arm,
                c.mode,
                _cells(c, "arm", url),
                decode=speedup_cell(c.task_decode_ratio, url(c.arm, c.point, "task_decode_ratio")),
                whole=speedup_cell(c.speedup, url(c.arm, c.point, "blocks")),
            )
            for c in here
        ]
        title, detail = point_title(point, titles)
        found.append(TaskGroup(title, detail, [baseline, *rows], [s for c in here if (s := _sentence(c))]))
    return found


def is_task(c: ComparisonResult) -> bool:
    """Also one of which no task was done in both arms; not one that an earlier version has computed."""
    return not isinstance(c.task_decode_ratio, Withheld) or c.task_decode_ratio.reason_code not in ("no_task", "defined_later")


def _cells(c: ComparisonResult, side: str, url: NumbersUrl) -> list[Cell]:
    numbers: Sequence[tuple[Maybe, str]] = [(getattr(c, f"{side}_{field}"), metric) for _, metric, field in COLUMNS]
    return [metric_cell(value, metric, url(c.arm, c.point, metric)) for value, metric in numbers]


def _sentence(c: ComparisonResult) -> str:
    """What decoding gained and what is left of it; nothing where one of the two is withheld."""
    if not isinstance(c.speedup, Interval) or not isinstance(c.task_decode_ratio, Interval):
        return ""
    decode, whole = c.task_decode_ratio.estimate, c.speedup.estimate
    return f"{c.arm} decodes {_times(decode)}; the whole task, with its reading and waits, is done {_times(whole)}."


def _times(ratio: float) -> str:
    return f"{ratio:.2f} times as fast" if round(ratio, 2) != 1 else "as fast as the baseline"
