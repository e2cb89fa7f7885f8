"""Verdicts as exit codes: what holds, what doesn't, and which of several counts."""

from __future__ import annotations

from typing import Any

import pytest
from specclient.errors import BadInput
from specclient.gate import EVERY, Expectation, Wanted, exit_code, expectation, findings, refuse_unknown
from specclient.models import ExperimentWhole

from tests.worlds import spec

JOB = {
    "id": "j1",
    "host": "box",
    "state": "processed",
    "paused": False,
    "cancelling": False,
    "reason": "",
    "retry_of": None,
    "extends": None,
    "blocks": None,
}
KEEP, NO_REGRESSION, ANY = ([Expectation(w)] for w in (Wanted.KEEP, Wanted.NO_REGRESSION, Wanted.ANY))


def comparison(
    word: str, reason: str = "", *, arm: str = "draft-4", point: str = "count/c1/ctx0/t0", ratio: Any = (1.5, 1.4, 1.6), **more: Any
) -> dict[str, Any]:
    estimate, low, high = ratio or (1.0, None, None)
    withheld = {"withheld": "nothing was measured"}
    return {
        "job": "j1",
        "host": "box",
        "arm": arm,
        "mode": "draft",
        "point": point,
        "workload": point.split("/")[0],
        "speedup": {"estimate": estimate, "low": low, "high": high, "n_blocks": 5} if ratio else withheld,
        "acceptance_rate": 0.9,
        "tokens_per_target_pass": 3.2,
        "memory_bill_bytes": withheld,
        "verdict": {"word": word, "reason": reason, "sentence": "a sentence"},
        "recommended": False,
        "url": "http://x/",
        **more,
    }


def experiment(*comparisons: dict[str, Any], jobs: Any = (JOB,), margin: float = 0.05) -> ExperimentWhole:
    head = {"id": "e", "name": "n", "question": "", "team": "t", "visibility": "team", "origin": "service", "state": "processed"}
    dated = {"created_at": "2026-11-30T12:00:00Z", "created_by": None, "url": "http://x/", "spec_hash": "h"}
    return ExperimentWhole.read({**head, **dated, "jobs": list(jobs), "spec": {"margin": margin}, "comparisons": list(comparisons)})


def code(expected: list[Expectation], *comparisons: dict[str, Any], **more: Any) -> int:
    return exit_code(findings(experiment(*comparisons, **more), expected))


@pytest.mark.parametrize(
    ("word", "reason", "ratio", "keep", "no_regression", "any_"),
    [
        ("keep", "faster", (1.5, 1.4, 1.6), 0, 0, 0),
        ("shorten", "shorter limit is better", (1.5, 1.4, 1.6), 10, 0, 0),
        ("disable", "slower", (0.8, 0.75, 0.85), 10, 10, 0),
        ("disable", "slower", (0.97, 0.96, 0.98), 10, 0, 0),  # slower, and by less than the margin
        ("disable", "slower", (0.95, 0.92, 0.98), 10, 10, 0),  # slower for sure, perhaps by more than the margin
        ("disable", "not worth it", (1.01, 0.99, 1.03), 10, 0, 0),
        ("disable", "context", (1.5, 1.4, 1.6), 10, 10, 0),
        ("disable", "does not fit", None, 10, 10, 0),
        ("inconclusive", "noise-limited", (1.05, 0.9, 1.2), 11, 11, 0),
        ("inconclusive", "noise-limited", (1.05, 0.98, 1.12), 11, 0, 0),
        ("inconclusive", "too few blocks", (1.2, None, None), 11, 11, 0),
        ("invalid", "probe failures", (1.5, 1.4, 1.6), 12, 12, 12),
        ("not engaged", "not engaged", None, 12, 12, 12),
    ],
)
def test_each_verdict_under_each_expectation(word: str, reason: str, ratio: Any, keep: int, no_regression: int, any_: int) -> None:
    it = comparison(word, reason, ratio=ratio)
    assert (code(KEEP, it), code(NO_REGRESSION, it), code(ANY, it)) == (keep, no_regression, any_)


