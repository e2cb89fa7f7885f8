"""One line of what the doctor finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Level = Literal["ok", "warn", "fail"]
GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """``fail`` stands in the way of any job; ``warn`` is a reason to doubt a number. ``remedy`` says what to do."""

    level: Level
    subject: str
    text: str
    remedy: str = ""
    details: dict[str, Any] = field(default_factory=dict)  # for programs


def is_fit(found: list[Finding]) -> bool:
    return all(f.level != "fail" for f in found)
