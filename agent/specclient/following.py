"""An experiment while it runs: asked for again and again, told as one line that moves, or as a line for each change where nobody watches."""

from __future__ import annotations

import time
from collections.abc import Callable

from speccore.spans import in_words

from .client import Client
from .errors import ApiError, ClientError, ServerFailed, TooManyRequests, Unreachable
from .models import ExperimentWhole, Job
from .screen import Screen, safe

#: Between two looks: soon at first, since small experiments end soon.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.5, 5.0
#: A service that is updated is back before this.
SILENCE_S = 600.0
BAR = 20


class TimedOut(ClientError):
    """The time that was given is over; the experiment goes on."""

    code = "timed_out"


class Follower:
    """``clock`` and ``sleep`` can be replaced by tests."""

    def __init__(
        self,
        client: Client,
        screen: Screen,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client, self._screen, self._quiet = client, screen, quiet
        self._clock, self._sleep = clock, sleep
        self._told: dict[str, str] = {}

    def until_final(self, experiment: str, *, timeout_s: float | None = None) -> ExperimentWhole:
        """The experiment when every job has ended. Raises :class:`TimedOut`, and what keeps it from being read."""
        began = heard = self._clock()
        while True:
            try:
                found = self._client.experiment(experiment)
                heard = self._clock()
            except (Unreachable, ServerFailed, TooManyRequests) as error:
                self._bear(error, self._clock() - heard)
            else:
                self._tell(found)
                if found.is_final:
                    self._screen.clear()
                    return found
            passed = self._clock() - began
            wait = min(FIRST_WAIT_S + passed / 30, LONGEST_WAIT_S)
            if timeout_s is not None and passed + wait > timeout_s:
                self._sleep(max(0.0, timeout_s - passed))
                raise TimedOut(
                    f"{in_words(timeout_s)} are over, and the experiment goes on", remedy=f"Go on watching with: specweb watch {experiment}"
                )
            self._sleep(wait)

    def _bear(self, error: ApiError | Unreachable, silent_s: float) -> None:
        if silent_s > SILENCE_S:
            raise error
        self._screen.show(f"no answer for {in_words(silent_s)}; the experiment goes on, and so does the watching")

    def _tell(self, found: ExperimentWhole) -> None:
        if self._quiet:
            return
        for job in found.current_jobs:
            line = change_line(job)
            if self._told.get(job.id) != line:
                self._told[job.id] = line
                self._screen.note(line)
        self._screen.show(progress_line(found))


def change_line(job: Job) -> str:
    """A job's state; of one that runs also each tenth of its trials, so that a log without a terminal shows that it moves."""
    where = f" on {safe(job.host)}" if job.host else ""
    word = "cancelling" if job.cancelling else "paused" if job.paused and not job.is_final else job.state
    reason = safe(job.reason)
    told = f": {reason}" if reason and reason not in (job.state, f"{job.state}{where}") else ""
    if job.state == "running" and job.n_trials:
        tenth = 10 * job.n_trials_done // job.n_trials
        told += f", {10 * tenth} % of {job.n_trials} trials" if tenth else f", {job.n_trials} trials"
    return f"{word}{where}{told}"


def progress_line(found: ExperimentWhole) -> str:
    """Trials of all jobs together, what the agents do, and the time that is left."""
    jobs = found.current_jobs
    done, of = sum(j.n_trials_done for j in jobs), sum(j.n_trials for j in jobs)
    running = [j for j in jobs if j.progress and not j.is_final]
    parts = [f"{bar(done / of)} {done}/{of} trials"] if of else [found.state]
    for job in running[:2]:
        parts.append(_doing(job, len(jobs) > 1))
    times = [j.progress.eta_s for j in running if j.progress and j.progress.eta_s is not None]
    if times:
        parts.append(f"about {in_words(max(times))} left")
    elif running:
        parts.append("time left: known after the first trial")
    idle = sum(j.state in ("waiting", "queued", "stalled") for j in jobs)
    if idle and of:
        parts.append(f"{idle} job{'' if idle == 1 else 's'} waiting")
    return " · ".join(parts)


def _doing(job: Job, named: bool) -> str:
    p = job.progress
    assert p is not None
    words = [safe(job.host)] if named and job.host else []
    words += [safe(f"{p.trial} {p.phase}")]
    if p.n_probes:
        words.append(f"{p.probe} of {p.n_probes}")
    if p.tokens_per_s is not None:
        words.append(f"{p.tokens_per_s:.1f} tokens/s")
    return " ".join(w for w in words if w) + (f" ({safe(p.note)})" if p.note else "")


def bar(share: float) -> str:
    full = round(BAR * min(max(share, 0.0), 1.0))
    return "█" * full + "░" * (BAR - full)
