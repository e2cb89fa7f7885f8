"""vLLM asked again, in one piece: with the probabilities of the two likeliest tokens, or for the ids of a short answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_STREAMED_ONLY = frozenset({"stream_options"})


def look_again(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request that was timed, once more, not streamed and with how sure the model was of each token."""
    return whole_answer(body) | {"logprobs": 2}


def whole_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Not streamed: the answer then holds all ids."""
    return {k: v for k, v in body.items() if k not in _STREAMED_ONLY} | {"stream": False}


def read_ids(data: Any) -> list[int] | None:
    """The token ids of an answer in one piece; None where it has none."""
    ids = _choice(data).get("token_ids")
    return ids if isinstance(ids, list) and all(type(i) is int for i in ids) else None


def read_drafted(data: Any) -> int | None:
    metrics = data.get("metrics") if isinstance(data, dict) else None
    said = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    drafted = said.get("num_draft_tokens") if isinstance(said, dict) else None
    return drafted if type(drafted) is int else None


def read_look(data: Any) -> tuple[list[int], list[float]] | str:
    """Token ids and for each of them the gap between the two likeliest tokens (nat), or in words what is missing."""
    ids = read_ids(data)
    if not ids:
        return "the answer holds no token ids"
    told = _choice(data).get("logprobs")
    try:
        tops = [sorted(map(float, top.values()), reverse=True)[:2] for top in told["top_logprobs"]]
    except (TypeError, KeyError, ValueError, AttributeError):
        return "the answer holds no probabilities"
    if len(tops) != len(ids) or any(len(top) < 2 for top in tops):
        return "the answer's probabilities are not those of its tokens"
    return ids, [round(top[0] - top[1], 4) for top in tops]


def is_cut(data: Any) -> bool:
    return _choice(data).get("finish_reason") == "length"


def _choice(data: Any) -> dict[str, Any]:
    choices = data.get("choices") if isinstance(data, dict) else None
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
