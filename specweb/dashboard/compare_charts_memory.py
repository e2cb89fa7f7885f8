"""Compare's chart of what each arm adds to the memory that the baseline takes, against the card. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from speccore.measurement import Withheld

from specweb.results.chart_queries import MOST_JOBS, ChartRow, Memory

from .chart_frame import Chart, Lack, Table, TableHead
from .compare_charts import View, about, arm_of, where_words
from .compare_page import numbers_href
from .comparison_table import Cell, definition
from .marks import mark_of

_MIB = 2**20


def rows_with_memory(rows: Sequence[ChartRow]) -> list[ChartRow]:
    """One for each arm of each job: an arm takes the same memory whatever point its row is of."""
    found: dict[tuple[UUID, str], ChartRow] = {}
    for row in rows:
        found.setdefault((row.shown.comparison.job_id, row.shown.comparison.arm.name), row)
    return list(found.values())


def memory_chart(view: View, rows: Sequence[ChartRow], taken: Mapping[UUID, Memory | Withheld]) -> Chart:
    """``rows``: of :func:`rows_with_memory`; ``taken``: by their comparison."""
    groups: dict[tuple[str, int | None], dict[str, Any]] = {}
    lacks, table = [], []
    for row in rows:
        memory = taken.get(
            row.shown.pk, Withheld(withheld=f"memory is read for {MOST_JOBS} jobs at a time: choose a model or hardware above")
        )
        who = f"{where_words(row.shown, view)} · {arm_of(row.shown, view)}"
        if isinstance(memory, Withheld):
            lacks.append(Lack(who, memory.withheld))
            continue
        card, where = memory.card_bytes if memory.device else None, where_words(row.shown, view)
        group = groups.setdefault((where, card), {"where": where, "card": card, "of": _of_what(memory), "rows": []})
        group["rows"].append(_bar(row, memory, view))
        table.append(_table_row(row, memory, view))
    known = [m for m in taken.values() if isinstance(m, Memory)]
    no_card = "" if all(m.card_bytes for m in known) else "; none where a host has no card or its size is not known"
    return Chart(
        name="memory-bill",
        title="Memory of each arm against the card",
        caption=f"what the baseline takes, and what the arm adds, highest while probing; each hardware on its own scale, the upright line is its card{no_card}",
        label="Memory of the baseline and what each arm adds; the table has the same numbers",
        data={"groups": list(groups.values())} if len(table) > 1 else None,
        empty="It needs two arms whose memory was sampled while probing, beside that of their baseline.",
        remedy="Ask for it, starting from what was measured" if view.ask else "",
        remedy_href=view.ask,
        lacks=lacks,
        table=Table(_heads(), table) if len(table) > 1 else None,
        about=about(view),
    )


def _of_what(memory: Memory) -> str:
    if memory.device:
        return "on the card"
    return (
        "host and card together: the card's own was not sampled"
        if memory.card_bytes
        else "of the host: it has no card, or none of known size"
    )


def _bar(row: ChartRow, memory: Memory, view: View) -> dict[str, Any]:
    """In bytes."""
    shown = row.shown
    return {
        "arm": arm_of(shown, view),
        "mode": shown.mode,
        "symbol": mark_of(shown.mode).symbol,
        "baseline": round(memory.baseline_bytes),
        "growth": round(memory.growth_bytes),
        "of": _of_what(memory),
        "href": numbers_href(shown, "memory_bill_bytes"),
    }


def _heads() -> list[TableHead]:
    return [
        TableHead("hardware", num=False),
        TableHead("arm", num=False),
        TableHead("baseline, MiB"),
        TableHead("arm adds, MiB", title=definition("memory_bill_bytes")),
        TableHead("card, MiB"),
        TableHead("sampled", num=False),
    ]


def _table_row(row: ChartRow, memory: Memory, view: View) -> list[Cell]:
    shown = row.shown
    growth = f"{memory.growth_bytes / _MIB:+z,.0f}".replace("-", "−")
    return [
        Cell(where_words(shown, view)),
        Cell(arm_of(shown, view)),
        Cell(f"{memory.baseline_bytes / _MIB:,.0f}"),
        Cell(growth, numbers_href(shown, "memory_bill_bytes"), "median over blocks of the arm's peak − the baseline's"),
        Cell(f"{memory.card_bytes / _MIB:,.0f}")
        if memory.card_bytes
        else Cell("unknown", title="no card, or its size is not told", withheld=True),
        Cell(_of_what(memory)),
    ]
