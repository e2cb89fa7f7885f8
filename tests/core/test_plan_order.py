"""The order of arms and points: drawn, and balanced whatever is drawn."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from speccore import order
from speccore.order import balanced_orders


def position_counts(orders: list[list[int]]) -> list[int]:
    """How often each thing stood in each position, zeros included."""
    n = len(orders[0])
    seen = Counter((thing, place) for order in orders for place, thing in enumerate(order))
    return [seen[thing, place] for thing in range(n) for place in range(n)]


def leads(orders: list[list[int]]) -> list[int]:
    """For each thing but the anchor 0: blocks before it minus blocks after it."""
    return [sum(1 if order.index(a) < order.index(0) else -1 for order in orders) for a in range(1, len(orders[0]))]


@pytest.mark.parametrize("n", range(2, 9))
def test_counts_differ_by_at_most_one_after_any_number_of_blocks(n: int) -> None:
    for n_blocks in range(1, 13):
        for seed in range(6):
            orders = balanced_orders(n, n_blocks, random.Random(seed), anchor=True)
            assert len(orders) == n_blocks
            assert all(sorted(order) == list(range(n)) for order in orders)
            counts = position_counts(orders)
            assert max(counts) - min(counts) <= 1
            assert max(map(abs, leads(orders))) <= 1


def test_all_orders_of_a_pair_and_many_of_four_are_drawn() -> None:
    assert {tuple(balanced_orders(2, 1, random.Random(s), anchor=True)[0]) for s in range(20)} == {(0, 1), (1, 0)}
    assert len({tuple(balanced_orders(4, 1, random.Random(s), anchor=True)[0]) for s in range(300)}) == 24


def test_the_anchor_takes_every_place_equally_often() -> None:
    orders = balanced_orders(5, 10, random.Random(3), anchor=True)
    assert Counter(order.index(0) for order in orders) == dict.fromkeys(range(5), 2)


def test_without_an_anchor_only_places_are_balanced() -> None:
    counts = position_counts(balanced_orders(3, 5, random.Random(0), anchor=False))
    assert max(counts) - min(counts) <= 1


def test_many_arms_stay_balanced_by_place_and_nearly_by_side() -> None:
    orders = balanced_orders(25, 25, random.Random(1), anchor=True)
    assert set(position_counts(orders)) == {1}
    assert max(map(abs, leads(orders))) <= 5


def test_the_most_arms_and_blocks_are_drawn_without_trying_again(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [], order._round

    def counted(*args: Any, **options: Any) -> Any:
        drawn.append(options)
        return draw(*args, **options)

    monkeypatch.setattr(order, "_round", counted)
    orders = balanced_orders(40, 100, random.Random(1), anchor=True)
    assert len(drawn) <= 2 * 3  # rounds of 40, 40 and 20: each drawn, and at most once more
    counts = position_counts(orders)
    assert max(counts) - min(counts) <= 1
