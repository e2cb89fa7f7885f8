"""Text from outside, made fit for PostgreSQL."""

from __future__ import annotations

from typing import Any


def without_nul(value: Any) -> Any:
    """The same JSON value with NUL characters replaced: PostgreSQL stores none, and a log may hold some."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd")
    if isinstance(value, dict):
        return {without_nul(k): without_nul(v) for k, v in value.items()}
    if isinstance(value, list):
        return [without_nul(v) for v in value]
    return value
