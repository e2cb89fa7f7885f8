"""llama-server's questions about text: how many tokens it is, what tokens say, and how a chat template puts a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Asked = tuple[str, dict[str, Any]]  # path and JSON body

#: Marks by which templates of today's families set a thought apart: opening, closing.
THOUGHT_MARKS = (
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel>thought", "<channel|>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)


def count_tokens(prompt: str) -> Asked:
    """Asks for the tokens of a whole prompt, as a completion would read it."""
    return "/tokenize", {"content": prompt, "add_special": True, "parse_special": True}


def tokens_of_text(text: str) -> Asked:
    """Asks for the tokens of a part of a prompt."""
    return "/tokenize", {"content": text, "add_special": False, "parse_special": False}


def text_of_tokens(ids: Sequence[int]) -> Asked:
    return "/detokenize", {"tokens": list(ids)}


def tokens_in(reply: Mapping[str, Any]) -> list[int]:
    """Raises ValueError if the reply holds no tokens."""
    tokens = reply.get("tokens")
    if not isinstance(tokens, list) or not all(isinstance(t, int) for t in tokens):
        raise ValueError("the reply of /tokenize holds no list of tokens")
    return tokens


def text_in(reply: Mapping[str, Any]) -> str:
    """Of /detokenize or /apply-template. Raises ValueError if there is none."""
    text = reply.get("content", reply.get("prompt"))
    if not isinstance(text, str):
        raise ValueError("the reply holds no text")
    return text


def put_by_template(messages: Sequence[Mapping[str, str]], thinking: bool) -> Asked:
    """Asks for the prompt that the model's chat template makes of the messages."""
    return "/apply-template", {"messages": [dict(m) for m in messages], "chat_template_kwargs": {"enable_thinking": thinking}}


def put_in(reply: Mapping[str, Any]) -> str | list[int]:
    """The prompt of a reply to ``put_by_template``: its text. Raises ValueError if there is none."""
    return text_in(reply)


def next_token(prompt: str, prompt_ids: Sequence[int], ids: Sequence[int]) -> Asked:
    """Asks for the token after a prompt and the beginning of an answer, with how likely the two likeliest are."""
    return "/completion", {"prompt": [prompt, *ids], "n_predict": 1, "temperature": 0, "n_probs": 2, "cache_prompt": False, "stream": False}


def next_gap(reply: Mapping[str, Any]) -> float:
    """By how much the likeliest is the likelier, in nat. Raises ValueError if the reply doesn't tell."""
    try:
        top = reply["completion_probabilities"][0]["top_logprobs"]
        return float(top[0]["logprob"]) - float(top[1]["logprob"])
    except (LookupError, TypeError) as error:
        raise ValueError("the answer holds no probabilities") from error


def thought_marks(template: str) -> tuple[str, str]:
    """The opening and closing mark that the template knows; empty texts if it knows none."""
    return next((marks for marks in THOUGHT_MARKS if marks[1] in template), ("", ""))
