"""What a table that can be taken as a file is: its columns, its rows for a person, its filters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlencode

import django_filters as filters
from django.conf import settings
from django.db.models import QuerySet
from speccore.measurement import DEFINED_LATER

from specweb.experiments.models import Viewer

#: ``id`` and ``text`` are texts; of these only ``text`` holds words that somebody chose. ``json`` is a value of its own in JSON, else a text.
Kind = Literal["id", "text", "json", "integer", "number", "yes or no", "time"]
#: So many rows are fetched from the database at a time.
CHUNK = 2_000


@dataclass(frozen=True)
class Column:
    name: str
    kind: Kind = "text"


@dataclass(frozen=True)
class Table:
    """``base``: the rows that a person may read, in a fixed order; ``lines``: a tuple for each, in the order of the columns."""

    name: str
    about: str
    columns: tuple[Column, ...]
    filters: type[filters.FilterSet]
    base: Callable[[Viewer], QuerySet[Any]]
    lines: Callable[[QuerySet[Any], Viewer], Iterator[Sequence[Any]]] = field(repr=False)


def columns(kind: Kind, names: str) -> tuple[Column, ...]:
    return tuple(Column(name, kind) for name in names.split())


def told(names: str) -> tuple[Column, ...]:
    """Numbers that may be withheld, each with the column of its reason."""
    return tuple(c for name in names.split() for c in (Column(name, "number"), Column(f"{name}_withheld")))


def maybe(value: Mapping[str, Any] | None) -> tuple[float | None, str | None]:
    """A stored number as its value and the reason why there is none: one of the two."""
    if value is None:
        return None, DEFINED_LATER.withheld
    return (value["value"], None) if "value" in value else (None, value.get("withheld") or "not computed")


def address(path: str, **query: str) -> str:
    """A page's full address. Written by hand: to look up a million of them by name takes as long as to read the rows."""
    return f"{settings.SPECWEB_BASE_URL}{path}" + (f"?{urlencode(query)}" if query else "")
