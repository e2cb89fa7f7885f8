"""The arithmetic: what a client reported against what the sender stamped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request as a client reported it. Seconds; ``start`` by any clock, since only its order is used."""

    start: float
    ttft_s: float | None
    chunks: list[tuple[int, float]]  # (number of the event, seconds from the start) as far as the client tells
    tokens: int | None
    marked: frozenset[int] | None = None  # events whose arrival the client itself calls uncertain; None: it never does


@dataclass(frozen=True)
class Score:
    n_requests: int
    ttft_error_ms_p50: float | None
    ttft_error_ms_p99: float | None
    chunk_error_ms_p50: float | None
    chunk_error_ms_p99: float | None
    marked_share: float | None
    tokens_counted: int | None
    tokens_true: int
    sender_late_ms_p99: float | None  # the sender behind its own script: no fault of a client's
    tokens_per_s: float | None  # of all answers together, by the sender's stamps: at full speed what the client takes


def percentile(values: Sequence[float], q: float) -> float | None:
    """The smallest value that at least ``q`` of all don't exceed; None of nothing."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def score(requests: Sequence[Request], answers: Sequence[Mapping[str, Any]]) -> Score:
    """Compares requests and answers in the order of their starts.

    TTFT: from the kernel's arrival of the request at the server to the stamp before the first event's write. A chunk's time
    counts from the answer's first chunk, so that an error in the start of the request is in the TTFT alone. An answer
    that no request reports is in ``tokens_true`` all the same.
    """
    by_start = sorted(requests, key=lambda r: r.start)
    truths = sorted(answers, key=lambda a: a["asked_at"])
    ttft_errors, chunk_errors, n_marked, n_chunks = [], [], 0, 0
    for request, truth in zip(by_start, truths):
        stamps, marked = truth["stamps"], request.marked or frozenset()
        if not stamps:
            continue
        if request.ttft_s is not None and 0 not in marked:
            ttft_errors.append(1000 * abs(request.ttft_s - (stamps[0] - truth["asked_at"])))
        told = [(i, at) for i, at in request.chunks if i < len(stamps)]
        n_chunks += len(told)
        n_marked += sum(i in marked for i, _ in told)
        if told and told[0][0] == 0 and 0 not in marked:
            first = told[0][1]
            chunk_errors += [1000 * abs(at - first - (stamps[i] - stamps[0])) for i, at in told[1:] if i not in marked]
    counts = [r.tokens for r in requests]
    return Score(
        n_requests=len(requests),
        ttft_error_ms_p50=percentile(ttft_errors, 0.5),
        ttft_error_ms_p99=percentile(ttft_errors, 0.99),
        chunk_error_ms_p50=percentile(chunk_errors, 0.5),
        chunk_error_ms_p99=percentile(chunk_errors, 0.99),
        marked_share=n_marked / n_chunks if n_chunks and any(r.marked is not None for r in requests) else None,
        tokens_counted=None if not counts or any(c is None for c in counts) else sum(c for c in counts if c is not None),
        tokens_true=sum(a["n_tokens"] for a in answers),
        sender_late_ms_p99=percentile([late for a in answers for late in lateness_ms(a)], 0.99),
        tokens_per_s=_tokens_per_s(answers),
    )


def _tokens_per_s(answers: Sequence[Mapping[str, Any]]) -> float | None:
    stamps = [at for a in answers for at in (a["stamps"][:1] + a["stamps"][-1:])]
    span = max(stamps) - min(stamps) if stamps else 0.0
    return sum(a["n_tokens"] for a in answers) / span if span > 0 else None


def lateness_ms(answer: Mapping[str, Any]) -> list[float]:
    """How far each event was written behind the script; nothing where there was no rate."""
    if not answer["period_s"]:
        return []
    due = answer["began_at"] + answer["first_s"]
    return [1000 * (at - due - i * answer["period_s"]) for i, at in enumerate(answer["stamps"])]


def cpu_per_1k_tokens(cpu_s: float, tokens: int, short_cpu_s: float, short_tokens: int) -> float | None:
    """CPU seconds for each 1,000 tokens beyond those of the short run, which holds what any run costs.

    None if the difference drowns in the noise of the start-up.
    """
    if cpu_s <= short_cpu_s or tokens <= short_tokens:
        return None
    return 1000 * (cpu_s - short_cpu_s) / (tokens - short_tokens)
