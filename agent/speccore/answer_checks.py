"""Whether an answer is right, judged from its text alone; nothing is ever executed."""

from __future__ import annotations

import ast
import codeop
import re
import warnings
from typing import NamedTuple

from .answers_in_json import judge_json, judge_tool
from .brackets import judge_brackets
from .workload import Check

# Lets the parser tell "the text stops too early" from "the text is wrong"; codeop, its one public user, has it as a module constant.
_ALLOW_INCOMPLETE: int = getattr(codeop, "PyCF_ALLOW_INCOMPLETE_INPUT", 0x4000)
_NUMBER = re.compile(r"\d+")
_SEPARATOR = re.compile(r"[\s,;.]*")


class Judgement(NamedTuple):
    passed: bool
    note: str


def judge_answer(check: Check, prompt: str, answer: str, *, cut: bool) -> Judgement:
    """``cut``: the answer ended at the length limit, so that its end may be missing."""
    match check.kind:
        case "count":
            return _count(check.start or 0, answer, cut=cut)
        case "python":
            return _python(prompt + answer, cut=cut)
        case "brackets":
            return Judgement(*judge_brackets(prompt, answer, cut=cut))
        case "json":
            return Judgement(*judge_json(check, answer, cut=cut))
        case "tool":
            return Judgement(*judge_tool(check, answer, cut=cut))


def _count(start: int, answer: str, *, cut: bool) -> Judgement:
    """The numbers go up by one from ``start``; between them stand white space and , ; . only. A cut last number may be a beginning."""
    expected, at = start, 0
    while at < len(answer):
        separator = _SEPARATOR.match(answer, at)
        at = separator.end() if separator else at
        if at == len(answer):
            break
        number = _NUMBER.match(answer, at)
        if number is None:
            return Judgement(False, f"expected {expected}, found {answer[at : at + 20]!r}")
        if number[0] != str(expected):
            if cut and number.end() == len(answer) and str(expected).startswith(number[0]):
                break
            return Judgement(False, f"expected {expected}, found {number[0][:20]}")
        expected, at = expected + 1, number.end()
    if expected == start:
        return Judgement(False, f"expected {start}, found no number")
    return Judgement(True, f"counts {start} to {expected - 1}")


def _python(source: str, *, cut: bool) -> Judgement:
    """Prompt and answer together are Python; of a cut answer the whole lines must be the beginning of a program."""
    text = source[: source.rfind("\n") + 1] if cut else source
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a doubtful escape is a matter of taste
        try:
            compile(text, "<answer>", "exec", flags=ast.PyCF_ONLY_AST | (_ALLOW_INCOMPLETE if cut else 0), dont_inherit=True)
        except SyntaxError as error:
            if cut and "incomplete input" in str(error):
                return Judgement(True, f"{text.count(chr(10))} lines are the beginning of a program")
            return Judgement(False, f"line {error.lineno}: {error.msg}")
        except (ValueError, RecursionError, MemoryError) as error:
            return Judgement(False, f"can't be parsed: {error}")
    return Judgement(True, f"{text.count(chr(10))} lines parse")
