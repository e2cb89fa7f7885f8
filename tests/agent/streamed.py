"""Scripted streams as bytes, cut as one likes, and as the records that come of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from specagent.answers import record_of
from specagent.asking import Exchange, Request
from specagent.receive import Segment
from speccore import engines
from speccore.engines import llamacpp_stream, openai_stream
from speccore.records import StreamRecord, TextRecord

from tests.replay import Script

LOGS = Path(__file__).parents[1] / "logs"
CASES: dict[str, dict[str, Any]] = {c["name"]: c for c in json.loads((LOGS / "streams.json").read_text(encoding="utf-8"))}
LLAMA = engines.engine("llama-server")


def dialect_of(case: dict[str, Any]) -> Any:
    return llamacpp_stream if case["path"] == "/completion" else openai_stream


def wire(name: str, framing: str) -> bytes:
    return b"".join(data for _, data in Script.of_case(CASES[name], framing=framing).writes())


def recorded(segments: list[Segment], dialect: Any = openai_stream, path: str = "/v1/chat/completions") -> tuple[StreamRecord, TextRecord]:
    exchange = Exchange(Request({"n": 1}, probe="p"), path, b"{}", None, 0.0, 0.0, 1e6, segments, "kernel", "closed")
    return record_of(exchange, dialect, t0=0.0)


def cut(data: bytes, places: list[int]) -> list[Segment]:
    """Segments that arrive a second apart, cut at the places."""
    ends = [*sorted({p % len(data) for p in places} - {0}), len(data)]
    return [Segment(float(i), i + 0.5, False, data[a:b]) for i, (a, b) in enumerate(zip([0, *ends], ends))]
