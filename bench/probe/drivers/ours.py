"""SpecWeb's own client, by its library: the same requests, parsed to the same records as in a trial."""

from __future__ import annotations

import sys
from typing import Any

from specagent import load
from speccore import engines
from writing import write  # beside this file

PORT, STREAMS, TOKENS, OUT = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]


def body(i: int) -> dict[str, Any]:
    asked = {"model": "replay-model", "messages": [{"role": "user", "content": f"{i} hello"}], "max_tokens": TOKENS}
    return asked | {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}


target = load.Target("127.0.0.1", PORT, "/v1/chat/completions")
result = load.run_load(
    target, [load.Request(body(i), probe=f"p#{i}") for i in range(STREAMS)], load.Closed(STREAMS, STREAMS), timeout_s=120
)
records = [record for record, _ in load.records_of(result, engines.openai_stream)]


def told() -> list[dict[str, Any]]:
    requests = []
    for r in records:
        events = [e for e in r.events if e.tokens or e.kind == "content"]
        times = [(n, e.at_s - r.sent_at_s) for n, e in enumerate(events)]
        marked = [n for n, e in enumerate(events) if e.queued]
        tokens = None if r.failure else sum(e.tokens or 0 for e in events)
        requests.append(
            {"start": r.sent_at_s, "ttft_s": times[0][1] if times else None, "chunks": times, "tokens": tokens, "marked": marked}
        )
    return requests


write(OUT, told)
