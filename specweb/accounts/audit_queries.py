"""Reading the audit log: filters that people and programs share."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.utils.dateparse import parse_date

from .audit_models import AuditEntry, AuditQuerySet

PAGE = 50
COLUMNS = (
    "id",
    "at",
    "actor",
    "via",
    "token",
    "action",
    "object_id",
    "name",
    "team",
    "before",
    "after",
    "reason",
    "request_id",
    "address",
)


class OddFilter(ValueError):
    """A filter that can't be what was meant; names it."""


@dataclass(frozen=True)
class Filters:
    """Each empty where nothing is asked. Days are UTC; ``until`` is included."""

    team: str = ""  # name as it was then
    actor: str = ""
    action: str = ""  # an action, or a kind of thing
    object: str = ""
    since: str = ""
    until: str = ""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Filters:
        return cls(**{f.name: str(given.get(f.name, "")).replace("\x00", "").strip()[:200] for f in fields(cls)})

    @property
    def asked(self) -> dict[str, str]:
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name))}


def entries(user: Any, asked: Filters) -> AuditQuerySet:
    """What a person may read of the log, newest first. Raises :class:`OddFilter`."""
    rows = AuditEntry.objects.visible_to(user)
    if asked.team:
        rows = rows.filter(team=asked.team)
    if asked.actor:
        rows = rows.filter(actor=asked.actor)
    if asked.action:
        rows = rows.filter(action=asked.action) if "." in asked.action else rows.filter(kind=asked.action)
    if asked.object:
        rows = rows.filter(object_id=asked.object)
    if asked.since:
        rows = rows.filter(at__gte=_day("since", asked.since))
    if asked.until:
        rows = rows.filter(at__lt=_day("until", asked.until) + timedelta(days=1))
    return rows.order_by("-id")


def _day(name: str, text: str) -> datetime:
    try:
        day = parse_date(text)
    except ValueError:
        day = None
    if day is None or day.year >= 9999:
        raise OddFilter(f"{name}: {text[:20]!r} is no day; write it as 2026-11-30")
    return datetime.combine(day, time.min, UTC)


def as_rows(found: Iterable[AuditEntry]) -> Iterator[str]:
    """The log as CSV, a line at a time. A cell that a spreadsheet would run as a formula begins with an apostrophe."""
    out = csv.writer(_Echo())
    yield out.writerow(COLUMNS)
    for entry in found:
        yield out.writerow([_cell(getattr(entry, name)) for name in COLUMNS])


class _Echo:
    """What csv writes to, which hands the line back."""

    def write(self, line: str) -> str:
        return line


def _cell(value: Any) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    text = str(value)
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
