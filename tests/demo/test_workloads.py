"""The built-in prompt sets: big enough, distinct where drafters look, and answered as their checks expect."""

import json
import re
from pathlib import Path

import pytest
from speccore.answer_checks import judge_answer
from speccore.workloads import builtin

from demo.prompts import repo_task
from demo.prompts.__main__ import FOLDER, file_of, text_of, workloads
from tests.demo.llama import llama_server

TARGET = Path(__file__).resolve().parents[2] / "demo/models/target.gguf"
#: What each published version holds; numbers name it, so it never changes.
PUBLISHED = {
    "repo-task@1": "37a0a1e6e93b6b8d315c5224a55b93b2ebc065ce812265508a137d7bd57bcf48",
    "json-extract@1": "3f462350231a662d9035b181c77802a2c1c1f223b0eea62ba713f42f38db5327",
    "tool-call@1": "13485dd23364d9676ae1f07b94ec86b2953fa9c0cbc6c7f8c487133cb027b66a",
    "typescript-refactor@1": "4deccb83112db15686920ac5bd627cf321b34a03cd9a15ae0d6f20c81c5264d0",
    "typescript-tests@1": "83078d9b1b5d080a10d29d981b62b921e19737a88331c2a0565edb1631dbc147",
    "count@2": "092e159c18ea8170c6de1272a804d41c9bf1fa65eb91254c97a362c236daa710",
    "count@1": "bb34006fc896c15337ee758cba2883efc5f73241fafc0ca4e622633f21df0f34",
    "free-text@2": "525c2685d824cc933a79142e120fbc825a7a24bd2d602f14c3f7e9ddf4896ebf",
    "free-text@1": "891b9257c2e76580575777bd7daa321e88c784b4bad6a6dee8fd4e85bd5191b0",
    "python-code@2": "b955d6ab8c39b662bd6c179532852a75d5bfe84f306a4a690b6aecc810bc3f78",
    "python-code@1": "8c791eb2e5c50efbf766527e8c92ec62811364fed0888a4f58463115a01ff326",
}


def test_a_bare_name_leads_to_the_newest_version():
    found = builtin()
    assert all(found[n] is found[f"{n}@2"] for n in ("count", "python-code", "free-text"))
    assert {name for name in found if "@" in name} == set(PUBLISHED)


@pytest.mark.parametrize("ref", PUBLISHED)
def test_a_published_version_is_what_it_was(ref):
    assert builtin()[ref].content_hash() == PUBLISHED[ref]


def test_files_are_what_the_tables_make():
    for workload in workloads():
        assert (FOLDER / file_of(workload)).read_text(encoding="utf-8") == text_of(workload)


@pytest.mark.parametrize(
    ("ref", "n_items", "n_warmup"),
    [
        ("count@1", 40, 4),
        ("python-code@1", 24, 4),
        ("free-text@1", 24, 4),
        ("count@2", 160, 48),
        ("python-code@2", 160, 48),
        ("free-text@2", 160, 48),
        ("typescript-refactor@1", 32, 12),
        ("typescript-tests@1", 32, 12),
        ("json-extract@1", 32, 12),
        ("tool-call@1", 32, 12),
    ],
)
def test_prompts_are_many_and_differ_within_their_first_64_bytes(ref, n_items, n_warmup):
    workload = builtin()[ref]
    assert len(workload.items) >= n_items
    assert len(workload.warmup) >= n_warmup
    everything = [*workload.items, *workload.warmup]
    assert len({i.id for i in everything}) == len(everything)
    assert len({i.prompt.encode()[:64] for i in everything}) == len(everything)


@pytest.mark.parametrize(("ref", "kind"), [("json-extract@1", "json"), ("tool-call@1", "tool"), ("typescript-refactor@1", "brackets")])
def test_a_right_answer_passes_and_a_wrong_one_does_not(ref, kind):
    workload = builtin()[ref]
    for item in [*workload.items, *workload.warmup]:
        assert item.check.kind == kind
        right = json.dumps(item.check.expected) if kind != "brackets" else "```typescript\nconst x = [1];\n```\n"
        assert judge_answer(item.check, item.prompt, right, cut=False).passed, item.id
        assert not judge_answer(item.check, item.prompt, right.replace("1", "7").replace("]", ")").replace("}", ""), cut=False).passed


def test_typescript_is_code_whose_brackets_close():
    for ref in ("typescript-refactor@1", "typescript-tests@1"):
        for item in [*builtin()[ref].items, *builtin()[ref].warmup]:
            code = re.search(r"```typescript\n.*?```", item.prompt, re.DOTALL)[0]
            assert judge_answer(item.check, "", code, cut=False).passed, item.id


def test_tasks_in_a_repository_are_tasks():
    workload = builtin()["repo-task@1"]
    assert workload.is_task
    assert len(workload.items) >= 8
    everything = [*workload.items, *workload.warmup]
    assert len({i.id for i in everything}) == len(everything)
    assert len({i.opening.encode()[:64] for i in everything}) == len(everything)
    assert {len(i.turns) for i in workload.items} == {3, 4, 5}
    assert any(turn.rebuild for i in workload.items for turn in i.turns)
    assert all(turn.tool_wait_s > 0 for i in everything for turn in i.turns[:-1])


def test_the_recorded_answers_of_tasks_pass_their_own_checks():
    for item in [*builtin()["repo-task"].items, *builtin()["repo-task"].warmup]:
        for turn in item.turns:
            right = turn.answer or json.dumps(turn.check.expected)
            if turn.check:
                assert judge_answer(turn.check, turn.prompt, right, cut=False).passed, item.id
                assert not judge_answer(turn.check, turn.prompt, right.replace(":", ": 0,"), cut=False).passed
    assert all(fault.source.count(fault.old) == 1 for fault in repo_task.FAULTS)
    for fault in repo_task.FAULTS:
        compile(fault.source.replace(fault.old, fault.new), fault.path, "exec")  # parsed, and never run


def test_a_copy_can_be_changed_without_harm():
    builtin().clear()
    assert builtin()["count"].name == "count"


@pytest.mark.parametrize("ref", ["python-code@1", "python-code@2"])
def test_code_prompts_are_the_start_of_valid_code(ref):
    for item in builtin()[ref].items:
        assert item.check is not None
        assert item.check.kind == "python"
        assert "\t" not in item.prompt
        assert judge_answer(item.check, item.prompt, "", cut=True).passed, item.id


@pytest.mark.parametrize("ref", ["count@1", "count@2"])
def test_the_demo_target_counts_rightly_for_64_tokens(tmp_path, ref):
    with llama_server(TARGET, tmp_path / "log") as ask:
        for item in [*builtin()[ref].items, *builtin()[ref].warmup]:
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
