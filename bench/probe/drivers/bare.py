"""The bare reader: the least that asyncio needs to read the streams, count by usage and note arrivals. A mark to measure against."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from writing import write  # beside this file

PORT, STREAMS, TOKENS, OUT = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
USAGE = {"include_usage": True, "continuous_usage_stats": True}


async def ask(i: int) -> dict[str, object]:
    body = {"model": "replay-model", "messages": [{"role": "user", "content": f"{i} hello"}], "max_tokens": TOKENS}
    payload = json.dumps(body | {"stream": True, "stream_options": USAGE}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    start = time.perf_counter()
    writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(payload), payload))
    arrivals, tokens = [], 0
    while True:
        line = await reader.readline()
        if line.startswith(b"data: {"):
            now = time.perf_counter()
            event = json.loads(line[6:])
            tokens = event["usage"]["completion_tokens"]
            if event["choices"]:
                arrivals.append(now - start)
        elif line.startswith(b"data: [DONE]") or not line:
            break
    writer.close()
    return {"start": start, "ttft_s": arrivals[0], "chunks": list(enumerate(arrivals)), "tokens": tokens, "marked": None}


async def main() -> None:
    requests = await asyncio.gather(*(ask(i) for i in range(STREAMS)))
    write(OUT, lambda: requests)


asyncio.run(main())
