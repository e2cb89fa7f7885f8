"""Answers of a set length and duration, and the requests for them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from specagent import load
from specagent.load import Request, Target

from tests.replay import ReplayServer, Script


def event(text: str, n: int, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], "usage": {"completion_tokens": n, "prompt_tokens": 1}}).encode() + b"\n\n"


def answer(ms: int = 100, n: int = 5, **more: Any) -> Script:
    """``n`` tokens, the first after a fifth of the time."""
    at = [ms * (i + 1) / n for i in range(n)]
    segments = [(t, event("x", i + 1, "stop" if i == n - 1 else None)) for i, t in enumerate(at)]
    return Script([*segments[:-1], (segments[-1][0], segments[-1][1] + b"data: [DONE]\n\n")], framing="chunked", **more)


def requests(n: int) -> list[Request]:
    return [Request({"i": i}, probe=f"p#{i}", seed=i) for i in range(n)]


def run(server: ReplayServer, asked: Iterable[Request], plan: load.Plan, **more: Any) -> load.LoadResult:
    return load.run_load(Target("127.0.0.1", server.port, "/v1/chat/completions"), asked, plan, **({"timeout_s": 10} | more))
