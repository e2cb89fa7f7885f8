"""What llama-server streams: one event for each token, in bursts, with the engine's own running counts beside it.

The engine holds back the events of tokens that end inside a UTF-8 character, ids and all, until the character is whole
(or the answer ends). Such tokens are counted from the engine's running count where the event's text shows the cause;
any other gap between ids and that count is left open, so that client and server disagree.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .arrival import Arrival
from .openai_stream import choice_content, choice_final
from .shapes import ParsedStream
from .streams import Content, clean, fault, first_count, ids_of, read_stream, table, text_of

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


def stream_events(data_lines: Sequence[tuple[float | Arrival, str]]) -> ParsedStream:
    """Of /completion and of chat; see :func:`speccore.engines.streams.read_stream`."""
    settings: dict[str, Any] = {}

    def final_of(message: dict[str, Any]) -> dict[str, Any]:
        settings.update(clean(table(message.get("generation_settings"))))
        return choice_final(message) if "choices" in message else _native_final(message)

    parsed = read_stream(data_lines, lambda m: choice_content(m) if "choices" in m else _native_content(m), final_of, holds_back=True)
    parsed.generation_settings = settings
    return parsed


def _native_content(message: dict[str, Any]) -> Content:
    timings = table(message.get("timings"))
    is_final = bool(message.get("stop"))
    if not is_final and "content" not in message:
        return fault(f"an event of the stream has no content, but {', '.join(message) or 'nothing'}")
    return Content(
        text=text_of(message.get("content")),
        ids=ids_of(message.get("tokens")),
        kind="final" if is_final else "content",
        running=first_count(message.get("tokens_predicted"), timings.get("predicted_n")),
        timings=timings,
    )


def _native_final(message: dict[str, Any]) -> dict[str, Any]:
    if not message.get("stop"):  # an answer that broke off: it has no last counts
        return {}
    return {"stop_type": ""} | {key: message[key] for key in _FINAL_KEYS if key in message}
