"""vLLM asked again, in one piece: with the probabilities of the two likeliest tokens, or for the ids of a short answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .vllm_steps import said_of

_STREAMED_ONLY = frozenset({"stream_options"})


def look_again(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request that was timed, once more, not streamed and with how sure the model was of each token.

    Tokens go by their ids: two of them may have the same text, and one would hide the other.
    """
    return whole_answer(body) | {"logprobs": 2, "return_tokens_as_token_ids": True}


def whole_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Not streamed: the answer then holds all ids."""
    return {k: v for k, v in body.items() if k not in _STREAMED_ONLY} | {"stream": False}


def read_ids(data: Any) -> list[int] | None:
    """The token ids of an answer in one piece; None where it has none."""
    ids = _choice(data).get("token_ids")
    return ids if isinstance(ids, list) and all(type(i) is int for i in ids) else None


def read_drafted(data: Any) -> int | None:
    """Tokens drafted for the answer; None where the engine doesn't say, or speculation is off."""
    said = said_of(data) if isinstance(data, dict) else {}
    drafted = said.get("num_draft_tokens")
    return drafted if type(drafted) is int and said.get("num_spec_tokens") != 0 else None


def read_look(data: Any) -> tuple[list[int], list[float]] | str:
    """Token ids and for each of them the gap between the two likeliest tokens (nat), or in words what is missing."""
    ids = read_ids(data)
    if not ids:
        return "the answer holds no token ids"
    told: Any = _choice(data).get("logprobs")
    try:
        tops = [sorted(map(float, top.values()), reverse=True)[:2] for top in told["top_logprobs"]]
        of = told["tokens"]
    except (TypeError, KeyError, ValueError, AttributeError):
        return "the answer holds no probabilities"
    if of != [f"token_id:{i}" for i in ids] or len(tops) != len(ids) or any(len(top) < 2 for top in tops):
        return "the answer's probabilities are not those of its tokens"
    return ids, [round(top[0] - top[1], 4) for top in tops]


def is_cut(data: Any) -> bool:
    return _choice(data).get("finish_reason") == "length"


def _choice(data: Any) -> dict[str, Any]:
    choices = data.get("choices") if isinstance(data, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
