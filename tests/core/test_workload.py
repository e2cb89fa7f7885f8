"""Workloads: what an item may be, and hashes that name their content for ever."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError
from speccore.workload import Check, Item, Turn, Workload
from speccore.workloads import builtin

STEP = {"prompt": "Read the file.\n", "answer": "It holds 3 lines.\n", "tool_wait_s": 0.5}
LAST = {"prompt": "Now mend it.\n"}


def item(**changes: Any) -> Item:
    return Item.model_validate({"id": "t1", "turns": [STEP, LAST]} | changes)


@pytest.mark.parametrize(
    ("ref", "content_hash"),
    [
        ("count@1", "bb34006fc896c15337ee758cba2883efc5f73241fafc0ca4e622633f21df0f34"),
        ("free-text@1", "891b9257c2e76580575777bd7daa321e88c784b4bad6a6dee8fd4e85bd5191b0"),
        ("python-code@1", "8c791eb2e5c50efbf766527e8c92ec62811364fed0888a4f58463115a01ff326"),
    ],
)
def test_what_was_published_keeps_its_hash(ref: str, content_hash: str) -> None:
    """Numbers of years ago name their prompts by it: a new kind of item must not change the old one's."""
    assert builtin()[ref].content_hash() == content_hash


def test_an_item_of_one_prompt_is_written_as_ever() -> None:
    check = Check(kind="count", start=3)
    written = Item(id="i", prompt="1, 2,", check=check).model_dump(mode="json")
    assert written == {"id": "i", "prompt": "1, 2,", "reference_tokens": None, "check": check.model_dump(mode="json")}


def test_a_task_is_read_back_as_it_was_written() -> None:
    workload = Workload(name="w", version=1, title="W", items=[item()], warmup=[Item(id="w1", prompt="Hello")])
    again = Workload.model_validate_json(workload.model_dump_json())
    assert again == workload
    assert again.content_hash() == workload.content_hash()
    assert again.is_task
    assert "prompt" not in again.items[0].model_dump()
    slower = workload.model_copy(update={"items": [item(turns=[STEP | {"tool_wait_s": 0.6}, LAST])]})
    assert slower.content_hash() != workload.content_hash()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompt": "Hello"}, "has both a prompt and turns: give one"),
        ({"turns": []}, "has neither a prompt nor turns: give one"),
        ({"turns": [LAST, LAST]}, "turn 1 has no answer for the next turn's history: give the recorded one"),
        ({"turns": [STEP, STEP]}, "nothing follows the last turn's tool_wait_s: remove it"),
        ({"reference_tokens": 9}, "give check and reference_tokens to them"),
        ({"turns": [STEP | {"tool_wait_s": -1}, LAST]}, "tool_wait_s"),
    ],
)
def test_what_an_item_can_not_be_is_said(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        item(**changes)


def test_tasks_and_single_prompts_are_no_one_workload() -> None:
    with pytest.raises(ValidationError, match="mixes tasks of several turns with single prompts"):
        Workload(name="w", version=1, title="W", items=[item(), Item(id="i", prompt="Hello")], warmup=[Item(id="w1", prompt="Hello")])


def test_an_item_opens_with_its_first_request() -> None:
    assert Item(id="i", prompt="Hello").opening == "Hello"
    assert item().opening == STEP["prompt"]
    assert item(turns=[{**STEP, "rebuild": "Long ago. "}, LAST]).opening == "Long ago. Read the file.\n"
    assert Turn(prompt="x").max_tokens is None
