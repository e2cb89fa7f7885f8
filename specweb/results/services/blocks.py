"""Blocks that were torn apart: their attempts are void, and they are run whole once more."""

from __future__ import annotations

from datetime import datetime, timedelta

from speccore.errors import BlockKeepsTearing
from speccore.inventory import HostInventory as Inventory
from speccore.plan import DoneTrial, torn_blocks
from speccore.protocol import JobPlan

from specweb.experiments.models import Job, Lease
from specweb.results.models import Attempt
from specweb.results.queries import done_trials

#: A host that tears a block apart again and again would never come to its end.
MAX_BLOCK_RUNS = 5


def take_stock(job: Job, lease: Lease, now: datetime, clock_behind: timedelta = timedelta(0)) -> list[str]:
    """Voids the blocks that can't go on under a new lease, then names the trials that need no further attempt.

    ``clock_behind``: by how much the host's clock is behind ours; negative if it is ahead. Runs in the transaction that grants
    the lease and holds the job's lock. Raises :class:`BlockKeepsTearing`.
    """
    done = done_trials(job)
    torn = _torn(job, lease, done, now, clock_behind)
    for block, reason in torn.items():
        run = job.run_of(block) + 1
        if run > MAX_BLOCK_RUNS:
            raise BlockKeepsTearing(f"block {block} was torn apart {MAX_BLOCK_RUNS} times; at last: {reason}", block=block)
        void_block(job, block, run, reason)
    return done_trials(job) if torn else done


def void_block(job: Job, block: int, run: int, reason: str) -> None:
    """Only the attempts of a block's ``run``, and of later ones, count from now on. The caller holds the job's lock."""
    earlier = Attempt.objects.filter(trial__job=job, trial__block=block, block_run__lt=run, counted=True)
    earlier.update(counted=False, accepted=False, void_reason=f"block {block} was run anew: {reason}")
    job.block_runs = {**job.block_runs, str(block): run}
    Job.objects.filter(pk=job.pk).update(block_runs=job.block_runs)


def _torn(job: Job, lease: Lease, done: list[str], now: datetime, clock_behind: timedelta) -> dict[int, str]:
    attempts = list(
        Attempt.objects.filter(trial__job=job, counted=True)
        .exclude(outcome="cancelled")
        .select_related("trial", "lease__inventory")
        .order_by("received_at")
    )
    inventory = lease.inventory or job.inventory
    if not attempts or inventory is None:
        return {}
    known: dict[int, Inventory] = {}

    def parsed(of: Lease) -> tuple[str, Inventory]:
        row = of.inventory or inventory
        if row.pk not in known:
            known[row.pk] = row.parsed
        return row.hash, known[row.pk]

    ended = []
    for a in attempts:
        digest, its = parsed(a.lease)
        times = {"started_at": a.started_at, "ended_at": _by_our_clock(a, clock_behind)}
        ended.append(
            DoneTrial(trial=a.trial.plan_id, block=a.trial.block, boot_id=a.boot_id, inventory_hash=digest, driver=its.driver(), **times)
        )
    digest, today = parsed(lease)
    plan = JobPlan.model_validate(job.plan)
    left = {t.id for t in plan.trials} - set(done)
    return torn_blocks(plan, ended, now=now, boot_id=today.boot_id, driver=today.driver(), inventory_hash=digest, left=left)


def _by_our_clock(attempt: Attempt, clock_behind: timedelta) -> datetime:
    """When an attempt ended: before its report came, whatever the host's clock says."""
    try:
        return min(attempt.ended_at + clock_behind, attempt.received_at)
    except OverflowError:  # a clock so wrong tells nothing
        return attempt.received_at
