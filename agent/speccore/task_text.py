"""Where the time of whole tasks goes, as text for a terminal and for pasting."""

from __future__ import annotations

from .measurement import ComparisonResult, Interval, JobAnalysis, Maybe, value_of

_PARTS = (("reading", "task_prefill_s"), ("decoding", "task_decode_s"), ("tools", "task_tool_wait_s"), ("rest", "task_rest_s"))


def task_lines(analysis: JobAnalysis) -> str:
    """A line for each arm at each point of tasks; empty where there are none."""
    lines = [f"  {c.point}, {c.arm}: {task_words(c)}" for c in analysis.comparisons if isinstance(c.task_decode_ratio, Interval)]
    return "\n".join([*(["whole tasks, in seconds:"] if lines else []), *lines])


def task_words(c: ComparisonResult) -> str:
    """Both arms' time with its parts, then both ratios: decoding may gain what the task does not."""
    ratios = [f"decoding alone {_ratio(c.task_decode_ratio)}", f"whole task {_ratio(c.speedup)}"]
    return f"{_side(c, 'arm')}; baseline {_side(c, 'baseline')}; {', '.join(ratios)}"


def _side(c: ComparisonResult, side: str) -> str:
    parts = " + ".join(f"{name} {_seconds(getattr(c, f'{side}_{field}'))}" for name, field in _PARTS)
    return f"{_seconds(getattr(c, f'{side}_equal_work_s'))} = {parts}"


def _seconds(number: Maybe) -> str:
    value = value_of(number)
    return "–" if value is None else f"{value:.2f}"


def _ratio(found: object) -> str:
    return f"{found.estimate:.2f}×" if isinstance(found, Interval) else "–"
