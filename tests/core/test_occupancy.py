"""Occupied context: the text that fills it, and whether it was as full as asked for."""

from __future__ import annotations

from typing import Any

import pytest
from speccore import contexts
from speccore.cautions import Place
from speccore.cautions import cautions as all_cautions
from speccore.compare import JobFacts, analyse_job
from speccore.contexts import filling
from speccore.inventory import Device, HostInventory, ModelInfo
from speccore.occupancy import cautions, context_occupied
from speccore.spec import ExperimentSpec
from speccore.workload import Item, Turn, Workload

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


def place(size_bytes: int = 1 << 30, **target: Any) -> Place:
    device = Device(uuid="cpu", kind="cpu", name="CPU", memory_bytes=1 << 40)
    held = HostInventory(
        agent_version="1",
        hostname="h",
        os={},
        boot_id="b",
        cpu_model="c",
        n_cores=8,
        memory_bytes=1 << 40,
        devices=[device],
        runtimes=[],
        models=[],
    )
    model = ModelInfo(alias="big", manifest_hash="m", path="/m", size_bytes=size_bytes, **target)
    return Place("box", held, model, {})


def said(spec: ExperimentSpec, *places: Place, **workloads: Workload) -> dict[str, str]:
    return {c.field: c.message for c in all_cautions(spec, workloads or {"count": made.workload()}, places)}


def test_a_slow_host_is_warned_of_the_time_that_reading_takes() -> None:
    points = [{"workload": "count", "occupied_context": n} for n in (0, 2_000, 120_000)]
    spec = made.spec_of(points=points, engine={"context": 131_072})
    found = said(spec, place(16 << 30))
    assert "minutes to read so much context" in found["points.2.occupied_context"]
    assert "raise engine.probe_timeout_s" in found["points.2.occupied_context"]
    assert "points.1.occupied_context" not in found
    patient = made.spec_of(points=points, engine={"context": 131_072, "probe_timeout_s": 7200})
    assert "minutes" not in said(patient, place(16 << 30)).get("points.2.occupied_context", "")


def test_a_model_without_a_template_can_not_think() -> None:
    spec = made.spec_of(points=[{"workload": "count"}, {"workload": "count", "thinking": False}])
    assert "big on box has no chat template" in said(spec, place())["points.1.thinking"]
    assert "points.0.thinking" not in said(spec, place())
    assert "points.1.thinking" not in said(spec, place(chat_template_hash="t"))


def test_a_task_that_outgrows_the_context_is_told() -> None:
    turns = [Turn(prompt="p" * 8000, answer="a" * 8000), Turn(prompt="q")]
    tasks = made.workload().model_copy(update={"items": [Item(id=f"t{i}", turns=turns) for i in range(2)]})
    spec = made.spec_of(points=[{"workload": "count", "probes": 1, "max_tokens": 100}], engine={"context": 4096})
    assert (
        said(spec, count=tasks)["points.0.workload"] == "its longest turn takes about 4,100 tokens of context, and engine.context is 4,096"
    )
    roomy = made.spec_of(points=[{"workload": "count", "probes": 1, "max_tokens": 100}], engine={"context": 8192})
    assert "longest turn" not in said(roomy, count=tasks).get("points.0.workload", "")
