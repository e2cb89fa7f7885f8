"""Comparisons of tasks: where the time of a whole task goes in both arms, and what decoding alone gained beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from . import stats
from .derive import block_range, computed
from .measurement import Interval, Maybe, Withheld
from .pairs import BlockPairs, Matched
from .tasks import Split, passed

PARTS = ("prefill_s", "decode_s", "tool_wait_s", "rest_s")
_NO_TASK = Withheld(withheld="single requests, no task of several turns", reason_code="no_task")
_NO_PAIR = Withheld(withheld="no task was done in both arms", reason_code="no_pairs")


def side_numbers(blocks: Sequence[BlockPairs], point: str, arm: str, baseline: str) -> dict[str, Maybe]:
    """Means over matched tasks of the parts of their time, and the share that passed, by field of ``ComparisonResult``."""
    pairs = _tasks(blocks)
    none = _why_none(blocks, point)
    found: dict[str, Maybe] = {}
    for prefix, name, splits, verdicts in (
        ("arm", arm, [m.right_split for m in pairs], [m.right.check_passed for m in pairs]),
        ("baseline", baseline, [m.left_split for m in pairs], [m.left.check_passed for m in pairs]),
    ):
        what = f"{len(pairs)} matched tasks of {name} at {point}, {block_range(b.block for b in blocks if b.matched)}"
        for part in PARTS:
            seconds = [getattr(s, part) for s in splits if s is not None]
            found[f"{prefix}_task_{part}"] = computed(statistics.fmean(seconds), f"mean task_{part}", what) if seconds else none
        share = passed(verdicts)
        found[f"{prefix}_task_passed"] = (
            computed(share, "tasks whose checks all passed ÷ tasks with a check", what)
            if share is not None
            else Withheld(withheld="no turn has a check", reason_code="no_check")
            if pairs
            else none
        )
    return found


def decode_ratio(blocks: Sequence[BlockPairs], point: str) -> Interval | Withheld:
    """How many times as fast the arm's decoding is, over matched tasks as the speed-up is; waits and prefill left out."""
    if not _tasks(blocks):
        return _why_none(blocks, point)
    values = [v for b in blocks if (v := _decode_value(b)) is not None]
    if not values:
        return Withheld(withheld="no task has anything decoded after its first chunks", reason_code="nothing_counted")
    return stats.ratio_interval(values)


def _decode_value(block: BlockPairs) -> float | None:
    logs = [
        math.log(m.left_split.decode_s / m.right_split.decode_s)
        for m in block.matched
        if m.left_split and m.right_split and m.left_split.decode_s > 0 and m.right_split.decode_s > 0
    ]
    return statistics.fmean(logs) if logs else None


def _why_none(blocks: Sequence[BlockPairs], point: str) -> Withheld:
    asked = any(p.turn is not None for b in blocks for side in (b.left, b.right) for p in side.probes if p.point == point)
    return _NO_PAIR if asked else _NO_TASK


def _tasks(blocks: Sequence[BlockPairs]) -> list[Matched]:
    return [m for b in blocks for m in b.matched if isinstance(m.left_split, Split) and isinstance(m.right_split, Split)]
