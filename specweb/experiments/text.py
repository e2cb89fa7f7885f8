"""Text from outside, made fit for PostgreSQL."""

from __future__ import annotations

from typing import Any


def storable(value: Any) -> Any:
    """The same JSON value with NUL characters and lone surrogates replaced: PostgreSQL stores neither, a log may hold both."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {storable(k): storable(v) for k, v in value.items()}
    if isinstance(value, list):
        return [storable(v) for v in value]
    return value
