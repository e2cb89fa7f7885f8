"""What the replay server says: an OpenAI-like answer cut into events, and the small replies that clients ask for around it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MODEL = "replay-model"
PROMPT_TOKENS = 100  # told to every client: nothing here depends on the prompt
_TERMINATOR = b"0\r\n\r\n"


@dataclass(frozen=True)
class Shape:
    """What of a request changes the bytes of its answer."""

    chat: bool
    n_tokens: int
    tokens_per_event: int
    usage: bool
    continuous_usage: bool
    ids: bool
    finish_reason: str

    @property
    def n_events(self) -> int:
        return math.ceil(self.n_tokens / self.tokens_per_event)


def shape_of(path: str, body: Mapping[str, Any], tokens_per_event: int, stop_after: int | None) -> Shape:
    """The answer to a request. ``stop_after``: the model ends by itself after so many tokens, whatever was asked for."""
    asked = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
    options = body.get("stream_options") or {}
    ends_itself = stop_after is not None and stop_after < asked
    return Shape(
        chat=path.endswith("/chat/completions"),
        n_tokens=stop_after if ends_itself and stop_after is not None else asked,
        tokens_per_event=tokens_per_event,
        usage=bool(options.get("include_usage")),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        ids=bool(body.get("return_token_ids")),
        finish_reason="stop" if ends_itself else "length",
    )


def head() -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"


def events(shape: Shape, pieces: Sequence[str]) -> list[bytes]:
    """The HTTP chunk of each event that bears tokens."""
    return [_http_chunk(_sse(_event(shape, i, pieces))) for i in range(shape.n_events)]


def tail(shape: Shape) -> bytes:
    """What follows the last token: the usage if it was asked for, [DONE], and the end of the answer."""
    last = _sse(_envelope(shape) | {"choices": [], "usage": usage(shape.n_tokens)}) if shape.usage else b""
    return _http_chunk(last + b"data: [DONE]\n\n") + _TERMINATOR


def usage(n_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + n_tokens, "completion_tokens": n_tokens}


def whole(shape: Shape, pieces: Sequence[str]) -> dict[str, Any]:
    """The answer for a client that doesn't stream."""
    text = "".join(pieces[i % len(pieces)] for i in range(shape.n_tokens))
    choice: dict[str, Any] = {"index": 0, "finish_reason": shape.finish_reason}
    choice |= {"message": {"role": "assistant", "content": text}} if shape.chat else {"text": text}
    return _envelope(shape, streamed=False) | {"choices": [choice], "usage": usage(shape.n_tokens)}


def small_reply(path: str, body: Any, pieces: Sequence[str]) -> tuple[int, Any]:
    """(status, JSON) of the paths around the answers that benchmark clients look at."""
    if path.endswith("/models"):
        return 200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "replay", "max_model_len": 1 << 20}]}
    if path.endswith("/health") or path == "/":
        return 200, {"status": "ok"}
    if path.endswith("/version"):
        return 200, {"version": "0.0.0-replay"}
    if path.endswith("/tokenize"):
        text = (body or {}).get("prompt") or (body or {}).get("content") or ""
        n = len(str(text).split())
        return 200, {"count": n, "max_model_len": 1 << 20, "tokens": list(range(n))}
    return 404, {"error": {"code": 404, "message": f"the replay server has no {path}", "type": "not_found_error"}}


def _event(shape: Shape, i: int, pieces: Sequence[str]) -> dict[str, Any]:
    first = i * shape.tokens_per_event
    end = min(first + shape.tokens_per_event, shape.n_tokens)
    text = "".join(pieces[t % len(pieces)] for t in range(first, end))
    choice: dict[str, Any] = {"index": 0}
    choice |= {"delta": ({"role": "assistant"} if i == 0 else {}) | {"content": text}} if shape.chat else {"text": text}
    choice |= {"logprobs": None, "finish_reason": shape.finish_reason if end == shape.n_tokens else None}
    if shape.ids:
        choice["token_ids"] = [t % len(pieces) for t in range(first, end)]
    event = _envelope(shape) | {"choices": [choice]}
    if shape.continuous_usage:
        event["usage"] = usage(end)
    return event


def _envelope(shape: Shape, *, streamed: bool = True) -> dict[str, Any]:
    kind = "chat.completion" if shape.chat else "text_completion"
    return {"id": "cmpl-replay", "object": f"{kind}.chunk" if shape.chat and streamed else kind, "created": 1, "model": MODEL}


def _sse(data: dict[str, Any]) -> bytes:
    return b"data: %s\n\n" % json.dumps(data, separators=(",", ":")).encode()


def _http_chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
