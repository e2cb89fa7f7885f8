"""How numbers stand in sentences."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """A share of one, e.g. ``2.5 %``."""
    return f"{share * 100:.{digits}f} %"
