"""The page behind the numbers of one comparison: metrics with definitions, blocks, and the probes of both arms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.urls import reverse
from speccore import position_text
from speccore.measurement import AttemptMeasurement, ComparisonResult, Interval, Number, ProbeMeasurement, Withheld
from speccore.metrics import METRICS
from speccore.spec import ExperimentSpec

from specweb.results.models import Attempt

from . import comparison_table, formats, integrity_panel, task_section, time_chart
from .comparison_table import Cell, metric_cell, speedup_cell
from .sources import measured_cell
from .tails_table import HEADS, tail_rows

#: Metrics of the page in order: metric id, attribute of the arm, of the baseline.
_SHOWN = (
    ("equal_work_s", "arm_equal_work_s", "baseline_equal_work_s"),
    ("loaded_tokens_per_s", "arm_loaded_tokens_per_s", "baseline_loaded_tokens_per_s"),
    ("observed_concurrency", "arm_observed_concurrency", "baseline_observed_concurrency"),
    ("task_prefill_s", "arm_task_prefill_s", "baseline_task_prefill_s"),
    ("task_decode_s", "arm_task_decode_s", "baseline_task_decode_s"),
    ("task_tool_wait_s", "arm_task_tool_wait_s", "baseline_task_tool_wait_s"),
    ("task_rest_s", "arm_task_rest_s", "baseline_task_rest_s"),
    ("task_passed", "arm_task_passed", "baseline_task_passed"),
    ("e2e_s", "arm_e2e_s", "baseline_e2e_s"),
    ("decode_tokens_per_s", "arm_tokens_per_s", "baseline_tokens_per_s"),
    ("completion_tokens", "arm_tokens", "baseline_tokens"),
    ("acceptance_rate", "acceptance_rate", ""),
    ("drafted_per_cycle", "drafted_per_cycle", ""),
    ("mean_acceptance_length", "mean_acceptance_length", ""),
    ("tokens_per_target_pass", "tokens_per_target_pass", ""),
    ("break_even_tokens_per_pass", "break_even_tokens_per_pass", ""),
    ("decoding_gain", "decoding_gain", ""),
    ("cycle_ms", "cycle_ms", ""),
    ("plain_step_ms", "", "plain_step_ms"),
    ("draft_ms_per_cycle", "draft_ms_per_cycle", ""),
    ("verify_ms_per_cycle", "verify_ms_per_cycle", ""),
    ("memory_bill_bytes", "memory_bill_bytes", ""),
)
#: Of these a point with one request at a time has none.
_OF_SEVERAL = ("loaded_tokens_per_s", "observed_concurrency")


@dataclass(frozen=True)
class MetricLine:
    id: str
    name: str
    unit: str
    definition: str
    version: str
    arm: Cell
    baseline: Cell
    source: str


@dataclass(frozen=True)
class DrafterLine:
    """One of several drafters that stood beside each other, by the engine's own tally."""

    type: str
    cells: list[Cell]


#: Columns of the drafters' table: head, attribute, metric id.
DRAFTER_HEADS = (
    ("steps with its draft", "drafts", "verify_steps"),
    ("drafted", "drafted", "drafted"),
    ("accepted", "accepted", "accepted"),
    ("drafting,\u00a0ms", "draft_ms", "draft_ms"),
)


@dataclass(frozen=True)
class BlockLine:
    block: int
    ratio: str
    ln: str


@dataclass(frozen=True)
class ProbeLine:
    """One request of one arm; ``first`` begins a pair."""

    block: int
    item: str
    arm: str
    mode: str
    attempt_href: str
    first: bool
    failure: str
    failure_message: str
    cells: list[Cell]


#: Columns of the probes' table: head, metric id.
PROBE_HEADS = (
    ("first token,\u00a0s", "ttft_any_s"),
    ("decoding, tokens/s", "decode_tokens_per_s"),
    ("end to end,\u00a0s", "e2e_s"),
    ("tokens", "completion_tokens"),
    ("drafted", "drafted"),
    ("accepted", "accepted"),
    ("steps with draft", "verify_steps"),
    ("steps", "decode_steps"),
)


