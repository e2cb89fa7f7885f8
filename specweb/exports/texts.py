"""A filter by a text, whatever was sent as one."""

from __future__ import annotations

from typing import Any

import django_filters as filters

from specweb.experiments.text import storable


class Text(filters.CharFilter):
    """Equal to a text that a database can hold."""

    def filter(self, qs: Any, value: Any) -> Any:
        return super().filter(qs, storable(value) if value else value)
