"""Filters of the Compare page: what the address asks, what can be chosen, and what of it names nothing. No database access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from specweb.results.compare_queries import FILTERS, NUMBERS, Choices

MAX_VALUE = 200
WORDS = {
    "target": "target model",
    "engine": "engine",
    "work": "kind of work",
    "concurrency": "requests at once",
    "context": "context occupied",
    "hardware": "hardware",
    "mode": "speculation mode",
}


@dataclass(frozen=True)
class Option:
    value: str
    text: str
    n: int  # results that have it and all that the other filters ask
    chosen: bool


@dataclass(frozen=True)
class Filter:
    name: str
    words: str
    options: list[Option]
    chosen: str


@dataclass(frozen=True)
class Trouble:
    """A filter that names nothing. ``without``: the query string without it."""

    words: str
    value: str
    why: str
    without: str


def chosen_of(query: Mapping[str, str]) -> dict[str, str]:
    """The filters that an address names, in one order, so that the same view has one address."""
    given = {name: query.get(name, "").strip()[:MAX_VALUE] for name in FILTERS}
    return {name: value for name, value in given.items() if value}


def filters(choices: Choices, chosen: Mapping[str, str]) -> list[Filter]:
    """Each with all its values; what names nothing stays as it was asked."""
    found = []
    for name in FILTERS:
        counted = choices.of(name, chosen)
        if name in chosen:
            counted.setdefault(chosen[name], 0)
        values = sorted(counted, key=lambda v: (whole(v) or 0 if name in NUMBERS else 0, v.lower()))
        options = [Option(v, _text(name, v), counted[v], v == chosen.get(name)) for v in values]
        found.append(Filter(name, WORDS[name], options, chosen.get(name, "")))
    return found


def whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def _text(name: str, value: str) -> str:
    if name == "context" and value == "0":
        return "the prompt alone"
    if name in NUMBERS and (number := whole(value)) is not None:
        return f"{number:,}"
    return value or "not told"


def troubles(choices: Choices, chosen: Mapping[str, str]) -> list[Trouble]:
    """Of what is chosen, all that no result has that the person may read."""
    found = []
    for name, value in chosen.items():
        known = value in choices.of(name, {}) or not choices.complete
        if not known or (name in NUMBERS and whole(value) is None):
            found.append(Trouble(WORDS[name], value, _why(name, value), urlencode({n: v for n, v in chosen.items() if n != name})))
    return found


def _why(name: str, value: str) -> str:
    if name in NUMBERS and whole(value) is None:
        return "that is no whole number"
    if name == "work":
        return "it was deleted, it is for another team, or nothing was measured with it"
    return "no result that you may read has it"


def address(chosen: Mapping[str, str], page: int = 1) -> str:
    """The query string of a view."""
    return urlencode(dict(chosen) | ({"page": page} if page > 1 else {}))


def drops(chosen: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """For each filter (its words, its value, the query string without it)."""
    return [(WORDS[n], _text(n, v), address({m: w for m, w in chosen.items() if m != n})) for n, v in chosen.items()]