def test_without_an_arm_the_best_one_at_each_work_is_meant() -> None:
    good, bad = comparison("keep", "faster", recommended=True), comparison("disable", "slower", arm="draft-8", ratio=(0.8, 0.7, 0.9))
    assert code(KEEP, bad, good) == 0
    other = comparison("disable", "slower", arm="draft-4", point="free-text/c1/ctx0/t0", ratio=(0.8, 0.7, 0.9))
    assert code(KEEP, bad, good, other) == 10, "each work needs an arm to keep"
    broken = comparison("invalid", "probe failures", arm="draft-2", ratio=(9.0, 8.0, 10.0))
    assert [f.arm for f in findings(experiment(broken, bad), KEEP)] == ["draft-8"], "an invalid number is not the best"


def test_an_arm_all_arms_and_a_work_can_be_named() -> None:
    good, bad = comparison("keep", recommended=True), comparison("disable", "slower", arm="draft-8", ratio=(0.8, 0.7, 0.9))
    text = comparison("disable", "slower", point="free-text@2/c1/ctx0/t0", ratio=(0.8, 0.7, 0.9)) | {"workload": "free-text@2"}
    assert code([Expectation(Wanted.KEEP, "draft-4", "count")], good, bad, text) == 0
    assert code([Expectation(Wanted.KEEP, "draft-8")], good, bad) == 10
    assert code([Expectation(Wanted.KEEP, EVERY)], good, bad) == 10
    for work in ("free-text", "free-text@2", "free-text@2/c1/ctx0/t0"):
        assert code([Expectation(Wanted.KEEP, work=work)], good, bad, text) == 10
    assert code([Expectation(Wanted.KEEP, "draft-4", "count"), Expectation(Wanted.ANY, work="free-text")], good, text) == 0


def test_a_control_is_not_judged() -> None:
    control = comparison("inconclusive", "floor-limited", arm="off-again") | {"mode": "off"}
    assert code([Expectation(Wanted.KEEP, EVERY)], comparison("keep"), control) == 0


def test_the_gravest_counts() -> None:
    at = {w: comparison(w, "x", point=f"{w}/c1/ctx0/t0", ratio=(1.0, 0.5, 2.0)) for w in ("keep", "inconclusive", "disable", "invalid")}
    assert code(KEEP, at["keep"], at["inconclusive"]) == 11
    assert code(KEEP, at["keep"], at["inconclusive"], at["disable"]) == 10
    assert code(KEEP, *at.values()) == 12
    failed = JOB | {"id": "j2", "state": "failed", "error": {"message": "the disk is full"}}
    found = findings(experiment(*at.values(), jobs=(JOB, failed)), KEEP)
    assert exit_code(found) == 13
    assert found[0].words == "the job failed: the disk is full"


def test_what_was_tried_again_or_completed_by_another_job_is_no_failure() -> None:
    failed = JOB | {"id": "j0", "state": "failed"}
    assert code(KEEP, comparison("keep"), jobs=(failed, JOB | {"retry_of": "j0"})) == 0
    rest = JOB | {"id": "j2", "extends": "j0"}
    assert code(KEEP, comparison("keep") | {"job": "j0"}, jobs=(failed, rest)) == 0
    assert code(KEEP, comparison("keep"), jobs=(JOB, JOB | {"id": "j2", "state": "cancelled"})) == 13


def test_nothing_compared_is_no_pass() -> None:
    assert code(KEEP) == 12
    assert code([Expectation(Wanted.ANY, "gone")], comparison("keep")) == 12


def test_expectations_are_read_and_refused_in_words() -> None:
    assert expectation("keep") == Expectation(Wanted.KEEP)
    assert expectation("draft-4=no-regression") == Expectation(Wanted.NO_REGRESSION, "draft-4")
    assert expectation("@count=any") == Expectation(Wanted.ANY, "", "count")
    assert expectation("draft-4@count@2=keep") == Expectation(Wanted.KEEP, "draft-4", "count@2")
    with pytest.raises(BadInput, match="'keeep' is nothing to expect"):
        expectation("draft-4=keeep")


def test_an_arm_or_work_that_is_not_there_is_refused_before_anything_runs() -> None:
    refuse_unknown([expectation("draft-4@tiny=keep"), expectation("*=any"), expectation("keep")], spec())
    with pytest.raises(BadInput, match="no arm 'draft-5' that speculates"):
        refuse_unknown([expectation("draft-5=keep")], spec())
    with pytest.raises(BadInput, match="no work 'free-text'"):
        refuse_unknown([expectation("@free-text=keep")], spec())
    with pytest.raises(BadInput, match="no arm 'off'"):
        refuse_unknown([expectation("off=keep")], spec())
