"""The decoding steps of one vLLM answer: those with a draft, as its reply lists them, and all, as far as its stream shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeGuard

from ..records import StreamRecord
from .trust import is_number


@dataclass(frozen=True)
class Steps:
    """The steps of one answer that had a draft, in order. ``faults`` name what contradicts the reply's own sums."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class StreamSteps(NamedTuple):
    """``n``: decoding steps that a stream shows. ``dropped``: tokens that the last accepted beyond those sent."""

    n: int
    dropped: int


def request_steps(reply: Mapping[str, Any]) -> Steps | None:
    """The steps of one answer from ``metrics`` in its reply (the last event, if streamed); None if it lists none."""
    said = said_of(reply)
    drafted, accepted = said.get("per_step_drafted"), said.get("per_step_accepted")
    if not is_counts(drafted) or not is_counts(accepted):
        # An answer without a draft lists no steps, and says that there were none.
        nothing = drafted is None and accepted is None and said.get("num_spec_steps") == 0 == said.get("num_draft_tokens")
        return Steps() if nothing and is_number(limit := said.get("num_spec_tokens")) and limit > 0 else None
    faults = []
    if len(drafted) != len(accepted):
        return Steps(faults=[f"{len(drafted)} steps drafted, {len(accepted)} accepted"])
    for what, ours, key in (
        ("steps", len(drafted), "num_spec_steps"),
        ("drafted", sum(drafted), "num_draft_tokens"),
        ("accepted", sum(accepted), "num_accepted_draft_tokens"),
    ):
        if key in said and said[key] != ours:
            faults.append(f"{what}: {ours} by step, {said[key]} by {key}")
    faults += [f"step {i} accepted {a} of {d}" for i, (d, a) in enumerate(zip(drafted, accepted, strict=True), 1) if a > d]
    return Steps(drafted, accepted, faults)


def stream_steps(record: StreamRecord, steps: Steps) -> StreamSteps | None:
    """Decoding steps, where each event after the prefill's token is one; None where steps share an event.

    With ``--stream-interval 1`` an event holds what one step made, unless the server was too busy to send it before the next.
    Then the events don't fit the reply's own list of steps. The end of the answer may cut what the last step made.
    """
    sizes = [e.tokens for e in record.events if e.tokens]
    if not sizes or sizes[0] != 1 or any(e.uncounted for e in record.events) or steps.faults:
        return None
    after = sizes[1:]
    accepting = [n + 1 for n in steps.accepted if n]
    n_rejected = len(steps.accepted) - len(accepting)
    for dropped in range(steps.accepted[-1] + 1 if steps.accepted and after else 1):
        made = [*after[:-1], after[-1] + dropped] if dropped else after
        if [n for n in made if n > 1] == accepting and made.count(1) >= n_rejected:
            return StreamSteps(len(after), dropped)
    return None


def said_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """What a reply's ``metrics`` says of its speculation."""
    metrics = reply.get("metrics")
    said = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    return said if isinstance(said, dict) else {}


def is_counts(value: object) -> TypeGuard[list[int]]:
    """A list of whole numbers, none negative."""
    return isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)
