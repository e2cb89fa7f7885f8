"""Carries out what :mod:`machine` decides: polls in the main thread, runs the job in another, passes events between them."""

from __future__ import annotations

import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from speccore import records
from speccore.errors import ErrorBody, ServerError, SpecWebError
from speccore.protocol import Finished, JobOffer, PollReply, PollRequest, Running
from speccore.workload import Workload

from . import __version__, machine, room, runner
from .client import Client, Refused, Unreachable
from .inventory import Host
from .launch import Stopped, log_tail
from .looks import ServerLooks
from .machine import (
    Event,
    JobEnded,
    Polled,
    PollFailed,
    PollIn,
    Quit,
    QuitAsked,
    RestJob,
    SendInventory,
    StartJob,
    State,
    StopJob,
    TellLooked,
)
from .sinks import Delivery, ServerSink, is_final, is_passing
from .spool import Spool
from .sweep import sweep_records

log = logging.getLogger(__name__)

#: An idle agent delivers what waits before it polls; what takes longer goes on beside the polls.
_DELIVER_FIRST_S = 5.0
_TAIL_LINES, _TAIL_WIDTH = 20, 300
_ASK_AGAIN_S = 2.0  # for what a job needs, while the server is away
_LOOK_AGAIN_S = 300.0  # how often an idle host looks whether builds or models have changed


