"""How long a job still takes, judged by the trials that it has done: a range, since trials differ. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

#: One trial says nothing of how trials differ: the range is then so much wider on both sides.
_ONE_TRIAL_SPREAD = 0.15
#: Not even many equal trials promise more than this.
_LEAST_SPREAD = 0.04


@dataclass(frozen=True)
class Ran:
    """A trial that has ended: its arm, and the seconds from its start to its end."""

    arm: str
    seconds: float


@dataclass(frozen=True)
class TimeLeft:
    low_s: float
    high_s: float


def time_left(done: Sequence[Ran], left: Sequence[str], *, between_s: float = 0.0, running_for_s: float = 0.0) -> TimeLeft | None:
    """Seconds until the last of ``left`` (arms of the trials that have not ended, the running one first) has ended.

    An arm takes as long as its own trials took, or all trials where it has none yet; the range is twice the standard
    error of the sum, the error of each arm's mean included. ``between_s`` lies between two trials;
    ``running_for_s`` is what the first of ``left`` has had already. None while nothing has ended.
    """
    if not done:
        return None
    if not left:
        return TimeLeft(0.0, 0.0)
    total, spread = 0.0, 0.0
    for arm, n in Counter(left).items():
        own = [r.seconds for r in done if r.arm == arm] or [r.seconds for r in done]
        total += n * (fmean(own) + between_s)
        spread += _variance(own) * (n + n * n / len(own))
    first = [r.seconds for r in done if r.arm == left[0]] or [r.seconds for r in done]
    total -= min(running_for_s, fmean(first))
    wide = max(2 * math.sqrt(spread), _LEAST_SPREAD * total)
    return TimeLeft(max(0.0, total - wide), total + wide)


def _variance(seconds: Sequence[float]) -> float:
    mean = fmean(seconds)
    if len(seconds) == 1:
        return (_ONE_TRIAL_SPREAD * mean) ** 2
    return math.fsum((s - mean) ** 2 for s in seconds) / (len(seconds) - 1)


def in_words(left: TimeLeft) -> str:
    """``about 40 s left``, ``about 8–10 min left``, ``about 2 h 5 min to 2 h 20 min left``, as fine as the larger end deserves."""
    high = left.high_s
    if high < 10:
        return "a few seconds left"
    step = 10 if high < 120 else 60 if high < 3600 else 300
    first, last = (round(s / step) * step for s in (left.low_s, high))
    first = max(first, step)
    if first >= last:
        return f"about {_span(last)} left"
    unit = " s" if last < 120 else " min" if last < 3600 else ""
    if unit:
        size = 1 if last < 120 else 60
        return f"about {first // size}–{last // size}{unit} left"
    return f"about {_span(first)} to {_span(last)} left"


def _span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    hours, rest = divmod(seconds // 60, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def since_in_words(seconds: float) -> str:
    """How long ago, in words that change once a minute: ``just now``, ``4 min ago``, ``2 h 5 min ago``."""
    minutes = int(max(seconds, 0.0) // 60)
    if not minutes:
        return "just now"
    return f"{'1 min' if minutes == 1 else _span(60 * minutes)} ago"
