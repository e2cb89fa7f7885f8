"""What a job has done so far, block by block: what is left, and which blocks were torn apart and are run whole once more."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

from speccore import early, plan
from speccore.inventory import HostInventory
from speccore.plan import DoneTrial, TrialOutcome
from speccore.protocol import AttemptReport, JobOffer, TrialPlan

log = logging.getLogger(__name__)


class Elapsed:
    """A wall clock that nobody can set: it is read once, and goes on with the time since boot, in which a suspended machine ages."""

    def __init__(self) -> None:
        self._at = datetime.now(UTC)
        self._since = _boot_clock()

    def now(self) -> datetime:
        return self._at + timedelta(seconds=_boot_clock() - self._since)


def _boot_clock() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Blocks:
    """The server has judged the blocks of earlier leases when it made the offer; from then on this keeps account of them."""

    def __init__(self, offer: JobOffer, inventory: HostInventory, clock: Elapsed | None = None) -> None:
        self._offer, self._inventory = offer, inventory
        self._clock = clock or Elapsed()
        self._runs = dict(offer.block_runs)
        self._notes: dict[int, str] = {}
        self._trials = {t.id: t for t in offer.plan.trials}
        self.decided: Mapping[str, int] = offer.decided  # by early looks: arm → its last block
        self._looked_at: set[int] = set()
        self.outcomes = [TrialOutcome(trial=trial) for trial in offer.done_trials]
        offered_at = self._clock.now()
        self._done = [self._done_trial(self._trials[trial], offered_at, offered_at) for trial in offer.done_trials]

    def left(self) -> list[TrialPlan]:
        """The trials still to run, in order; those of torn blocks are all among them, since their attempts count no more."""
        left = self._left()
        torn = plan.torn_blocks(
            self._offer.plan,
            self._done,
            now=self._clock.now(),
            boot_id=self._inventory.boot_id,
            driver=self._inventory.driver(),
            inventory_hash=self._inventory.content_hash(),
            left=[t.id for t in left],
        )
        for block, why in torn.items():
            self._run_once_more(block, why)
        return self._left() if torn else left

    def look_due(self) -> int | None:
        """The block that ended last, where an early look follows upon it and the next has not begun; told once for each block."""
        left = self._left()
        if not left or left[0].block - 1 in self._looked_at or any(self._trials[o.trial].block == left[0].block for o in self.outcomes):
            return None
        ended = left[0].block - 1
        self._looked_at.add(ended)
        return ended if early.is_due(self._offer.spec, self._offer.plan, self.outcomes, self.decided, ended) else None

    def run_of(self, block: int) -> int:
        return self._runs.get(block, 1)

    def note(self, block: int) -> str:
        """For people who watch: why a block is run once more, '' if it isn't."""
        return self._notes.get(block, "")

    def attempt_ended(self, trial: TrialPlan, report: AttemptReport) -> None:
        if report.outcome == "cancelled":
            return
        self.outcomes.append(TrialOutcome(trial=trial.id, n=report.n, error=report.error))
        ended_at = self._clock.now()
        # one that failed counts here too: while it ran the machine was not away
        self._done.append(self._done_trial(trial, ended_at - (report.ended_at - report.started_at), ended_at))

    def _left(self) -> list[TrialPlan]:
        return [trial for trial, _ in plan.next_trials(self._offer.spec, self._offer.plan, self.outcomes, self.decided)]

    def _run_once_more(self, block: int, why: str) -> None:
        self._runs[block] = self.run_of(block) + 1
        self._notes[block] = f"block {block} is run whole once more: {why}"
        log.warning("%s", self._notes[block])
        self.outcomes = [o for o in self.outcomes if self._trials[o.trial].block != block]
        self._done = [d for d in self._done if d.block != block]

    def _done_trial(self, trial: TrialPlan, started_at: datetime, ended_at: datetime) -> DoneTrial:
        return DoneTrial(
            trial=trial.id,
            block=trial.block,
            boot_id=self._inventory.boot_id,
            inventory_hash=self._inventory.content_hash(),
            driver=self._inventory.driver(),
            started_at=started_at,
            ended_at=ended_at,
        )
