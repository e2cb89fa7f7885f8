"""What intervals of the same ratio, found in several runs, say together: in words that claim no more than they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal


@dataclass(frozen=True)
class Found:
    """A run's ratio with its interval (None: withheld) and its verdict's word. ``judged``: the verdict judges a ratio."""

    run: str
    estimate: float | None
    low: float | None
    high: float | None
    verdict: str
    judged: bool = True

    @property
    def words(self) -> str:
        return f"{self.estimate or 0:.2f}× [{self.low or 0:.2f}–{self.high or 0:.2f}]"


@dataclass(frozen=True)
class Agreement:
    word: Literal["one", "share", "apart"]
    sentence: str


def agreement(runs: Sequence[Found]) -> Agreement:
    """Whether all intervals have a value in common, and what follows from that. Runs without one say nothing, and are named."""
    sure = [r for r in runs if r.low is not None and r.high is not None and r.judged]
    silent = [r.run for r in runs if r not in sure]
    aside = f" {_listed(silent)} {'has' if len(silent) == 1 else 'have'} no interval that counts." if silent else ""
    if len(sure) < 2:
        only = f"Only {sure[0].run} has an interval: there is nothing to hold it against." if sure else "No run has an interval."
        return Agreement("one", only + (aside if sure else ""))
    low, high = max(r.low for r in sure if r.low is not None), min(r.high for r in sure if r.high is not None)
    if low <= high:
        many = "Both" if len(sure) == 2 else f"All {len(sure)}"
        words = (
            f"{many} intervals hold {low:.2f}–{high:.2f}: nothing here shows that the runs differ, which is no proof that they are equal."
        )
        if len({r.verdict for r in sure}) > 1:
            words += " The verdicts differ all the same: each goes by the side of the margin on which its own interval lies."
        return Agreement("share", words + aside)
    a, b = max(combinations(sure, 2), key=lambda pair: _gap(*pair))
    words = (
        f"The intervals of {a.run}, {a.words}, and {b.run}, {b.words}, "
        "have no value in common: these runs found different ratios, by more than their noise explains. What differs stands beside them."
    )
    return Agreement("apart", words + aside)


def _gap(a: Found, b: Found) -> float:
    """How far two intervals lie apart; below 0 where they overlap."""
    return max((a.low or 0) / (b.high or 1), (b.low or 0) / (a.high or 1))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
