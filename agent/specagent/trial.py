"""One attempt at a trial: start the engine, ask what it loaded, warm up, probe, stop, and write down everything."""

from __future__ import annotations

import http.client
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

from speccore import records, sampling_plan
from speccore.dealing import arrivals_seed
from speccore.errors import (
    DiskFull,
    EngineDied,
    EngineError,
    EngineNotHealthy,
    HostError,
    ProbeFailed,
    ProbeStalled,
    SpecWebError,
)
from speccore.fit import Fit
from speccore.protocol import TrialPlan
from speccore.spec import Point
from speccore.untimed import untimed

from . import continuing, launch, ready, second_look
from .asking import Address
from .attempt_files import AttemptDone, Gathered, Outcome, write_attempt
from .container_start import ContainerRunning
from .launch import Stopped
from .prepared import PreparedJob, check_loaded
from .sampler import Sampler
from .starting import Running, record_of, start_of
from .tasks import Wording, ask_worded
from .together import Plan, batches
from .warming import warm_up

log = logging.getLogger(__name__)

#: (phase, number of the probe from 1, number of probes, tokens per second of the last one)
Tell = Callable[[str, int, int, float | None], None]


class Attempt:
    """One try. :meth:`measure` never raises for what engine or host do: the report says it, with all evidence there is.

    :meth:`write` puts it on disk and may be called again when there was no room.
    """

    def __init__(
        self,
        job: PreparedJob,
        trial: TrialPlan,
        attempt_id: str,
        n: int,
        work: Path,
        stop: threading.Event,
        tell: Tell,
        *,
        block_run: int = 1,
    ) -> None:
        self._job, self._trial, self._stop, self._tell = job, trial, stop, tell
        self.id = attempt_id
        self._folder = work / self.id
        self._log = self._folder / records.LOG
        self._t0 = time.monotonic()
        now = datetime.now(UTC)
        self._state = Gathered(attempt_id, n, block_run, started_at=now, ended_at=now)
        self._engine: Running | None = None
        self._sampler: Sampler | None = None
        self._wording: Wording | None = None

    def lacked_room(self) -> DiskFull | None:
        """The disk was full while it ran, so that it is no result and must be tried again."""
        error = self._state.error
        return error if isinstance(error, DiskFull) else None

    @property
    def went_well(self) -> bool:
        return self._state.outcome == "ok"

    def keep_fit(self, found: Fit) -> None:
        """What was found after the engine had gone goes with this attempt's evidence."""
        self._state.fit = found

    def measure(self) -> None:
        outcome: Outcome = "ok"
        error: SpecWebError | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._ask_all(self._start())
        except Stopped:
            outcome = "cancelled"
        except SpecWebError as e:
            outcome, error = "failed", e
        except OSError as e:
            outcome, error = "failed", launch.disk_error(e, "the trial could not go on")
        except Exception as e:  # a fault of the agent's own must not take the evidence with it
            log.exception("trial %s", self._trial.id)
            outcome, error = "failed", HostError(f"the agent failed: {type(e).__name__}: {e}", remedy="Report this with the agent's log.")
        finally:
            self._end()
        ended = self._state.ended
        if ended and ended.log_errno and outcome != "cancelled":
            outcome, error = (
                "failed",
                launch.disk_error(OSError(ended.log_errno, os.strerror(ended.log_errno)), "the engine's log is not whole"),
            )
        self._state.outcome, self._state.error = outcome, error
        self._state.ended_at = self._now()

    def discard(self) -> None:
        """As if it had never been."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self) -> Address:
        """Starts the engine and holds it against what was asked for; returns where it answers."""
        job, spec, state = self._job, self._job.offer.spec, self._state
        self._enter("starting")
        arm = spec.arm(self._trial.arm)
        for model in (job.target, job.drafts.get(arm.name)):
            if model:
                job.host.model(model.manifest_hash)
        job.host.check_build(job.runtime)
        start = start_of(job, arm.name)
        state.launch = {"argv": start.argv, "cwd": str(self._folder), "pid": 0, "started_at": self._now(), **start.shown}
        began = time.monotonic()
        # the mark in the environment differs in each attempt and is left out of the evidence: see processes.MARKER
        self._engine, at = start.begin(self._folder, self._log, record_of(job, self.id))
        state.launch |= {"pid": self._engine.pid, "host": at.host, "port": at.port}
        memory = self._engine.memory_bytes if isinstance(self._engine, ContainerRunning) else None
        self._sampler = Sampler(self._engine.pid, self._t0, self._phase, job.host.gpus, memory)
        self._sampler.start()
        props = ready.wait_ready(self._engine, job.dialect, at, self._log, spec.engine.start_timeout_s, self._stop)
        state.launch["healthy_after_s"] = time.monotonic() - began
        state.launch["props"] = props
        check_loaded(job, props)
        return at

    def _ask_all(self, at: Address) -> None:
        spec = self._job.offer.spec
        self._enter("warm-up")
        assert self._sampler
        self._sampler.look()  # what it takes before any request
        self._word(at)
        warm_up(spec, self._job.workloads, self._trial.warmup, lambda point, plans: self._warm_up(at, point, plans))
        self._enter("probing")
        n_asked = 0
        for point, plans in batches(spec, self._trial.probes):
            several = not point.one_by_one or self._job.item(plans[0]).turns
            window = "" if several else plans[0].id  # requests that run together, and the turns of a task, have none of their own
            self._snapshot(at, "before", window)
            self._ask(at, point, plans, n_asked)
            self._sampler.look()  # short probes may fall between two looks of the thread
            self._snapshot(at, "after", window)
            n_asked += len(plans)
        assert self._engine
        self._engine.check_listener(at)  # somebody may share a port that was free at the start
        probes = [p.record for p in self._state.probed if not p.record.warmup]
        if probes and all(r.failure for r in probes):
            first = probes[0]
            raise ProbeFailed(f"all {len(probes)} probes failed; the first: {first.failure_message}", failure=first.failure)
        self._ask_untimed(at)

    def _ask_untimed(self, at: Address) -> None:
        """What is asked of answers, and not of time: nothing that happens here spoils what was timed."""
        job, state = self._job, self._state
        spec, plan = job.offer.spec, job.offer.plan
        asked = untimed(spec, plan)[self._trial.id]
        timeout_s, stop = spec.engine.probe_timeout_s, self._stop
        if asked.looks:
            self._enter(second_look.PHASE)
            told = self._telling(second_look.PHASE)
            state.looks = second_look.look(job.dialect, at, state.probed, asked.looks, timeout_s=timeout_s, stop=stop, told=told)
        if spec.sampling_test and asked.n_continuations:
            drawn_with = sampling_plan.draws(spec, self._trial, asked.n_continuations)
            self._enter(continuing.PHASE)
            item = sampling_plan.prompt(spec, job.workloads[spec.sampling_test.workload])
            told = self._telling(continuing.PHASE)
            state.continuations = continuing.draw(
                job.dialect,
                at,
                spec.sampling_test,
                (item.id, item.opening),
                drawn_with,
                slots=spec.engine.slots,
                timeout_s=timeout_s,
                stop=stop,
                told=told,
            )
        if self._stop.is_set():
            raise Stopped

    def _word(self, at: Address) -> None:
        """Makes all prompts before anything is timed: history, filling and template take the engine's own tokenizer."""
        job, state = self._job, self._state
        self._wording = Wording(job.dialect, at, state.launch["props"], self._stop)
        plans: list[Plan] = [*self._trial.warmup, *self._trial.probes]
        for plan in plans:
            workload = job.workloads[job.offer.spec.point(plan.point).workload]
            try:
                self._wording.make(job.offer.spec, self._trial.block, plan, job.item(plan), workload)
            except EngineError:
                self._check_alive(plan.id)
                raise

    def _telling(self, phase: str) -> Callable[[int, int], None]:
        return lambda n, of: self._tell(phase, n, of, None)

    def _warm_up(self, at: Address, point: Point, plans: Sequence[Plan]) -> list[records.StreamRecord]:
        """What follows a failed request would be measured on an engine that is not warm."""
        answered = self._ask(at, point, plans)
        if failed := next((r for r in answered if r.failure), None):
            error = EngineNotHealthy if failed.status == 503 else ProbeFailed
            said = f"warm-up request {failed.probe} failed: {failed.failure_message}"
            raise error(said, probe=failed.probe, log_tail=launch.log_tail(self._log))
        return answered

    def _ask(self, at: Address, point: Point, plans: Sequence[Plan], n_before: int | None = None) -> list[records.StreamRecord]:
        """One request, or all that run together. ``n_before``: probes before these; None in the warm-up."""
        job, speed = self._job, self._last_speed()

        def told(n: int) -> None:
            if n_before is not None:
                self._tell("probing", n_before + n, len(self._trial.probes), speed)

        assert self._wording
        probed = ask_worded(
            job.dialect,
            at,
            point,
            [(plan, self._wording.of(plan)) for plan in plans],
            t0=self._t0,
            timeout_s=job.offer.spec.engine.probe_timeout_s,
            stop=self._stop,
            told=told,
            prefix_cache=job.offer.spec.engine.prefix_cache,
            arrivals=arrivals_seed(job.offer.plan.seed, point.key, self._trial.block),
        )
        self._state.probed += probed
        if self._stop.is_set():
            raise Stopped
        if failed := next((p.record for p in probed if p.record.failure), None):
            self._check_alive(failed.probe)
        # By the clock requests may wait for each other longer than that: an engine that falls behind is a result, one that hangs is none.
        hangs = point.rate_per_s is None or all(p.record.failure for p in probed)
        if hangs and (late := next((p.record for p in probed if p.end == "timeout"), None)):
            raise ProbeStalled(f"probe {late.probe}: {late.failure_message}", probe=late.probe, log_tail=launch.log_tail(self._log))
        return [p.record for p in probed]

    def _check_alive(self, probe: str) -> None:
        """A request that failed because the engine is gone is the engine's death."""
        assert self._engine
        ended = self._engine.ended(timeout_s=1.0)
        if ended is not None:
            memory: SpecWebError | None = self._job.dialect.memory_fault(
                launch.read_log(self._log), ended.exit_code, kernel_oom=self._engine.kernel_oom()
            )
            if memory:
                raise memory
            how = "ended by itself" if ended.exit_code is None else f"ended with exit code {ended.exit_code}"
            tail = launch.log_tail(self._log)
            raise EngineDied(f"the engine {how} in probe {probe}", probe=probe, exit_code=ended.exit_code, log_tail=tail)

    def _snapshot(self, at: Address, when: Literal["before", "after"], probe: str) -> None:
        """/metrics outside the timed part. That it can't be read is recorded, not raised: the probe tells of a dead engine."""
        try:
            status, text = ready.fetch(at, "/metrics", stop=self._stop)
        except (OSError, http.client.HTTPException) as error:
            status, text = 0, f"# {error}"
        at_s = time.monotonic() - self._t0
        self._state.metrics.append(records.MetricsSnapshot(at_s=at_s, when=when, probe=probe, status=status, text=text))

    def _end(self) -> None:
        state = self._state
        self._enter("stopping")
        if self._engine:
            state.ended = self._engine.stop(hurry=self._stop)
        if self._sampler:
            self._sampler.stop()
            state.samples = self._sampler.samples
        self._enter("ended")

    def write(self) -> AttemptDone:
        """Raises OSError if the disk is full, and may be called again then."""
        return write_attempt(self._folder, self._job, self._trial, self._state)

    def _enter(self, phase: str) -> None:
        self._state.phases.append((phase, time.monotonic() - self._t0))
        self._tell(phase, 0, len(self._trial.probes), None)

    def _now(self) -> datetime:
        """The wall clock at the attempt's start and what has passed since: a clock that is set meanwhile changes no duration."""
        return self._state.started_at + timedelta(seconds=time.monotonic() - self._t0)

    def _phase(self) -> str:
        return self._state.phases[-1][0]

    def _last_speed(self) -> float | None:
        """Tokens per second of the last probe, for people who watch; no measurement uses it."""
        if not self._state.probed:
            return None
        events = [e for e in self._state.probed[-1].record.events if e.tokens]
        span = events[-1].at_s - events[0].at_s if events else 0.0
        return sum(e.tokens for e in events[1:]) / span if span > 0 else None
