"""Cycles: the decoding steps of the target, rebuilt from the engine's running counts, and what they add up to.

llama-server streams its running ``predicted_n``, ``predicted_ms``, ``draft_n`` and ``draft_n_accepted`` with each token.
Where ``predicted_ms`` moves, a new cycle began; the growth of the draft counts there is that cycle's. The first token
comes from the prefill and belongs to no cycle. vLLM lists its steps with a draft when the answer ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .records import StreamRecord


class Cycle(NamedTuple):
    """One decoding step of the target. ``emitted`` counts the tokens that reached the stream, ``ms`` is by the engine's clock."""

    drafted: int
    accepted: int
    emitted: int
    ms: float
    fused: bool  # several steps may hide in it: tokens were held back inside a character

    @property
    def committed(self) -> int:
        """Tokens that the step added: the accepted ones and one of the target's own. The last of an answer may emit fewer."""
        return self.accepted + 1


def cycles(record: StreamRecord) -> list[Cycle] | None:
    """The request's decoding steps in order; None if the stream has no per-token timings, or half of its draft counts."""
    if any((e.draft_n is None) is not (e.draft_n_accepted is None) for e in record.events):
        return None
    found: list[Cycle] = []
    n, ms, draft_n, accepted = 1, None, 0, 0
    began_ms = 0.0  # the engine's clock starts with the prefill's token, for which it reports a floor of 0.001
    for event in record.events:
        if event.predicted_n is None or event.predicted_ms is None:
            continue
        grown = event.predicted_n - n
        if ms is None and grown <= 0:  # the prefill's token
            ms = event.predicted_ms
            continue
        if event.predicted_ms != ms:
            now_draft = draft_n if event.draft_n is None else event.draft_n
            now_accepted = accepted if event.draft_n_accepted is None else event.draft_n_accepted
            found.append(Cycle(now_draft - draft_n, now_accepted - accepted, grown, event.predicted_ms - began_ms, fused=grown > 1))
            began_ms = event.predicted_ms
            draft_n, accepted = now_draft, now_accepted
        elif grown and found:
            found[-1] = found[-1]._replace(emitted=found[-1].emitted + grown)
        n, ms = event.predicted_n, event.predicted_ms
    return found if ms is not None else None


def is_retreat(c: Cycle) -> bool:
    """A step of llama-server that took two passes of the target. Its model can't take back a draft of that length, of which a part was
    accepted: the engine went back to a kept state and read the accepted tokens again, which gave one more token of the target's own."""
    return not c.fused and c.emitted == c.accepted + 2 and c.drafted > c.accepted


def impossible(steps: Sequence[Cycle]) -> list[str]:
    """What no engine can have done, in words: counts that run backwards, more accepted than drafted, more or fewer sent than made.

    Fused steps are judged by what holds for any number of steps. The last cycle may send fewer tokens than it made.
    """
    found = []
    for i, c in enumerate(steps, 1):
        if c.drafted < 0 or c.accepted < 0 or c.emitted < 0 or c.ms < 0:
            found.append(
                f"cycle {i} of the stream runs backwards: {c.drafted} drafted, {c.accepted} accepted, {c.emitted} sent, {c.ms:g} ms"
            )
        elif c.accepted > c.drafted:
            found.append(f"cycle {i} of the stream accepted {c.accepted} of {c.drafted} drafted tokens")
        elif not c.fused and c.emitted != c.committed and not (i == len(steps) and c.emitted < c.committed):
            found.append(
                f"cycle {i} of the stream sent {c.emitted} tokens after accepting {c.accepted} (its last may send fewer, no other)"
            )
    return found


def accepted_by_position(accepted: Sequence[int], drafted: Sequence[int]) -> list[int]:
    """How many drafting steps accepted the token at each position (from the first): position i counts if more than i were accepted."""
    longest = max(drafted, default=0)
    return [sum(n > i for n in accepted) for i in range(longest)]


def survival(by_position: Sequence[float], verify_steps: float) -> list[float]:
    """For each position the share of all verification steps that accepted the token there."""
    return [n / verify_steps for n in by_position]


def conditional(by_position: Sequence[float], verify_steps: float) -> list[float]:
    """For each position the share accepted there among the steps that accepted the one before; ends where none did."""
    found, before = [], verify_steps
    for n in by_position:
        if before <= 0:
            break
        found.append(n / before)
        before = n
    return found
