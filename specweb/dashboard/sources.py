"""From a measured number to the address of the line that it was read from."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode
from uuid import UUID

from django.urls import reverse
from speccore.measurement import Maybe, Number, Source, Withheld

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
    return replace(cell, title=f"{cell.title} · {_place(value)}")


def _place(value: Number) -> str:
    s = value.source
    return f"{s.file}{f', line {s.line}' if s.line else ''}{f', {s.field}' if s.field else ''}"
