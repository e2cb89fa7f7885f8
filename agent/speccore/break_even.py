"""Where speculation begins to pay on a host: speed against tokens per target pass, with acceptance that dice decide. Pure.

Acceptance is synthetic here: an engine that offers it accepts drafts at random, so that a length can be asked for. What it
answers is no real output, and these figures are kept apart from all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from .inventory import Peer

#: Beyond this the two baselines, before and after, say that the host changed meanwhile.
MOST_DRIFT = 0.05
_USUAL_LIMIT = 3


class SynthPoint(Peer):
    """At one length asked for: what was counted, and the speed. ``ratio``: of the baseline's."""

    asked_length: float
    tokens_per_pass: float
    tokens_per_s: float
    ratio: float
    n_steps: int


class Curve(Peer):
    """Of one arm. ``baseline_tokens_per_s``: before and after."""

    arm: str
    mode: str
    synthetic: bool = True
    baseline_tokens_per_s: tuple[float, float]
    points: list[SynthPoint]

    @property
    def drift(self) -> float:
        """Of the baseline from before to after, as a share."""
        before, after = self.baseline_tokens_per_s
        return after / before - 1

    def break_even(self) -> float | None:
        """Tokens per target pass at which the curve crosses the baseline's speed, between two points by a straight line."""
        rows = sorted(self.points, key=lambda p: p.tokens_per_pass)
        for low, high in pairwise(rows):
            if low.ratio < 1 <= high.ratio and high.tokens_per_pass > low.tokens_per_pass:
                share = (1 - low.ratio) / (high.ratio - low.ratio)
                return low.tokens_per_pass + share * (high.tokens_per_pass - low.tokens_per_pass)
        return None

    def words(self) -> str:
        even = self.break_even()
        rows = sorted(self.points, key=lambda p: p.tokens_per_pass)
        if even is not None:
            said = f"pays from {even:.2f} tokens per target pass on"
        elif not rows:
            return "was not measured"
        elif all(p.ratio >= 1 for p in rows):
            said = f"pays from {rows[0].tokens_per_pass:.2f} tokens per target pass on, the fewest that were tried"
        elif all(p.ratio < 1 for p in rows):
            said = f"does not pay up to {rows[-1].tokens_per_pass:.2f} tokens per target pass, the most that were tried"
        else:
            said = "crosses the baseline's speed more than once: measure again on a quieter host"
        if abs(self.drift) > MOST_DRIFT:
            said += f"; the baseline changed by {100 * self.drift:+.0f} % meanwhile, so that this is no more than a hint"
        return said


def lengths(draft_limit: int | None) -> list[float]:
    """Lengths worth asking for: dense where the curve usually crosses, up to a whole draft and the token after it."""
    most = (draft_limit or _USUAL_LIMIT) + 1
    found = [1.0, 1.5, 2.0, *map(float, range(3, most + 1))]
    if len(found) > 8:  # a long draft: every so manieth
        found = [1.0, 1.5, 2.0, 3.0, 4.0, *(round(4 + (most - 4) * i / 3, 1) for i in (1, 2, 3))]
    return [length for length in dict.fromkeys(found) if length <= most]


def curve(arm: str, mode: str, baseline: tuple[float, float], seen: Sequence[tuple[float, float, float, int]]) -> Curve:
    """``seen``: (length asked for, tokens per pass, tokens per second, steps); ``baseline``: tokens per second before and after."""
    usual = sum(baseline) / 2
    points = [
        SynthPoint(asked_length=asked, tokens_per_pass=per_pass, tokens_per_s=speed, ratio=speed / usual, n_steps=n)
        for asked, per_pass, speed, n in seen
    ]
    return Curve(arm=arm, mode=mode, baseline_tokens_per_s=baseline, points=points)
