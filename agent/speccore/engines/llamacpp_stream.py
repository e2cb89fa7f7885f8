"""What llama-server streams: one event for each token, in bursts, with the engine's own running counts beside it.

The engine holds back the events of tokens that end inside a UTF-8 character, ids and all, until the character is whole
(or the answer ends). Such tokens are counted from the engine's running count where the event's text shows the cause;
any other gap between ids and that count is left open, so that client and server disagree.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..records import StreamEvent
from .arrival import Arrival, arrival
from .shapes import ParsedStream

#: A character of UTF-8 has at most four bytes, so an answer can end with at most three tokens held back.
MAX_HELD_AT_END = 3
_FINAL_KEYS = (
    "tokens_predicted",
    "tokens_evaluated",
    "tokens_cached",
    "truncated",
    "stop_type",
    "timings",
    "model",
    "id_slot",
    "has_new_line",
)
_FINISH_TO_STOP = {"stop": "eos", "length": "limit"}


def stream_events(data_lines: Sequence[tuple[float | Arrival, str]]) -> ParsedStream:
    """Parses SSE data with its arrival (in seconds, or more exactly); comments, blank lines and ``[DONE]`` may stand among it.

    Understands /completion and chat streams. A stream that holds an error, broken JSON, or no final event has ``failure``
    set, and keeps what came before.
    """
    parsed = ParsedStream(events=[], texts=[], ids=[])
    counted = 0
    for at, line in data_lines:
        data = _payload(line)
        if data is None:
            continue
        message = _message(data)
        came = arrival(at)
        if isinstance(message, str):
            _append(parsed, StreamEvent(**came._asdict(), tokens=0, kind="error"), "", [])
            parsed.failure, parsed.failure_message = "probe_failed", message
            break
        text, ids, kind = _content(message)
        event, counted = _event(came, message, text, ids, kind, counted)
        if kind == "final" and any(e.uncounted for e in parsed.events):
            event = event.model_copy(update={"tokens": 0, "without_id": 0})  # its total says nothing of when they came
        _append(parsed, event, text, ids)
        if kind == "final":
            _take_final(parsed, message)
    if not parsed.failure and not _is_whole(parsed):
        parsed.failure = "probe_failed"
        parsed.failure_message = f"the stream ended early: {len(parsed.events)} events and no final one"
    return parsed


def _payload(line: str) -> str | None:
    line = line.strip()
    if line.startswith("data:"):
        line = line[5:].strip()
    return None if not line or line.startswith((":", "event:", "id:", "retry:")) or line == "[DONE]" else line


def _message(data: str) -> dict[str, Any] | str:
    """The decoded event, or what is wrong in words."""
    try:
        message = json.loads(data)
    except ValueError:
        return f"an event of the stream is not JSON: {data[:120]!r}"
    if not isinstance(message, dict):
        return f"an event of the stream is no JSON object: {data[:120]!r}"
    if "error" in message:
        error = message["error"]
        return f"the engine reported an error: {error.get('message', error) if isinstance(error, dict) else error}"
    return message


def _content(message: dict[str, Any]) -> tuple[str, list[int], str]:
    """Text, ids and kind of one event."""
    choices = message.get("choices")
    if choices is None:
        ids = [t for t in message.get("tokens") or [] if isinstance(t, int)]
        return message.get("content") or "", ids, "final" if message.get("stop") else "content"
    if not choices:
        return "", [], "final"  # the usage of a chat stream
    delta = choices[0].get("delta") or {}
    thought = delta.get("reasoning_content") or ""
    text = thought + (delta.get("content") or "")
    return text, [], "final" if choices[0].get("finish_reason") else "reasoning" if thought else "content"


def _event(came: Arrival, message: dict[str, Any], text: str, ids: list[int], kind: str, counted: int) -> tuple[StreamEvent, int]:
    timings = message.get("timings") or {}
    usage = message.get("usage") or {}
    now = _first_int(message.get("tokens_predicted"), timings.get("predicted_n"), usage.get("completion_tokens"))
    grown = max(now - counted, 0) if now is not None else len(ids)
    held = grown - len(ids)
    from_ids = bool(ids) or "tokens" in message
    explained = not text.isascii() or (kind == "final" and held <= MAX_HELD_AT_END)
    without_id = held if held > 0 and (explained or not from_ids) else 0
    tokens = len(ids) + without_id
    event = StreamEvent(
        at_s=came.at_s,
        read_at_s=came.read_at_s,
        queued=came.queued,
        tokens=tokens,
        without_id=without_id,
        uncounted=now is None and not ids and bool(text),
        kind=kind,
        predicted_n=timings.get("predicted_n"),
        predicted_ms=timings.get("predicted_ms"),
        draft_n=timings.get("draft_n"),
        draft_n_accepted=timings.get("draft_n_accepted"),
    )
    return event, max(counted + tokens, now or 0)


def _take_final(parsed: ParsedStream, message: dict[str, Any]) -> None:
    parsed.final.update({k: message[k] for k in _FINAL_KEYS if k in message})
    parsed.generation_settings.update(message.get("generation_settings") or {})
    if usage := message.get("usage"):
        parsed.final |= {"tokens_predicted": usage.get("completion_tokens"), "tokens_evaluated": usage.get("prompt_tokens")}
    for choice in message.get("choices") or []:
        parsed.final["stop_type"] = _FINISH_TO_STOP.get(choice["finish_reason"], choice["finish_reason"])


def _is_whole(parsed: ParsedStream) -> bool:
    return "stop_type" in parsed.final or any(e.kind == "final" for e in parsed.events)


def _append(parsed: ParsedStream, event: StreamEvent, text: str, ids: list[int]) -> None:
    parsed.events.append(event)
    parsed.texts.append(text)
    parsed.ids.append(ids)


def _first_int(*values: object) -> int | None:
    return next((v for v in values if isinstance(v, int)), None)
