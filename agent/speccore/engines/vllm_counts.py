"""What vLLM counts: its counters in /metrics by alias, the steps that a reply may list, and its log's line on speculation."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

#: Canonical name: names that builds have used. Counters are summed over labels: each engine of a deployment has its own.
ALIASES: dict[str, tuple[str, ...]] = {
    "drafts": ("vllm:spec_decode_num_drafts_total", "vllm:spec_decode_num_drafts"),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total", "vllm:spec_decode_num_draft_tokens"),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_accepted_tokens"),
    "generated": ("vllm:generation_tokens_total", "vllm:generation_tokens"),
    "engine_steps": ("vllm:iteration_tokens_total_count",),
}
BY_POSITION = ("vllm:spec_decode_num_accepted_tokens_per_pos_total", "vllm:spec_decode_num_accepted_tokens_per_pos")

_SAMPLE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>[-+0-9.eE]{1,40})\s*$", re.ASCII)
_POSITION = re.compile(r'(?:^|,)position="(\d{1,4})"', re.ASCII)
_INTERVAL = re.compile(r"SpecDecoding metrics: .*\bAccepted: (?P<accepted>[0-9]{1,15}) tokens, Drafted: (?P<drafted>[0-9]{1,15}) tokens")


@dataclass(frozen=True)
class Totals:
    """Counters at one moment, or their growth; None where the engine has no such counter. It has none for speculation while that is off."""

    drafts: float | None = None
    drafted: float | None = None
    accepted: float | None = None
    generated: float | None = None
    engine_steps: float | None = None
    accepted_by_position: list[int] | None = None


@dataclass(frozen=True)
class Steps:
    """The steps of one answer that had a draft, in order. ``faults`` name what contradicts the reply's own sums."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


def totals(metrics_text: str) -> Totals:
    """Reads /metrics. Lines that end in ``_created`` are times, not counts."""
    sums: dict[str, float] = {}
    positions: dict[int, float] = {}
    for line in metrics_text.splitlines():
        match = _SAMPLE.match(line)
        value = _count(match["value"]) if match else None
        if match is None or value is None:
            continue
        sums[match["name"]] = sums.get(match["name"], 0.0) + value
        if match["name"] in BY_POSITION and (position := _POSITION.search(match["labels"] or "")):
            positions[int(position[1])] = positions.get(int(position[1]), 0.0) + value
    found = {key: next((sums[n] for n in names if n in sums), None) for key, names in ALIASES.items()}
    whole = sorted(positions) == list(range(len(positions)))
    return Totals(**found, accepted_by_position=[int(positions[i]) for i in sorted(positions)] if positions and whole else None)


def growth(before: Totals, after: Totals) -> Totals:
    """After minus before; None where either lacks the counter, or it was reset between."""
    grown: dict[str, Any] = {}
    for key in ALIASES:
        a, b = getattr(before, key), getattr(after, key)
        grown[key] = None if a is None or b is None or b < a else b - a
    first, last = before.accepted_by_position, after.accepted_by_position
    if first is not None and last is not None and len(first) == len(last):
        by_position = [b - a for a, b in zip(first, last, strict=True)]
        grown["accepted_by_position"] = by_position if min(by_position, default=0) >= 0 else None
    return Totals(**grown)


def request_steps(reply: Mapping[str, Any]) -> Steps | None:
    """The steps of one answer from ``metrics`` in its reply (the last event, if streamed); None if it lists none."""
    metrics = reply.get("metrics")
    said = metrics.get("speculative_decoding") if isinstance(metrics, dict) else None
    if not isinstance(said, dict):
        return None
    drafted, accepted = said.get("per_step_drafted"), said.get("per_step_accepted")
    if not _is_counts(drafted) or not _is_counts(accepted):
        return None
    faults = []
    if len(drafted) != len(accepted):
        return Steps(faults=[f"{len(drafted)} steps drafted, {len(accepted)} accepted"])
    for what, ours, key in (
        ("steps", len(drafted), "num_spec_steps"),
        ("drafted", sum(drafted), "num_draft_tokens"),
        ("accepted", sum(accepted), "num_accepted_draft_tokens"),
    ):
        if key in said and said[key] != ours:
            faults.append(f"{what}: {ours} by step, {said[key]} by {key}")
    faults += [f"step {i} accepted {a} of {d}" for i, (d, a) in enumerate(zip(drafted, accepted, strict=True), 1) if a > d]
    return Steps(drafted, accepted, faults)


def log_intervals(log_text: str) -> list[tuple[int, int, int]]:
    """(line, drafted, accepted) of each logging interval. An unknown wording gives none, never zero; prefer /metrics."""
    found = []
    for number, line in enumerate(log_text.split("\n"), 1):
        if match := _INTERVAL.search(line):
            found.append((number, int(match["drafted"]), int(match["accepted"])))
    return found


def _is_counts(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value)


def _count(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None
