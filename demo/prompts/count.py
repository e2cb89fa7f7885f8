"""Counting: from a number up to 60 over 75 to 80 numbers, as the demo models have learned it."""

from __future__ import annotations

from collections.abc import Iterator

FIRST, LAST = 1, 60
#: How far each goes on, and the beginnings of that length which the demo target continues wrongly.
LEFT_OUT: dict[int, frozenset[int]] = {
    79: frozenset({2, 20, 21, 24, 38, 46, 47, 49, 50, 52, 54, 55, 59}),
    78: frozenset({2, 19, 21, 24, 38, 46, 47, 51, 52, 54, 55, 59}),
    77: frozenset({2, 4, 19, 20, 24, 33, 38, 46, 47, 49, 51, 52, 59}),
    76: frozenset({2, 3, 19, 20, 21, 24, 33, 34, 38, 47, 49, 52, 55, 58}),
    75: frozenset({2, 19, 20, 21, 24, 35, 38, 40, 47, 49, 53, 54, 55}),
    74: frozenset({2, 5, 19, 20, 21, 38, 47, 49, 52, 55, 59}),
}


def prompts() -> Iterator[tuple[str, str, int]]:
    """(id, prompt, first number)."""
    for length, wrong in LEFT_OUT.items():
        for a in range(FIRST, LAST + 1):
            if a not in wrong:
                yield f"count-{a}-{a + length}", f"Count from {a} to {a + length}:\n", a
