"""The slow requests of a comparison: percentiles where there are probes enough for them, else what is missing."""

from __future__ import annotations

import random

import numpy as np
import pytest
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import ComparisonResult, TailLine, WithheldTail
from speccore.protocol import ProbePlan, TrialPlan

from tests.core import made


def noise(trial: TrialPlan, probe: ProbePlan) -> float:
    """Of probes alone: starts are alike."""
    return 1 + random.Random(trial.id + probe.id).uniform(-0.05, 0.05)


def compared(blocks: int, probes: int, concurrency: int = 1) -> tuple[ComparisonResult, dict[str, list[float]]]:
    """One comparison, and the end-to-end seconds of each side."""
    points = [{"workload": "count", "probes": probes, "concurrency": concurrency}]
    spec = made.spec_of(points=points, blocks=blocks, engine={"slots": concurrency})
    plan = made.planned(spec, count=made.workload(n=150, n_warmup=8))
    ran = made.attempts(spec, plan, {"off": 1.0, "draft-4": 1.5}, noise=noise)
    seconds = {arm: [p.e2e_s.value for a in ran if a.arm == arm for p in a.probes] for arm in ("off", "draft-4")}  # type: ignore[union-attr]
    return analyse_job(spec, plan, ran, [], JobFacts()).comparisons[0], seconds


def test_p95_from_100_probes_and_p99_from_500() -> None:
    few, _ = compared(9, 11)
    assert {t.withheld for t in few.tails if isinstance(t, WithheldTail) and t.metric == "e2e_s" and t.quantile == 0.95} == {
        "p95 needs 100 probes, has 99"
    }
    c, seconds = compared(10, 20)
    lines = {(t.side, t.metric, t.quantile): t for t in c.tails}
    found = lines["arm", "e2e_s", 0.95]
    assert isinstance(found, TailLine)
    assert found.value == sorted(seconds["draft-4"])[189]
    assert found.low < found.value < (found.high or 0)
    assert (found.n_probes, found.n_trials) == (200, 10)
    withheld = lines["baseline", "e2e_s", 0.99]
    assert isinstance(withheld, WithheldTail)
    assert withheld.withheld == "p99 needs 500 probes, has 200"
    c, seconds = compared(5, 100)
    found = next(t for t in c.tails if (t.side, t.metric, t.quantile) == ("baseline", "e2e_s", 0.99))
    assert isinstance(found, TailLine)
    assert found.value == pytest.approx(np.sort(seconds["off"])[494])


def test_each_side_has_what_a_person_waits_for() -> None:
    c, _ = compared(3, 2)
    assert {(t.side, t.metric) for t in c.tails} == {
        (side, metric) for side in ("arm", "baseline") for metric in ("ttft_any_s", "e2e_s", "equal_work_s", "token_latency_ms")
    }
    words = {t.metric: t.withheld for t in c.tails if isinstance(t, WithheldTail) and t.quantile == 0.95}
    assert words["ttft_any_s"] == "p95 needs 100 probes, has 6"
    assert words["token_latency_ms"] == "p95 needs 100 probes, has 0"


def test_under_load_there_is_no_time_for_equal_work() -> None:
    c, _ = compared(3, 24, concurrency=2)
    assert {t.metric for t in c.tails} == {"ttft_any_s", "e2e_s", "token_latency_ms"}
