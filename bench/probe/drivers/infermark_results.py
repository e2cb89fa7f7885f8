"""Runs infermark with its own command line and keeps the results of single requests, which its report leaves out."""

import sys
from typing import Any

from infermark import cli, runner
from writing import write  # beside this file

OUT, ARGV = sys.argv[1], sys.argv[2:]
aggregate = runner._aggregate_results


def told(results: list[Any]) -> list[dict[str, Any]]:
    kept = []
    for i, r in enumerate(results):
        chunks, at = [], r.ttft
        if at is not None:
            chunks.append((0, at))
            for n, gap in enumerate(r.itl, 1):
                at += gap
                chunks.append((n, at))
        # it makes its requests in this order, and doesn't keep when
        kept.append({"start": i, "ttft_s": r.ttft, "chunks": chunks, "tokens": r.output_tokens if r.success else None, "marked": None})
    return kept


def keep(results: list[Any], *rest: Any) -> Any:
    write(OUT, lambda: told(results))
    return aggregate(results, *rest)


runner._aggregate_results = keep
sys.argv = ["infermark", *ARGV]
cli.main()
