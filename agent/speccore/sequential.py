"""Stopping early without fooling oneself: looks after a few blocks, each with the interval that it can afford.

Looking several times at a 95 % interval would be wrong far more often than 5 %. The error is spent over the looks by Lan and
DeMets (*Discrete sequential boundaries for clinical trials*, 1983) with their function of the O'Brien–Fleming type: early
looks decide only what is plain. Each look's interval (Jennison & Turnbull 1989, repeated confidence intervals) holds
however the stopping came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import ndtr, ndtri

from .measurement import Interval, Withheld
from .stats import CONFIDENCE, MIN_BLOCKS, Rows, Speedup, speedup
from .verdict import keep_threshold, ratio, slower_threshold

#: Blocks after which one looks; a plan's last block is always a look.
LOOKS = (3, 5, 7, 10)
#: Error spent over all looks. The boundaries are those of known variance, turned into Student's t at equal p; with so few
#: blocks 4.3 % come true for 4 % (5.3 for 5), and believing in drift adds a little. Together they stay under 5 %.
SPENT = 0.04

_NODES = 160  # of Gauss–Legendre quadrature over what goes on after a look; the boundaries are exact to six digits
_FARTHEST = 40.0  # standard errors; no boundary is beyond

DecisionWord = Literal["keep", "slower", "not worth it"]


@dataclass(frozen=True)
class Look:
    """``level`` is the two-sided p at which this look decides, ``spent`` the error used up to and with it."""

    n_blocks: int
    level: float
    spent: float

    @property
    def confidence(self) -> float:
        return 1 - self.level


def schedule(n_blocks: int) -> tuple[int, ...]:
    """The looks of a plan of so many blocks. Raises ValueError below 3."""
    if n_blocks < MIN_BLOCKS:
        raise ValueError(f"a plan of {n_blocks} blocks has no look: an interval needs {MIN_BLOCKS}")
    return (*(n for n in LOOKS if n < n_blocks), n_blocks)


@lru_cache(maxsize=1000)
def looks(blocks: tuple[int, ...], n_planned: int | None = None, spent: float = SPENT) -> tuple[Look, ...]:
    """The looks after ``blocks`` blocks. The last spends what is left, also where it came before the ``n_planned``-th block."""
    if not blocks or any(a >= b for a, b in pairwise((0, *blocks))):
        raise ValueError(f"looks come after ever more blocks, not after {blocks}")
    planned = n_planned or blocks[-1]
    ends = [_spent_by(n / planned, spent) for n in blocks[:-1]] + [spent]
    if planned < blocks[-1]:
        raise ValueError(f"{blocks[-1]} blocks are more than the {planned} planned")
    steps = [b - a for a, b in pairwise((0.0, *ends))]
    return tuple(
        Look(n_blocks=n, level=2 * float(ndtr(-z)), spent=end) for n, z, end in zip(blocks, boundaries(blocks, steps), ends, strict=True)
    )


def _spent_by(share: float, spent: float) -> float:
    """Of both sides together, after that share of the blocks: 4 − 4Φ(z(1 − spent/4) ÷ √share)."""
    return 4 * float(ndtr(-ndtri(1 - spent / 4) / math.sqrt(share)))


def boundaries(blocks: Sequence[int], steps: Sequence[float]) -> list[float]:
    """|z| that decides at each look, so that a true null first crosses it there with probability ``steps[i]``, of both sides.

    Armitage, McPherson & Rowe (1969): the density of the sum of block values over what has not been decided yet is carried
    from look to look.
    """
    found: list[float] = []
    at, mass = np.zeros(1), np.ones(1)  # before the first block the sum is 0
    for (before, n), step in zip(pairwise((0, *blocks)), steps, strict=True):
        sd = math.sqrt(n - before)

        def too_rare(z: float, at: Rows = at, mass: Rows = mass, n: int = n, sd: float = sd, step: float = step) -> float:
            return 2 * float(np.sum(mass * ndtr((at - z * math.sqrt(n)) / sd))) - step

        z = float(brentq(too_rare, 0.0, _FARTHEST, xtol=1e-12))
        nodes, weights = _quadrature()
        new, widths = nodes * z * math.sqrt(n), weights * z * math.sqrt(n)
        density = np.exp(-0.5 * ((new[:, None] - at) / sd) ** 2) / (sd * math.sqrt(2 * math.pi))
        at, mass = new, widths * (density @ mass)
        found.append(z)
    return found


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Rows, Rows]:
    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    return nodes, weights


@dataclass(frozen=True)
class Decision:
    """What the looks so far say of one arm at one point. ``word`` is None where it goes on, or ended undecided."""

    word: DecisionWord | None
    look: int  # from 1; 0 before the first
    n_looks: int
    interval: Interval | Withheld  # of the last look, at that look's confidence
    next_look: int | None  # after so many blocks; None: none is left, or none is needed
    sentence: str
    n_blocks: int = 0  # values that the look rests on, the first ones
    confidence: float = CONFIDENCE  # of its interval


def decide(
    values: Sequence[float],
    position_differences: Sequence[int],
    margin: float,
    noise_floor: float | None,
    n_planned: int,
    *,
    ended: bool = False,
    taken: int = 0,
) -> Decision:
    """The decision after the blocks so far, by the rules of the verdict on time: keep, slower, not worth it.

    ``values`` are block values in order, those of void blocks left out; looks are counted in values. Between two looks the
    earlier one stands. ``ended``: no block will follow, so that what is there is the last look, before its time.
    ``taken``: values at which looks were taken and have not decided; they are not taken again, since values move a little when
    later blocks change the length that answers are compared at.
    Raises ValueError for a plan of less than 3 blocks, or more values than planned.
    """
    if len(values) > n_planned:
        raise ValueError(f"{len(values)} block values are more than the {n_planned} blocks planned")
    blocks = schedule(n_planned)
    if ended and len(values) < n_planned:
        blocks = (*(n for n in blocks if n < len(values)), len(values)) if len(values) >= MIN_BLOCKS else ()
    done = [look for look in looks(blocks, n_planned) if look.n_blocks <= len(values)] if blocks else []
    if not done:
        few = Withheld(withheld=f"the first look is after {MIN_BLOCKS} blocks, {len(values)} are there", reason_code="too_few_blocks")
        return Decision(None, 0, len(blocks), few, blocks[0] if blocks else None, few.withheld)
    number, found, word = _first_decided(done, taken, values, position_differences, margin, noise_floor or 0.0)
    look = done[number - 1]
    following = None if word or number == len(blocks) else blocks[number]
    return Decision(
        word=word,
        look=number,
        n_looks=len(blocks),
        interval=found.interval,
        next_look=following,
        sentence=_sentence(word, found.interval, look, number, len(blocks), following),
        n_blocks=look.n_blocks,
        confidence=look.confidence,
    )


def _first_decided(
    done: Sequence[Look], taken: int, values: Sequence[float], position_differences: Sequence[int], margin: float, floor: float
) -> tuple[int, Speedup, DecisionWord | None]:
    """The look that decided, else the last one. Blocks that came in later, of an arm on its way out, take nothing back."""
    number, found, word = 0, None, None
    for number, look in enumerate(done, 1):
        if look.n_blocks <= taken and number < len(done):
            continue
        found = speedup(values[: look.n_blocks], position_differences[: look.n_blocks], margin, look.confidence)
        word = _word(found.interval, margin, floor)
        if word:
            break
    assert found is not None
    return number, found, word


def _word(interval: Interval | Withheld, margin: float, floor: float) -> DecisionWord | None:
    if isinstance(interval, Withheld) or interval.low is None or interval.high is None:
        return None
    if interval.low > keep_threshold(margin, floor):
        return "keep"
    if interval.high < slower_threshold(floor):
        return "slower"
    if floor <= margin and interval.high < 1 + margin:
        return "not worth it"
    return None


def _sentence(word: str | None, interval: Interval | Withheld, look: Look, number: int, n_looks: int, following: int | None) -> str:
    assert isinstance(interval, Interval)
    where = f"look {number} of {n_looks} (after {look.n_blocks} blocks): {ratio(interval)} at {percent_of(look.confidence)} confidence"
    if word:
        return f"{where}, decided: {word}"
    return f"{where}, undecided; " + (f"next look after block {following}" if following else "no look is left")


def percent_of(confidence: float) -> str:
    """As many digits as tell it from 100 %: ``96.3 %``, ``99.996 %``."""
    digits = max(1, math.ceil(-math.log10(1 - confidence)) - 1)
    return f"{100 * confidence:.{digits}f} %"
