"""vLLM's questions about text: how many tokens it is, what tokens say, and how a chat template puts a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .llamacpp_text import thought_marks

__all__ = [
    "Asked",
    "count_tokens",
    "next_gap",
    "next_token",
    "put_by_template",
    "put_in",
    "text_in",
    "text_of_tokens",
    "thought_marks",
    "tokens_in",
    "tokens_of_text",
]

Asked = tuple[str, dict[str, Any]]  # path and JSON body


def count_tokens(prompt: str) -> Asked:
    """Asks for the tokens of a whole prompt, as a completion would read it."""
    return "/tokenize", {"prompt": prompt, "add_special_tokens": True}


def tokens_of_text(text: str) -> Asked:
    """Asks for the tokens of a part of a prompt."""
    return "/tokenize", {"prompt": text, "add_special_tokens": False}


def text_of_tokens(ids: Sequence[int]) -> Asked:
    return "/detokenize", {"tokens": list(ids)}


def tokens_in(reply: Mapping[str, Any]) -> list[int]:
    """Raises ValueError if the reply holds no tokens."""
    tokens = reply.get("tokens")
    if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
        raise ValueError("the reply of /tokenize holds no list of tokens")
    return tokens


def text_in(reply: Mapping[str, Any]) -> str:
    """Of /detokenize. Raises ValueError if there is none."""
    text = reply.get("prompt")
    if not isinstance(text, str):
        raise ValueError("the reply holds no text")
    return text


def put_in(reply: Mapping[str, Any]) -> str | list[int]:
    """The prompt of a reply to ``put_by_template``: its tokens. Raises ValueError if there are none."""
    return tokens_in(reply)


def next_token(prompt: str, prompt_ids: Sequence[int], ids: Sequence[int]) -> Asked:
    """Asks for the token after a prompt and the beginning of an answer, with how likely the two likeliest are."""
    return "/v1/completions", {"prompt": [*prompt_ids, *ids], "max_tokens": 1, "temperature": 0, "logprobs": 2, "stream": False}


def next_gap(reply: Mapping[str, Any]) -> float:
    """By how much the likeliest is the likelier, in nat. Raises ValueError if the reply doesn't tell."""
    try:
        top = sorted(map(float, reply["choices"][0]["logprobs"]["top_logprobs"][0].values()), reverse=True)
        return top[0] - top[1]
    except (LookupError, TypeError, AttributeError) as error:
        raise ValueError("the answer holds no probabilities") from error


def put_by_template(messages: Sequence[Mapping[str, str]], thinking: bool) -> Asked:
    """Asks for the prompt that the model's chat template makes of the messages."""
    return "/tokenize", {"messages": [dict(m) for m in messages], "chat_template_kwargs": {"enable_thinking": thinking}}
