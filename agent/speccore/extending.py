"""Blocks added to a finished answer: the interval that all blocks together can afford, after however many additions.

Who adds blocks until the answer pleases looks again and again, at moments chosen by the numbers. So the joined interval is
that of somebody who looks after *each* further block: the error that additions may spend, :data:`ADDED`, is shared out over
the blocks beyond the first answer's by the spending approach of Lan and DeMets (1983), with the share 1 − first ÷ all. A
boundary that holds at every block holds whichever of them somebody stops at, and however many were asked for at a time
(data-dependent sizes are what a level split over additions alone would not survive: Proschan & Hunsberger 1995).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from scipy.special import gammaln, ndtr

from .sequential import boundaries, looks, percent_of, schedule
from .stats import CONFIDENCE, MIN_BLOCKS, standard_error, t_quantile

#: Error, of both sides together, that all additions to one answer share, beside the 5 % of the first answer. Boundaries are those
#: of known variance, turned into Student's t at equal p; with so few blocks 2.5 % come true for 2 %.
ADDED = 0.02
#: What first answer and additions are wrong in together at the most, whenever somebody stops.
WRONG_IN_ALL = 0.08
#: More blocks than this in one answer are a new experiment: planned for, its interval would be narrower.
MOST_BLOCKS = 200

Steps = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class FirstLooks:
    """How the first answer came about: after so many blocks, or by early looks of a plan of ``n_planned``."""

    n_planned: int
    sequential: bool = False

    def steps(self, n_first: int) -> Steps:
        """(blocks, error spent there) of each look of the first answer, the last after ``n_first`` blocks."""
        if not self.sequential or n_first > self.n_planned or self.n_planned < MIN_BLOCKS:
            return ((n_first, 1 - CONFIDENCE),)
        taken = looks((*(n for n in schedule(self.n_planned) if n < n_first), n_first), self.n_planned)
        return tuple((look.n_blocks, look.spent - before) for look, before in zip(taken, (0.0, *(x.spent for x in taken)), strict=False))


def joined_confidence(first: FirstLooks, n_first: int, n_blocks: int) -> float:
    """Of the interval over all ``n_blocks`` values, of which the first answer saw ``n_first``.

    No answer was there below 3 blocks, so that nothing was looked at: then the interval is a first one, at 95 %. The same
    where nothing was added. Raises ValueError for less blocks than the first answer had.
    """
    if n_blocks < n_first:
        raise ValueError(f"{n_blocks} blocks are less than the {n_first} of the first answer")
    if n_first < MIN_BLOCKS or n_blocks == n_first:
        return CONFIDENCE
    return 1 - 2 * float(ndtr(-_boundary(first.steps(n_first), n_blocks)))


@lru_cache(maxsize=500)
def _boundary(steps: Steps, n_blocks: int) -> float:
    """|z| at ``n_blocks``, where a true null was looked at as ``steps`` say and then after each further block."""
    n_first = steps[-1][0]
    spent = [ADDED * (1 - n_first / n) for n in range(n_first, n_blocks + 1)]
    added = [b - a for a, b in pairwise(spent)]
    blocks = [*(n for n, _ in steps), *range(n_first + 1, n_blocks + 1)]
    return boundaries(blocks, [*(step for _, step in steps), *added])[-1]


def expected_half_width(values: Sequence[float], first: FirstLooks, n_first: int, n_blocks: int) -> float | None:
    """In logs, over ``n_blocks`` blocks that vary as those seen do; None below 3 values.

    t × c₄ × s ÷ √n: c₄ since a standard deviation of few blocks is too small on average.
    """
    if len(values) < MIN_BLOCKS or n_blocks < MIN_BLOCKS:
        return None
    sd = standard_error(values) * math.sqrt(len(values))
    c4 = math.exp(gammaln(n_blocks / 2) - gammaln((n_blocks - 1) / 2)) * math.sqrt(2 / (n_blocks - 1))
    return t_quantile(n_blocks - 1, joined_confidence(first, n_first, n_blocks)) * sd * c4 / math.sqrt(n_blocks)


def in_words(n_first: int, n_blocks: int, confidence: float) -> str:
    """What a verdict says of the blocks that it rests on."""
    if n_first < MIN_BLOCKS:
        return f"over {n_blocks} blocks of several jobs ({percent_of(confidence)} interval; there was no answer before)"
    return f"over {n_blocks} blocks, {n_blocks - n_first} of them added after an answer was there ({percent_of(confidence)} interval)"
