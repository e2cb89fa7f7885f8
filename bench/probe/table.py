"""The result as lines on a terminal, as a table for the docs, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .scenarios import Scenario
from .scoring import Score


@dataclass(frozen=True)
class Run:
    """One line of the result."""

    client: str
    version: str
    scenario: Scenario
    cpu_s_per_1k_tokens: float
    whole_cpu_s: float  # start-up and report included
    score: Score

    def as_json(self) -> dict[str, Any]:
        return {
            "client": self.client,
            "version": self.version,
            "streams": self.scenario.streams,
            "tokens_per_event": self.scenario.tokens_per_event,
            "cpu_s_per_1k_tokens": self.cpu_s_per_1k_tokens,
            "ttft_error_ms_p99": self.score.ttft_error_ms_p99,
            "chunk_error_ms_p99": self.score.chunk_error_ms_p99,
            "marked_share": self.score.marked_share,
            "tokens_counted": self.score.tokens_counted,
            "tokens_true": self.score.tokens_true,
        }


HEAD = (
    f"{'client':18}{'scenario':50}{'CPU s/1k tok':>13}{'TTFT err p50/p99 ms':>21}{'chunk err p50/p99 ms':>22}"
    f"{'marked':>9}{'tokens':>9}{'count':>9}{'sender late p99 ms':>20}{'tokens/s':>10}"
)


def line(run: Run) -> str:
    s = run.score
    return (
        f"{run.client:18}{run.scenario.name:50}{run.cpu_s_per_1k_tokens:13.4f}"
        f"{_two(s.ttft_error_ms_p50, s.ttft_error_ms_p99):>21}{_two(s.chunk_error_ms_p50, s.chunk_error_ms_p99):>22}"
        f"{_marked(s):>9}{s.tokens_true:9}{_off(s):>9}{_number(s.sender_late_ms_p99):>20}{s.tokens_per_s or 0:10.0f}"
    )


def markdown(runs: Sequence[Run]) -> str:
    """Sorted by scenario, so that clients stand beside each other."""
    order = list(dict.fromkeys(r.scenario for r in runs))
    rows = [
        f"| {r.scenario.name} | {r.client} {r.version if r.client != 'bare reader' else ''} ".rstrip() + " "
        f"| {r.cpu_s_per_1k_tokens:.3g} | {_two(r.score.ttft_error_ms_p50, r.score.ttft_error_ms_p99)} "
        f"| {_two(r.score.chunk_error_ms_p50, r.score.chunk_error_ms_p99)} | {_marked(r.score)} | {_off(r.score)} |"
        for r in sorted(runs, key=lambda r: order.index(r.scenario))
    ]
    head = "| streams | client | CPU s / 1,000 tokens | TTFT error p50 / p99, ms | chunk error p50 / p99, ms | marked | count |"
    return "\n".join([head, "|---|---|---|---|---|---|---|", *rows]) + "\n"


def _off(s: Score) -> str:
    """The client's count against the truth."""
    if s.tokens_counted is None or not s.tokens_true:
        return "–"
    return "exact" if s.tokens_counted == s.tokens_true else f"{100 * (s.tokens_counted / s.tokens_true - 1):+.1f} %"


def _marked(s: Score) -> str:
    return "–" if s.marked_share is None else f"{100 * s.marked_share:.2f} %"


def _two(a: float | None, b: float | None) -> str:
    return f"{_number(a)} / {_number(b)}"


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
