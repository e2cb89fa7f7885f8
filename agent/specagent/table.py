"""A finished local run as JSON: comparisons, answers, and where each number's evidence lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speccore.measurement import ComparisonResult, Interval, JobAnalysis, Withheld, value_of
from speccore.protocol import AttemptReport, JobOffer


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
        "not_restarted": c.not_restarted,
        "acceptance_rate": value_of(c.acceptance_rate),
        "drafted_per_cycle": value_of(c.drafted_per_cycle),
        "mean_acceptance_length": value_of(c.mean_acceptance_length),
        "tokens_per_target_pass": value_of(c.tokens_per_target_pass),
        "memory_bill_bytes": None if (bill := value_of(c.memory_bill_bytes)) is None else round(bill),
    }
