"""Rows that were read together with those that they belong to, kept where ``prefetch_related`` would have put them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db.models import Model


def keep_related(owner: Model, name: str, rows: Iterable[Any]) -> None:
    """``owner.<name>.all()`` is these rows from now on, without a statement."""
    related = getattr(owner, name).all()
    related._result_cache, related._prefetch_done = list(rows), True
    owner.__dict__.setdefault("_prefetched_objects_cache", {})[name] = related
