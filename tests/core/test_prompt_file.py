"""Files of prompts: what they become, and every fault of one with line, field, value and what to do."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccore.cautions import cautions
from speccore.prompt_file import MAX_BYTES, MAX_LINES, PromptFile, prompt_lines_of, read_prompt_file
from speccore.spec import parse_spec
from speccore.workload import Item, Workload


def lines(*objects: Any) -> bytes:
    return "\n".join(o if isinstance(o, str) else json.dumps(o) for o in objects).encode()


def prompts(n: int, **more: Any) -> list[dict[str, Any]]:
    return [{"prompt": f"{i} is where this one begins", **more} for i in range(n)]


def read(data: bytes, name: str = "mine", **more: Any) -> PromptFile:
    return read_prompt_file(data, name=name, **more)


def told(data: bytes, **more: Any) -> list[tuple[int | None, str, str, str]]:
    found = read(data, **more)
    assert found.workload is None
    assert found.n_problems >= len(found.problems) > 0
    return [(p.line, p.field, p.message, p.value) for p in found.problems]


def content(data: bytes) -> Workload:
    found = read(data)
    assert found.workload is not None, found.problems
    return found.workload


def test_what_is_marked_warms_up_and_the_rest_is_timed() -> None:
    found = read(lines(*prompts(9), *({"prompt": f"warm {i}", "warmup": True} for i in range(6))))
    assert found.workload is not None
    assert (len(found.workload.items), [i.prompt for i in found.workload.warmup][:2], found.warnings) == (9, ["warm 0", "warm 1"], [])


@pytest.mark.parametrize(("n", "reserved"), [(2, [2]), (3, [3]), (4, [4]), (12, [4, 8, 12]), (60, list(range(4, 41, 4)))])
def test_unmarked_every_fourth_is_reserved_up_to_ten(n: int, reserved: list[int]) -> None:
    found = content(lines(*prompts(n)))
    assert [i.id for i in found.warmup] == [f"line-{k}" for k in reserved]
    assert len(found.items) == n - len(reserved)
    assert any("reserved for warm-up" in words for words in read(lines(*prompts(n))).warnings)


def test_few_prompts_are_warned_of_and_eight_are_not() -> None:
    few, enough = (read(lines(*prompts(n), *({"prompt": f"warm {i}", "warmup": True} for i in range(6)))).warnings for n in (7, 8))
    assert any("these prompts only" in words for words in few)
    assert enough == []


def test_a_chat_keeps_its_history_and_asks_the_last_message() -> None:
    chat = [{"role": "system", "content": "Be brief. "}, {"role": "user", "content": "Hello "}, {"role": "assistant", "content": "Hi. "}]
    found = content(lines({"messages": [*chat, {"role": "user", "content": "Why?"}]}, {"messages": [{"role": "user", "content": "Plain"}]}))
    assert found.items[0].messages == [("system", "Be brief. "), ("user", "Hello "), ("assistant", "Hi. "), ("user", "Why?")]
    assert found.items[0].opening == "Be brief. Hello Hi. Why?"
    assert found.warmup[0] == Item(id="line-2", prompt="Plain")


def test_the_file_that_a_workload_makes_is_the_workload_again() -> None:
    check = {"kind": "tool", "expected": {"name": "f", "arguments": {"x": [1, 2.5, None]}}}
    data = lines(
        {"prompt": "one", "id": "a", "max_tokens": 64, "reference_tokens": 32, "check": check},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
        {"prompt": "w", "warmup": True},
    )
    found = content(data)
    assert content(lines(*prompt_lines_of(found))) == found
    tasks = content(lines(*({"turns": [{"prompt": f"{i}", "answer": "x", "tool_wait_s": 2}, {"prompt": "b"}]} for i in range(3))))
    assert content(lines(*prompt_lines_of(tasks))) == tasks


def test_bom_crlf_and_blank_lines_change_nothing() -> None:
    plain = lines(*prompts(3))
    assert content(b"\xef\xbb\xbf" + plain.replace(b"\n", b"\r\n") + b"\r\n\r\n") == content(plain)
    assert (
        content(lines({"prompt": "a\u2028b"}, {"prompt": "c\u0085d"}).replace(b"\\u2028", "\u2028".encode())).items[0].prompt == "a\u2028b"
    )


FAULTS = [
    ('{"prompt": NaN}', "", "holds NaN"),
    ('{"prompt": "a", "max_tokens": 1e400}', "", "1e400, which is too large"),
    ('{"prompt": "a", "max_tokens": 1' + "0" * 400 + "}", "", "too large"),
    ('{"prompt": "a", "check": {"kind": "json", "expected": 1' + "0" * 400 + "}}", "", "too large"),
    ('{"prompt": "\\ud800"}', "prompt", "half of a character"),
    ('{"prompt": "abc\\u0000"}', "prompt", "a NUL character after 3 characters"),
    ('{"prompt": "a", "check": {"kind": "json", "expected": {"\\u0000": 1}}}', "check.expected", "a key that is no text"),
    ("[" * 100_000, "", "nested"),
    ('{"prompt": "a", "check": {"kind": "json", "expected": ' + "[" * 30 + "]" * 30 + "}}", "check.expected" + ".0" * 18, "deep"),
    ('{"prompt": "a", "prompt": "b"}', "", "twice"),
    ('{"prompt": "a"', "", "is no JSON"),
    ('"text"', "", "a line is an object"),
    ('{"promt": "a"}', "promt", "did you mean 'prompt'?"),
    ('{"prompt": ""}', "prompt", "is empty"),
    ('{"prompt": 5}', "prompt", "should be a text"),
    ("{}", "", "nothing to ask"),
    ('{"prompt": "a", "turns": [{"prompt": "b"}]}', "", "has prompt and turns"),
    ('{"prompt": "a", "max_tokens": 1}', "max_tokens", "from 2 to 131,072"),
    ('{"prompt": "a", "reference_tokens": "64"}', "reference_tokens", "a whole number"),
    ('{"prompt": "a", "warmup": "yes"}', "warmup", "true or false"),
    ('{"prompt": "a", "id": "' + "x" * 81 + '"}', "id", "at most 80"),
    ('{"prompt": "a", "check": {"kind": "jsn"}}', "check.kind", "did you mean 'json'?"),
    ('{"prompt": "a", "check": {"kind": "json"}}', "check.expected", "needs the value that is right"),
    ('{"messages": [{"role": "tool", "content": "a"}]}', "messages.0.role", "system, user and assistant"),
    ('{"messages": [{"role": "assistant", "content": "a"}]}', "messages.0.role", "the last message is the user"),
    ('{"messages": []}', "messages", "at least 1"),
    ('{"turns": [{"prompt": "a"}, {"prompt": "b"}]}', "", "turn 1 has no answer"),
]


@pytest.mark.parametrize(("line", "field", "words"), FAULTS)
def test_a_fault_is_told_with_its_line_field_and_remedy(line: str, field: str, words: str) -> None:
    if line.startswith("[["):
        line = '{"prompt": ' + line
    found = told(lines(*prompts(2), line))
    assert [(n, where) for n, where, _, _ in found] == [(3, field)]
    assert words in found[0][2]


def test_all_faults_come_at_once_in_the_order_of_lines() -> None:
    found = told(lines(*(line for line, _, _ in FAULTS if not line.startswith("[["))), name="Not A Name", title="x" * 121)
    assert [n for n, _, _, _ in found] == [None, None, *range(1, len(FAULTS))]


def test_bytes_that_are_no_text_are_told_by_their_line() -> None:
    assert "byte 13 of the line" in told(lines(*prompts(2)) + b'\n{"prompt": "\xff"}')[0][2]
    assert [n for n, *_ in told(lines(*prompts(2)) + b'\n{"prompt": "\xff"}')] == [3]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "holds no prompt"),
        (b"\n \n", "holds no prompt"),
        (b'[{"prompt": "a"}]', "one JSON array"),
        (b'{\n "prompt": "a"\n}', "over several lines"),
        ('{"prompt": "a"}'.encode("utf-16"), "UTF-16"),
        (b'{"prompt": "a"}', "one prompt is not enough"),
        (lines(*prompts(3, warmup=True)), "every line is warm-up"),
        (b"x" * (MAX_BYTES + 1), "at most 4,194,304 are read"),
    ],
)
def test_what_is_no_such_file_is_said_once(data: bytes, words: str) -> None:
    ((line, field, message, _),) = told(data)
    assert (line, field) == (None, "file")
    assert words in message


def test_too_many_prompts_end_the_reading() -> None:
    assert told(lines(*prompts(MAX_LINES + 5)))[0][:2] == (MAX_LINES + 1, "file")


def test_of_very_many_faults_a_hundred_are_listed_and_all_are_counted() -> None:
    found = read(lines(*([{}] * 300)))
    assert (len(found.problems), found.n_problems) == (100, 300)


class TestTwoLines:
    def test_the_same_prompt(self) -> None:
        ((line, field, message, value),) = told(lines({"prompt": "twice"}, {"prompt": "other"}, {"prompt": "twice", "warmup": True}))
        assert (line, field, value) == (3, "prompt", "'twice'")
        assert "asks the same as line 1" in message

    def test_the_same_first_64_bytes(self) -> None:
        ((line, _, message, _),) = told(lines({"prompt": "é" * 32 + "a"}, {"prompt": "é" * 32 + "b"}))
        assert (line, "the same 64 bytes as line 1" in message) == (2, True)
        assert content(lines({"prompt": "é" * 31 + "a"}, {"prompt": "é" * 31 + "b"}))

    def test_a_shared_system_message_counts_too(self) -> None:
        chats = [{"messages": [{"role": "system", "content": "s" * 80}, {"role": "user", "content": f"{i}"}]} for i in range(2)]
        assert told(lines(*chats))[0][:2] == (2, "messages")

    def test_the_same_id(self) -> None:
        assert told(lines({"prompt": "a", "id": "x"}, {"prompt": "b", "id": "x"}))[0][:2] == (2, "id")

    def test_tasks_beside_single_prompts(self) -> None:
        assert told(lines(*prompts(2), {"turns": [{"prompt": "q"}]}))[0][:2] == (3, "turns")


@pytest.mark.parametrize(
    ("field", "given"), [("name", ""), ("name", "Über"), ("name", "-a"), ("name", "a" * 81), ("title", "a\x00"), ("title", "\u202ea")]
)
def test_names_and_titles(field: str, given: str) -> None:
    found = told(lines(*prompts(2)), **{field: given})
    assert [where for _, where, _, _ in found] == [field]


@settings(max_examples=60, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(lambda s: s.encode("utf-8", "replace"))))
def test_no_bytes_break_it(data: bytes) -> None:
    found = read(data + b'\n{"prompt": "a"}\n{"prompt": "b"}')
    assert (found.workload is None) == bool(found.problems)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["prompt", "messages", "turns", "id", "check", "max_tokens", "warmup"]), st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["role", "content", "prompt", "kind", "expected"]), inner, max_size=3),
    max_leaves=8,
), max_size=4))  # fmt: skip
def test_no_values_break_it(line: dict[str, Any]) -> None:
    read(lines(line, *prompts(2)))


def test_an_unset_later_field_stays_out_of_the_hash() -> None:
    assert Item(id="i", prompt="p").model_dump(mode="json") == {"id": "i", "prompt": "p", "reference_tokens": None, "check": None}


def test_chats_without_a_template_and_prompts_over_the_context_are_cautioned() -> None:
    chats = [{"messages": [{"role": "system", "content": f"{i}"}, {"role": "user", "content": "x" * 9000}]} for i in range(8)]
    point = {"workload": "mine", "max_tokens": 64}
    arms = [{"name": "off", "mode": "off"}, {"name": "n", "mode": "ngram-simple"}]
    asked = {"name": "q", "target": {"model": "m"}, "arms": arms, "engine": {"context": 2048}}
    for thinking, field in ((None, True), (False, False)):
        spec, problems = parse_spec({**asked, "points": [{**point, "thinking": thinking}]})
        assert spec, problems
        found = {p.field: p.message for p in cautions(spec, {"mine": content(lines(*chats))})}
        assert ("chat template" in found.get("points.0.thinking", "")) is field
        assert "its longest prompt with its answer takes about 2,314 tokens" in found["points.0.workload"]
