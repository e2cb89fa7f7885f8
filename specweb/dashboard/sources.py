"""From a measured number to the address of the line that it was read from."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlencode
from uuid import UUID

from django.urls import get_script_prefix, reverse
from speccore.measurement import Maybe, Number, Source, Withheld
from speccore.metrics import METRICS

from .comparison_table import Cell, metric_cell, withheld_cell


def source_url(attempt_id: UUID | str, source: Source) -> str:
    """The evidence viewer at the source's line; without a line, the file with its field named."""
    return _file_url(get_script_prefix(), str(attempt_id), source.file) + _place_in_file(source.line, source.field)


@lru_cache(maxsize=2048)  # a page has hundreds of links into the same few files
def _file_url(prefix: str, attempt_id: str, name: str) -> str:
    return reverse("evidence", args=[attempt_id, name])


@lru_cache(maxsize=4096)
def _place_in_file(line: int | None, field: str) -> str:
    query: dict[str, str | int] = {}
    if line:
        query["line"] = line
    if field:
        query["field"] = field
    return (f"?{urlencode(query)}" if query else "") + (f"#L{line}" if line else "")


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
