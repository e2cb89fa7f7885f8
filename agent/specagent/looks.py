"""Early looks on the agent's side: what is decided so far, and the wait for it where a look falls between two blocks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from speccore import early, measure, plan, selfrun
from speccore.measurement import AttemptMeasurement
from speccore.protocol import AttemptReport, JobOffer, Looked
from speccore.workload import Workload

from . import evidence

log = logging.getLogger(__name__)

#: The server reads a block's evidence in a second or two, and is polled every two; longer than this no job waits for its word.
WAIT_S = 30.0
_LOOK_S = 0.1


class Looks(Protocol):
    """``decided``: arm → the block after which it needs no other."""

    @property
    def decided(self) -> Mapping[str, int]: ...

    def after(self, block: int) -> None:
        """A look is due with this block, which is whole. May take a while; raises nothing where there is no word."""
        ...


class NoLooks:
    decided: Mapping[str, int] = {}

    def after(self, block: int) -> None:
        """Nobody looks."""


class ServerLooks:
    """The server decides, since it holds the evidence of all leases; its word comes with a poll, in another thread than the job's."""

    def __init__(
        self, offer: JobOffer, stop: threading.Event, is_away: Callable[[], bool] = lambda: False, *, wait_s: float | None = None
    ) -> None:
        """``is_away``: the server answers no polls now, so that nobody waits for it; else :data:`WAIT_S` at the most."""
        self._job_id, self._stop, self._is_away = offer.job_id, stop, is_away
        self._wait_s = WAIT_S if wait_s is None else wait_s
        self._word = Looked(job_id=offer.job_id, after_block=offer.looked_after, decided=offer.decided)

    @property
    def decided(self) -> Mapping[str, int]:
        return self._word.decided

    def tell(self, word: Looked) -> None:
        """The server's word; may be called from any thread."""
        if word.job_id != self._job_id or word == self._word:
            return
        for arm in word.decided.keys() - self._word.decided.keys():
            log.info("arm %s is decided after block %d: it needs no other", arm, word.decided[arm])
        self._word = word

    def after(self, block: int) -> None:
        deadline = time.monotonic() + self._wait_s
        while self._word.after_block < block and time.monotonic() < deadline and not self._is_away():
            if self._stop.wait(_LOOK_S):
                return
        if self._word.after_block < block:
            log.info("the server has not looked at block %d yet: the job goes on, and no arm leaves it until it has", block)


class FolderLooks:
    """The run decides by itself, from the evidence in its folder."""

    def __init__(
        self,
        offer: JobOffer,
        workloads: Mapping[str, Workload],
        counted: Callable[[], list[tuple[AttemptReport, Path]]],
        say: Callable[[str, int], None] = lambda text, n_spared: None,
    ) -> None:
        """``say`` hears of each arm that is decided, and how many starts that spares."""
        self._offer, self._workloads, self._counted, self._say = offer, workloads, counted, say
        self._trials = {t.id: t for t in offer.plan.trials}
        self._measured: dict[str, AttemptMeasurement] = {}
        self.decided: Mapping[str, int] = {}

    def measurement(self, report: AttemptReport, folder: Path) -> AttemptMeasurement:
        """Of an attempt, read once."""
        if report.attempt_id not in self._measured:
            found = measure.measure_attempt(evidence.read(folder), self._offer.spec, self._workloads)
            # Evidence that is damaged by now may not say any more whose it is; that it changed is told beside its numbers.
            arm = self._offer.spec.arm(self._trials[report.trial].arm)
            whose = {"attempt_id": report.attempt_id, "trial": report.trial, "block": self._trials[report.trial].block}
            self._measured[report.attempt_id] = found.model_copy(update={**whose, "arm": arm.name, "mode": arm.mode})
        return self._measured[report.attempt_id]

    def after(self, block: int) -> None:
        self.recall()

    def recall(self) -> None:
        """Takes all looks that the folder's evidence allows, also those of a run that was stopped before."""
        offer, counted = self._offer, self._counted()
        if not offer.spec.sequential:
            return
        good = [self.measurement(report, folder) for report, folder in counted if report.outcome == "ok"]
        again = {report.trial for report, _ in counted if report.outcome == "failed"}
        basis = early.Basis(offer.spec, offer.plan, self._workloads, run_again=again & {m.trial for m in good})
        outcomes = selfrun.outcomes(offer, [report for report, _ in counted])
        found = early.look_so_far(basis, outcomes, good)
        for arm in sorted(found.decided.keys() - self.decided.keys()):
            before = len(plan.not_needed(offer.spec, offer.plan, outcomes, self.decided))
            self.decided = {**self.decided, arm: found.decided[arm]}
            n_spared = len(plan.not_needed(offer.spec, offer.plan, outcomes, self.decided)) - before
            seen = "; ".join(s.decision.sentence for s in found.points[arm].values())
            self._say(f"{arm} is decided after block {found.decided[arm]}: {seen}", n_spared)
