"""Where the time of each arm went, beside the baseline's: stacked parts as milliseconds per token and as shares. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from speccore.measurement import ComparisonResult, JobAnalysis, Withheld
from speccore.spec import ExperimentSpec
from speccore.time_split_results import PartName, TimePart, TimeSplit

from . import formats
from .chart_frame import Chart, Lack, Table, TableHead
from .comparison_table import Cell, NumbersUrl, definition, point_title
from .stacked import Key, Row, stacked

#: Parts in the order in which time passes: key, name, token of its colour, pattern.
KEYS = (
    Key("prefill", "prefill", "part-prefill", "/"),
    Key("first", "until the first token", "part-prefill", "/"),
    Key("draft", "drafting", "part-draft", ""),
    Key("verify", "verifying (the target’s steps)", "part-verify", ""),
    Key("decode", "drafting and verifying, not told apart", "part-decode", "x"),
    Key("after_first", "all after the first token, not told apart", "part-decode", "x"),
    Key("rest", "rest", "part-rest", "."),
)


class Side(NamedTuple):
    """One bar: an arm at a point, with the address of its numbers."""

    arm: str
    mode: str
    split: TimeSplit | Withheld
    href: str


def time_chart(spec: ExperimentSpec, analysis: JobAnalysis, titles: Mapping[str, str], url: NumbersUrl) -> Chart:
    groups, rows, lacks = [], [], []
    for point in spec.points:
        title, detail = point_title(point, titles)
        sides = sides_of([c for c in analysis.comparisons if c.point == point.key], spec.baseline.name, url)
        drawn = [(side, side.split) for side in sides if isinstance(side.split, TimeSplit)]
        lacks += [Lack(f"{side.arm}, {title}", side.split.withheld) for side in sides if isinstance(side.split, Withheld)]
        if drawn:
            groups.append((title, detail, [_row(side, split) for side, split in drawn]))
            rows += [(f"{side.arm}, {title}", side, split) for side, split in drawn]
    return Chart(
        "time-split",
        "Where the time goes",
        "each request from sending to its last token: milliseconds per token of the answers, and shares of the whole",
        "Parts of the time of each arm and the baseline",
        kind="stacked",
        data=stacked(KEYS, groups, unit="ms per token", shares=True) if groups else None,
        empty="" if groups else _why_empty(lacks),
        lacks=lacks if groups else (),
        table=_table(rows) if rows else None,
        notes=_notes([split for _, _, split in rows]),
        about=[spec.name],
    )


def sides_of(comparisons: Sequence[ComparisonResult], baseline: str, url: NumbersUrl) -> list[Side]:
    """The baseline once for each clock that it is held against, then the arms."""
    plain: dict[str, Side] = {}
    for c in comparisons:
        by = c.baseline_time_split.prefill_by if isinstance(c.baseline_time_split, TimeSplit) else ""
        plain.setdefault(by, Side(baseline, "off", c.baseline_time_split, url(c.arm, c.point, "time_split")))
    known = [s for by, s in plain.items() if by] or list(plain.values())
    return [*known, *(Side(c.arm, c.mode, c.arm_time_split, url(c.arm, c.point, "time_split")) for c in comparisons)]


def key_of(split: TimeSplit, name: PartName) -> str:
    return "first" if name == "prefill" and split.prefill_by == "client" else name


def _row(side: Side, split: TimeSplit) -> Row:
    parts = {key_of(split, p.name): split.ms_per_token(p) for p in split.parts}
    whole = split.whole_ms / split.tokens
    return Row(side.arm, side.mode, side.href, parts, f"{whole:.2f} ms per token, {split.n_probes} requests")


def _why_empty(lacks: Sequence[Lack]) -> str:
    if not lacks:
        return "No arm was compared, so that there is no time to split."
    return f"No arm's time could be split: {lacks[0].why}."


def _notes(splits: Sequence[TimeSplit]) -> list[str]:
    found = []
    if any(p.name == "rest" for s in splits for p in s.parts):
        found.append(
            "Rest is what is left of the time that the client saw when the engine’s own parts are taken off it: queueing, sampling outside "
            "its clock, HTTP and the network."
        )
    found += [f"{what}: {why}." for what, why in sorted({(NOT_TOLD[part], why) for s in splits for part, why in s.not_told.items()})]
    return found


#: What is meant where an engine is silent on a part.
NOT_TOLD = {"draft": "Drafting is not told apart", "decode": "Decoding is not told apart"}


def _table(rows: Sequence[tuple[str, Side, TimeSplit]]) -> Table:
    used = [k for k in KEYS if any(key_of(s, p.name) == k.key for _, _, s in rows for p in s.parts)]
    heads = [TableHead("arm", num=False), *(TableHead(f"{k.name},\u00a0ms/token") for k in used)]
    heads += [TableHead("all,\u00a0ms/token", title=definition("time_split")), TableHead("requests")]
    return Table(heads, [_cells(name, side, split, used) for name, side, split in rows])


def _cells(name: str, side: Side, split: TimeSplit, used: Sequence[Key]) -> list[Cell]:
    parts = {key_of(split, p.name): p for p in split.parts}
    cells = [_part(split, parts[k.key], side.href) if k.key in parts else Cell() for k in used]
    whole = Cell(f"{split.whole_ms / split.tokens:.2f}", side.href, definition("time_split"))
    return [Cell(name), *cells, whole, Cell(str(split.n_probes))]


def _part(split: TimeSplit, part: TimePart, href: str) -> Cell:
    return Cell(f"{split.ms_per_token(part):.2f}", href, note=f"{100 * split.share(part):.0f}\u00a0%")


def split_lines(c: ComparisonResult) -> list[tuple[str, Cell, Cell]]:
    """(part, the arm's, the baseline's) in milliseconds per token, for the page behind the numbers."""
    sides = [c.arm_time_split, c.baseline_time_split]
    told = {key_of(s, p.name) for s in sides if isinstance(s, TimeSplit) for p in s.parts}
    lines = [(k.name, *(_of_part(s, k.key) for s in sides)) for k in KEYS if k.key in told]
    return [*lines, ("all", *(_whole(s) for s in sides))]


def _of_part(split: TimeSplit | Withheld, name: str) -> Cell:
    if isinstance(split, Withheld):
        return Cell()
    return next((_part(split, p, "#probes") for p in split.parts if key_of(split, p.name) == name), Cell())


def _whole(split: TimeSplit | Withheld) -> Cell:
    if isinstance(split, Withheld):
        return Cell(formats.shortened(split.withheld), title=f"withheld: {split.withheld}", withheld=True)
    title = f"{split.whole_ms:,.1f} ms for {split.tokens:,.0f} tokens in {split.n_probes} requests"
    return Cell(f"{split.whole_ms / split.tokens:.2f}", "#probes", title)
