"""What all streamed dialects share: events with their tokens counted, and the ways in which a stream says that it failed.

Tokens of an event are its ids where it has them, else the growth of the engine's own running count. Where there is
neither, an event that bears text is *uncounted*: nothing is guessed from its text. Everything else that a server may
send (numbers that are none, text that is no Unicode, nesting without end) is taken as the garbage that it is.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pydantic_core import from_json

from ..records import StreamEvent
from .arrival import Arrival, arrival
from .shapes import ParsedStream

#: A character of UTF-8 has at most four bytes, so an answer can end with at most three tokens held back.
MAX_HELD_AT_END = 3
_MOST = 1 << 31  # no count of tokens comes near it
_DONE = "[DONE]"


class Content(NamedTuple):
    """One event as its dialect reads it."""

    text: str
    ids: list[int] | None  # None: this stream sends no ids
    kind: str
    running: int | None  # the engine's running count of the answer's tokens, with this event's
    timings: dict[str, Any]
    problem: str = ""


Message = dict[str, Any]


def fault(words: str) -> Content:
    """An event that ends the reading."""
    return Content("", None, "error", None, {}, text_of(words[:200]))


def read_stream(
    data_lines: Sequence[tuple[float | Arrival, str]],
    content_of: Callable[[Message], Content],
    final_of: Callable[[Message], Message],
    *,
    holds_back: bool = False,
) -> ParsedStream:
    """Parses SSE data with its arrival; comments, other fields' lines and blank ones may stand among it.

    A stream that holds an error or broken JSON, or breaks off, has ``failure`` set, and keeps what came before. It is whole
    with a reason why it ended, or with ``[DONE]``. ``final_of`` gives what an event adds to the answer's last counts; it is
    asked of the last event with a count and of those that end the answer. ``holds_back``: the engine keeps tokens, ids and all,
    until their character is whole.
    """
    parsed = ParsedStream(events=[], texts=[], ids=[])
    counted, done, uncounted, with_ids = 0, False, False, False
    last_counted: Message | None = None
    finals: list[Message] = []
    for at, line in data_lines:
        data = line if line[:1] == "{" else _payload(line)
        if data == _DONE:
            done = True
            break
        if data is None:
            continue
        came = arrival(at)
        message = _message(data)
        content = content_of(message) if not isinstance(message, str) else Content("", None, "error", None, {}, message)
        if content.problem or isinstance(message, str):
            _append(parsed, StreamEvent(**came._asdict(), tokens=0, kind="error"), "", [])
            parsed.failure, parsed.failure_message = "probe_failed", content.problem
            break
        with_ids = with_ids or content.ids is not None
        event, counted = _event(came, content, counted, with_ids=with_ids, holds_back=holds_back)
        uncounted = uncounted or event.uncounted
        if content.kind == "final":
            finals.append(message)
            if uncounted:
                event = event.model_copy(update={"tokens": 0, "without_id": 0})  # its total says nothing of when they came
        if content.running is not None:
            last_counted = message
        _append(parsed, event, content.text, content.ids or [])
    _name_silent(parsed)
    if last_counted is not None and all(message is not last_counted for message in finals):
        finals.insert(0, last_counted)  # the end itself bears no count
    for message in finals:
        parsed.final.update(clean(final_of(message)))
    if not parsed.failure and not done and "stop_type" not in parsed.final:
        parsed.failure = "probe_failed"
        parsed.failure_message = f"the stream ended early: {len(parsed.events)} events and no final one"
    return parsed


def _payload(line: str) -> str | None:
    line = line.strip()
    if line.startswith("data:"):
        line = line[5:].strip()
    return None if not line or line.startswith((":", "event:", "id:", "retry:")) else line


def _message(data: str) -> dict[str, Any] | str:
    """The decoded event, or what is wrong in words."""
    try:
        message = _decoded(data)
    except (ValueError, RecursionError):
        return f"an event of the stream is not JSON: {_short(data)!r}"
    if not isinstance(message, dict):
        return f"an event of the stream is no JSON object: {_short(data)!r}"
    if error := message.get("error"):
        return f"the engine reported an error: {_short(str(error.get('message', error) if isinstance(error, dict) else error), 300)}"
    if message.get("object") == "error":
        return f"the engine reported an error: {_short(str(message.get('message', message)), 300)}"
    return message


def _decoded(data: str) -> Any:
    """The fast reader takes nearly all; the patient one also takes half a pair of surrogates, of which only the text suffers."""
    try:
        return from_json(data, allow_inf_nan=False)
    except ValueError:
        return json.loads(data)


def _event(came: Arrival, content: Content, counted: int, *, with_ids: bool, holds_back: bool) -> tuple[StreamEvent, int]:
    """The event, and the answer's tokens up to it. Where the stream has ids, a count beyond them must have an explanation."""
    text, ids, kind, now, timings, _ = content
    n_ids = len(ids) if ids else 0
    grown = max(now - counted, 0) if now is not None else n_ids
    held = grown - n_ids
    explained = holds_back and (not text.isascii() or (kind == "final" and held <= MAX_HELD_AT_END))
    without_id = held if held > 0 and (explained or not with_ids) else 0
    tokens = n_ids + without_id
    event = StreamEvent(
        at_s=came.at_s,
        read_at_s=came.read_at_s,
        queued=came.queued,
        tokens=tokens,
        without_id=without_id,
        uncounted=now is None and not ids and bool(text),
        kind=kind,
        predicted_n=count(timings.get("predicted_n")) if timings else None,
        predicted_ms=number(timings.get("predicted_ms")) if timings else None,
        draft_n=count(timings.get("draft_n")) if timings else None,
        draft_n_accepted=count(timings.get("draft_n_accepted")) if timings else None,
    )
    return event, max(counted + tokens, now or 0)


