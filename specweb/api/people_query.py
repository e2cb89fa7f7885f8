"""The query part of an address, read strictly: an unknown name or a value that can't be is refused in words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar
from uuid import UUID

from rest_framework.request import Request
from speccore.spans import span_of

from .errors import BadRequest

Choice = TypeVar("Choice", bound=StrEnum)


def only(request: Request, *known: str) -> None:
    """Refuses a parameter that the address doesn't have: it would silently not count."""
    for name in request.query_params:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise BadRequest(
                f"there is no parameter {name[:60]!r}{hint}", f"Known here: {', '.join(known) or 'none'}.", parameter=name[:60]
            )


def text(request: Request, name: str) -> str:
    return str(request.query_params.get(name, "")).strip()


def one_of(request: Request, name: str, choices: Iterable[Choice]) -> Choice | None:
    given, known = text(request, name), {c.value: c for c in choices}
    if not given:
        return None
    if given not in known:
        raise BadRequest(f"{name} is {given[:60]!r}", f"Known: {', '.join(known)}.", parameter=name)
    return known[given]


def whole_number(request: Request, name: str, default: int, least: int, most: int) -> int:
    given = text(request, name)
    if not given:
        return default
    if not (given.isascii() and given.isdigit() and len(given) < 19 and least <= int(given) <= most):
        raise BadRequest(f"{name} is {given[:60]!r}", f"Give a whole number from {least:,} to {most:,}.", parameter=name)
    return int(given)


def span(request: Request, name: str) -> float | None:
    """Seconds of a time as people write it."""
    try:
        return span_of(given) if (given := text(request, name)) else None
    except ValueError as error:
        raise BadRequest(f"{name}: {error}", "Give a time with its unit, such as 3h or 90min.", parameter=name) from None


def uuid_of(given: str, name: str) -> UUID | None:
    """None for an empty text."""
    try:
        return UUID(given) if given else None
    except ValueError:
        raise BadRequest(
            f"{name} is {given[:60]!r}", "Give a UUID, such as 0198f3c2-7d1e-7000-8000-3f2a91c4b5d6.", parameter=name
        ) from None


def next_page(request: Request, **changes: object) -> str:
    """This very address with another place to begin at."""
    query = request.query_params.copy()
    for name, value in changes.items():
        query[name] = str(value)
    return f"{request.path}?{query.urlencode()}"
