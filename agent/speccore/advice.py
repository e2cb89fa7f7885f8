"""One answer for each kind of work: what to do there, in a word, with the arm and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .attached import LABEL
from .measurement import ComparisonResult, Interval, value_of
from .metrics import METRICS
from .quality_results import GREEDY_ANSWERS, TASK_CHECKS
from .spec import Point
from .verdict import ratio


def answer(point: Point, compared: Sequence[ComparisonResult]) -> dict[str, Any]:
    """Keep the recommended arm; else the most hopeful word among the arms, with the arm that stands for it.

    An arm that may still turn out worth keeping (inconclusive) outweighs those that are not; an answer is invalid only if
    nothing was measured. Control arms answer nothing.
    """
    arms = [c for c in compared if c.mode != "off"]
    best = next((c for c in arms if c.recommended), None)
    for word in ("keep", "inconclusive", "disable", "shorten", "not engaged", "invalid"):
        if best is None:
            best = max((c for c in arms if c.verdict.word == word), key=_estimate, default=None)
    where = ", ".join([f"{point.workload} at temperature {point.sampling.temperature:g}", *point.manner])
    if best is None:
        return {"point": point.key, "word": "invalid", "arm": None, "sentence": f"{where}: no arm with speculation was compared"}
    speedup = best.speedup if isinstance(best.speedup, Interval) else None
    return {
        "point": point.key,
        "word": best.verdict.word,
        "arm": best.arm,
        "sentence": _sentence(where, best),
        "next_step": best.verdict.next_step,
        "speedup": speedup.estimate if speedup else None,
        "ci_low": speedup.low if speedup else None,
        "ci_high": speedup.high if speedup else None,
        "memory_bill_bytes": value_of(best.memory_bill_bytes),
        **({"not_restarted": True} if best.not_restarted else {}),
    }


def _estimate(c: ComparisonResult) -> float:
    return c.speedup.estimate if isinstance(c.speedup, Interval) else 0.0


def _sentence(where: str, best: ComparisonResult) -> str:
    verdict = best.verdict
    if verdict.word == "keep":
        return f"{where}: keep {best.arm}, {_terms(best)}"
    if verdict.word == "disable":
        return f"{where}: disable speculation; the best arm, {best.arm}, {verdict.sentence}"
    return f"{where}: {verdict.word}; {best.arm}: {verdict.sentence}"


def _terms(best: ComparisonResult) -> str:
    """What is gained and what it costs: ``2.41× [2.33–2.49], +1,130 MiB, context kept; quality not shown: …``."""
    parts = [ratio(best.speedup)] if isinstance(best.speedup, Interval) else []
    bill = value_of(best.memory_bill_bytes)
    if bill is not None:
        metric = METRICS["memory_bill_bytes"]
        parts.append(f"{metric.show(bill)} {metric.unit}")
    if best.context_lost_tokens is not None:
        lost = best.context_lost_tokens
        parts.append("context kept" if lost <= 0 else f"{lost:,} tokens of context per slot lost")
    notes = [c.sentence for c in best.checks if c.name == TASK_CHECKS and c.state != "passed"]
    notes += [c.sentence for c in best.checks if c.name == GREEDY_ANSWERS and c.state == "failed"]  # a fast wrong arm is no good news
    notes += [LABEL] if best.not_restarted else []
    return "; ".join([", ".join(parts), *notes])
