"""TypeScript to rework and to test: real small pieces of code, in two files beside this one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).parent


def refactor() -> Iterator[tuple[str, str]]:
    """(id, prompt)."""
    for name, wish, code in _pieces("typescript-refactor.txt"):
        yield _id(name), f"Refactor {name}: {wish}.\n\n```typescript\n{code}```\n\nThe whole code after it, in one block:\n"


def tests() -> Iterator[tuple[str, str]]:
    """(id, prompt)."""
    for name, _, code in _pieces("typescript-tests.txt"):
        asked = "The usual case, the edges and wrong input, as one file in one block:\n"
        yield _id(name), f"Write vitest tests for {name}.\n\n```typescript\n{code}```\n\n{asked}"


def _pieces(file: str) -> Iterator[tuple[str, str, str]]:
    """(name, what is wished, code) of each piece under its heading."""
    for piece in re.split(r"^=== ", (_HERE / file).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        heading, _, code = piece.partition("\n")
        name, _, wish = heading.partition(": ")
        yield name, wish, code


def _id(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()
