"""Prompts as the model's own chat template puts them, with thinking on or off, and what marks a thought's end there."""

from __future__ import annotations

from typing import Any

from speccore.errors import ThinkingNotPossible
from speccore.inventory import ModelInfo
from speccore.records import Thought
from speccore.spec import ExperimentSpec

from .filling import TextServer

_TEMPLATE_FLAGS = ("--chat-template", "--chat-template-file")
_PROBE = [{"role": "user", "content": "Hello"}]


def check_template(spec: ExperimentSpec, target: ModelInfo) -> None:
    """Raises :class:`ThinkingNotPossible` if a point asks for thinking and the model has no template of its own.

    Engines put another one in its place, which the model was never trained on.
    """
    asked = next((p for p in spec.points if p.thinking is not None), None)
    if asked and not target.chat_template_hash and not any(flag in spec.engine.extra for flag in _TEMPLATE_FLAGS):
        said = f"point {asked.key!r} asks for thinking {_word(asked.thinking)}, and {target.alias} has no chat template"
        raise ThinkingNotPossible(said, point=asked.key, model=target.alias)


class Chat:
    """The chat template of a running engine. Asked once for each way of thinking whether it can be had."""

    def __init__(self, server: TextServer, marks: tuple[str, str]) -> None:
        self._server = server
        self._opens, self._ends = marks
        self._checked: set[bool] = set()

    def prompt(self, messages: list[dict[str, str]], *, thinking: bool) -> str:
        """The messages by the template. Raises :class:`ThinkingNotPossible` if it can't put them so that the model thinks, or doesn't."""
        if thinking not in self._checked:
            self._check(thinking)
            self._checked.add(thinking)
        return self._server.by_template(messages, thinking=thinking)

    def thought(self, prompt: str, *, thinking: bool) -> Thought:
        """What tells a thought in the answer to this prompt."""
        return Thought(asked=thinking, opened=self._is_open(prompt), opens=self._opens, ends=self._ends)

    def _check(self, thinking: bool) -> None:
        put = {on: self._server.by_template(_PROBE, thinking=on) for on in (True, False)}
        if put[True] != put[False]:
            return
        if thinking and not self._is_open(put[True]):
            raise ThinkingNotPossible(
                "the model's chat template puts a message the same with thinking on and off: it can't be told to think"
            )
        if not thinking and self._is_open(put[False]):
            raise ThinkingNotPossible("the model's chat template always begins a thought: thinking can't be turned off")

    def _is_open(self, prompt: str) -> bool:
        return bool(self._opens) and prompt.rfind(self._opens) > prompt.rfind(self._ends)


def marks_of(dialect: Any, props: dict[str, Any], server: TextServer) -> tuple[str, str]:
    """A thought's opening and closing mark by the template that the engine says it uses; empty if it has none that is known."""
    found: tuple[str, str] = dialect.thought_marks(str(props.get("chat_template") or server.chat_template()))
    return found


def _word(thinking: bool | None) -> str:
    return "on" if thinking else "off"
