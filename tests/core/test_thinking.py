"""Where a thought ends in an answer: told by the marks of the model's chat template, or withheld."""

from __future__ import annotations

import pytest
from speccore.engines.llamacpp import thought_marks
from speccore.measurement import Maybe, Withheld, value_of
from speccore.records import StreamEvent, StreamRecord, Thought
from speccore.thinking import first_content, thought_ends_at, told_apart
from speccore.times import probe_times

from tests.core.streams import stream_of

OPENED = Thought(asked=True, opened=True, opens="<think>", ends="</think>")
BY_ITSELF = Thought(asked=True, opens="<think>", ends="</think>")


@pytest.mark.parametrize(
    ("text", "thought", "ends_at"),
    [
        ("hm</think>\n\n7", OPENED, len("hm</think>\n\n")),
        ("hm, hm", OPENED, len("hm, hm")),  # cut inside its thought
        ("<think>hm</think> 7", BY_ITSELF, len("<think>hm</think> ")),
        ("7, said without a thought", BY_ITSELF, 0),
        ("I write </think> as a word", BY_ITSELF, 0),
        ("\n<think>hm", BY_ITSELF, len("\n<think>hm")),
    ],
)
def test_what_belongs_to_the_thought(text: str, thought: Thought, ends_at: int) -> None:
    assert thought_ends_at(text, thought) == ends_at


def streamed(thought: Thought | None, n: int) -> StreamRecord:
    """One token every 100 ms."""
    return stream_of([(100 * i, 1) for i in range(1, n + 1)]).model_copy(update={"thought": thought})


def content_s(thought: Thought | None, texts: list[str] | None, n: int = 0) -> Maybe:
    record = told_apart(streamed(thought, n or len(texts or [])), texts)
    return first_content(probe_times(record, 1).ttft_content_s, record, texts)


def test_the_first_content_comes_after_the_thought() -> None:
    texts = ["h", "m</th", "ink>", "\n\n", "7", "!"]
    assert value_of(content_s(OPENED, texts)) == pytest.approx(0.5)
    assert value_of(content_s(None, texts)) == pytest.approx(0.1)  # nobody asked it through a template
    assert value_of(probe_times(told_apart(streamed(OPENED, 6), texts), 1).ttft_any_s) == pytest.approx(0.1)


def test_an_event_with_the_end_and_the_beginning_is_content() -> None:
    assert value_of(content_s(OPENED, ["hm", "</think>\n\n7", "!"])) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("thought", "texts", "code"),
    [
        (OPENED, ["hm", "hm"], "no_content"),
        (Thought(asked=True), ["hm", "7"], "thought_unknown"),
        (OPENED, None, "no_texts"),
    ],
)
def test_what_can_not_be_told_is_withheld(thought: Thought, texts: list[str] | None, code: str) -> None:
    found = content_s(thought, texts, 2)
    assert isinstance(found, Withheld)
    assert found.reason_code == code


def test_with_thinking_off_an_answer_is_content_from_its_first_token() -> None:
    assert value_of(content_s(Thought(opens="<think>", ends="</think>"), ["7", "!"])) == pytest.approx(0.1)
    assert value_of(content_s(Thought(), ["7", "!"])) == pytest.approx(0.1)


def test_tools_and_counts_stay_as_they_were() -> None:
    record = streamed(OPENED, 3)
    kinds: list[StreamEvent] = [record.events[0], record.events[1].model_copy(update={"kind": "tool"}), record.events[2]]
    told = told_apart(record.model_copy(update={"events": kinds}), ["a", "b", "c"])
    assert [e.kind for e in told.events] == ["reasoning", "tool", "reasoning"]
    assert sum(e.tokens for e in told.events) == 3


@pytest.mark.parametrize(
    ("template", "marks"),
    [
        ("{% if enable_thinking %}<think>{% endif %} … </think>", ("<think>", "</think>")),
        ("[THINK]…[/THINK]", ("[THINK]", "[/THINK]")),
        ("{{ messages }}", ("", "")),
    ],
)
def test_a_templates_marks_are_read_from_it(template: str, marks: tuple[str, str]) -> None:
    assert thought_marks(template) == marks
