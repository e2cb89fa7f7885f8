"""A finished local run as text and as JSON: comparisons, answers, and where each number's evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Maybe, Withheld, value_of
from speccore.protocol import AttemptReport, JobOffer

HEAD = ("work", "arm", "speed-up", "95 % interval", "blocks", "accepted", "tokens/pass", "memory", "verdict")
LEFT = frozenset({0, 1, 8})


def comparison_table(analysis: JobAnalysis) -> str:
    """One line for each arm and point. What is withheld shows as –, its reason stands in the verdict or in the JSON."""
    rows = [HEAD, *(cells(c) for c in analysis.comparisons)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
    lines = []
    for row in rows:
        padded = [cell.ljust(width) if i in LEFT else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("─" * width for width in widths))
    return "\n".join(lines)


def answer_lines(analysis: JobAnalysis) -> str:
    return "\n".join(f"{a['point']}: {a['sentence']}" for a in analysis.answers)


def failed_checks(analysis: JobAnalysis) -> str:
    """The integrity panel in short: what failed with its sentence, what was not checked by name."""
    checks = [*analysis.checks, *(c for comparison in analysis.comparisons for c in comparison.checks)]
    failed = dict.fromkeys(f"  {c.kind}: {c.name}: {c.sentence}" for c in checks if c.state == "failed")
    unchecked = dict.fromkeys(c.name for c in checks if c.state == "not checked")
    lines = ["integrity: " + ("these checks failed" if failed else "no check failed"), *failed]
    if unchecked:
        lines.append(f"  not checked: {', '.join(unchecked)}")
    return "\n".join(lines)


def as_json(offer: JobOffer, host_name: str, reports: Sequence[AttemptReport], analysis: JobAnalysis | None) -> dict[str, Any]:
    """The demo's shape, with the whole analysis beside it."""
    return {
        "experiment": offer.spec.name,
        "url": "",
        "n_trials": len(offer.plan.trials),
        "comparisons": [_flat(c, host_name) for c in analysis.comparisons] if analysis else [],
        "evidence": [
            {"trial": r.trial, "attempt": r.attempt_id, "file": ref.name, "sha256": ref.sha256, "bytes": ref.bytes}
            for r in reports
            for ref in r.evidence
        ],
        "analysis": analysis.model_dump(mode="json") if analysis else None,
    }


def cells(c: ComparisonResult) -> tuple[str, ...]:
    """A comparison under :data:`HEAD`."""
    speedup = c.speedup if isinstance(c.speedup, Interval) else None
    interval = f"{speedup.low:.2f}–{speedup.high:.2f}" if speedup and speedup.low is not None and speedup.high is not None else "–"
    verdict = f"{c.verdict.word} · {c.verdict.reason}" if c.verdict.reason else c.verdict.word
    return (
        c.point,
        c.arm,
        f"{speedup.estimate:.2f}×" if speedup else "–",
        interval,
        str(speedup.n_blocks) if speedup else "0",
        _shown(c.acceptance_rate, "{:.2f}"),
        _shown(c.tokens_per_target_pass, "{:.2f}"),
        _memory(c.memory_bill_bytes),
        verdict + (" ★" if c.recommended else ""),
    )


def _shown(number: Maybe, form: str) -> str:
    value = value_of(number)
    return "–" if value is None else form.format(value)


def _memory(number: Maybe) -> str:
    value = value_of(number)
    return "–" if value is None else f"{value / 2**20:+.0f} MiB"


def _flat(c: ComparisonResult, host_name: str) -> dict[str, Any]:
    speedup = c.speedup
    is_known = isinstance(speedup, Interval)
    return {
        "host": host_name,
        "arm": c.arm,
        "mode": c.mode,
        "workload": c.workload,
        "concurrency": c.concurrency,
        "occupied_context": c.occupied_context,
        "temperature": c.temperature,
        "speedup": speedup.estimate if isinstance(speedup, Interval) else None,
        "ci_low": speedup.low if isinstance(speedup, Interval) else None,
        "ci_high": speedup.high if isinstance(speedup, Interval) else None,
        "n_blocks": speedup.n_blocks if isinstance(speedup, Interval) else 0,
        "withheld": speedup.withheld if is_known or isinstance(speedup, Withheld) else "",
        "verdict": c.verdict.word,
        "reason": c.verdict.reason,
        "acceptance_rate": value_of(c.acceptance_rate),
        "drafted_per_cycle": value_of(c.drafted_per_cycle),
        "mean_acceptance_length": value_of(c.mean_acceptance_length),
        "tokens_per_target_pass": value_of(c.tokens_per_target_pass),
        "memory_bill_bytes": None if (bill := value_of(c.memory_bill_bytes)) is None else round(bill),
    }
