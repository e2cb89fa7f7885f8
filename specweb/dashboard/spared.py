"""Trials that a job needs no more, since early looks decided its arms: no gaps, and nobody waits for them. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speccore.plan import BLOCKS_UNTIL_GIVEN_UP, last_blocks_of

from specweb.experiments.models import Job
from specweb.results.models import Trial


def spared(job: Job, trials: Sequence[Trial]) -> Mapping[str, int]:
    """Trial (its id in the plan) → the block after which it was decided. ``trials`` are all of the job, with their attempts."""
    if not job.decided:
        return {}
    arms = {t.arm.name: not t.arm.is_baseline and not t.arm.settings.get("control") for t in trials}
    last = last_blocks_of(arms, job.decided, _given_up(trials))
    return {t.plan_id: last[t.arm.name] for t in trials if t.block > last.get(t.arm.name, t.block) and not t.attempts.all()}


def _given_up(trials: Sequence[Trial]) -> set[str]:
    """Arms that failed in so many blocks that they are not tried again."""
    failed: dict[str, set[int]] = {}
    for trial in trials:
        attempts = [a for a in trial.attempts.all() if a.counted]
        if attempts and not any(a.accepted for a in attempts):
            failed.setdefault(trial.arm.name, set()).add(trial.block)
    return {arm for arm, blocks in failed.items() if len(blocks) >= BLOCKS_UNTIL_GIVEN_UP}
