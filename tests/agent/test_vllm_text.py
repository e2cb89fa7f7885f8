"""vLLM's answers about text as the agent asks for them: tokens, text, prompts by a template, and how sure it is of the next token.

The replies are those of vLLM 0.32; the server is a fake, since a template that begins as every prompt does needs a tokenizer that
puts such a token there, which the small models of the real tests have not.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from specagent.asking import Address
from specagent.chat import Chat, marks_of
from specagent.filling import TextServer
from speccore.engines import engine
from speccore.errors import EngineError

VLLM = engine("vllm")
BOS = 1
TEMPLATE = "{{ bos }}{% if enable_thinking %}<think>{% endif %}{{ message }}"


class _FakeTokenizer(BaseHTTPRequestHandler):
    """A token is a letter's code point; 1 begins a prompt, unless it is told not to."""

    server: _Fake

    def do_GET(self) -> None:
        told = {"tokenizer_class": "Fake", "chat_template": TEMPLATE}
        self._say(200 if self.path == "/tokenizer_info" and self.server.tells else 404, told)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize" and "messages" in asked:
            thinking = asked["chat_template_kwargs"]["enable_thinking"]
            text = ("<think>" if thinking else "") + asked["messages"][0]["content"]
            self._say(200, self._tokens([BOS] * self.server.n_begin + [ord(c) for c in text]))
        elif self.path == "/tokenize":
            start = [BOS] if asked["add_special_tokens"] else []
            text = asked["prompt"]
            while text.startswith("<s>"):
                start.append(BOS)
                text = text.removeprefix("<s>")
            self._say(200, self._tokens(start + [ord(c) for c in text]))
        elif self.path == "/detokenize":
            self._say(200, {"prompt": "".join("<s>" if t == BOS else chr(t) for t in asked["tokens"])})
        else:
            self._say(404, {"error": {"message": "Not Found"}})

    def _tokens(self, tokens: list[int]) -> dict[str, Any]:
        return {"count": len(tokens), "max_model_len": 1024, "tokens": tokens, "token_strs": None}

    def _say(self, status: int, reply: dict[str, Any]) -> None:
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


class _Fake(ThreadingHTTPServer):
    n_begin = 1  # how many tokens that begin a prompt the template writes itself
    tells = True  # has a place that tells the template


@pytest.fixture
def fake() -> Iterator[_Fake]:
    server = _Fake(("127.0.0.1", 0), _FakeTokenizer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def texts(fake: _Fake) -> TextServer:
    return TextServer(VLLM, Address("127.0.0.1", fake.server_address[1]), threading.Event())


def test_tokens_and_text(texts: TextServer) -> None:
    assert texts.tokens("ab") == [97, 98]
    assert texts.prompt_tokens("ab") == [BOS, 97, 98]
    assert texts.n_tokens("ab") == 3
    assert texts.text([97, 98]) == "ab"


@pytest.mark.parametrize(("n_begin", "prompt"), [(1, "hi"), (2, "<s>hi")])
def test_a_prompt_by_template_begins_once_as_the_template_means_it(texts: TextServer, fake: _Fake, n_begin: int, prompt: str) -> None:
    fake.n_begin = n_begin
    put = texts.by_template([{"role": "user", "content": "hi"}], thinking=False)
    assert put == prompt
    assert texts.prompt_tokens(put) == [BOS] * n_begin + [104, 105]


def test_a_prompt_that_no_text_can_put_is_told(texts: TextServer, fake: _Fake) -> None:
    fake.n_begin = 0  # while every prompt begins with one
    with pytest.raises(EngineError, match="would be read as other tokens"):
        texts.by_template([{"role": "user", "content": "hi"}], thinking=False)


def test_marks_of_a_thought_are_read_from_the_template_that_the_engine_tells(texts: TextServer, fake: _Fake) -> None:
    assert marks_of(VLLM, {}, texts) == ("", "")  # this template knows no end of a thought
    assert texts.chat_template() == TEMPLATE
    fake.tells = False
    assert texts.chat_template() == ""
    chat = Chat(texts, ("<think>", "</think>"))
    assert chat.prompt([{"role": "user", "content": "hi"}], thinking=True) == "<think>hi"


def test_the_next_token_is_asked_by_ids_and_its_gap_read() -> None:
    path, body = VLLM.next_token("1, 2,", [17, 12], [360])
    assert (path, body["prompt"], body["max_tokens"], body["logprobs"]) == ("/v1/completions", [17, 12, 360], 1, 2)
    reply = {"choices": [{"text": " 5", "logprobs": {"top_logprobs": [{" 4": -3.4674980640411377, " 5": -0.09911072999238968}]}}]}
    assert VLLM.next_gap(reply) == pytest.approx(3.368387)
    for broken in ({}, {"choices": []}, {"choices": [{"logprobs": None}]}, {"choices": [{"logprobs": {"top_logprobs": [{" 5": -0.1}]}}]}):
        with pytest.raises(ValueError, match="no probabilities"):
            VLLM.next_gap(broken)


@pytest.mark.parametrize("reply", [{}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": [True]}])
def test_replies_without_tokens_or_text_are_told(reply: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no list of tokens"):
        VLLM.tokens_in(reply)
    with pytest.raises(ValueError, match="no text"):
        VLLM.text_in(reply)