def _name_silent(parsed: ParsedStream) -> None:
    """Tokens without text (a parser holds it back) are of the kind of the text that follows, else of that before.

    So an answer that only thinks gets no content from the tokens that end it.
    """
    silent = [i for i, e in enumerate(parsed.events) if e.tokens and not parsed.texts[i] and e.kind in ("content", "final")]
    if not silent:
        return
    spoken = [(i, "content" if e.kind == "final" else e.kind) for i, e in enumerate(parsed.events) if parsed.texts[i]]
    places = [i for i, _ in spoken]
    for i in silent:
        after = bisect.bisect(places, i)
        kind = spoken[min(after, len(spoken) - 1)][1] if spoken else "content"
        if kind == "reasoning":
            parsed.events[i] = parsed.events[i].model_copy(update={"kind": kind})


def _append(parsed: ParsedStream, event: StreamEvent, text: str, ids: list[int]) -> None:
    parsed.events.append(event)
    parsed.texts.append(text)
    parsed.ids.append(ids)


# --- of what a server sends, what can be used ---


def text_of(value: object) -> str:
    """Text as it can be written down: half a pair of surrogates is no character. Of a list of parts, their texts."""
    if value is None:
        return ""
    if isinstance(value, list):
        value = "".join(p["text"] for p in value if isinstance(p, dict) and isinstance(p.get("text"), str))
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()


def count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST else None


def number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and abs(value) < 1e15 and math.isfinite(value) else None  # type: ignore[arg-type]


def ids_of(value: object) -> list[int] | None:
    """Token ids, all or none: a list with something else in it is no list of ids."""
    if not isinstance(value, list):
        return None
    return value if all(type(i) is int and 0 <= i < _MOST for i in value) else None


def table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def first_count(*values: object) -> int | None:
    return next((n for v in values if (n := count(v)) is not None), None)


def clean(value: Any, depth: int = 0) -> Any:
    """A value that can be written as JSON and read again: no number that is none, no text that is no Unicode, no deep nest."""
    if isinstance(value, str):
        return text_of(value)
    if isinstance(value, dict):
        return {text_of(str(k)): clean(v, depth + 1) for k, v in value.items()} if depth < 8 else {}
    if isinstance(value, list):
        return [clean(v, depth + 1) for v in value] if depth < 8 else []
    if isinstance(value, bool) or value is None:
        return value
    return value if number(value) is not None else None


def _short(text: str, most: int = 120) -> str:
    return text_of(text[:most])
