"""Spans of time as people write and read them."""

from __future__ import annotations

import math
import re

#: Units as people write them out, for the letter that is read.
_WRITTEN = {"d": "days?", "h": "hours?|hrs?", "m": "minutes?|mins?", "s": "seconds?|secs?"}


def span_of(text: str) -> float:
    """As :func:`seconds_of`, and only with a unit: in a form nobody knows what a bare 3 is. Raises ValueError."""
    if text.strip() and text.strip().replace(".", "").isdecimal():
        raise ValueError(f"{text.strip()[:40]!r} has no unit: write 3 h, 90 min or 1h30m")
    return seconds_of(text)


def seconds_of(text: str) -> float:
    """``90``, ``90s``, ``15m``, ``90 min``, ``1.5h``, ``3 hours`` or ``1h30m`` in seconds. Raises ValueError."""
    units = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0}
    total, digits, seen = 0.0, "", ""
    short = text.strip().lower()
    for unit, written in _WRITTEN.items():
        short = re.sub(rf"(?<![a-z])(?:{written})(?![a-z])", unit, short)
    for letter in short.replace(" ", ""):
        if letter in "0123456789.":
            digits += letter
        elif letter in units and digits and (not seen or units[letter] < units[seen[-1]]):
            total += float(digits) * units[letter]
            digits, seen = "", seen + letter
        else:
            raise ValueError(f"{text!r} is no time such as 45m, 3h or 1h30m")
    if digits:
        if seen:
            raise ValueError(f"{text!r} ends without a unit: s, m, h or d")
        total += float(digits)
    if not 0 < total < math.inf:
        raise ValueError(f"{text!r} is no time above 0, such as 45m, 3h or 1h30m")
    return total


def in_words(seconds: float) -> str:
    """``12 s``, ``2 min 5 s``, ``3 h 20 min``."""
    whole = round(seconds)
    if seconds < 10:
        return f"{seconds:.1f} s"
    if whole < 60:
        return f"{whole} s"
    if whole < 600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    if not hours:
        return f"{minutes} min"
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"
