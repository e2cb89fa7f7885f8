"""Answers that are JSON, calls of tools, and code whose brackets close; and workloads whose content keeps its hash."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError
from speccore.answer_checks import judge_answer
from speccore.workload import Check, Workload
from speccore.workloads import builtin

ORDER: dict[str, Any] = {"id": 7, "paid": True, "lines": [{"sku": "a-1", "n": 2}, {"sku": "b", "n": 0.5}], "note": None}
CALL: dict[str, Any] = {"name": "weather", "arguments": {"city": "Oslo", "days": 3}}


def as_json(answer: str, expected: Any = ORDER, *, cut: bool = False) -> tuple[bool, str]:
    return judge_answer(Check(kind="json", expected=expected), "Give the order as JSON.\n", answer, cut=cut)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(ORDER),
        "\n " + json.dumps(ORDER, indent=4, sort_keys=True),
        '{"note": null, "lines": [{"n": 2.0, "sku": "a\\u002d1"}, {"n": 5e-1, "sku": "b"}], "paid": true, "id": 7.0}',
        "```json\n" + json.dumps(ORDER) + "\n```",
        "Here it is:\n```\n" + json.dumps(ORDER, indent=1) + "\n```\nAnything else?",
        json.dumps(ORDER) + "\n\nGive the next order as JSON.\n{",  # a model that completes text goes on
    ],
)
def test_json_is_compared_as_a_value(answer: str) -> None:
    assert as_json(answer) == (True, "the JSON is the expected value")


@pytest.mark.parametrize(
    ("found", "note"),
    [
        (ORDER | {"id": 8}, "expected 7, found 8 at id"),
        (ORDER | {"paid": 1}, "expected true, found 1 at paid"),
        (ORDER | {"note": "null"}, 'expected null, found "null" at note'),
        (ORDER | {"more": 1}, 'key "more" is too much'),
        ({"id": 7, "paid": True, "lines": []}, 'key "note" is missing'),
        (ORDER | {"lines": ORDER["lines"][::-1]}, 'expected "a-1", found "b" at lines[0].sku'),
        (ORDER | {"lines": ORDER["lines"][:1]}, "expected 2 values, found 1 at lines"),
        ([ORDER], "expected"),
    ],
)
def test_another_value_is_wrong_and_the_place_is_named(found: Any, note: str) -> None:
    passed, said = as_json(json.dumps(found))
    assert not passed
    assert note in said


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("", "no JSON"),
        ("The order is 7.", "no JSON"),
        (json.dumps(ORDER)[:-1], "no JSON"),
        (json.dumps(ORDER) + " or so", "after the JSON stands 'or so'"),
        ('{"id": 7, "id": 7}', "a key is there twice"),
        ('{"id": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_what_is_no_json_says_why(answer: str, note: str) -> None:
    passed, said = as_json(answer)
    assert not passed
    assert note in said


def test_json_that_the_length_limit_cut_is_not_right() -> None:
    assert not as_json(json.dumps(ORDER)[:-5], cut=True)[0]
    assert "cut at the length limit" in as_json(json.dumps(ORDER)[:-5], cut=True)[1]
    assert as_json("12", 12)[0]
    assert "beginning of a number" in as_json("12", 12, cut=True)[1]
    assert as_json(json.dumps(ORDER) + "\nand", cut=True)[0]


def call(answer: str, *, cut: bool = False) -> tuple[bool, str]:
    return judge_answer(Check(kind="tool", expected=CALL), "What is the weather?\n", answer, cut=cut)


@pytest.mark.parametrize(
    "answer",
    [
        json.dumps(CALL),
        f"I look it up.\n<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
        json.dumps({"id": "x", "arguments": json.dumps({"days": 3, "city": "Oslo"}), "name": "weather"}),
        json.dumps([CALL]),
    ],
)
def test_a_call_is_right_by_name_and_arguments(answer: str) -> None:
    assert call(answer) == (True, "calls weather with the expected arguments")


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (json.dumps(CALL | {"name": "time"}), 'calls "time", expected "weather"'),
        (json.dumps(CALL | {"arguments": {"city": "Rome", "days": 3}}), 'expected "Oslo", found "Rome" at arguments.city'),
        (json.dumps(CALL | {"arguments": "Oslo"}), "the arguments are no JSON"),
        (json.dumps({"name": "weather"}), 'key "city" is missing at arguments'),
        (json.dumps([CALL, CALL]), "no call of a tool"),
        ("weather(city='Oslo')", "no JSON"),
    ],
)
def test_another_call_is_wrong(answer: str, note: str) -> None:
    passed, said = call(answer)
    assert not passed
    assert note in said


def brackets(prompt: str, answer: str, *, cut: bool = False) -> tuple[bool, str]:
    return judge_answer(Check(kind="brackets"), prompt, answer, cut=cut)


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("function f(a: number[]) {\n", "  return a.map((x) => x + 1);\n}\n"),
        ("Don't change what it does:\n```ts\nlet x = 1;\n```\n", "```ts\nconst s = \"a (\"; // it's fine :)\n```\nThat's all (so far"),
        ("Go on:\n```ts\nif (a) {\n", "  b();\n}\n```\nDone :)"),
        ("", 'const t = `a ${f({ b: `}${c}` })} {`;\n/* ( */ const r = /[/("]\\//g.test(s);\nconst d = (a + b) / 2 / c;\n'),
    ],
)
def test_brackets_that_close(prompt: str, answer: str) -> None:
    passed, note = brackets(prompt, answer)
    assert passed, note


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("f(a[1);", "line 1: ')' closes '['"),
        ("a();\n}", "line 2: '}' closes nothing"),
        ("if (a) {\n  b();\n", "'{' of line 1 is not closed"),
        ("const s = 'it;\n", "a string does not end on its line"),
        ("/* a", "the comment of line 1 is not closed"),
        ("`a ${b", "'${' of line 1 is not closed"),
        ("`a ${b)}`", "')' closes '${'"),
        ("```ts\nf(\n```\n)", "'(' of line 1 is not closed"),
        ("", "there is no code"),
    ],
)
def test_brackets_that_do_not_close_name_their_line(answer: str, note: str) -> None:
    passed, said = brackets("", answer)
    assert not passed
    assert note in said


def test_code_that_the_length_limit_cut_may_leave_brackets_open_but_none_crossed() -> None:
    assert brackets("", "if (a) {\n  b('c", cut=True)[0]
    assert not brackets("", "if (a] {\n  b(", cut=True)[0]
    assert not brackets("", "```ts\nif (a) {\n```\nthat is", cut=True)[0]  # the code had ended before


@pytest.mark.parametrize(
    "fields",
    [
        {"kind": "json"},
        {"kind": "tool", "expected": {"name": "weather"}},
        {"kind": "tool", "expected": {"name": "", "arguments": {}}},
        {"kind": "tool", "expected": {"name": "a", "arguments": []}},
        {"kind": "python", "expected": 1},
    ],
)
def test_a_check_that_lacks_what_it_compares_with_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="expected: a check of kind"):
        Check.model_validate(fields)


def test_content_of_before_keeps_its_hash() -> None:
    first = {ref: builtin()[ref].content_hash() for ref in ("count@1", "free-text@1", "python-code@1")}
    assert first == {
        "count@1": "bb34006fc896c15337ee758cba2883efc5f73241fafc0ca4e622633f21df0f34",
        "free-text@1": "891b9257c2e76580575777bd7daa321e88c784b4bad6a6dee8fd4e85bd5191b0",
        "python-code@1": "8c791eb2e5c50efbf766527e8c92ec62811364fed0888a4f58463115a01ff326",
    }


def test_what_a_check_expects_is_part_of_the_content() -> None:
    def hashed(expected: Any) -> str:
        items = [{"id": "a", "prompt": "p", "check": {"kind": "json", "expected": expected}}]
        workload = Workload.model_validate({"name": "w", "version": 1, "title": "W", "items": items, "warmup": items})
        assert Workload.model_validate(workload.model_dump(mode="json")) == workload
        return workload.content_hash()

    assert len({hashed(1), hashed(2), hashed([1])}) == 3
