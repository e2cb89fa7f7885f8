"""Runs llama-benchy with its own command line and keeps the results of single requests, which its report leaves out."""

import sys
from typing import Any

from llama_benchy import __main__
from llama_benchy.client import LLMClient
from writing import write  # beside this file

OUT, PER_EVENT, ARGV = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
kept: list[Any] = []
run_generation = LLMClient.run_generation


async def keep(self: Any, *args: Any, **kwargs: Any) -> Any:
    result = await run_generation(self, *args, **kwargs)
    kept.append(result)
    return result


def told() -> list[dict[str, Any]]:
    requests = []
    for r in kept:
        # it spreads the tokens of an event over the time before it: the last one of each bears the arrival
        times = r.token_timestamps
        ends = [min(i + PER_EVENT, len(times)) - 1 for i in range(0, len(times), PER_EVENT)]
        chunks = [(n, times[end] - r.start_ts) for n, end in enumerate(ends)]
        ttft = None if r.first_token_ts is None else r.first_token_ts - r.start_ts
        tokens = None if r.error else r.total_tokens
        requests.append({"start": r.start_ts, "ttft_s": ttft, "chunks": chunks, "tokens": tokens, "marked": None})
    return requests


LLMClient.run_generation = keep
sys.argv = ["llama-benchy", *ARGV]
try:
    __main__.main()
finally:
    write(OUT, told)
