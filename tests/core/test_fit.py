"""The search for the largest context: few starts, exact to a step, never beyond what the model was trained for."""

from __future__ import annotations

import random

import pytest
from speccore.fit import MOST_STARTS, ArmFit, Fit, FitTry, next_context, together, top_of


def searched(limit: int, top: int, guess: int | None, most: int = MOST_STARTS) -> ArmFit:
    """``limit``: the largest context that loads."""
    tries: list[FitTry] = []
    while (context := next_context(tries, top, guess, most)) is not None:
        assert context not in [t.context for t in tries]
        assert 0 < context <= top
        tries.append(FitTry(context=context, loads=context <= limit, why="" if context <= limit else "out of memory"))
    return ArmFit(arm="a", mode="off", top=top, tries=tries)


def test_an_estimate_that_is_near_is_made_exact() -> None:
    rng = random.Random(5)
    for _ in range(300):
        limit = rng.randrange(20_000, 131_000)
        guess = int(limit * rng.uniform(0.95, 1.05))
        found = searched(limit, 131_072, guess)
        assert len(found.tries) <= MOST_STARTS
        assert found.exact, (limit, guess, found.tries)
        assert found.largest == limit // 256 * 256


@pytest.mark.parametrize("guess", [None, 300, 131_072, 10_000_000, 0])
@pytest.mark.parametrize("limit", [100, 256, 5_000, 50_000, 131_072, 10_000_000])
def test_a_bad_guess_costs_starts_and_no_truth(guess: int | None, limit: int) -> None:
    found = searched(limit, 131_072, guess, most=40)
    assert (found.largest or 0) == min(limit, 131_072) // 256 * 256
    few = searched(limit, 131_072, guess)
    assert len(few.tries) <= MOST_STARTS
    assert (few.largest or 0) <= limit


def test_one_start_is_enough_where_nothing_limits() -> None:
    found = searched(10_000_000, 32_768, 32_768)
    assert [t.context for t in found.tries] == [32_768]
    assert found.words() == "loads up to the model's own 32,768 tokens per slot: nothing here limits it"
    assert found.exact


def test_what_is_not_exact_says_between_which() -> None:
    found = ArmFit(
        arm="a", mode="off", top=131_072, tries=[FitTry(context=1024, loads=True), FitTry(context=4096, loads=False, why="out of memory")]
    )
    assert not found.exact
    assert found.words() == "loads 1,024 tokens per slot and not 4,096 (out of memory)"


def test_nothing_that_loads_is_no_number() -> None:
    found = searched(0, 2048, 1024)
    assert found.largest is None
    assert found.words() == "loads not even 256 tokens per slot (out of memory)"
    withheld = ArmFit(arm="a", mode="off", top=2048, tries=[FitTry(context=1024, loads=True)], withheld="the engine died")
    assert (withheld.largest, withheld.words()) == (None, "nothing is said: the engine died")


def test_tries_that_started_nothing_use_no_start() -> None:
    tries = [FitTry(context=131_072 - 256 * n, loads=False, started=False) for n in range(20)]
    assert next_context(tries, 131_072, 131_072) is not None


@pytest.mark.parametrize(("trained", "asked", "top"), [(2048, 512, 2048), (2100, 512, 2048), (None, 1024, 1024), (100, 64, 100)])
def test_the_top_is_what_the_model_was_trained_for(trained: int | None, asked: int, top: int) -> None:
    assert top_of(trained, asked) == top
    assert searched(10_000, top, None).largest == top


def test_the_arms_in_one_line() -> None:
    arms = [
        ArmFit(arm="off", mode="off", top=131_072, tries=[FitTry(context=131_072, loads=True)]),
        ArmFit(arm="draft-4", mode="draft", top=131_072, tries=[FitTry(context=96_256, loads=True), FitTry(context=96_512, loads=False)]),
        ArmFit(arm="mtp", mode="mtp", top=131_072, withheld="the engine died"),
    ]
    assert together(Fit(arms=arms), "off") == "131,072 tokens per slot without, 96,256 with draft-4"
    assert together(Fit(arms=arms[1:]), "off") == ""
