"""Tells a model's thought from its answer proper, by the marks of its chat template."""

from __future__ import annotations

from collections.abc import Sequence

from .measurement import Maybe, Withheld
from .records import TEXTS, StreamRecord, Thought

_UNKNOWN_END = Withheld(withheld="no mark is known that ends a thought in this model's chat template", reason_code="thought_unknown")


def told_apart(record: StreamRecord, texts: Sequence[str] | None) -> StreamRecord:
    """The record with the events of the thought marked as reasoning. ``texts``: one for each event; None: they are not there."""
    thought = record.thought
    if thought is None or not thought.ends or texts is None or len(texts) != len(record.events):
        return record
    begins_at = thought_ends_at("".join(texts), thought)
    if not begins_at:
        return record
    events, at = [], 0
    for event, text in zip(record.events, texts, strict=True):
        at += len(text)
        events.append(event.model_copy(update={"kind": "reasoning"}) if event.kind == "content" and at <= begins_at else event)
    return record.model_copy(update={"events": events})


def thought_ends_at(text: str, thought: Thought) -> int:
    """Characters of the answer that belong to the thought, its marks and the white space around included; 0: it has none."""
    if not thought.opened and not text.lstrip().startswith(thought.opens):
        return 0
    end = text.find(thought.ends)
    if end < 0:
        return len(text)
    after = end + len(thought.ends)
    return after + len(text[after:]) - len(text[after:].lstrip())


def first_content(ttft_content_s: Maybe, record: StreamRecord, texts: Sequence[str] | None) -> Maybe:
    """The time to the first content, withheld where it can't be told where the thought ended."""
    thought = record.thought
    if thought is None or not (thought.asked or thought.opened):
        return ttft_content_s
    if not thought.ends:
        return _UNKNOWN_END
    if texts is None:
        return Withheld(withheld=f"where the thought ends can't be told without {TEXTS}", reason_code="no_texts")
    return ttft_content_s
