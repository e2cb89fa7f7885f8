"""From a job's analysis to what the experiment page shows: answer strips, table rows, integrity lines. No database."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from speccore.measurement import Check, ComparisonResult, Interval, JobAnalysis, Maybe, Number, Withheld
from speccore.metrics import METRICS
from speccore.spec import ExperimentSpec, Point

from . import formats

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


COLUMNS = (
    Column("task,\u00a0s", "equal_work_s", "arm_equal_work_s", "baseline_equal_work_s"),
    Column("decoding, tokens/s", "decode_tokens_per_s", "arm_tokens_per_s", "baseline_tokens_per_s"),
    Column("accepted,\u00a0%", "acceptance_rate", "acceptance_rate"),
    Column("drafted per\u00a0cycle", "drafted_per_cycle", "drafted_per_cycle"),
    Column("length", "mean_acceptance_length", "mean_acceptance_length"),
    Column("per pass", "tokens_per_target_pass", "tokens_per_target_pass"),
    Column("break-even", "break_even_tokens_per_pass", "break_even_tokens_per_pass"),
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
    baseline: bool = False
    nothing: Cell | None = None  # stands for all numbers of a row that has none


@dataclass(frozen=True)
class PointGroup:
    key: str
    title: str
    detail: str
    rows: list[Row]


@dataclass(frozen=True)
class StripMark:
    """An arm in a strip's small plot; positions in its viewBox, rounded to a tenth."""

    mode: str
    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    chosen: bool


@dataclass(frozen=True)
class Strip:
    """The answer for one kind of work."""

    title: str
    detail: str
    word: str
    arm: str
    mode: str
    sentence: str
    speedup: Cell
    cost: str
    marks: list[StripMark]
    ticks: list[tuple[float, str]]
    band: tuple[float, float]  # x and width of the margin
    one: float


