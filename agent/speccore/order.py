"""Draws the order of things that are compared, so that no one gets the better places.

A plan of blocks is built from rounds of as many blocks as there are things: inside a round everybody takes every
position once (a Latin square), and a last, shorter round takes each position at most once. Blocks also come in pairs in
which whoever ran before the anchor (the baseline) runs after it the second time. Both together keep the counts in each
position, and before and after the anchor, within one of each other after any number of blocks.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

#: Rounds that are drawn before a row may break the balance around the anchor (happens from about 13 things on).
TRIES = 200
TRIES_MANY = 10  # for more than a dozen, where a round costs more and rarely comes out whole
MANY = 16  # beyond, a second try costs tenths of a second and gains nothing that can be seen


def balanced_orders(n: int, n_blocks: int, rng: random.Random, *, anchor: bool, after: Sequence[Sequence[int]] = ()) -> list[list[int]]:
    """``n_blocks`` permutations of 0 … n−1, each in order of running. With ``anchor``, 0 is what others run before or after.

    Counts by position always differ by at most one. Counts before and after the anchor do for up to twelve things; beyond,
    for fewer blocks than things, else as near as the draw comes. ``after``: orders that were run already. The new ones
    go on from them, so that all together are balanced by position, and around the anchor as near as the draw comes; ``n_blocks``
    counts them too, and they are not returned.
    """
    rows: list[dict[int, int]] = [{a: position for position, a in enumerate(order)} for order in after]
    before_after = [sum(_side(row, a) for row in rows) for a in range(n)]  # blocks before the anchor minus blocks after it
    while len(rows) < n_blocks:
        begun = rows[len(rows) - len(rows) % n :]  # of a round that is not whole
        size = min(n - len(begun), n_blocks - len(rows))
        drawn = None
        for _ in range(TRIES if n <= 12 else TRIES_MANY if n <= MANY else 1):
            drawn = _round(n, size, begun, len(rows), n_blocks, before_after, rng, anchor=anchor, strict=True)
            if drawn is not None:
                break
        rows += drawn or _round(n, size, begun, len(rows), n_blocks, before_after, rng, anchor=anchor, strict=False) or []
        before_after = [sum(_side(row, a) for row in rows) for a in range(n)]
    return [sorted(row, key=row.__getitem__) for row in rows[len(after) :]]


def _side(row: Mapping[int, int], a: int) -> int:
    return 0 if a == 0 else (1 if row[a] < row[0] else -1)


def _round(
    n: int,
    size: int,
    begun: Sequence[Mapping[int, int]],
    start: int,
    n_blocks: int,
    before_after: list[int],
    rng: random.Random,
    *,
    anchor: bool,
    strict: bool,
) -> list[dict[int, int]] | None:
    """Up to ``n`` rows (thing: position from 0) in which nobody takes a position twice; None if the draw ran into a corner.

    ``begun``: rows that the round has already.
    """
    lead = list(before_after)
    unused = [set(range(n)).difference(row[a] for row in begun) for a in range(n)]
    rows: list[dict[int, int]] = []
    for i in range(size):
        row = _anchored_row(n, start + i, n_blocks, unused, lead, rng) if anchor else None
        if row is None and anchor and strict:
            return None
        if row is None:  # always there: what is left of a Latin square has equally many places for everybody
            row = _matching(dict(enumerate(unused)), rng) or {}
        for a, position in row.items():
            unused[a].discard(position)
            lead[a] += _side(row, a)
        rows.append(row)
    return rows


def _anchored_row(n: int, index: int, n_blocks: int, unused: list[set[int]], lead: list[int], rng: random.Random) -> dict[int, int] | None:
    """One row: whoever leads in runs before the anchor runs after it, and the other way round."""
    opens_pair = index % 2 == 0 and index + 1 < n_blocks
    round_goes_on = (index + 1) % n != 0
    for place in rng.sample(sorted(unused[0]), len(unused[0])):
        mirrored = n - 1 - place  # where the anchor must stand in the pair's second row
        if opens_pair and round_goes_on and (mirrored == place or mirrored not in unused[0]):
            continue
        allowed: dict[int, Collection[int]] = {0: [place]}
        for a in range(1, n):
            allowed[a] = [q for q in unused[a] if q != place and not (lead[a] > 0 and q < place) and not (lead[a] < 0 and q > place)]
        row = _matching(allowed, rng)
        if row is not None:
            return row
    return None


def _matching(allowed: Mapping[int, Collection[int]], rng: random.Random) -> dict[int, int] | None:
    """A random assignment of a position of its own to everybody (augmenting paths, Kuhn 1955), or None."""
    choices = {a: rng.sample(sorted(positions), len(positions)) for a, positions in allowed.items()}
    holder: dict[int, int] = {}

    def settle(a: int, asked: set[int]) -> bool:
        for position in choices[a]:
            if position in asked:
                continue
            asked.add(position)
            if position not in holder or settle(holder[position], asked):
                holder[position] = a
                return True
        return False

    for a in rng.sample(sorted(choices), len(choices)):
        if not settle(a, set()):
            return None
    return {a: position for position, a in holder.items()}
