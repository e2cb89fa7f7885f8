"""Filters by a text and by a moment, whatever was sent as one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import django_filters as filters
from django.core.exceptions import ValidationError

from specweb.experiments.text import storable


class Text(filters.CharFilter):
    """Equal to a text that a database can hold."""

    def filter(self, qs: Any, value: Any) -> Any:
        return super().filter(qs, storable(value) if value else value)


class _MomentField(filters.IsoDateTimeFilter.field_class):  # type: ignore[misc]
    """In UTC, since the database knows fewer time zones than a person can write."""

    def to_python(self, value: Any) -> Any:
        moment = super().to_python(value)
        if not isinstance(moment, datetime):
            return moment
        try:
            return moment.astimezone(UTC)
        except OverflowError:
            raise ValidationError("Enter a date and time between the years 1 and 9999.") from None


class Moment(filters.IsoDateTimeFilter):
    """A moment that a database can hold."""

    field_class = _MomentField
