"""How much of an experiment fits into a given time: whole blocks only, since the arms of a block are compared with each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .spans import in_words
from .stats import MIN_BLOCKS


@dataclass(frozen=True)
class Decision:
    """Whether another block may begin, and in words why not. ``useless``: nothing could be said of what would come out."""

    start: bool
    why_not: str = ""
    useless: bool = False


def blocks_that_fit(budget_s: float, block_s: float) -> int:
    """Whole blocks of ``block_s`` seconds in ``budget_s``. Raises ValueError for a block that takes no time."""
    if block_s <= 0:
        raise ValueError(f"a block takes time, not {block_s:g} s")
    return max(0, math.floor(budget_s / block_s + 1e-9))


def next_block(budget_s: float, elapsed_s: float, block_seconds: Sequence[float], n_planned: int) -> Decision:
    """After ``block_seconds`` (one for each whole block so far, in order), may the next begin?

    A block is expected to take as long as the longest so far. As soon as fewer than 3 blocks can be had in all, going on
    would cost time and answer nothing.
    """
    n_done = len(block_seconds)
    if not block_seconds:
        return Decision(start=True)  # nothing is known yet
    longest = max(block_seconds)
    left_s = budget_s - elapsed_s
    reachable = min(n_planned, n_done + blocks_that_fit(max(left_s, 0.0), longest))
    if reachable < min(MIN_BLOCKS, n_planned):
        needed = elapsed_s + (min(MIN_BLOCKS, n_planned) - n_done) * longest
        why = (
            f"a block takes {in_words(longest)}, so that {_that_fit(reachable, n_planned)} into "
            f"{in_words(budget_s)}; {in_words(needed)} would be enough"
        )
        return Decision(start=False, why_not=why, useless=True)
    if reachable == n_done < n_planned:
        return Decision(start=False, why_not=f"{in_words(max(left_s, 0.0))} are left and a block takes {in_words(longest)}")
    return Decision(start=True)


def _that_fit(n: int, n_planned: int) -> str:
    """Of the blocks that an interval needs, or of the fewer that are planned."""
    if n_planned == 1:
        return "the one block planned does not fit"
    of = f"{MIN_BLOCKS} blocks that an interval needs" if n_planned >= MIN_BLOCKS else f"{n_planned} blocks planned"
    return f"{n} of the {of} fit{'s' if n == 1 else ''}"


#: What a block takes may be guessed wrong by this factor; further off than that, a time is refused without a try.
GUESS_ERROR = 4.0


def before_start(budget_s: float, low_block_s: float, n_planned: int) -> Decision:
    """Whether it makes sense to begin at all, if a block is guessed to take ``low_block_s`` seconds or more.

    ``start`` with ``why_not``: by the guess the time is too short; the first block will tell.
    """
    needed = min(MIN_BLOCKS, n_planned)
    if (fitting := blocks_that_fit(budget_s, low_block_s)) >= needed:
        return Decision(start=True)
    why = (
        f"a block takes {in_words(low_block_s)} or more, so that {_that_fit(fitting, n_planned)} into "
        f"{in_words(budget_s)}; {in_words(needed * low_block_s)} or more would be needed"
    )
    hopeless = blocks_that_fit(GUESS_ERROR * budget_s, low_block_s) < needed
    return Decision(start=not hopeless, why_not=why, useless=hopeless)
