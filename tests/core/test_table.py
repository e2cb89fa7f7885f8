"""A job's analysis as text for a terminal."""

from __future__ import annotations

from speccore.compare import JobFacts, analyse_job
from speccore.measurement import Check, ComparisonResult, JobAnalysis, Withheld
from speccore.table import analysis_text, failed_checks, quality_lines

from tests.core import made


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


def test_quality_and_the_sampling_test_stand_before_the_checks() -> None:
    spec = made.spec_of(blocks=3)
    plan = made.planned(spec)
    found = analyse_job(spec, plan, made.attempts(spec, plan, {"off": 1.0, "draft-4": 2.0}), [], JobFacts())
    analysis = found.model_copy(update={"sampling": Withheld(withheld="sampling rule: too few draws", reason_code="few")})
    lines = quality_lines(analysis)
    assert lines[0].startswith("count/c1/ctx0/t0, draft-4: task checks not checked: ")
    assert lines[-1] == "sampling rule: too few draws"
    said = "\n".join(["", "quality (not checked is not held; 2 points may be lost):", *(f"  {line}" for line in lines), "", "integrity: "])
    assert said in analysis_text(analysis)
