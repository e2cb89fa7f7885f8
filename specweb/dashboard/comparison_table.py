"""The table of an experiment page: arm by point, each number with its definition and the way to its evidence. No database."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from speccore.formats import reason
from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Maybe, Withheld
from speccore.metrics import METRICS
from speccore.spec import ExperimentSpec, Point

from . import formats
from .marks import mode_words

#: (arm, point key, metric id) → address of the page that lists what the number was computed from.
NumbersUrl = Callable[[str, str, str], str]


#: A withheld number's reason in a table's cell has at most so many characters.
_SHORT = 22


@dataclass(frozen=True)
class Cell:
    """One number, or the reason for its absence. ``title`` is shown on hover; ``note`` stands small beside it."""

    text: str = ""
    href: str = ""
    title: str = ""
    note: str = ""
    withheld: bool = False


@dataclass(frozen=True)
class Column:
    """A column of the table: its head with the unit, the metric that defines and formats it, and where its value stands."""

    head: str
    metric: str
    arm: str
    baseline: str = ""  # the baseline's attribute, where it has one


#: Of arms with speculation: that of a control would be its noise.
BREAK_EVEN = "break_even_tokens_per_pass"

COLUMNS = (
    Column("task,\u00a0s", "equal_work_s", "arm_equal_work_s", "baseline_equal_work_s"),
    Column("decoding tokens/s", "decode_tokens_per_s", "arm_tokens_per_s", "baseline_tokens_per_s"),
    Column("accepted,\u00a0%", "acceptance_rate", "acceptance_rate"),
    Column("drafted per\u00a0cycle", "drafted_per_cycle", "drafted_per_cycle"),
    Column("length", "mean_acceptance_length", "mean_acceptance_length"),
    Column("per pass", "tokens_per_target_pass", "tokens_per_target_pass"),
    Column("break-even", BREAK_EVEN, BREAK_EVEN),
    Column("memory, MiB", "memory_bill_bytes", "memory_bill_bytes"),
)


@dataclass(frozen=True)
class Head:
    text: str
    title: str


def columns() -> list[Head]:
    """Heads of the number columns, each with its metric's definition."""
    return [Head(c.head, definition(c.metric)) for c in COLUMNS]


@dataclass(frozen=True)
class Row:
    arm: str
    mode: str
    speedup: Cell
    cells: list[Cell]
    n_blocks: Cell
    verdict_word: str = ""
    verdict_reason: str = ""
    verdict_sentence: str = ""
    recommended: bool = False
    not_restarted: bool = False
    baseline: bool = False
    drafters: str = ""  # in words
    nothing: Cell | None = None  # stands for all numbers of a row that has none


@dataclass(frozen=True)
class PointGroup:
    key: str
    title: str
    detail: str
    rows: list[Row]


def definition(metric: str) -> str:
    """The metric's definition with its version, for a tooltip; empty for a metric that the table lacks."""
    m = METRICS.get(metric)
    return f"{m.name}: {m.definition} ({m.definition_id})" if m else ""


def point_title(point: Point, titles: Mapping[str, str]) -> tuple[str, str]:
    """What the work is called, and what else the point fixes: ``("Free text", "temperature 0.8")``."""
    title = titles.get(point.key, point.workload)
    details = ["greedy" if point.sampling.temperature == 0 else f"temperature {point.sampling.temperature:g}"]
    details += point.manner
    if point.occupied_context:
        details.append(f"{point.occupied_context:,} tokens of context occupied")
    return title, " · ".join(details)


def groups(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[PointGroup]:
    """The table, one group for each point, arms in the experiment's order, the baseline first."""
    found = {(c.point, c.arm): c for c in analysis.comparisons}
    words = {a.name: mode_words(a) for a in spec.arms}
    result = []
    for point in spec.points:
        title, detail = point_title(point, titles)
        here = [found[point.key, a.name] for a in spec.arms if (point.key, a.name) in found]
        rows = [_baseline_row(spec, here[0], url)] if here else []
        rows += [_row(c, url, words[c.arm]) for c in here]
        result.append(PointGroup(point.key, title, detail, rows))
    return result


def _row(c: ComparisonResult, url: NumbersUrl, drafters: str) -> Row:
    n = c.speedup.n_blocks if isinstance(c.speedup, Interval) else len(c.block_values)
    values = [getattr(c, col.arm) for col in COLUMNS]
    nothing = None
    if isinstance(c.speedup, Withheld) and all(isinstance(v, Withheld) for v in values):
        nothing = Cell(
            c.verdict.sentence or c.speedup.withheld, url(c.arm, c.point, "speedup"), f"withheld: {c.speedup.withheld}", withheld=True
        )
    return Row(
        arm=c.arm,
        mode=c.mode,
        speedup=speedup_cell(c.speedup, url(c.arm, c.point, "speedup")),
        cells=[
            Cell() if c.mode == "off" and col.metric == BREAK_EVEN else metric_cell(v, col.metric, url(c.arm, c.point, col.metric))
            for v, col in zip(values, COLUMNS, strict=True)
        ],
        n_blocks=Cell(str(n), url(c.arm, c.point, "blocks"), "blocks with a matched pair of arm and baseline"),
        verdict_word=c.verdict.word,
        verdict_reason=reason(c.verdict.reason),
        verdict_sentence=c.verdict.sentence,
        recommended=c.recommended,
        not_restarted=c.not_restarted,
        drafters=drafters,
        nothing=nothing,
    )


def _baseline_row(spec: ExperimentSpec, c: ComparisonResult, url: NumbersUrl) -> Row:
    """The baseline's own numbers, as the point's first comparison has them."""
    cells = [
        metric_cell(getattr(c, col.baseline), col.metric, url(c.arm, c.point, col.metric)) if col.baseline else Cell() for col in COLUMNS
    ]
    return Row(
        spec.baseline.name, "off", Cell("1.00×", title="the baseline: what the other arms are divided into"), cells, Cell(), baseline=True
    )


def speedup_cell(speedup: Interval | Withheld, href: str) -> Cell:
    """The ratio with its 95 % interval, or the interval's reason for being withheld in its place."""
    if isinstance(speedup, Withheld):
        return withheld_cell(speedup, href)
    if speedup.low is None or speedup.high is None:
        return Cell(formats.ratio(speedup.estimate), href, speedup.withheld or "interval withheld", formats.shortened(speedup.withheld))
    return Cell(formats.ratio(speedup.estimate), href, definition("speedup"), formats.ratio_range(speedup.low, speedup.high))


def withheld_cell(reason: Withheld, href: str = "") -> Cell:
    """The reason if it is short, else its code in words; the whole reason as title."""
    short = reason.withheld if len(reason.withheld) <= _SHORT else reason.reason_code.replace("_", " ") or reason.withheld
    return Cell(formats.shortened(short, _SHORT), href, f"withheld: {reason.withheld}", withheld=True)


def metric_cell(value: Maybe, metric: str, href: str = "") -> Cell:
    """A number in its metric's format with the definition as title; a withheld one as its reason."""
    if isinstance(value, Withheld):
        return withheld_cell(value, href)
    return Cell(METRICS[metric].show(value.value).replace("-", "−"), href, definition(metric))
