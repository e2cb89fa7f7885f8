"""What intervals of the same ratio, found in several runs, say together: in words that claim no more than they do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from .stats import CONFIDENCE, t_quantile

#: Of so many runs every pair may be held against each other at their own intervals.
PAIRS_OF = 5
MANY = 10_000


@dataclass(frozen=True)
class Found:
    """A run's ratio with its interval (None: withheld) and its verdict's word. ``judged``: the verdict judges a ratio."""

    run: str
    estimate: float | None
    low: float | None
    high: float | None
    verdict: str
    judged: bool = True
    n_blocks: int = 0  # that the interval rests on; 0: many

    @property
    def known(self) -> _Known | None:
        """Its interval, if it has one that counts."""
        if self.estimate is None or self.low is None or self.high is None or not self.judged:
            return None
        return _Known(self.run, self.estimate, self.low, self.high, self.verdict, self.n_blocks)


@dataclass(frozen=True)
class _Known:
    run: str
    estimate: float
    low: float
    high: float
    verdict: str
    n_blocks: int

    @property
    def words(self) -> str:
        return f"{self.estimate:.2f}× [{self.low:.2f}–{self.high:.2f}]"


@dataclass(frozen=True)
class Agreement:
    word: Literal["one", "share", "chance", "apart"]
    sentence: str


def agreement(runs: Sequence[Found]) -> Agreement:
    """Whether all intervals have a value in common, and what follows from that. Runs without one say nothing, and are named."""
    sure = [known for r in runs if (known := r.known)]
    silent = [r.run for r in runs if not r.known]
    aside = f" {_listed(silent)} {'has' if len(silent) == 1 else 'have'} no interval that counts." if silent else ""
    if len(sure) < 2:
        only = f"Only {sure[0].run} has an interval: there is nothing to hold it against." if sure else "No run has an interval."
        return Agreement("one", only + (aside if sure else ""))
    low, high = max(r.low for r in sure), min(r.high for r in sure)
    if low <= high:
        many = "Both" if len(sure) == 2 else f"All {len(sure)}"
        words = (
            f"{many} intervals hold {low:.2f}–{high:.2f}: nothing here shows that the runs differ, which is no proof that they are equal."
        )
        if len({r.verdict for r in sure}) > 1:
            words += " The verdicts differ all the same: each goes by the side of the margin on which its own interval lies."
        return Agreement("share", words + aside)
    a, b = max(combinations(sure, 2), key=lambda pair: _gap(*pair))
    if not _surely_apart(sure):
        words = (
            f"The intervals of {a.run}, {a.words}, and {b.run}, {b.words}, have no value in common. Among {len(sure)} runs of one and the "
            "same ratio such a pair comes about by chance, so that nothing here shows that the runs differ."
        )
        return Agreement("chance", words + aside)
    words = (
        f"The intervals of {a.run}, {a.words}, and {b.run}, {b.words}, "
        "have no value in common: these runs found different ratios, by more than their noise explains. What differs stands beside them."
    )
    return Agreement("apart", words + aside)


def _surely_apart(runs: Sequence[_Known]) -> bool:
    """Whether some two part by more than the pairs of so many equal runs do in one of twenty cases.

    Two equal runs have intervals without a common value in half a percent of cases, five runs some pair of them in 4 %; of more
    runs the intervals are widened, by as much as there are more pairs.
    """
    wide = [_widened(r, len(runs)) for r in runs]
    return max(low for low, _ in wide) > min(high for _, high in wide)


def _widened(r: _Known, n_runs: int) -> tuple[float, float]:
    """In logs."""
    low, high = math.log(r.low), math.log(r.high)
    share = min(1.0, math.comb(PAIRS_OF, 2) / math.comb(n_runs, 2))
    df = max(1, r.n_blocks - 1) if r.n_blocks else MANY
    half = t_quantile(df, 1 - share * (1 - CONFIDENCE)) / t_quantile(df) * (high - low) / 2
    return (low + high) / 2 - half, (low + high) / 2 + half


def _gap(a: _Known, b: _Known) -> float:
    """How far two intervals lie apart; below 0 where they overlap."""
    return max(a.low / b.high, b.low / a.high)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
