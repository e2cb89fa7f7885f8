"""Streams made up for tests: arrivals and tokens are set by the test, shapes are the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccore.records import StreamEvent, StreamRecord


def stream_of(arrivals: Sequence[tuple[float, int]], *, queued: Sequence[int] = (), **more: Any) -> StreamRecord:
    """A request sent at 0 whose events arrive at (milliseconds, tokens); ``queued`` are the places of events with an upper bound."""
    events = [StreamEvent(at_s=ms / 1000, tokens=n, queued=i in queued) for i, (ms, n) in enumerate(arrivals)]
    values: dict[str, Any] = {
        "probe": "p",
        "point": "w/c1/ctx0/t0",
        "item": "i",
        "seed": 1,
        "path": "/completion",
        "request_sha256": "",
        "connected_at_s": 0.0,
        "sent_at_s": 0.0,
        "closed_at_s": 99.0,
        "status": 200,
        "events": events,
    }
    return StreamRecord.model_validate(values | more)


def cycling(steps: Sequence[tuple[int, int, int, float]], *, prompt_ms: float = 50.0) -> StreamRecord:
    """An answer of llama-server: the prefill's token, then for each step (drafted, accepted, sent, ms) one event a token."""
    at, n, ms, drafted, accepted = prompt_ms, 1, 0.001, 0, 0
    events = [StreamEvent(at_s=at / 1000, tokens=1, predicted_n=1, predicted_ms=ms)]
    began = 0.0
    for step_drafted, step_accepted, sent, step_ms in steps:
        began += step_ms
        drafted, accepted = drafted + step_drafted, accepted + step_accepted
        for _ in range(sent):
            n += 1
            events.append(
                StreamEvent(
                    at_s=(at + began) / 1000,
                    tokens=1,
                    predicted_n=n,
                    predicted_ms=began,
                    draft_n=drafted or None,
                    draft_n_accepted=accepted if drafted else None,
                )
            )
    timings = {"predicted_n": n, "predicted_ms": began, "prompt_ms": prompt_ms, "prompt_n": 8, "cache_n": 0}
    if drafted:
        timings |= {"draft_n": drafted, "draft_n_accepted": accepted}
    final = {"tokens_predicted": n, "tokens_evaluated": 8, "stop_type": "limit", "timings": timings}
    return stream_of([], events=events, final=final, generation_settings={"speculative.types": "none,draft-simple"})
