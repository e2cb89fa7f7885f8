"""Long answers in pages: an opaque cursor names the place, so that rows which come meanwhile shift nothing; sizes are bounded.

Filters are a :class:`django_filters.FilterSet`; what it doesn't know, and a value that can't be, is refused by name.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, TypeVar

import django_filters as filters
from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import Model, QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.pagination import CursorPagination
from rest_framework.request import Request

from specweb.exports.texts import Text as Text

from . import people_query as query
from .describing import Query, whole
from .errors import BadRequest

Row = TypeVar("Row", bound=Model)
N_SHOWN, N_MOST = 50, 200
CURSOR = Query("cursor", "A place in the list, as `next` names it.")
PAGE = [whole("limit", "At most so many.", 1, N_MOST, N_SHOWN), CURSOR]
_KINDS: list[tuple[type, dict[str, Any]]] = [
    (filters.UUIDFilter, {"type": "string", "format": "uuid"}),
    (filters.IsoDateTimeFilter, {"type": "string", "format": "date-time"}),
    (filters.BooleanFilter, {"type": "boolean"}),
    (filters.NumberFilter, {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),
]


class _Pages(CursorPagination):
    page_size_query_param = "limit"
    max_page_size = N_MOST
    template = None

    def decode_cursor(self, request: Request) -> Any:
        try:
            return super().decode_cursor(request)
        except (NotFound, binascii.Error, UnicodeError):
            raise no_cursor(request) from None


def no_cursor(request: Request) -> BadRequest:
    given = query.text(request, CURSOR.name)[:60]
    return BadRequest(f"cursor is {given!r}", "Take the address that next names, or begin without a cursor.", parameter=CURSOR.name)


def page(
    request: Request, rows: QuerySet[Row], order: Sequence[str] = ("-pk",), *, shown: int = N_SHOWN, most: int = N_MOST
) -> tuple[list[Row], str | None]:
    """A page of the rows and the address of the next one (1 statement). ``order`` begins with a field that is never NULL."""
    pages = _Pages()
    pages.ordering, pages.page_size, pages.max_page_size = list(order), shown, most
    query.whole_number(request, "limit", shown, 1, most)
    try:
        found = pages.paginate_queryset(rows, request)
    except (ValidationError, ValueError, DataError):
        raise no_cursor(request) from None
    more = pages.get_next_link()
    return found, more[more.index(request.path) :] if more else None


def filters_of(kind: type[filters.FilterSet]) -> list[Query]:
    """The filters of a set as parameters of an address."""
    return [Query(name, str(f.label or name), _schema(f)) for name, f in kind.base_filters.items()]


def _schema(f: filters.Filter) -> dict[str, Any]:
    choices = f.extra.get("choices")
    if choices:
        return {"type": "string", "enum": [str(value) for value, _ in choices]}
    return next((dict(s) for cls, s in _KINDS if isinstance(f, cls)), {"type": "string"})


def filtered(request: Request, kind: type[filters.FilterSet], rows: QuerySet[Row]) -> QuerySet[Row]:
    """The rows that the address asks for. Raises :class:`BadRequest` that names the parameter."""
    asked = kind(request.query_params, rows, request=request)
    for name, faults in asked.form.errors.items():
        known = kind.base_filters[name].extra.get("choices")
        remedy = f"Known: {', '.join(str(value) for value, _ in known)}." if known else str(faults[0])
        raise BadRequest(f"{name} is {query.text(request, name)[:60]!r}", remedy, parameter=name)
    found: QuerySet[Row] = asked.qs
    return found


def place_in(request: Request) -> Any:
    """What :func:`next_place` wrote, None at the beginning: for lists that are no rows of one table."""
    given = query.text(request, CURSOR.name)
    if not given:
        return None
    try:
        return json.loads(base64.urlsafe_b64decode(given.encode("ascii")))
    except (ValueError, RecursionError):
        raise no_cursor(request) from None


def next_place(request: Request, place: Any) -> str:
    """The address of the page that begins after ``place``."""
    return query.next_page(request, **{CURSOR.name: base64.urlsafe_b64encode(json.dumps(place).encode()).decode()})
