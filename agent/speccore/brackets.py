"""Whether brackets, quotes and comments of code in the C family's way of writing close. It is no parser, and does not say that code parses."""

from __future__ import annotations

import re

_FENCE = re.compile(r"^[ \t]*```[^\n]*\n?", re.MULTILINE)
_CLOSES = {")": "(", "]": "[", "}": "{"}
#: A slash after one of these begins a regular expression, elsewhere it divides.
_BEFORE_REGEX = frozenset("(,=:[!&|?{};+-*%~^<>")
_WORDS_BEFORE_REGEX = frozenset({"return", "typeof", "case", "in", "of", "delete", "void", "throw", "new", "else", "do", "await", "yield"})
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/[a-z]*")
_LAST_WORD = re.compile(r"[\w$]+\Z")


def judge_brackets(prompt: str, answer: str, *, cut: bool) -> tuple[bool, str]:
    """Of the code block that the answer stands in or holds first, or else of prompt and answer together.

    A cut answer need not have closed what it opened.
    """
    code, ends = _code(prompt, answer)
    return _Reader(code).judged(cut=cut and not ends)


def _code(prompt: str, answer: str) -> tuple[str, bool]:
    """The code, and whether a fence ends it."""
    fences = list(_FENCE.finditer(prompt))
    if len(fences) % 2:  # the prompt has opened a block, the answer goes on in it
        begun = prompt[fences[-1].end() :]
        closing = _FENCE.search(answer)
        return begun + (answer[: closing.start()] if closing else answer), closing is not None
    opening = _FENCE.search(answer)
    if opening:
        rest = answer[opening.end() :]
        closing = _FENCE.search(rest)
        return rest[: closing.start()] if closing else rest, closing is not None
    return (answer if fences else prompt + answer), False


class _Reader:
    """Goes through code once; ``open`` holds each bracket that is not yet closed, with its line."""

    def __init__(self, code: str) -> None:
        self.code, self.at = code, 0
        self.open: list[tuple[str, int]] = []
        self.last = ""  # the last character that was neither white space nor comment
        self.problem = ""
        self.n_closed = 0

    def judged(self, *, cut: bool) -> tuple[bool, str]:
        unclosed = self._read()
        if self.problem:
            return False, self.problem
        if (unclosed or self.open) and not cut:
            what = unclosed or f"{self.open[-1][0]!r} of line {self.open[-1][1]}"
            return False, f"{what} is not closed"
        if not self.code.strip():
            return False, "there is no code"
        left = f", {len(self.open)} still open where the answer was cut" if self.open else ""
        return True, f"{self.n_closed} pairs of brackets close{left}"

    def _read(self) -> str:
        """Goes to the end or the first problem; returns in words what string or comment the end stands in."""
        while self.at < len(self.code) and not self.problem:
            if unclosed := self._step():
                return unclosed
        return ""

    def _step(self) -> str:
        code, at = self.code, self.at
        char = code[at]
        if code.startswith("//", at):
            end = code.find("\n", at)
            self.at = len(code) if end < 0 else end
            return ""
        if code.startswith("/*", at):
            return self._past("*/", at + 2, "the comment")
        if char in "'\"":
            return self._string(char)
        if char == "`":
            return self._template(at + 1)
        if char == "/" and self._may_be_regex() and (found := _REGEX.match(code, at)):
            self.at, self.last = found.end(), "/"
            return ""
        self.at += 1
        if char in "([{":
            self.open.append((char, self._line(at)))
        elif char in _CLOSES:
            return self._close(char, at)
        if not char.isspace():
            self.last = char
        return ""

    def _close(self, char: str, at: int) -> str:
        """A brace may end the ``${`` of a template, whose text goes on then."""
        opened = self.open.pop() if self.open else ("", 0)
        self.last = char
        if opened[0] == "${" and char == "}":
            return self._template(self.at)
        if opened[0] != _CLOSES[char]:
            what = f"{opened[0]!r} of line {opened[1]}" if opened[0] else "nothing"
            self.problem = f"line {self._line(at)}: {char!r} closes {what}"
        self.n_closed += 1
        return ""

    def _may_be_regex(self) -> bool:
        if not self.last or self.last in _BEFORE_REGEX:
            return True
        word = _LAST_WORD.search(self.code[: self.at].rstrip()[-12:])
        return bool(word and word[0] in _WORDS_BEFORE_REGEX)

    def _past(self, mark: str, start: int, what: str) -> str:
        end = self.code.find(mark, start)
        line = self._line(self.at)
        self.at = len(self.code) if end < 0 else end + len(mark)
        return f"{what} of line {line}" if end < 0 else ""

    def _string(self, quote: str) -> str:
        """Ends on its line, unless a backslash carries it on."""
        start, i = self.at, self.at + 1
        while i < len(self.code) and self.code[i] not in (quote, "\n"):
            i += 2 if self.code[i] == "\\" else 1
        if i >= len(self.code):
            self.at = len(self.code)
            return f"the string of line {self._line(start)}"
        if self.code[i] == "\n":
            self.problem = f"line {self._line(start)}: a string does not end on its line"
        self.at, self.last = i + 1, quote
        return ""

    def _template(self, i: int) -> str:
        """Text up to the closing backquote, or to a ``${``, whose code is read like any other."""
        start = i
        while i < len(self.code):
            if self.code[i] == "`":
                self.at, self.last = i + 1, "`"
                return ""
            if self.code.startswith("${", i):
                self.open.append(("${", self._line(i)))
                self.at, self.last = i + 2, "{"
                return ""
            i += 2 if self.code[i] == "\\" else 1
        self.at = len(self.code)
        return f"the template of line {self._line(start)}"

    def _line(self, at: int) -> int:
        return self.code.count("\n", 0, at) + 1
