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
from speccore.errors import ErrorBody, HostError, PlanDiffers, SpecWebError
from speccore.plan import TrialOutcome
from speccore.protocol import Finished, JobOffer, Running, TrialPlan
from speccore.workload import Workload

from . import fitting
from .attempt_files import AttemptDone
from .blocks import Blocks
from .chat import check_template
from .inventory import Host
from .launch import Stopped, disk_error
from .looks import Looks, NoLooks
from .prepared import PreparedJob, check_asked, check_models, render
from .room import Room
from .trial import Attempt, Tell

log = logging.getLogger(__name__)

_REST_S = 0.25


class Sink(Protocol):
    """Where the results of a job go. What it raises ends the job."""

    def next_attempt(self, trial: str) -> int:
        """The number of the next attempt at a trial, from 1, over all leases of the job."""
        ...

    def attempt(self, done: AttemptDone) -> None:
        """Takes over an attempt with its folder. Raises OSError if the disk is full, and may be called again then."""
        ...

    def flush(self) -> None:
        """Sends on what it holds, as far as that can be done now; raises nothing for what can't."""
        ...


def prepare(offer: JobOffer, workloads: Mapping[str, Workload], host: Host) -> PreparedJob:
    """Everything that a job needs from this host. Raises if a build, model or command is not what was offered.

    ``workloads`` are keyed as the points name them.
    """
    target = host.model(offer.target_hash)
    drafts = {arm: host.model(manifest_hash) for arm, manifest_hash in offer.draft_hashes.items()}
    threads = offer.spec.engine.threads or host.inventory.default_threads()
    job = PreparedJob(offer, workloads, host, host.runtime(offer.runtime_hash), target, drafts, threads)
    for name in offer.spec.workload_names:
        if workloads[name].content_hash() != offer.plan.workloads.get(name):
            raise PlanDiffers(f"workload {name!r} is another one than the plan was made for", remedy="Submit the experiment again.")
    check_template(offer.spec, target)
    check_models(job)
    check_asked(job)
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


def run_job(
    job: PreparedJob,
    work: Path,
    sink: Sink,
    stop: threading.Event,
    tell: Callable[[Running], None],
    *,
    rest: threading.Event | None = None,
    ail: Callable[[ErrorBody | None], None] = lambda problem: None,
    may_start: Callable[[TrialPlan], bool] = lambda trial: True,
    looks: Looks | None = None,
) -> Finished:
    """All trials that are left, each with its retries. ``stop`` ends it after the engine is down: outcome cancelled.

    While ``rest`` is set it pauses between trials. ``ail`` hears of what ails the host, and None when that is over. Where
    ``may_start`` says no to a trial, the job ends there with what it has. ``looks`` decide arms early; a decided one runs no more.
    """
    try:
        return _JobRun(job, work, sink, stop, tell, rest or threading.Event(), ail, may_start, looks or NoLooks()).run()
    except Stopped:
        return Finished(job_id=job.offer.job_id, lease=job.offer.lease, outcome="cancelled")
    except OSError as error:
        return _failed(job.offer, disk_error(error, "the results can't be written"))
    except SpecWebError as error:
        return _failed(job.offer, error)


class _JobRun:
    """One run of :func:`run_job`. Its methods raise :class:`Stopped` when it is told to stop."""

    def __init__(
        self,
        job: PreparedJob,
        work: Path,
        sink: Sink,
        stop: threading.Event,
        tell: Callable[[Running], None],
        rest: threading.Event,
        ail: Callable[[ErrorBody | None], None],
        may_start: Callable[[TrialPlan], bool],
        looks: Looks,
    ) -> None:
        self._job, self._work, self._sink, self._stop, self._tell, self._rest, self._ail = job, work, sink, stop, tell, rest, ail
        self._may_start, self._looks = may_start, looks
        self._blocks = Blocks(job.offer, job.host.inventory)
        self._room = Room(work, stop, self._say_shortage, sink.flush)
        self._pace = _Pace()

    def run(self) -> Finished:
        offer = self._job.offer
        while not self._stop.is_set():
            self._look()
            if self._blocks.left():
                self._pause()
                self._room.wait()
            left = self._blocks.left()
            if left and self._stop.is_set():  # while it waited: no engine starts any more
                break
            if not left or not self._may_start(left[0]):
                return _word_on(self._job, self._blocks.outcomes)
            self._try(left[0], self._pace.eta_s(len(left)))
        return Finished(job_id=offer.job_id, lease=offer.lease, outcome="cancelled")

    def _try(self, trial: TrialPlan, eta_s: float | None) -> None:
        """One attempt. One that the full disk spoilt is no attempt: it leaves nothing and comes again."""
        offer, blocks = self._job.offer, self._blocks
        number = self._room.retried(lambda: self._sink.next_attempt(trial.id))
        attempt_id = str(uuid.uuid4())
        tell = _teller(offer, trial.id, attempt_id, self._tell, eta_s, blocks.note(trial.block))
        block_run = blocks.run_of(trial.block)
        attempt = Attempt(self._job, trial, attempt_id, number, self._work, self._stop, tell, block_run=block_run)
        log.info("trial %s, attempt %d", trial.id, number)
        attempt.measure()
        if lack := attempt.lacked_room():
            attempt.discard()
            self._room.wait_after(lack)
            return
        if attempt.went_well and fitting.is_due(offer.spec, trial, blocks.left()):
            self._fit(attempt, tell)
        done = self._room.retried(attempt.write)
        self._room.attempt_took(sum(ref.bytes for ref in done.report.evidence))
        blocks.attempt_ended(trial, done.report)
        self._room.retried(lambda: self._sink.attempt(done))
        self._pace.trial_ended()

    def _fit(self, attempt: Attempt, tell: Tell) -> None:
        """After all that is timed; told to stop, the attempt is kept without it."""
        job, spec = self._job, self._job.offer.spec
        gone = plan.give_up(spec, job.offer.plan, list(self._blocks.outcomes)).arms
        arms = [a.name for a in spec.arms if not a.control and a.name not in gone]

        def say(text: str) -> None:
            tell(f"{fitting.PHASE}: {text}", 0, 0, None)

        try:
            attempt.keep_fit(fitting.fit_arms(job, arms, self._work, fitting.limits_of(job), self._stop, say))
        except Stopped:
            return
        except Exception as error:  # what goes wrong here must not take with it what was measured
            log.exception("the largest context could not be looked for")
            attempt.keep_fit(fitting.not_found(job, arms, f"the agent failed: {type(error).__name__}: {error}"))

    def _look(self) -> None:
        """Between two blocks, where a look falls there; and what is decided since is heeded at each trial."""
        block = self._blocks.look_due()
        if block is not None:
            self._say("looking", f"waits for the early look after block {block}: an arm that is decided leaves later blocks")
            self._looks.after(block)
        self._blocks.decided = {**self._blocks.decided, **self._looks.decided}

    def _pause(self) -> None:
        while self._rest.is_set():
            self._say("paused", "paused on the server; it goes on when it is resumed there")
            if self._stop.wait(_REST_S):
                raise Stopped

    def _say_shortage(self, problem: ErrorBody | None) -> None:
        self._ail(problem)
        if problem:
            self._say("waiting for room", f"{problem.message}. {problem.remedy}")

    def _say(self, phase: str, note: str) -> None:
        self._tell(Running(job_id=self._job.offer.job_id, lease=self._job.offer.lease, phase=phase, note=note))


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


class _Pace:
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
    offer: JobOffer, trial: str, attempt: str, tell: Callable[[Running], None], eta_s: float | None, note: str
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
                note=note,
            )
        )

    return told
