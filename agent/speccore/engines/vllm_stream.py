"""What vLLM streams: several tokens in one event under speculation, their ids on request, and usage beside them.

The first event has the ids of the whole prompt, the last, without a choice, the usage and what the engine measured of the
request. An event may have ids and no text yet: half of a character waits for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .arrival import Arrival
from .openai_stream import choice_content, choice_final
from .shapes import ParsedStream
from .streams import Content, ids_of, read_stream, table


def stream_events(data_lines: Sequence[tuple[float | Arrival, str]]) -> ParsedStream:
    """Of completions and of chat; see :func:`speccore.engines.streams.read_stream`. ``final["prompt_ids"]``: how many ids the prompt had."""
    prompt_ids: list[int] = []

    def content_of(message: dict[str, Any]) -> Content:
        choices = message.get("choices")
        first = table(choices[0]) if isinstance(choices, list) and choices else {}
        if not prompt_ids:
            prompt_ids.extend(ids_of(first.get("prompt_token_ids")) or ids_of(message.get("prompt_token_ids")) or [])
        return choice_content(message)

    parsed = read_stream(data_lines, content_of, choice_final)
    if prompt_ids:
        parsed.final["prompt_ids"] = len(prompt_ids)
    return parsed
