"""What a metric is: its definition in words, and how its value is shown."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """``format`` is a Python format of the value as shown, after ``scale``; ``source`` says what it is read or computed from."""

    id: str
    version: int
    name: str
    unit: str
    definition: str
    format: str
    source: str
    scale: float = 1.0

    def show(self, value: float) -> str:
        """The value as people read it, without its unit: 0.7834 → "78" for a share in percent."""
        return self.format.format(value * self.scale)

    @property
    def definition_id(self) -> str:
        return f"{self.id}/{self.version}"
