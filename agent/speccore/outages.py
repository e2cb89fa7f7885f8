"""Trials that never ran: whether an arm does not fit, or what kept it or its baseline from running while the other ran."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from .inventory import Peer
from .plan import BLOCKS_UNTIL_GIVEN_UP
from .stats import MIN_BLOCKS


class TrialFailure(Peer):
    """An attempt that does not count: also the first of a trial that went well at the second. ``oom``: out of memory."""

    trial: str
    arm: str
    block: int
    code: str
    message: str
    oom: bool = False


def outage(
    arm_lost: Sequence[TrialFailure],
    baseline_lost: Sequence[TrialFailure],
    arm_ran: Collection[int],
    baseline_ran: Collection[int],
    n_blocks: int,
) -> dict[str, Any]:
    """What the verdict is to know, by field. ``…_lost``: failures of trials without an attempt that counts; ``…_ran``: blocks with one.

    Failed in two blocks in which the other ran is no accident, and a verdict on the rest would be one on the starts that went
    well. Where too few blocks are left for a verdict, what took them is named, be it of one block if there is no other.
    """
    found: dict[str, Any] = {"oom_blocks": len({f.block for f in arm_lost if f.oom} & set(baseline_ran))}
    for lost, ran, other in ((arm_lost, baseline_ran, "the baseline"), (baseline_lost, arm_ran, "the arm")):
        alone = [f for f in lost if f.block in ran]
        if len({f.block for f in alone}) >= BLOCKS_UNTIL_GIVEN_UP:
            return found | _failure(alone, f" in which {other} ran")
    either = arm_lost or baseline_lost
    if n_blocks < MIN_BLOCKS and either and (n_blocks == 0 or len({f.block for f in either}) >= BLOCKS_UNTIL_GIVEN_UP):
        return found | _failure(either)
    return found


def _failure(lost: Sequence[TrialFailure], where: str = "") -> dict[str, str]:
    last, n = lost[-1], len({f.block for f in lost})
    return {"failure": last.code, "failure_sentence": f"{last.arm} failed in {n} block{'' if n == 1 else 's'}{where}: {last.message}"}
