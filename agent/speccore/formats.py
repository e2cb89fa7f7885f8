"""How numbers stand in sentences."""

from __future__ import annotations


def percent(share: float, digits: int = 0) -> str:
    """A share of one, e.g. ``2.5 %``."""
    return f"{share * 100:.{digits}f} %"


def plus_minus(percent: float) -> str:
    """How wide an interval is, e.g. ``±2.5 %``; beyond 100 % the number tells nobody more."""
    return f"±{percent:.2g} %" if percent < 99.5 else "over ±100 %"


def reason(code: str) -> str:
    """Why a verdict is as it is, as people read it; of what failed it is a code of the error tree."""
    return code.replace("_", " ")
