"""What servers of OpenAI's interface stream, chat or completions: several tokens an event, thoughts, tool calls, counts beside them.

Read are ``token_ids`` (vLLM, on request), running ``usage`` (``continuous_usage_stats``), usage at the end only, and
llama-server's ``timings``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .arrival import Arrival
from .shapes import ParsedStream
from .streams import Content, fault, first_count, ids_of, read_stream, table, text_of

_FINISH_TO_STOP = {"stop": "eos", "length": "limit"}
#: Reasons with which a server ends an answer that it did not finish.
_BROKEN_OFF = frozenset({"abort", "error", "cancelled"})
_FINAL_KEYS = ("timings", "metrics", "model", "system_fingerprint")


def stream_events(data_lines: Sequence[tuple[float | Arrival, str]]) -> ParsedStream:
    """Events in order of arrival; see :func:`speccore.engines.streams.read_stream`."""
    return read_stream(data_lines, choice_content, choice_final)


def choice_content(message: dict[str, Any]) -> Content:
    """One event of a stream with ``choices``."""
    usage, timings = table(message.get("usage")), table(message.get("timings"))
    running = first_count(timings.get("predicted_n"), usage.get("completion_tokens"))
    choices = message.get("choices")
    if not isinstance(choices, list):
        return fault(f"an event of the stream has no choices, but {', '.join(message) or 'nothing'}")
    if not choices:  # usage alone, mostly at the end; some send such an event first, with other things in it
        return Content("", None, "final" if usage else "content", running, timings)
    choice = table(choices[0])
    if len(choices) > 1 or choice.get("index"):
        return fault("the stream has several choices, asked for was one")
    text, kind = _text(choice)
    reason = _reason(choice)
    if reason in _BROKEN_OFF:
        return fault(f"the server ended the answer itself: finish_reason {reason}")
    return Content(text, ids_of(choice.get("token_ids")), "final" if reason else kind, running, timings)


def _reason(choice: dict[str, Any]) -> str:
    finish = choice.get("finish_reason")
    return text_of(finish.get("type") if isinstance(finish, dict) else finish)


def _text(choice: dict[str, Any]) -> tuple[str, str]:
    """All that the event says, and its kind: content as soon as there is some."""
    delta = table(choice.get("delta"))
    said = text_of(delta.get("content")) or text_of(choice.get("text")) or text_of(delta.get("refusal"))
    if len(delta) < 2 and said:
        return said, "content"
    called = "".join(_call(c) for c in (*_list(delta.get("tool_calls")), {"function": delta.get("function_call")}))
    thought = text_of(delta.get("reasoning_content")) or text_of(delta.get("reasoning"))
    kind = "content" if said else "tool" if called else "reasoning" if thought else "content"
    return thought + said + called, kind


def _call(call: object) -> str:
    function = table(table(call).get("function"))
    return text_of(function.get("name")) + text_of(function.get("arguments"))


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def choice_final(message: dict[str, Any]) -> dict[str, Any]:
    """Counts under the names that llama-server's own interface has for them, the reason of the end, and what else was said."""
    usage = table(message.get("usage"))
    final = {key: message[key] for key in _FINAL_KEYS if key in message}
    if usage:
        final["usage"] = usage
        counts = {"tokens_predicted": usage.get("completion_tokens"), "tokens_evaluated": usage.get("prompt_tokens")}
        final |= {key: n for key, value in counts.items() if (n := first_count(value)) is not None}
    for choice in _list(message.get("choices")):
        if reason := _reason(table(choice)):
            final["stop_type"] = _FINISH_TO_STOP.get(reason, reason)
    return final
