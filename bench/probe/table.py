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
    cpu_s_per_1k_tokens: float | None
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
        f"{run.client:18}{run.scenario.name:50}{_cpu(run):>13}"
        f"{_two(s.ttft_error_ms_p50, s.ttft_error_ms_p99):>21}{_two(s.chunk_error_ms_p50, s.chunk_error_ms_p99):>22}"
        f"{_marked(s):>9}{s.tokens_true:9}{_off(s):>9}{_number(s.sender_late_ms_p99):>20}{s.tokens_per_s or 0:10.0f}"
    )


def markdown(runs: Sequence[Run]) -> str:
    """One row a client; several figures in a cell are those of 1, 4 and 16 tokens an event."""
    columns = {
        "CPU s / 1,000 tokens, 64 streams": [(64, 1)],
        "256 streams": [(256, k) for k in (1, 4, 16)],
        "one at full speed": [(1, k) for k in (1, 4, 16)],
    }
    titles = [
        "TTFT error p99, ms, 64 · 256 streams",
        "chunk error p99, ms, 64 · 256 streams",
        "marked",
        "count, 256 streams",
        "stopped early",
    ]
    rows = ["| client | " + " | ".join([*columns, *titles]) + " |", "|---" * (1 + len(columns) + len(titles)) + "|"]
    for client in dict.fromkeys(r.client for r in runs):
        own = {(r.scenario.streams, r.scenario.tokens_per_event): r for r in runs if r.client == client and not r.scenario.stop_after}
        early = [r for r in runs if r.client == client and r.scenario.stop_after]
        cells = [_cell([_cpu(own[k]) if k in own else "–" for k in keys]) for keys in columns.values()]
        pair = [own[k].score if k in own else None for k in ((64, 1), (256, 1))]
        cells.append(_cell([_number(s and s.ttft_error_ms_p99) for s in pair]))
        cells.append(_cell([_number(s and s.chunk_error_ms_p99) for s in pair]))
        cells.append(_marked(pair[1]) if pair[1] else "–")
        cells.append(_cell([_off(own[256, k].score) if (256, k) in own else "–" for k in (1, 4, 16)]))
        cells.append(_cell([_off(r.score) for r in early] or ["–"]))
        version = next(r.version for r in runs if r.client == client)
        rows.append(f"| {client} {version} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _cell(parts: Sequence[str]) -> str:
    """Equal figures once."""
    return parts[0] if len(set(parts)) == 1 else " · ".join(parts)


def _cpu(run: Run) -> str:
    return "–" if run.cpu_s_per_1k_tokens is None else f"{run.cpu_s_per_1k_tokens:.4f}"


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
