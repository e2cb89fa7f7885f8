"""How far drafts are accepted, position by position, as pages, reports and a terminal tell it.

A pass of the target makes at least one token, its own; the first position of a draft is the pass's *second token*. Its share is
what papers on multi-token prediction quote as the acceptance of the second token, and what drafts of different limits share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .measurement import ComparisonResult, JobAnalysis, Withheld
from .metrics import METRICS
from .spec import is_model_drafter

NOTE = (
    "position 1 of a draft is the second token of its pass, the first being the target's own: its share is the acceptance of the "
    "second token that papers on multi-token prediction quote"
)
#: Long drafts are told by their beginning.
MOST_TOLD = 8


@dataclass(frozen=True)
class Position:
    """``accepted``: of all steps with a draft; ``where_reached``: of those that accepted the position before. As text, in percent."""

    n: int
    accepted: str
    where_reached: str

    @property
    def is_second_token(self) -> bool:
        return self.n == 1


def positions(c: ComparisonResult) -> list[Position] | Withheld:
    """Empty where nothing was drafted."""
    if isinstance(c.accepted_by_position, Withheld):
        return c.accepted_by_position
    reached = [] if isinstance(c.conditional_by_position, Withheld) else c.conditional_by_position
    return [
        Position(
            n,
            METRICS["accepted_by_position"].show(share),
            METRICS["conditional_by_position"].show(reached[n - 1]) if n <= len(reached) else "",
        )
        for n, share in enumerate(c.accepted_by_position, 1)
    ]


def told(values: Sequence[str]) -> str:
    """The shares of a draft in a row, a long one by its beginning: ``98 96 93``."""
    rest = len(values) - MOST_TOLD
    return " ".join(values[:MOST_TOLD]) + (f" … and {rest} more" if rest > 0 else "")


def position_lines(analysis: JobAnalysis) -> str:
    """A line for each arm with a model drafter at each point; empty where there are none."""
    lines = []
    for c in analysis.comparisons:
        found = positions(c)
        if isinstance(found, Withheld) or not found or not is_model_drafter(c.mode):
            continue
        reached = [p.where_reached for p in found if p.where_reached]
        beside = f", where reached {told(reached)} %" if len(found) > 1 and reached else ""
        lines.append(
            f"  {c.point}, {c.arm}: second token {found[0].accepted} %; up to each position {told([p.accepted for p in found])} %{beside}"
        )
    return "\n".join([*(["accepted by position in the draft:"] if lines else []), *lines])