def context(
    spec: ExperimentSpec,
    c: ComparisonResult,
    attempts: Sequence[tuple[Attempt, AttemptMeasurement]],
    titles: Mapping[str, str],
) -> dict[str, Any]:
    """Everything the template shows."""
    title, detail = comparison_table.point_title(spec.point(c.point), titles)
    return {
        "comparison": c,
        "baseline": spec.baseline.name,
        "point_title": title,
        "point_detail": detail,
        "speedup": speedup_cell(c.speedup, "#blocks"),
        "speedup_definition": METRICS["speedup"].definition,
        "speedup_method": c.speedup.method if isinstance(c.speedup, Interval) else "",
        "total_time": speedup_cell(c.total_time, "#probes"),
        "total_time_definition": METRICS["total_time"].definition,
        "loo": c.leave_one_prompt_out if isinstance(c.leave_one_prompt_out, Withheld) else formats.ratio_range(*c.leave_one_prompt_out),
        "metrics": [_metric_line(c, *shown) for shown in _SHOWN if _has(c, spec, shown[0])],
        "decode_ratio": speedup_cell(c.task_decode_ratio, "#blocks") if task_section.is_task(c) else None,
        "decode_ratio_definition": METRICS["task_decode_ratio"].definition,
        "time_lines": time_chart.split_lines(c),
        "time_definition": METRICS["time_split"].definition,
        "tail_heads": HEADS,
        "tails": tail_rows(c.tails, c.arm, spec.baseline.name),
        "positions": position_text.positions(c),
        "position_heads": [comparison_table.definition(m) for m in ("accepted_by_position", "conditional_by_position")],
        "position_note": position_text.NOTE,
        "drafters": [DrafterLine(d.type, [metric_cell(getattr(d, f), m, "#probes") for _, f, m in DRAFTER_HEADS]) for d in c.drafters],
        "drafter_heads": [comparison_table.Head(head, comparison_table.definition(metric)) for head, _, metric in DRAFTER_HEADS],
        "blocks": [BlockLine(b, formats.ratio(math.exp(v)), f"{v:+.4f}".replace("-", "−")) for b, v in sorted(c.block_values.items())],
        "heads": [comparison_table.Head(head, comparison_table.definition(metric)) for head, metric in PROBE_HEADS],
        "probes": probe_lines(c.point, spec.baseline.name, attempts),
        "checks": [(check, integrity_panel.state_of(check)) for check in c.checks],
    }


def _has(c: ComparisonResult, spec: ExperimentSpec, metric: str) -> bool:
    """Whether such a point can have the metric at all."""
    if metric.startswith("task_"):
        return task_section.is_task(c)
    return metric not in _OF_SEVERAL or not spec.point(c.point).one_by_one


def _metric_line(c: ComparisonResult, metric: str, arm: str, baseline: str) -> MetricLine:
    m = METRICS[metric]
    values = [getattr(c, name) for name in (arm, baseline) if name]
    return MetricLine(
        id=metric,
        name=m.name,
        unit=m.unit,
        definition=m.definition,
        version=m.definition_id,
        arm=metric_cell(getattr(c, arm), metric, "#probes") if arm else Cell(),
        baseline=metric_cell(getattr(c, baseline), metric, "#probes") if baseline else Cell(),
        source=next((v.source.field for v in values if isinstance(v, Number)), m.source),
    )


def probe_lines(point: str, baseline: str, attempts: Sequence[tuple[Attempt, AttemptMeasurement]]) -> list[ProbeLine]:
    """Probes of the point in both arms, paired by block and item, the baseline first."""
    found = [(p, a, m) for a, m in attempts for p in m.probes if p.point == point and not p.warmup]
    found.sort(key=lambda entry: (entry[2].block, entry[0].item, entry[0].turn or 0, entry[2].arm != baseline))
    lines: list[ProbeLine] = []
    for p, a, m in found:
        first = not lines or (lines[-1].block, lines[-1].item) != (m.block, _named(p))
        lines.append(_probe_line(p, a, m, first))
    return lines


def _probe_line(p: ProbeMeasurement, a: Attempt, m: AttemptMeasurement, first: bool) -> ProbeLine:
    return ProbeLine(
        block=m.block,
        item=_named(p),
        arm=m.arm,
        mode=m.mode,
        attempt_href=reverse("attempt", args=[a.id]),
        first=first,
        failure=p.failure if not p.ok else "",
        failure_message=p.failure_message,
        cells=probe_cells(a, p),
    )


def _named(p: ProbeMeasurement) -> str:
    return p.item if p.turn is None else f"{p.item}, turn {p.turn}"


def probe_cells(a: Attempt, p: ProbeMeasurement) -> list[Cell]:
    """The numbers of a probe, each a link to the line that it was read from."""
    n = p.counters
    values = (p.ttft_any_s, p.decode_tokens_per_s, p.e2e_s, p.completion_tokens, n.drafted, n.accepted, n.verify_steps, n.decode_steps)
    return [measured_cell(a.id, value, metric) for value, (_, metric) in zip(values, PROBE_HEADS, strict=True)]
