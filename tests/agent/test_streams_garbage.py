"""What servers say in other words, and garbage: nothing crashes, and no number comes of it."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from speccore.engines import llamacpp_stream, openai_stream
from speccore.measure import probe_times
from speccore.records import StreamRecord, TextRecord

from tests.agent.streamed import CASES, LLAMA, cut, dialect_of, recorded, wire


def chat(delta: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": more.pop("finish", None)} | more.pop("choice", {})
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]} | more


def usage(n: Any) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 5, "completion_tokens": n, "total_tokens": 5}}


def read(*messages: Any, done: bool = True) -> Any:
    lines = [(float(i), m if isinstance(m, str) else json.dumps(m)) for i, m in enumerate(messages)]
    return openai_stream.stream_events([*lines, (float(len(lines)), "[DONE]")] if done else lines)


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_thoughts_by_either_name(field: str) -> None:
    parsed = read(chat({field: "hm"}, **usage(2)), chat({field: ".", "content": "42"}, **usage(4)), chat(finish="stop", **usage(4)))
    assert [(e.kind, e.tokens) for e in parsed.events] == [("reasoning", 2), ("content", 2), ("final", 0)]
    assert parsed.texts == ["hm", ".42", ""]


def test_a_tool_call_is_content_of_its_kind() -> None:
    call = {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "find", "arguments": '{"a'}}]}
    more = {"tool_calls": [{"index": 0, "function": {"arguments": '":1}'}}]}
    parsed = read(chat(call, **usage(3)), chat(more, **usage(6)), chat(finish="tool_calls", **usage(6)))
    assert [(e.kind, e.tokens) for e in parsed.events] == [("tool", 3), ("tool", 3), ("final", 0)]
    assert "".join(parsed.texts) == 'find{"a":1}'
    assert parsed.final["stop_type"] == "tool_calls"


def test_hidden_tokens_of_a_thought_are_no_content() -> None:
    """A parser holds text back: its tokens belong to the text that follows, and those at the end of a thought to the thought."""
    parsed = read(chat({"role": "assistant"}, **usage(2)), chat({"reasoning_content": "hm"}, **usage(3)), chat(finish="length", **usage(5)))
    assert [(e.kind, e.tokens) for e in parsed.events] == [("reasoning", 2), ("reasoning", 1), ("reasoning", 2)]
    assert parsed.failure == ""


def test_completions_have_their_text_beside_the_delta() -> None:
    parsed = read(
        *({"choices": [{"index": 0, "text": t, "finish_reason": f}], **usage(n)} for t, f, n in (("a", None, 1), ("b", "length", 3)))
    )
    assert ([e.tokens for e in parsed.events], parsed.texts, parsed.final["stop_type"]) == ([1, 2], ["a", "b"], "limit")


@pytest.mark.parametrize(
    ("reason", "shown"), [("stop", "eos"), ("length", "limit"), ("content_filter", "content_filter"), ("function_call", "function_call")]
)
def test_reasons_for_an_end(reason: str, shown: str) -> None:
    parsed = read(chat({"content": "a"}, **usage(1)), chat(finish=reason))
    assert (parsed.final["stop_type"], parsed.failure) == (shown, "")


@pytest.mark.parametrize("reason", ["abort", "error", {"type": "abort", "message": "x"}])
def test_an_end_that_the_server_made_is_a_failure(reason: Any) -> None:
    parsed = read(chat({"content": "a"}, **usage(1)), chat(finish=reason))
    assert parsed.failure == "probe_failed"
    assert "ended the answer itself" in parsed.failure_message
    assert [e.tokens for e in parsed.events] == [1, 0]  # what came is kept


@pytest.mark.parametrize(
    "error",
    [{"error": {"message": "out of memory"}}, {"error": "out of memory"}, {"object": "error", "message": "out of memory", "code": 400}],
)
def test_errors_in_a_stream(error: dict[str, Any]) -> None:
    parsed = read(chat({"content": "a"}, **usage(1)), error)
    assert parsed.failure == "probe_failed"
    assert "out of memory" in parsed.failure_message


def test_what_is_no_error_and_no_token() -> None:
    first = {"choices": [], "prompt_filter_results": [], "error": None}
    parsed = read(first, chat({"role": "assistant", "content": ""}), chat({"content": "a"}, **usage(1)), chat(finish="stop", **usage(1)))
    assert parsed.failure == ""
    assert [e.tokens for e in parsed.events] == [0, 0, 1, 0]


def test_several_choices_were_not_asked_for() -> None:
    assert "several choices" in read(chat({"content": "a"}, choice={"index": 1})).failure_message


def test_a_usage_in_the_middle_does_not_end_an_answer() -> None:
    parsed = read(chat({"content": "a"}), {"choices": [], **usage(4)}, done=False)
    assert "ended early" in parsed.failure_message


def test_a_count_that_goes_back_takes_no_tokens_away() -> None:
    parsed = read(chat({"content": "a"}, **usage(5)), chat({"content": "b"}, **usage(3)), chat(finish="stop", **usage(3)))
    assert [e.tokens for e in parsed.events] == [5, 0, 0]
    assert parsed.final["tokens_predicted"] == 3  # so that client and server disagree, and the probe is invalid


# --- garbage ---


@pytest.mark.parametrize("n", [-1, 1.5, True, "7", None, 1 << 40, 10**400, float("nan"), float("inf"), [3], {"a": 1}])
def test_what_is_no_count_is_no_number(n: Any) -> None:
    parsed = read(chat({"content": "a"}, **usage(n)), chat(finish="stop", **usage(n)))
    assert [e.tokens for e in parsed.events] == [0, 0]
    assert parsed.events[0].uncounted
    assert "tokens_predicted" not in parsed.final


def test_text_that_is_no_unicode_and_nests_without_end_can_be_written_down() -> None:
    parsed = read(
        '{"choices":[{"delta":{"content":"\\ud83e x"}}],"usage":{"completion_tokens":1,"more":{"a":' + "[" * 50 + "1" + "]" * 50 + "}}}"
    )
    assert json.loads(parsed.model_dump_json())["texts"] == ["? x"]
    assert read('{"a":' + "[" * 200_000).failure == "probe_failed"


@settings(max_examples=400, deadline=None)
@given(data=st.binary(max_size=400), places=st.lists(st.integers(1, 1 << 20), max_size=8), head=st.integers(0, 3))
def test_random_bytes_are_no_numbers(data: bytes, places: list[int], head: int) -> None:
    heads = (
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    )
    sent = heads[head] + data
    record, _ = recorded(cut(sent, places) if sent else [])
    assert record.failure
    assert sum(e.tokens for e in record.events) == 0


_FIELDS = (
    *("choices", "delta", "content", "usage", "completion_tokens"),
    *("prompt_tokens", "token_ids", "tokens", "timings", "predicted_n"),
    *("predicted_ms", "draft_n", "draft_n_accepted", "stop", "stop_type"),
    *("finish_reason", "tool_calls", "function", "name", "index"),
    *("error", "reasoning", "text", "generation_settings", "tokens_predicted"),
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS), inner, max_size=5),
    max_leaves=25,
)


@pytest.mark.parametrize("dialect", [openai_stream, llamacpp_stream])
@settings(max_examples=400, deadline=None)
@given(messages=st.lists(_json, max_size=5))
def test_events_of_any_json_can_be_recorded_and_read_again(dialect: Any, messages: list[Any]) -> None:
    parsed = dialect.stream_events([(float(i), json.dumps(m)) for i, m in enumerate(messages)])
    again = type(parsed).model_validate_json(parsed.model_dump_json())
    assert again == parsed
    assert all(e.tokens >= 0 for e in parsed.events)
    assert len(parsed.events) == len(parsed.texts) == len(parsed.ids) <= len(messages)


@settings(max_examples=300, deadline=None)
@given(name=st.sampled_from(sorted(CASES)), framing=st.sampled_from(["close", "chunked"]), seed=st.integers(0, 1 << 30))
def test_a_recording_with_flaws_gives_no_more_tokens_than_its_own_count(name: str, framing: str, seed: int) -> None:
    """Bytes are changed, lost, doubled: it may fail, it may lose tokens, it never crashes."""
    draw, data = random.Random(seed), bytearray(wire(name, framing))
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(data))
        flaw = draw.randrange(3)
        if flaw == 0:
            data[at] = draw.randrange(256)
        elif flaw == 1:
            del data[at : at + draw.randint(1, 40)]
        else:
            data[at:at] = data[at : at + draw.randint(1, 40)]
        if not data:
            return
    record, text = recorded(cut(bytes(data), [draw.randrange(1 << 20) for _ in range(5)]), dialect_of(CASES[name]))
    StreamRecord.model_validate_json(record.model_dump_json())
    TextRecord.model_validate_json(text.model_dump_json())
    LLAMA.probe_counts(record, 1, off=False, metrics=None, log=None)
    probe_times(record, 1)
