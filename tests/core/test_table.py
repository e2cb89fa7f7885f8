"""A job's analysis as text for a terminal."""

from __future__ import annotations

from speccore.measurement import Check, ComparisonResult, JobAnalysis
from speccore.table import failed_checks


def test_a_failed_check_tells_of_which_comparison() -> None:
    lag = Check(name="client lag", kind="hard", passed=False, sentence="late")
    cores = Check(name="cores", kind="soft", passed=False, sentence="shared")
    busy = Check(name="device", kind="soft", passed=False, sentence="busy")
    fine = Check(name="Holm", kind="soft", passed=True, sentence="no chance")
    comparisons = [
        ComparisonResult.model_construct(point="count/c1", arm=arm, checks=checks)
        for arm, checks in (("draft-3", [lag, busy]), ("draft-8", [busy, fine]))
    ]
    said = failed_checks(JobAnalysis.model_construct(checks=[cores], comparisons=comparisons))
    assert said.splitlines() == [
        "integrity: these checks failed",
        "  soft: cores: shared",
        "  hard: client lag: late (count/c1, draft-3)",
        "  soft: device: busy (2 comparisons)",
    ]
