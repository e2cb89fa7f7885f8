"""From a measured number to the address of the line that it was read from."""

from __future__ import annotations

import math
from dataclasses import replace
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from speccore.measurement import Maybe, Number, Source, Withheld
from speccore.metrics import METRICS

from .comparison_table import Cell, metric_cell, withheld_cell


def source_url(attempt_id: UUID | str, source: Source) -> str:
    """The evidence viewer at the source's line; without a line, the file with its field named."""
    query: dict[str, str | int] = {}
    if source.line:
        query["line"] = source.line
    if source.field:
        query["field"] = source.field
    url = reverse("evidence", args=[attempt_id, source.file])
    return url + (f"?{urlencode(query)}" if query else "") + (f"#L{source.line}" if source.line else "")


def measured_cell(attempt_id: UUID | str, value: Maybe, metric: str) -> Cell:
    """A number of one probe or attempt as a link to its line; a withheld one as its reason."""
    if isinstance(value, Withheld):
        return withheld_cell(value)
    cell = metric_cell(value, metric, source_url(attempt_id, value.source))
    others = "; ".join(f"{_agreement(value, other, metric)} {other.place()}" for other in value.also)
    return replace(cell, title=f"{cell.title} · {_place(value)}" + (f" · {others}" if others else ""))


def _agreement(value: Number, other: Number, metric: str) -> str:
    same = math.isclose(value.value, other.value, rel_tol=1e-9, abs_tol=1e-9)
    return "the same in" if same else f"{METRICS[metric].show(other.value)} in"


def _place(value: Number) -> str:
    s = value.source
    return f"{s.file}{f', line {s.line}' if s.line else ''}{f', {s.field}' if s.field else ''}"