@dataclass(frozen=True)
class CheckLine:
    """A check of the integrity panel, over the job and all its comparisons."""

    name: str
    kind: str
    state: str  # passed, failed, warning, not checked
    sentences: list[str]
    n: int
    n_failed: int
    evidence: list[tuple[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Integrity:
    n: int
    n_passed: int
    n_failed: int
    n_warnings: int
    n_unchecked: int
    headline: str  # the worst line's sentence
    lines: list[CheckLine]


def definition(metric: str) -> str:
    """The metric's definition with its version, for a tooltip; empty for a metric that the table lacks."""
    m = METRICS.get(metric)
    return f"{m.name}: {m.definition} ({m.definition_id})" if m else ""


def point_title(point: Point, titles: Mapping[str, str]) -> tuple[str, str]:
    """What the work is called, and what else the point fixes: ``("Free text", "temperature 0.8")``."""
    title = titles.get(point.key, point.workload)
    details = ["greedy" if point.sampling.temperature == 0 else f"temperature {point.sampling.temperature:g}"]
    if point.concurrency > 1:
        details.append(f"{point.concurrency} at once")
    if point.occupied_context:
        details.append(f"{point.occupied_context:,} tokens of context occupied")
    return title, " · ".join(details)


def groups(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[PointGroup]:
    """The table, one group for each point, arms in the experiment's order, the baseline first."""
    found = {(c.point, c.arm): c for c in analysis.comparisons}
    result = []
    for point in spec.points:
        title, detail = point_title(point, titles)
        here = [found[point.key, a.name] for a in spec.arms if (point.key, a.name) in found]
        rows = [_baseline_row(spec, here[0], url)] if here else []
        rows += [_row(c, url) for c in here]
        result.append(PointGroup(point.key, title, detail, rows))
    return result


def _row(c: ComparisonResult, url: NumbersUrl) -> Row:
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
        cells=[metric_cell(v, col.metric, url(c.arm, c.point, col.metric)) for v, col in zip(values, COLUMNS, strict=True)],
        n_blocks=Cell(str(n), url(c.arm, c.point, "blocks"), "blocks with a matched pair of arm and baseline"),
        verdict_word=c.verdict.word,
        verdict_reason=c.verdict.reason,
        verdict_sentence=c.verdict.sentence,
        recommended=c.recommended,
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


# --- answer strips ---

#: Verdicts that name an arm to run; the others say that none is worth it.
_WITH_ARM = ("keep", "shorten")
_PLOT_WIDTH = 260.0
_PLOT_PAD = 12.0
_PLOT_TOP, _PLOT_BODY = 3.0, 26.0


def strips(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> list[Strip]:
    """One answer for each point, with all its arms on one small axis that all strips share."""
    scale = _log_scale(analysis.comparisons, spec.margin)
    result = []
    for point in spec.points:
        answer = next((a for a in analysis.answers if a.get("point") == point.key), None)
        here = [c for c in analysis.comparisons if c.point == point.key]
        if answer is None or not here:
            continue
        result.append(_strip(spec, point, answer, here, titles, url, scale))
    return result


def _strip(
    spec: ExperimentSpec,
    point: Point,
    answer: Mapping[str, object],
    here: list[ComparisonResult],
    titles: Mapping[str, str],
    url: NumbersUrl,
    scale: Callable[[float], float],
) -> Strip:
    title, detail = point_title(point, titles)
    word = str(answer.get("word", ""))
    named = next((c for c in here if c.arm == answer.get("arm")), None)
    shown = named or _best(here)
    left, right = scale(1 / (1 + spec.margin)), scale(1 + spec.margin)
    return Strip(
        title=title,
        detail=detail,
        word=word,
        arm=shown.arm if word in _WITH_ARM else "",
        mode=shown.mode,
        sentence=_beside_ratio(shown),
        speedup=speedup_cell(shown.speedup, url(shown.arm, shown.point, "speedup")),
        cost=_cost(spec, shown) if word in _WITH_ARM else f"at best, with {shown.arm}",
        marks=_strip_marks(here, scale, shown),
        ticks=[(round(scale(t), 1), f"{t:g}×") for t in _strip_ticks(scale)],
        band=(left, round(right - left, 1)),
        one=scale(1.0),
    )


def _beside_ratio(c: ComparisonResult) -> str:
    """The verdict's sentence without its first part where that only says the ratio again, which stands beside it."""
    first, _, rest = c.verdict.sentence.partition("; ")
    repeats = isinstance(c.speedup, Interval) and first.startswith(formats.ratio(c.speedup.estimate)) and first.endswith("baseline's speed")
    return rest if repeats else c.verdict.sentence


def _best(here: list[ComparisonResult]) -> ComparisonResult:
    """The arm with the highest estimate, to stand beside an answer that recommends none."""
    return max(here, key=lambda c: c.speedup.estimate if isinstance(c.speedup, Interval) else 0.0)


def _cost(spec: ExperimentSpec, c: ComparisonResult) -> str:
    """What the arm costs beside time: memory and context."""
    parts = []
    if isinstance(c.memory_bill_bytes, Number):
        parts.append(f"{formats.signed_size(c.memory_bill_bytes.value)} memory")
    if c.context_lost_tokens:
        parts.append(f"{c.context_lost_tokens:,} tokens of context lost")
    elif c.context_lost_tokens == 0:
        parts.append(f"{spec.engine.context:,} context kept")
    if c.slots_lost:
        parts.append(f"{c.slots_lost} slots lost")
    return " · ".join(parts)


def _strip_marks(here: list[ComparisonResult], scale: Callable[[float], float], shown: ComparisonResult) -> list[StripMark]:
    """The arms one below the other, the one that the answer names drawn last, on top."""
    marks = []
    for i, c in enumerate(here):
        if isinstance(c.speedup, Withheld):
            continue
        s = c.speedup
        known = s.low is not None and s.high is not None
        marks.append(
            StripMark(
                mode=c.mode,
                x=scale(s.estimate),
                y=round(_PLOT_TOP + (i + 0.5) * _PLOT_BODY / len(here), 1),
                low=scale(s.low or 0) if known else None,
                high=scale(s.high or 0) if known else None,
                title=f"{c.arm} {formats.ratio(s.estimate)}" + (f" ({formats.ratio_range(s.low or 0, s.high or 0)})" if known else ""),
                chosen=c is shown,
            )
        )
    return sorted(marks, key=lambda m: m.chosen)


def _log_scale(comparisons: Iterable[ComparisonResult], margin: float) -> Callable[[float], float]:
    """Position of a ratio on an axis that holds every estimate and interval, log and never narrower than ⅔ to 1.5."""
    values = [1 / 1.5, 1.5, 1 + margin, 1 / (1 + margin)]
    for c in comparisons:
        if isinstance(c.speedup, Interval):
            values += [v for v in (c.speedup.estimate, c.speedup.low, c.speedup.high) if v]
    low, high = math.log(max(min(values), 1e-3)), math.log(min(max(values), 1e3))

    def place(ratio: float) -> float:
        share = (math.log(max(ratio, 1e-3)) - low) / (high - low)
        return round(_PLOT_PAD + min(max(share, 0.0), 1.0) * (_PLOT_WIDTH - 2 * _PLOT_PAD), 1)

    return place


def _strip_ticks(scale: Callable[[float], float]) -> list[float]:
    """1× and as many round ratios as fit with 34 units between them."""
    kept = [1.0]
    for tick in (0.5, 2.0, 3.0, 0.25, 5.0, 0.7, 1.5, 10.0, 0.1):
        x = scale(tick)
        if _PLOT_PAD < x < _PLOT_WIDTH - _PLOT_PAD and all(abs(x - scale(k)) >= 34 for k in kept):
            kept.append(tick)
    return sorted(kept)


# --- integrity ---

_ORDER = {"failed": 0, "warning": 1, "not checked": 2, "passed": 3}


def integrity(analysis: JobAnalysis) -> Integrity:
    """One line for each check, the worst first; checks of single comparisons are gathered under their name."""
    gathered: dict[tuple[str, str], list[tuple[str, Check]]] = {}
    for check in analysis.checks:
        gathered.setdefault((check.name, check.kind), []).append(("", check))
    for c in analysis.comparisons:
        for check in c.checks:
            gathered.setdefault((check.name, check.kind), []).append((f"{c.arm}, {c.point}", check))
    lines = sorted((_line(name, kind, entries) for (name, kind), entries in gathered.items()), key=lambda line: _ORDER[line.state])
    counts = {state: sum(line.state == state for line in lines) for state in _ORDER}
    worst = next((line for line in lines if line.state in ("failed", "warning")), None)
    return Integrity(
        n=len(lines),
        n_passed=counts["passed"],
        n_failed=counts["failed"],
        n_warnings=counts["warning"],
        n_unchecked=counts["not checked"],
        headline=worst.sentences[0] if worst else "",
        lines=lines,
    )


def state_of(check: Check) -> str:
    """passed, failed (a hard check), warning (a soft one) or not checked."""
    if check.state == "not checked":
        return "not checked"
    if check.passed:
        return "passed"
    return "failed" if check.kind == "hard" else "warning"


def _line(name: str, kind: str, entries: list[tuple[str, Check]]) -> CheckLine:
    state = min((state_of(check) for _, check in entries), key=_ORDER.__getitem__)
    told = [(where, check) for where, check in entries if state_of(check) == state]
    sentences: dict[str, None] = {}
    for where, check in told:
        sentences.setdefault(f"{check.sentence} ({where})" if where and state in ("failed", "warning") else check.sentence)
    return CheckLine(
        name=name,
        kind=kind,
        state=state,
        sentences=list(sentences)[:12],
        n=len(entries),
        n_failed=sum(state_of(check) in ("failed", "warning") for _, check in entries),
        evidence=[(key, str(value)) for _, check in told[:1] for key, value in check.evidence.items()],
    )
