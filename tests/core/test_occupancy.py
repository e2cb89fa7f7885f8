"""Occupied context: the text that fills it, and whether it was as full as asked for."""

from __future__ import annotations

from typing import Any

import pytest
from speccore import contexts
from speccore.compare import JobFacts, analyse_job
from speccore.contexts import filling
from speccore.occupancy import cautions, context_occupied

from tests.core import made

SEEDS = (3, 7, 8, 2**31 - 1, 40_000)


class TestFilling:
    def test_the_same_seed_has_the_same_text_and_others_begin_otherwise(self) -> None:
        assert filling(7, 50_000) == filling(7, 50_000)
        assert filling(7, 50_000).startswith(filling(7, 2_000))
        assert len({filling(seed, 3_000).encode()[:64] for seed in SEEDS}) == len(SEEDS)
        assert len({filling(seed, 3_000)[200:] for seed in SEEDS}) == len(SEEDS)

    @pytest.mark.parametrize("n_bytes", [1, 999, 40_000, 150_000])
    def test_there_is_always_enough(self, n_bytes: int) -> None:
        assert len(filling(5, n_bytes).encode()) >= n_bytes

    def test_it_is_much_text_and_repeats_no_passage_before_its_end(self) -> None:
        assert contexts.corpus_bytes() >= 40_000
        whole = filling(5, contexts.corpus_bytes())
        paragraphs = [p for p in whole.split("\n\n") if len(p) > 200]
        assert len(set(paragraphs)) == len(paragraphs) > 60
        twice = filling(5, 2 * contexts.corpus_bytes())
        assert twice.count(paragraphs[3]) == 2

    def test_passages_that_come_again_come_in_another_order(self) -> None:
        twice = filling(5, 2 * contexts.corpus_bytes()).split("\n", 1)[1]
        half = len(twice) // 2
        assert twice[:4000] not in twice[half:]


class TestCheck:
    @pytest.mark.parametrize(
        ("asked", "counted", "state"),
        [
            (5000, [5000, 5000], "passed"),
            (5000, [4951, 5050], "passed"),
            (5000, [5000, 4949], "failed"),
            (5000, [5051], "failed"),
            (200, [192, 208], "passed"),
            (200, [191], "failed"),
            (5000, [5000, None], "not checked"),
            (5000, [], "not checked"),
        ],
    )
    def test_within_one_percent_or_eight_tokens(self, asked: int, counted: list[int | None], state: str) -> None:
        check = context_occupied(asked, {f"b1-off/{i}": n for i, n in enumerate(counted)})
        assert check.state == state
        assert check.kind == ("soft" if state == "not checked" else "hard")

    def test_it_names_the_probe_that_is_furthest_off(self) -> None:
        check = context_occupied(5000, {"b1-off/p#1": 4000, "b2-off/p#1": 20})
        assert check.sentence == "20 tokens were in the context of b2-off/p#1 by the engine's count, asked for were 5,000"

    @pytest.mark.parametrize(("has", "word"), [(5000, "keep"), (700, "invalid")])
    def test_a_context_that_was_not_full_makes_no_verdict(self, has: int, word: str) -> None:
        spec = made.spec_of(points=[{"workload": "count", "occupied_context": 5000}], engine={"context": 8192}, blocks=4)
        plan = made.planned(spec)

        def full(*_: Any) -> dict[str, Any]:
            return {"prompt_tokens": made.number(has)}

        ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}, noise=made.wobble, change=full)
        compared = analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0]
        assert compared.verdict.word == word
        assert any(c.name == "context occupied" for c in compared.checks)


def test_what_the_filling_favours_is_said_from_where_it_does() -> None:
    again = contexts.repeats_from()
    sizes = [0, again - 100, again + 100]
    points = [{"workload": "count", "occupied_context": n} for n in sizes]
    found = cautions(made.spec_of(points=points, engine={"context": 65536}))
    assert [field for field, _ in found] == ["points.2.occupied_context"]
    assert f"from about {again:,} tokens on" in found[0][1]
    lookup = cautions(made.spec_of({"name": "n", "mode": "ngram-mod"}, points=points, engine={"context": 65536}))
    assert [field for field, _ in lookup] == ["points.1.occupied_context", "points.2.occupied_context"]
