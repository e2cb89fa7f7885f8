"""Why an engine did not start or died for want of memory: its own words by kind, their line, and how it ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..errors import EngineError, EngineExitedAtStart, EngineKilledAtStart, EngineNotHealthy, EngineOutOfMemory, SpecWebError

#: Exit codes of signal 9, as Python and as a shell tell it.
KILLED = (-9, 137)


class Fault(NamedTuple):
    """A kind of failure and the words by which an engine tells it."""

    error: type[SpecWebError]
    pattern: re.Pattern[str]
    remedy: str | None = None


def fault(error: type[SpecWebError], pattern: str, remedy: str | None = None) -> Fault:
    """``pattern``: in any case of letters, in one line of a log. ``remedy``: in the place of the error's own."""
    return Fault(error, re.compile(pattern, re.IGNORECASE), remedy)


Numbered = Sequence[tuple[int, str]]
Found = tuple[Fault, int, str]


def lines_of(text: str) -> list[str]:
    """Lines as a viewer of the file counts them: only a line feed ends one, whatever else a prompt's text holds."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def first_fault(faults: Sequence[Fault], telling: Numbered) -> Found | None:
    """The first kind, in order of weight, that a telling line names, with that line's number."""
    return next(((kind, n, line) for kind in faults for n, line in telling if kind.pattern.search(line)), None)


class Told(NamedTuple):
    """What a log tells of a failure. ``plain`` takes a line's time and level off."""

    engine: str
    lines: Sequence[str]
    found: Found | None
    any_error: tuple[int, str] | None  # of a failure that fits no kind, the line that says the most
    plain: Callable[[str], str]
    memory_remedy: str


def memory_fault(told: Told, exit_code: int | None, *, kernel_oom: bool = False) -> EngineOutOfMemory | None:
    """Whether an engine that died while it answered did so for want of memory: by its log, or by the kernel's hand."""
    if told.found and told.found[0].error is EngineOutOfMemory:
        kind, number, line = told.found
        return EngineOutOfMemory(f"{told.engine} ran out of memory: {told.plain(line)}", remedy=kind.remedy, line=number, log=line)
    if kernel_oom and exit_code in KILLED:
        said = f"the kernel killed {told.engine} for want of memory"
        return EngineOutOfMemory(said, remedy=told.memory_remedy, exit_code=exit_code)
    return None


def start_failure(told: Told, exit_code: int | None, *, kernel_oom: bool = False) -> SpecWebError:
    """The typed reason why an engine did not start, with the log's words and their line in the details.

    ``exit_code`` is None for an engine that still runs but never became healthy, and −n for one killed by signal n.
    ``kernel_oom``: while it ran, the kernel killed a process for want of memory.
    """
    if told.found:
        kind, number, line = told.found
        said = f"{told.engine} did not start: {told.plain(line)}"
        return kind.error(said, remedy=kind.remedy, line=number, log=line, exit_code=exit_code)
    if exit_code in KILLED:
        by_kernel = memory_fault(told, exit_code, kernel_oom=kernel_oom)
        return by_kernel or EngineKilledAtStart(f"{told.engine} was killed by signal 9 while it started", exit_code=exit_code)
    number, line = told.any_error or (len(told.lines), told.lines[-1] if told.lines else "")
    details: dict[str, Any] = {"line": number or None, "log": line, "exit_code": exit_code}
    said = f": {told.plain(line)}" if line else ", and its log is empty"
    error: type[EngineError] = EngineNotHealthy if exit_code is None else EngineExitedAtStart
    what = "did not become healthy in time; last in its log" if exit_code is None else f"exited with code {exit_code}"
    return error(f"{told.engine} {what}{said}", **details)
