"""How many probes in each start and how many blocks: from what a pilot varied by, and what starts and probes cost.

A block value scatters by its start (between blocks) and by its probes (within a block). Probes are cheap but only lessen the
second part; more blocks lessen both. Kalibera & Jones, *Rigorous benchmarking in reasonable time* (2013), spread the time
over the levels; with so few blocks Student's t weighs too, so the plans are compared one by one instead of by their formula.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from .formats import plus_minus
from .measurement import Withheld
from .stats import MIN_BLOCKS, t_quantile

MOST_BLOCKS = 100
MOST_PROBES = 200


@dataclass(frozen=True)
class Components:
    """Variances of ln(baseline ÷ arm) at one point: ``between`` blocks, and of one matched prompt ``within`` a block."""

    between: float
    within: float
    n_blocks: int
    n_pairs: int

    def of_block_value(self, probes: int) -> float:
        """Variance of the mean over so many prompts."""
        return self.between + self.within / probes


def components(blocks: Sequence[Sequence[float]]) -> Components | Withheld:
    """From a pilot's log ratios of matched prompts, block by block: analysis of variance with one random effect, blocks of
    unequal size as in Searle, Casella & McCulloch (*Variance components*, 1992). A negative estimate between blocks is 0.
    """
    used = [np.asarray(b, dtype=float) for b in blocks if len(b)]
    sizes = np.array([len(b) for b in used], dtype=float)
    n, total = len(used), int(sizes.sum()) if used else 0
    if n < MIN_BLOCKS:
        return Withheld(withheld=f"needs {MIN_BLOCKS} blocks, has {n}", reason_code="too_few_blocks")
    if total == n:
        return Withheld(withheld="needs a block with 2 matched prompts, each has 1", reason_code="too_few_prompts")
    overall = float(np.concatenate(used).mean())
    within = sum(float(np.sum((b - b.mean()) ** 2)) for b in used) / (total - n)
    among = sum(len(b) * (float(b.mean()) - overall) ** 2 for b in used) / (n - 1)
    typical_size = (total - float(np.sum(sizes**2)) / total) / (n - 1)
    return Components(between=max(0.0, (among - within) / typical_size), within=within, n_blocks=n, n_pairs=total)


@dataclass(frozen=True)
class Costs:
    """Seconds. ``start_s``: what one block costs beside its probes (starts, warm-ups and stops of all arms). ``probe_s``: one
    more probe in each arm, at all points."""

    start_s: float
    probe_s: float

    def __post_init__(self) -> None:
        if self.start_s < 0 or self.probe_s <= 0:
            raise ValueError(f"a start takes 0 s or more and a probe takes time, not {self.start_s:g} and {self.probe_s:g} s")

    def of(self, probes: int, blocks: int) -> float:
        return blocks * (self.start_s + probes * self.probe_s)


@dataclass(frozen=True)
class Proposal:
    """``probes`` in each start and so many ``blocks``; ``half_width`` is the expected one of the widest interval, in logs."""

    probes: int
    blocks: int
    seconds: float
    half_width: float

    @property
    def percent(self) -> float:
        """Of ±: how far the upper end is expected to be over the speed-up."""
        return 100 * math.expm1(self.half_width)


@dataclass(frozen=True)
class Proposals:
    """``best`` meets what was asked for; the others spend half and twice its time, where that makes a plan of its own."""

    best: Proposal
    shorter: Proposal | None
    longer: Proposal | None


def expected_half_width(pilot: Sequence[Components], probes: int, blocks: int) -> float:
    """Of the widest of the 95 % intervals, in logs, if blocks go on varying as in the pilot.

    E[t · s ÷ √n] for normal block values: s falls short of σ by c₄(n) on average, more so with few blocks.
    """
    if blocks < MIN_BLOCKS or probes < 1:
        raise ValueError(f"an interval needs {MIN_BLOCKS} blocks of 1 probe, not {blocks} of {probes}")
    if not pilot:
        raise ValueError("no pilot, no expectation")
    return _half_width_of_one(blocks) * math.sqrt(max(c.of_block_value(probes) for c in pilot))


@lru_cache(maxsize=1000)
def _half_width_of_one(blocks: int) -> float:
    """Expected, if block values had a standard deviation of 1."""
    c4 = math.sqrt(2 / (blocks - 1)) * math.exp(float(gammaln(blocks / 2)) - float(gammaln((blocks - 1) / 2)))
    return t_quantile(blocks - 1) * c4 / math.sqrt(blocks)


def narrowest(pilot: Sequence[Components], costs: Costs, budget_s: float, *, most_probes: int = MOST_PROBES) -> Proposal | Withheld:
    """The plan with the narrowest interval that fits into ``budget_s``; of equal ones the shorter."""
    fitting = [p for p in _plans(pilot, costs, most_probes) if p.seconds <= budget_s]
    if not fitting:
        least = costs.of(1, MIN_BLOCKS)
        return Withheld(withheld=f"{MIN_BLOCKS} blocks of 1 probe take {least:.0f} s, {budget_s:.0f} s are there", reason_code="no_time")
    return min(fitting, key=lambda p: (p.half_width, p.seconds))


def quickest(pilot: Sequence[Components], costs: Costs, half_width: float, *, most_probes: int = MOST_PROBES) -> Proposal | Withheld:
    """The plan that takes the least time for an expected ± of ``half_width`` (in logs); of equal ones the narrower."""
    enough = [p for p in _plans(pilot, costs, most_probes) if p.half_width <= half_width]
    if not enough:
        best = min(_plans(pilot, costs, most_probes), key=lambda p: p.half_width)
        words = f"±{100 * math.expm1(half_width):.2g} % is out of reach: {best.blocks} blocks of {best.probes} probes give {plus_minus(best.percent)}"
        return Withheld(withheld=words, reason_code="too_narrow")
    return min(enough, key=lambda p: (p.seconds, p.half_width))


def propose(
    pilot: Sequence[Components],
    costs: Costs,
    *,
    half_width: float | None = None,
    budget_s: float | None = None,
    most_probes: int = MOST_PROBES,
) -> Proposals | Withheld:
    """The plan for a width or for a time (one of the two), with one of half and one of twice the time beside it.

    ``pilot``: the components of every arm and point that must be told apart; the widest interval counts. ``most_probes``: as
    many as the workload has prompts, say.
    """
    if (half_width is None) == (budget_s is None):
        raise ValueError("either a width or a time is asked for")
    best = quickest(pilot, costs, half_width, most_probes=most_probes) if half_width is not None else None
    if budget_s is not None:
        best = narrowest(pilot, costs, budget_s, most_probes=most_probes)
    assert best is not None
    if isinstance(best, Withheld):
        return best
    time = budget_s or best.seconds
    shorter, longer = (narrowest(pilot, costs, time * factor, most_probes=most_probes) for factor in (0.5, 2.0))
    return Proposals(best, shorter=_another(shorter, best), longer=_another(longer, best))


def _another(found: Proposal | Withheld, best: Proposal) -> Proposal | None:
    return found if isinstance(found, Proposal) and (found.probes, found.blocks) != (best.probes, best.blocks) else None


def _plans(pilot: Sequence[Components], costs: Costs, most_probes: int) -> Iterator[Proposal]:
    """All that may be proposed, 1 to ``most_probes`` probes and 3 to 100 blocks."""
    if not pilot:
        raise ValueError("no pilot, no expectation")
    for probes in range(1, min(most_probes, MOST_PROBES) + 1):
        spread = math.sqrt(max(c.of_block_value(probes) for c in pilot))
        for blocks in range(MIN_BLOCKS, MOST_BLOCKS + 1):
            yield Proposal(probes, blocks, costs.of(probes, blocks), _half_width_of_one(blocks) * spread)
