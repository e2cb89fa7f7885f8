"""The integrity panel says a sentence once, however many comparisons it holds for, and where it holds for one only."""

from __future__ import annotations

from speccore.measurement import Check, ComparisonResult, JobAnalysis

from specweb.dashboard.integrity_panel import integrity


def analysis(*checks: Check) -> JobAnalysis:
    """One comparison for each check, with nothing else in it."""
    comparisons = [ComparisonResult.model_construct(arm=f"draft-{i}", point="count/c1", checks=[check]) for i, check in enumerate(checks)]
    return JobAnalysis.model_construct(comparisons=comparisons, checks=[], answers=[], attempts_used=[])


def test_a_sentence_stands_once_with_how_many_comparisons_it_holds_for():
    few = Check(name="distinct prompts", kind="soft", passed=False, sentence="6 distinct ones", evidence={"n": 6})
    (line,) = integrity(analysis(few, few, few)).lines
    assert line.sentences == ["6 distinct ones (3 comparisons)"]
    assert (line.n, line.n_failed) == (3, 3)


def test_a_sentence_of_one_comparison_names_it_and_numbers_are_short():
    chance = Check(name="Holm", kind="soft", passed=False, sentence="may be chance", evidence={"p": 0.12974716037763379})
    fine = Check(name="Holm", kind="soft", passed=True, sentence="is none")
    (line,) = integrity(analysis(fine, chance)).lines
    assert line.sentences == ["may be chance (draft-1, count/c1)"]
    assert line.evidence == [("p", "0.1297")]


def test_evidence_is_shown_in_words_and_not_as_a_program_writes_it():
    evidence = {
        "trials": {"b1-off": 49.04321, "b2-off": 3},
        "floors": {"c1/ctx0": {"why": "has 0", "n_blocks": 5}},
        "at": [1, 2.5],
        "told": True,
    }
    (line,) = integrity(analysis(Check(name="A/A known", kind="soft", passed=False, sentence="unknown", evidence=evidence))).lines
    assert line.evidence == [
        ("trials", "b1-off 49.04; b2-off 3"),
        ("floors", "c1/ctx0 (why has 0; n_blocks 5)"),
        ("at", "1, 2.5"),
        ("told", "yes"),
    ]


def test_lines_of_one_name_say_what_each_is_about():
    """A check may be hard for one comparison and soft for another: then two lines have its name."""
    hard, soft = (Check(name="drafter alive", kind=kind, passed=True, sentence=f"accepted, {kind}") for kind in ("hard", "soft"))
    rows = [("draft-3", "count", hard), ("draft-8", "count", hard), ("draft-3", "free", soft), ("draft-8", "free", soft)]
    rows += [("ngram", "count", soft), ("ngram", "free", soft)]
    found = [ComparisonResult.model_construct(arm=arm, point=point, checks=[check]) for arm, point, check in rows]
    lines = integrity(JobAnalysis.model_construct(comparisons=found, checks=[], answers=[], attempts_used=[])).lines
    assert {line.kind: line.which for line in lines} == {
        "hard": "draft-3, draft-8 at count",
        "soft": "draft-3, draft-8 at free; ngram at all work",
    }
    assert [line.which for line in integrity(analysis(hard, hard)).lines] == [""]
