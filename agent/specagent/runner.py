"""Runs a job: prepares it on this host, then trial after trial as the plan's policy says, each result to a sink."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Protocol

from speccore import engines, plan
from speccore.errors import HostError, PlanDiffers, SpecWebError
from speccore.plan import TrialOutcome
from speccore.protocol import Finished, JobOffer, Running
from speccore.workload import Workload

from .inventory import Host
from .launch import disk_error
from .trial import Attempt, AttemptDone, PreparedJob, render

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Where the results of a job go. What it raises ends the job."""

    def next_attempt(self, trial: str) -> int:
        """The number of the next attempt at a trial, from 1, over all leases of the job."""
        ...

    def attempt(self, done: AttemptDone) -> None:
        """Takes over an attempt with its folder."""
        ...


def prepare(offer: JobOffer, workloads: Mapping[str, Workload], host: Host) -> PreparedJob:
    """Everything that a job needs from this host. Raises if a build, model or command is not what was offered.

    ``workloads`` are keyed as the points name them.
    """
    target = host.model(offer.target_hash)
    drafts = {arm: host.model(manifest_hash) for arm, manifest_hash in offer.draft_hashes.items()}
    threads = offer.spec.engine.threads or host.inventory.default_threads()
    job = PreparedJob(offer, workloads, host, host.runtime(offer.runtime_hash), target, drafts, threads)
    for point in offer.spec.points:
        if workloads[point.workload].content_hash() != offer.plan.workloads.get(point.workload):
            raise PlanDiffers(
                f"workload {point.workload!r} is another one than the plan was made for", remedy="Submit the experiment again."
            )
    if offer.commands:
        _check_commands(job)
    return job


def _check_commands(job: PreparedJob) -> None:
    """The commands that the server previewed must be the ones that this host would run."""
    for arm in job.offer.spec.arms:
        here = render(job, arm.name, engines.SYMBOLIC).argv
        there = job.offer.commands.get(arm.name)
        if here != there:
            raise PlanDiffers(
                f"arm {arm.name!r}: the server's command is not the one that this host renders", arm=arm.name, here=here, server=there
            )


def run_job(job: PreparedJob, work: Path, sink: Sink, stop: threading.Event, tell: Callable[[Running], None]) -> Finished:
    """All trials that are left, each with its retries. ``stop`` ends it after the engine is down: outcome cancelled."""
    offer = job.offer
    outcomes = [TrialOutcome(trial=trial) for trial in offer.done_trials]
    clock = _Clock()
    while not stop.is_set():
        left = plan.next_trials(offer.spec, offer.plan, outcomes)
        if not left:
            return _word_on(job, outcomes)
        trial = left[0][0]
        number = sink.next_attempt(trial.id)
        attempt_id = str(uuid.uuid4())
        attempt = Attempt(job, trial, attempt_id, number, work, stop, _teller(offer, trial.id, attempt_id, tell, clock.eta_s(len(left))))
        log.info("trial %s, attempt %d", trial.id, number)
        try:
            done = attempt.run()
            sink.attempt(done)
        except OSError as error:
            return _failed(offer, disk_error(error, "the results can't be written"))
        except SpecWebError as error:
            return _failed(offer, error)
        clock.trial_ended()
        if done.report.outcome != "cancelled":
            outcomes.append(TrialOutcome(trial=trial.id, n=number, error=done.report.error))
    return Finished(job_id=offer.job_id, lease=offer.lease, outcome="cancelled")


def _word_on(job: PreparedJob, outcomes: Collection[TrialOutcome]) -> Finished:
    """The agent's last word when nothing is left to run."""
    offer = job.offer
    gone = plan.give_up(offer.spec, offer.plan, list(outcomes))
    if gone.job is not None:
        return Finished(job_id=offer.job_id, lease=offer.lease, outcome="failed", error=gone.job)
    return Finished(job_id=offer.job_id, lease=offer.lease, outcome="completed")


def _failed(offer: JobOffer, error: SpecWebError) -> Finished:
    return Finished(job_id=offer.job_id, lease=offer.lease, outcome="failed", error=error.body())


def failed_before_start(offer: JobOffer, error: Exception) -> Finished:
    """The last word on a job that could not even be prepared."""
    if isinstance(error, SpecWebError):
        return _failed(offer, error)
    if isinstance(error, OSError):
        return _failed(offer, disk_error(error, "the job could not be prepared"))
    return _failed(offer, HostError(f"the agent failed: {type(error).__name__}: {error}", remedy="Report this with the agent's log."))


class _Clock:
    """How long trials take here, for the estimate of the time that is left."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._n_ended = 0

    def trial_ended(self) -> None:
        self._n_ended += 1

    def eta_s(self, n_left: int) -> float | None:
        if not self._n_ended:
            return None
        return round((time.monotonic() - self._began) / self._n_ended * n_left, 1)


def _teller(
    offer: JobOffer, trial: str, attempt: str, tell: Callable[[Running], None], eta_s: float | None
) -> Callable[[str, int, int, float | None], None]:
    def told(phase: str, probe: int, n_probes: int, tokens_per_s: float | None) -> None:
        tell(
            Running(
                job_id=offer.job_id,
                lease=offer.lease,
                trial=trial,
                attempt=attempt,
                phase=phase,
                probe=probe,
                n_probes=n_probes,
                tokens_per_s=tokens_per_s,
                eta_s=eta_s,
            )
        )

    return told
