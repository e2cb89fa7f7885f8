"""vLLM's log: version, memory, speculation, what it settled by itself, and why a start failed."""

from __future__ import annotations

from ..errors import EngineError, EngineExitedAtStart, EngineKilledAtStart, EngineNotHealthy, EngineOutOfMemory, SpecWebError
from ..measurement import LogFacts
from .shapes import LogRequest

#: Exit codes of signal 9, as Python and as a shell tell it.
KILLED = (-9, 137)
_MEMORY_REMEDY = "Use a smaller context, fewer slots or a smaller helper model."


def parse_log(text: str) -> LogFacts:
    """What the log tells, each with its line (from 1). An empty log gives empty facts."""
    return LogFacts()


def log_requests(text: str) -> list[LogRequest]:
    """vLLM's log tells nothing of single requests."""
    return []


def memory_fault(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> EngineOutOfMemory | None:
    """Whether an engine that died while it answered did so for want of memory."""
    if kernel_oom and exit_code in KILLED:
        return EngineOutOfMemory("the kernel killed vLLM for want of memory", remedy=_MEMORY_REMEDY, exit_code=exit_code)
    return None


def start_failure(log_text: str, exit_code: int | None, *, kernel_oom: bool = False) -> SpecWebError:
    """The typed reason why an engine did not start, with the log's last words."""
    if exit_code in KILLED:
        return memory_fault(log_text, exit_code, kernel_oom=kernel_oom) or EngineKilledAtStart(
            "vLLM was killed by signal 9 while it started", exit_code=exit_code
        )
    lines = log_text.rstrip().splitlines()
    said = f": {lines[-1].strip()}" if lines else ", and its log is empty"
    error: type[EngineError] = EngineNotHealthy if exit_code is None else EngineExitedAtStart
    what = "did not become healthy in time; last in its log" if exit_code is None else f"exited with code {exit_code}"
    return error(f"vLLM {what}{said}", line=len(lines) or None, exit_code=exit_code)
