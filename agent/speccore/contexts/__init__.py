"""Text that stands before a prompt where the context is to be full: prose, talk, code and tables, written for this.

It is no random text, since a drafter's worth depends on what stands in its context. Each request has the passages in an
order of its own; beyond their length they come again in another order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from importlib import resources

#: Bytes of one token in text such as this, for estimates: vocabularies of today's models have about so many.
BYTES_PER_TOKEN = 4.0
_FILES = ("prose.txt", "dialogue.txt", "letters.txt", "code.txt", "tables.txt")
#: A passage is at least this long, so that it has a beginning, a course and an end.
_PASSAGE_BYTES = 700


def filling(seed: int, n_bytes: int) -> str:
    """At least so many bytes of text for the request of this seed: the same for one seed, begun differently by each other."""
    text = [f"{seed} is the number of this request in the reading room. What follows came from the shelves as it stood.\n"]
    left = n_bytes
    for passage in _passages_of(seed):
        if left <= 0:
            break
        text.append(passage)
        left -= len(passage.encode()) + 1
    return "\n".join(text)


def corpus_bytes() -> int:
    """Bytes of filling before a passage comes for the second time."""
    return sum(len(p.encode()) + 1 for p in _passages())


def repeats_from() -> int:
    """Tokens of occupied context from which on passages come again, about."""
    return int(corpus_bytes() / BYTES_PER_TOKEN)


def _passages_of(seed: int) -> Iterator[str]:
    draw = random.Random(f"{seed}/context")  # noqa: S311  the same in all arms, not secret
    while True:
        yield from draw.sample(_passages(), len(_passages()))


@cache
def _passages() -> tuple[str, ...]:
    """Neighbouring paragraphs of one file, joined until they are long enough; each ends in a new line."""
    found: list[str] = []
    for name in _FILES:
        part = ""
        for paragraph in (resources.files(__package__) / name).read_text(encoding="utf-8").strip().split("\n\n"):
            part += paragraph.strip("\n") + "\n\n"
            if len(part) >= _PASSAGE_BYTES:
                found.append(part.rstrip("\n") + "\n")
                part = ""
        if part:
            found.append(part.rstrip("\n") + "\n")
    return tuple(found)
