"""The replay server at speed: its schedule, its stamps, its counts."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.replay.answers import PROMPT_TOKENS

ROOT = Path(__file__).parents[2]


class Running:
    def __init__(self, process: subprocess.Popen[str], stamps: Path) -> None:
        self._process, self._stamps = process, stamps
        assert process.stdout is not None
        self.url = f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"

    def end(self) -> list[dict[str, Any]]:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(10) == 0
        return json.loads(self._stamps.read_text())


@contextmanager
def rate_server(folder: Path, *options: str) -> Iterator[Running]:
    stamps = folder / "stamps.json"
    argv = [sys.executable, "-m", "tests.replay.rate", "--stamps", str(stamps), *options]
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Running(process, stamps)
        finally:
            process.kill()


def ask(url: str, n: int, path: str = "/v1/chat/completions", **body: Any) -> list[tuple[float, dict[str, Any]]]:
    """(moment, data) of each event."""
    got = []
    with httpx.stream("POST", url + path, json={"stream": True, "max_tokens": n} | body, timeout=20) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                got.append((time.monotonic(), json.loads(line[6:])))
    return got


USAGE = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}


@pytest.mark.parametrize("k", [1, 4])
def test_tokens_come_at_the_rate_and_are_stamped_when_written(tmp_path: Path, k: int) -> None:
    with rate_server(tmp_path, "--rate", "50", "--tokens-per-event", str(k), "--first-ms", "150") as server:
        got = ask(server.url, 10, **USAGE)
        (answer,) = server.end()
    n_events = -(-10 // k)
    assert len(answer["stamps"]) == n_events == len(got) - 1
    assert [e["usage"]["completion_tokens"] for _, e in got] == [*(min(10, k * (i + 1)) for i in range(n_events)), 10]
    for (seen_at, _), wrote_at in zip(got, answer["stamps"]):
        assert 0 <= seen_at - wrote_at < 0.5  # a client can't see it before; httpx on a busy machine sees it late
    for i, wrote_at in enumerate(answer["stamps"]):
        assert 0 <= wrote_at - answer["began_at"] - 0.15 - i * k / 50 < 0.5
    assert answer["asked_at"] <= answer["began_at"]
    assert answer["done"]


def test_usage_only_for_those_who_ask(tmp_path: Path) -> None:
    with rate_server(tmp_path, "--rate", "0", "--first-ms", "0") as server:
        plain = ask(server.url, 3)
        at_the_end = ask(server.url, 3, stream_options={"include_usage": True})
    assert all("usage" not in e for _, e in plain)
    assert len(plain) == 3
    assert [e.get("usage", {}).get("completion_tokens") for _, e in at_the_end] == [None, None, None, 3]


def test_a_model_that_stops_early(tmp_path: Path) -> None:
    with rate_server(tmp_path, "--rate", "0", "--first-ms", "0", "--stop-after", "4") as server:
        early = ask(server.url, 6, "/v1/completions", **USAGE)
        late = ask(server.url, 3, "/v1/completions", **USAGE)
        stamps = server.end()
    assert [e["choices"][0]["finish_reason"] for _, e in early[:-1]] == [None, None, None, "stop"]
    assert early[-1][1]["usage"]["completion_tokens"] == 4
    assert late[-2][1]["choices"][0]["finish_reason"] == "length"
    assert [(a["asked_tokens"], a["n_tokens"]) for a in stamps] == [(6, 4), (3, 3)]


def test_full_speed_waits_for_a_slow_reader_and_loses_nothing(tmp_path: Path) -> None:
    n = 20_000  # more than socket buffers hold
    with rate_server(tmp_path, "--rate", "0", "--first-ms", "0") as server:
        with httpx.stream("POST", server.url + "/v1/completions", json={"stream": True, "max_tokens": n} | USAGE, timeout=20) as response:
            time.sleep(0.5)
            lines = [line for line in response.iter_lines() if line.startswith("data: {")]
        (answer,) = server.end()
    assert len(lines) == n + 1
    assert json.loads(lines[-1][6:])["usage"]["completion_tokens"] == n
    assert len(answer["stamps"]) == n
    assert answer["stamps"] == sorted(answer["stamps"])
    assert answer["stamps"][-1] - answer["stamps"][0] > 0.4  # it had to wait


def test_a_client_that_leaves_disturbs_nobody(tmp_path: Path) -> None:
    with rate_server(tmp_path, "--rate", "50") as server:
        with httpx.stream("POST", server.url + "/v1/completions", json={"stream": True, "max_tokens": 100}) as response:
            next(response.iter_raw())
        got = ask(server.url, 5, **USAGE)
        first, second = server.end()
    assert len(got) == 6
    assert not first["done"]
    assert second["done"]


def test_what_clients_ask_for_around_the_answers(tmp_path: Path) -> None:
    with rate_server(tmp_path) as server, httpx.Client(base_url=server.url) as client:  # one connection, kept alive
        assert client.get("/v1/models").json()["data"][0]["id"] == "replay-model"
        assert client.get("/health").status_code == 200
        assert client.post("/tokenize", json={"prompt": "a b c"}).json()["count"] == 3
        assert client.get("/nothing").status_code == 404
        whole = client.post("/v1/chat/completions", json={"max_tokens": 3}).json()
    assert whole["usage"] == {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 3, "total_tokens": PROMPT_TOKENS + 3}
    assert whole["choices"][0]["message"]["content"] == " w0 w1 w2"
