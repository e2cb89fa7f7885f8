"""Whether an answer is right, by its text alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from speccore.answer_checks import judge_answer
from speccore.workload import Check


def count(answer: str, start: int = 5, *, cut: bool = True) -> tuple[bool, str]:
    return judge_answer(Check(kind="count", start=start), "Count on:\n", answer, cut=cut)


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("5, 6, 7", "counts 5 to 7"),
        ("5\n6\n7\n8", "counts 5 to 8"),
        (", 5, 6, ", "counts 5 to 6"),
        ("5 6 7 8 9 1", "counts 5 to 9"),  # a 10 that the limit cut
        ("5", "counts 5 to 5"),
    ],
)
def test_counting_that_goes_on(answer: str, note: str) -> None:
    assert count(answer) == (True, note)


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        ("", "expected 5, found no number"),
        ("6, 7", "expected 5, found 6"),
        ("5, 6, 6", "expected 7, found 6"),
        ("5, 6, 8, 9", "expected 7, found 8"),
        ("5, 6, seven", "expected 7, found 'seven'"),
        ("5 - 6", "expected 6, found '- 6'"),
        ("5, 6, 7, 8, 9, 1, 11", "expected 10, found 1"),
        ("5678", "expected 5, found 5678"),
        ("5, 6, 9", "expected 7, found 9"),
    ],
)
def test_counting_that_is_wrong(answer: str, note: str) -> None:
    assert count(answer) == (False, note)


def test_a_beginning_of_a_number_counts_only_where_the_answer_was_cut() -> None:
    assert count("8, 9, 1", 8, cut=True) == (True, "counts 8 to 9")
    assert count("8, 9, 1", 8, cut=False) == (False, "expected 10, found 1")


def python(prompt: str, answer: str, *, cut: bool = True) -> bool:
    return judge_answer(Check(kind="python"), prompt, answer, cut=cut)[0]


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("def f(x):\n", "    return x + 1\n"),
        ("def f(x):\n", '    """Doc\n    goes on'),  # ends inside a text of several lines
        ("class A:\n    def __init__(self, name):\n", "        self.name = na"),
        ("x = [\n", "    1,\n    2,\n    'thr"),
        ("def f():\n    ", "try:\n        pass\n    exc"),
        ("if x:\n", "    pass\nelse:\n"),
        ("x = 1\n", "y = 'unfinished"),  # the last line is not whole and is left out
    ],
)
def test_beginnings_of_programs(prompt: str, answer: str) -> None:
    assert python(prompt, answer)


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("def f(x):\n", "return x\n"),
        ("x = 1\n", "y = = 2\nz"),
        ("def f():\n", "    return 1\n   bad\n"),
        ("x = (1\n", "]\n"),
        ("x = 1\n", "print 'hello'\n"),
        ("x = 1\n", "a\x00b\n"),
        ("x = 1\n", "y = " + "(" * 3000 + "\n"),
    ],
)
def test_text_that_no_program_begins_with(prompt: str, answer: str) -> None:
    assert not python(prompt, answer)


def test_an_answer_that_ended_by_itself_must_be_whole() -> None:
    assert python("def f():\n", "    return 1", cut=False)
    assert not python("def f():\n", "", cut=False)
    assert not python("x = 1\n", "y = 'unfinished", cut=False)


def test_nothing_is_executed(tmp_path: Path) -> None:
    target = tmp_path / "made"
    assert python("import os\n", f"open({str(target)!r}, 'w').close()\nraise SystemExit\n", cut=False)
    assert not target.exists()
