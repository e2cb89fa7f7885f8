"""The commands for a server that somebody else started: probe URL · compare A.json B.json."""

from __future__ import annotations

from typing import Any


def add_commands(actions: Any) -> None:
    pass
