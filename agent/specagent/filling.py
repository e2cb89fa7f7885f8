"""Text before a prompt, so long that the engine counts as many tokens as the point asks for when its answer begins."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from speccore.contexts import filling
from speccore.errors import EngineError, SpecError

from .asking import Address
from .launch import Stopped

#: Reading a long text takes an engine a moment; more than this and it hangs.
_TIMEOUT_S = 120.0
#: A cut changes how the text beside it is read, by a token or two: so often the length is mended.
_TRIES = 8
#: Text of so many bytes has a token more, at the least, in nearly any vocabulary.
_BYTES_PER_TOKEN = 5
#: Between the text and the prompt.
_BETWEEN = "\n\n"


class TextServer:
    """The engine's own answers about text: outside of anything timed."""

    def __init__(self, dialect: ModuleType, at: Address, stop: threading.Event) -> None:
        self._dialect, self._at, self._stop = dialect, at, stop

    def ask(self, asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
        """One question. Raises :class:`EngineError` if the engine doesn't answer it, :class:`Stopped` if told to stop."""
        if self._stop.is_set():
            raise Stopped
        path, body = asked
        return self._answer("POST", path, json.dumps(body).encode())

    def chat_template(self) -> str:
        """Where the engine has a place of its own for it; empty if it doesn't tell."""
        if not self._dialect.TEMPLATE_PATH:
            return ""
        try:
            template = self._answer("GET", self._dialect.TEMPLATE_PATH).get("chat_template")
        except EngineError:  # this build has no such place
            return ""
        return template if isinstance(template, str) else ""

    def _answer(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(*self._at, timeout=_TIMEOUT_S)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            status, text = response.status, response.read().decode("utf-8", "replace")
            reply = json.loads(text) if status == 200 else None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise EngineError(f"{path} can't be asked: {error}", path=path) from error
        finally:
            connection.close()
        if not isinstance(reply, dict):
            raise EngineError(f"{path} answers {status}: {text.strip()[:200]}", path=path)
        return reply

    def n_tokens(self, prompt: str) -> int:
        """Of a whole prompt."""
        return len(self.prompt_tokens(prompt))

    def prompt_tokens(self, prompt: str) -> list[int]:
        """Of a whole prompt, as a completion reads it."""
        return self._tokens(self._dialect.count_tokens(prompt))

    def tokens(self, text: str) -> list[int]:
        return self._tokens(self._dialect.tokens_of_text(text))

    def text(self, tokens: list[int]) -> str:
        return self._text(self._dialect.text_of_tokens(tokens))

    def by_template(self, messages: list[dict[str, str]], *, thinking: bool) -> str:
        """The prompt as text that the engine reads as its template means it, also where it puts messages as tokens only."""
        put = self._read(self._dialect.put_in, self._dialect.put_by_template(messages, thinking))
        if isinstance(put, str):
            return put
        # Where the template begins as the engine begins every prompt by itself, it must not stand there twice.
        for text in (self.text(put), self.text(put[1:])):
            if self.prompt_tokens(text) == put:
                return text
        raise EngineError("the prompt that the chat template makes can't be put as text: it would be read as other tokens")

    def _text(self, asked: tuple[str, dict[str, Any]]) -> str:
        found: str = self._read(self._dialect.text_in, asked)
        return found

    def _tokens(self, asked: tuple[str, dict[str, Any]]) -> list[int]:
        found: list[int] = self._read(self._dialect.tokens_in, asked)
        return found

    def _read(self, read: Callable[[dict[str, Any]], Any], asked: tuple[str, dict[str, Any]]) -> Any:
        try:
            return read(self.ask(asked))
        except ValueError as error:
            raise EngineError(f"{asked[0]}: {error}", path=asked[0]) from error


def filler(server: TextServer, put: Callable[[str], str], n_tokens: int, seed: int, *, item: str) -> str:
    """The text before a prompt with which ``put`` makes ``n_tokens`` tokens in all, or as near to it as the vocabulary allows.

    ``seed`` names the text. Raises :class:`SpecError` if the prompt alone is longer.
    """
    bare = server.n_tokens(put(""))
    if bare > n_tokens:
        raise SpecError(
            f"item {item!r} alone has {bare} tokens, more than the {n_tokens} that occupied_context asks for",
            remedy=f"Set occupied_context to 0, or to {bare} or more.",
            field="points.occupied_context",
            value=n_tokens,
            item=item,
        )
    best, apart = "", n_tokens - bare
    n = apart
    tokens = _tokens_of_filling(server, seed, n)
    for _ in range(_TRIES):
        if n <= 0 or not apart:
            break
        text = f"{server.text(tokens[:n])}{_BETWEEN}"
        missing = n_tokens - server.n_tokens(put(text))
        if abs(missing) < abs(apart):
            best, apart = text, missing
        n += missing
    return best


def _tokens_of_filling(server: TextServer, seed: int, least: int) -> list[int]:
    n_bytes = _BYTES_PER_TOKEN * least + 1000
    while len(tokens := server.tokens(filling(seed, n_bytes))) < least + _TRIES:
        n_bytes *= 2
    return tokens
