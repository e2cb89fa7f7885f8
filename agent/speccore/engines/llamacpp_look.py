"""llama-server asked again, in one piece: with the probabilities of the two likeliest tokens, or for the ids of a short answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def look_again(body: Mapping[str, Any]) -> dict[str, Any]:
    """A request that was timed, once more, not streamed and with how sure the model was of each token."""
    return whole_answer(body) | {"n_probs": 2}


def whole_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Not streamed: the answer then holds all ids, also those of half a character."""
    return {k: v for k, v in body.items() if k != "timings_per_token"} | {"stream": False}


def read_ids(data: Any) -> list[int] | None:
    """The token ids of an answer in one piece; None where it has none."""
    ids = data.get("tokens") if isinstance(data, dict) else None
    return ids if isinstance(ids, list) and all(type(i) is int for i in ids) else None


def read_drafted(data: Any) -> int | None:
    timings = data.get("timings") if isinstance(data, dict) else None
    drafted = timings.get("draft_n") if isinstance(timings, dict) else None
    return drafted if type(drafted) is int else None


def read_look(data: Any) -> tuple[list[int], list[float]] | str:
    """Token ids and for each of them the gap between the two likeliest tokens (nat), or in words what is missing."""
    ids = read_ids(data)
    if not ids:
        return "the answer holds no token ids"
    told = data.get("completion_probabilities")
    try:
        tops = [(int(entry["id"]), [float(t["logprob"]) for t in entry["top_logprobs"][:2]]) for entry in told]
    except (TypeError, KeyError, ValueError):
        return "the answer holds no probabilities"
    if [i for i, _ in tops] != ids or any(len(top) < 2 for _, top in tops):
        return "the answer's probabilities are not those of its tokens"
    return ids, [round(top[0] - top[1], 4) for _, top in tops]


def is_cut(data: Any) -> bool:
    return isinstance(data, dict) and data.get("stop_type") == "limit"
