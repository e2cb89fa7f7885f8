"""Numbers and codes as they stand in sentences."""

from __future__ import annotations

import pytest
from speccore.compare import JobFacts, TrialFailure, analyse_job
from speccore.formats import plus_minus, reason
from speccore.table import cells

from tests.core.made import attempts, planned, spec_of


@pytest.mark.parametrize(
    ("percent", "said"), [(2.5, "±2.5 %"), (17.3, "±17 %"), (99.4, "±99 %"), (99.9, "over ±100 %"), (170, "over ±100 %")]
)
def test_a_width_is_no_power_of_ten(percent: float, said: str) -> None:
    assert plus_minus(percent) == said


def test_what_failed_is_told_in_words() -> None:
    assert reason("thinking_not_possible") == "thinking not possible"
    spec = spec_of(blocks=3)
    plan = planned(spec)
    died = [
        TrialFailure(trial=t.id, arm=t.arm, block=t.block, code="engine_died", message="it died") for t in plan.trials if t.arm != "off"
    ]
    (failed, *_) = analyse_job(
        spec, plan, attempts(spec, plan, {"off": 1.0}, without=[f.trial for f in died]), died, JobFacts()
    ).comparisons
    assert failed.verdict.reason == "engine_died"
    assert cells(failed)[-1] == "invalid · engine died"
