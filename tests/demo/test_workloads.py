"""The built-in prompt sets: big enough, distinct where drafters look, and answered as their checks expect."""

import re
from pathlib import Path

import pytest
from speccore.workloads import builtin

from tests.demo.llama import llama_server

TARGET = Path(__file__).resolve().parents[2] / "demo/models/target.gguf"
NAMES = ("count", "python-code", "free-text")


def test_names_and_references_lead_to_the_same_sets():
    found = builtin()
    assert set(found) == {*NAMES, *(f"{n}@1" for n in NAMES)}
    assert all(found[n] is found[f"{n}@1"] for n in NAMES)


@pytest.mark.parametrize(("name", "n_items"), [("count", 40), ("python-code", 24), ("free-text", 24)])
def test_prompts_are_many_and_differ_within_their_first_64_characters(name, n_items):
    workload = builtin()[name]
    assert len(workload.items) >= n_items
    assert len(workload.warmup) >= 4
    everything = [*workload.items, *workload.warmup]
    assert len({i.id for i in everything}) == len(everything)
    assert len({i.prompt[:64] for i in everything}) == len(everything)


def test_a_copy_can_be_changed_without_harm():
    builtin().clear()
    assert builtin()["count"].name == "count"


def test_code_prompts_are_the_start_of_valid_code():
    for item in builtin()["python-code"].items:
        assert item.check is not None
        assert item.check.kind == "python"
        assert "\t" not in item.prompt


def test_the_demo_target_counts_rightly_for_64_tokens(tmp_path):
    with llama_server(TARGET, tmp_path / "log") as ask:
        for item in [*builtin()["count"].items, *builtin()["count"].warmup]:
            answer = ask(item.prompt)
            assert answer["tokens_predicted"] == 64
            numbers = [int(n) for n in re.findall(r"\d+", answer["content"])]
            start = item.check.start
            assert numbers[:-1] == list(range(start, start + len(numbers) - 1)), item.id
            assert len(numbers) > 20


@pytest.mark.parametrize(("name", "temperature"), [("python-code", 0.1), ("free-text", 0.8)])
def test_the_demo_target_goes_on_for_64_tokens(tmp_path, name, temperature):
    with llama_server(TARGET, tmp_path / "log") as ask:
        lengths = [ask(i.prompt, temperature=temperature, seed=3)["tokens_predicted"] for i in builtin()[name].items]
    assert sum(n == 64 for n in lengths) >= 0.95 * len(lengths)