class Loop:
    """One agent. :meth:`run` returns when it is told to quit, with an exit code and a message."""

    def __init__(self, client: Client, spool: Spool, take_inventory: Callable[[], Host], *, once: bool = False) -> None:
        self._client, self._spool, self._take_inventory = client, spool, take_inventory
        self._host = take_inventory()
        self._looked_at = time.monotonic()
        self._state = State(once=once)
        # SimpleQueue, since a signal handler may put into it
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._delivery = Delivery(spool, client)
        self._running: Running | None = None
        self._problem: ErrorBody | None = None
        self._stop_job, self._rest, self._quitting = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._looks: ServerLooks | None = None
        self._poll_at = time.monotonic()
        self._quit: Quit | None = None

    def quit(self) -> None:
        """May be called from a signal handler."""
        self._quitting.set()
        self._events.put(QuitAsked())

    def run(self) -> tuple[int, str]:
        if self._host.engine_records and (ended := sweep_records(self._host.engine_records, self._host.container_engines())):
            log.warning("an earlier agent left processes of its engines; ended: %s", ", ".join(map(str, ended)))
        for folder in self._spool.put_unfinished_aside():
            log.warning("an attempt was left unfinished when the agent ended; kept in %s", folder)
        try:
            while self._quit is None:
                try:
                    event = self._events.get(timeout=max(0.0, self._poll_at - time.monotonic()))
                except queue.Empty:
                    event = self._poll()
                self._take(event)
        finally:  # also after a fault of the agent's own: no job runs on without a heartbeat
            self._stop_job.set()
            if self._thread:
                self._thread.join()
        return self._quit.exit_code, self._quit.message

    def _take(self, event: Event) -> None:
        self._state, effects = machine.step(self._state, event)
        for effect in effects:
            match effect:
                case StartJob(offer):
                    self._start(offer)
                case StopJob(job_id):
                    log.info("stopping job %s", job_id)
                    self._stop_job.set()
                case RestJob(job_id, resting):
                    log.info("job %s %s", job_id, "pauses after this trial" if resting else "goes on")
                    (self._rest.set if resting else self._rest.clear)()
                case TellLooked(word):
                    if self._looks:
                        self._looks.tell(word)
                case SendInventory():
                    self._send_inventory()
                case PollIn(seconds, jitter):
                    self._poll_at = time.monotonic() + seconds * random.uniform(1 - jitter, 1 + jitter)  # noqa: S311
                case Quit():
                    self._quit = effect

    def _poll(self) -> Event:
        delivering = False
        try:
            if self._state.job is None:
                self._look_again()
                # before the poll: a poll without a running job may end the lease under which these were measured
                delivering = not self._state.finished and not self._deliver()
            reply = self._client.poll(self._request(delivering))
        except SpecWebError as error:
            final = is_final(error) or (isinstance(error, Refused) and error.status == 403)
            log.warning("%s", error.message)
            return PollFailed(f"{error.message} {error.remedy_text}".strip(), final)
        self._log_reply(reply)
        return Polled(reply, delivering)

    def _deliver(self) -> bool:
        """Whether nothing waits. A server that is there and can't take a file is polled all the same."""
        try:
            return self._delivery.run(self._quitting, _DELIVER_FIRST_S)
        except SpecWebError as error:
            if is_final(error) or isinstance(error, Unreachable):
                raise
            log.warning("results wait in the spool: %s", error.message)
            return False

    def _request(self, delivering: bool) -> PollRequest:
        return PollRequest(
            agent_version=__version__,
            inventory_hash=self._host.inventory.content_hash(),
            running=self._sent_late() if delivering else self._watched() if self._state.job else None,
            finished=list(self._state.finished),
            draining=self._state.quitting,
            spooled_bytes=self._spool.n_bytes(),
            problem=self._problem or self._shortage(),
            sent_at=datetime.now(UTC),
        )

    def _watched(self) -> Running | None:
        """What the job does now, with the end of its engine's log."""
        running = self._running
        if running is None or not running.attempt:
            return running
        tail = log_tail(self._spool.work / running.attempt / records.LOG, _TAIL_LINES, _TAIL_WIDTH)
        return running.model_copy(update={"log_tail": tail})

    def _sent_late(self) -> Running | None:
        """Results of an earlier start hold on to their lease until they are delivered."""
        waiting = self._spool.waiting()
        if not waiting:
            return None
        report = waiting[0].report
        note = f"{len(waiting)} results that were measured earlier are on their way"
        return Running(
            job_id=report.job_id, lease=report.lease, trial=report.trial, attempt=report.attempt_id, phase="uploading", note=note
        )

    def _shortage(self) -> ErrorBody | None:
        lack = room.shortage(self._spool.work)
        return lack.body() if lack else None

    def _log_reply(self, reply: PollReply) -> None:
        if reply.job:
            log.info("job %s: %s", reply.job.job_id, reply.job.spec.name)
        for job_id in reply.acknowledged:
            log.info("job %s: the server has our last word", job_id)

    def _send_inventory(self) -> None:
        try:
            self._client.send_inventory(self._host.inventory)
        except ServerError as error:
            log.warning("the inventory could not be sent: %s", error.message)  # the next reply asks again

    def _look_again(self) -> None:
        if time.monotonic() - self._looked_at > _LOOK_AGAIN_S:
            self._looked_at = time.monotonic()
            try:
                self._host = self._take_inventory()
            except OSError as error:
                log.warning("the host's inventory stays as it was: %s", error)

    def _start(self, offer: JobOffer) -> None:
        self._stop_job.clear()
        self._rest.clear()
        self._problem = None
        self._running = Running(job_id=offer.job_id, lease=offer.lease, phase="starting")
        looks = self._looks = ServerLooks(offer, self._stop_job, self._is_away)
        self._thread = threading.Thread(target=self._work, args=(offer, self._host, looks), name="runner")
        self._thread.start()

    def _is_away(self) -> bool:
        return self._state.n_failures > 0

    def _work(self, offer: JobOffer, host: Host, looks: ServerLooks) -> None:
        """The runner's thread: always ends with a :class:`JobEnded`."""
        sink = ServerSink(self._spool, self._delivery, offer.job_id, offer.lease_token, self._stop_job, self._is_away)
        try:
            finished = self._run_job(offer, host, sink, looks)
        except Stopped:
            finished = Finished(job_id=offer.job_id, lease=offer.lease, outcome="cancelled")
        except Exception as error:
            if not isinstance(error, SpecWebError):
                log.exception("job %s", offer.job_id)
            finished = runner.failed_before_start(offer, error)
        log.info("job %s: %s%s", offer.job_id, finished.outcome, f" ({finished.error.message})" if finished.error else "")
        self._events.put(JobEnded(finished))

    def _run_job(self, offer: JobOffer, host: Host, sink: ServerSink, looks: ServerLooks) -> Finished:
        workloads = {name: self._workload(content_hash, offer) for name, content_hash in offer.plan.workloads.items()}
        job = runner.prepare(offer, workloads, host)
        finished = runner.run_job(job, self._spool.work, sink, self._stop_job, self._tell, rest=self._rest, ail=self._ail, looks=looks)
        if finished.outcome != "cancelled":
            self._tell(Running(job_id=offer.job_id, lease=offer.lease, phase="uploading"))
            if not sink.finish():
                finished = finished.model_copy(update={"outcome": "cancelled"})
        return finished

    def _workload(self, content_hash: str, offer: JobOffer) -> Workload:
        """Asked for until the server answers: one that is being restarted costs no job. Raises :class:`Stopped`."""
        while True:
            try:
                return self._client.workload(content_hash, offer.job_id, offer.lease_token)
            except ServerError as error:
                if not is_passing(error):
                    raise
                log.warning("the workload %s could not be fetched: %s", content_hash[:12], error.message)
            if self._stop_job.wait(_ASK_AGAIN_S):
                raise Stopped

    def _ail(self, problem: ErrorBody | None) -> None:
        self._problem = problem

    def _tell(self, running: Running) -> None:
        self._running = running
