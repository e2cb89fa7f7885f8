"""How far a job is: its state in words with the next step, what its agent does, the time left, and what a person may do to it.

No database access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Any

from speccore.errors import ErrorBody
from speccore.jobstate import HELD, JobState
from speccore.protocol import Running

from specweb.experiments.models import Job
from specweb.experiments.services.jobs import PAUSABLE
from specweb.experiments.services.silence import Limits
from specweb.results.models import Trial

from . import formats
from .spared import spared
from .time_left import Ran, in_words, since_in_words, time_left


@dataclass(frozen=True)
class AtWork:
    """What the agent does this moment. ``probe`` of ``n_probes`` is 0 where it is not probing."""

    phase: str
    number: int = 0  # the trial's, from 1; 0: between trials
    arm: str = ""
    mode: str = ""
    block: int = 0
    probe: int = 0
    n_probes: int = 0
    speed: str = ""  # tokens per second of the last probe


@dataclass(frozen=True)
class Progress:
    """How far a job is. ``share`` is of trials, from 0 to 100; ``page`` changes whenever the page around it must."""

    state: str
    page: str
    word: str  # the state as people read it: also paused, pausing, cancelling
    headline: str
    detail: str
    next_step: str
    note: str
    since: datetime | None
    log_tail: list[str]
    error: ErrorBody | None
    n_done: int
    n_trials: int  # that are needed: without those that early looks spared
    n_spared: int
    n_whole: int  # blocks of which every trial has ended
    n_blocks: int
    live: bool  # something will change by itself
    for_team: bool
    at_work: AtWork | None = None
    began_at: datetime | None = None
    elapsed: str = ""
    left: str = ""

    @property
    def say(self) -> str:
        """What is worth saying aloud: where the work is, without the numbers that change each moment."""
        if self.at_work is None:
            return self.headline
        trial = f", trial {self.at_work.number} of {self.n_planned}, {self.at_work.arm}" if self.at_work.number else ""
        return f"{self.at_work.phase}{trial}"

    @property
    def n_planned(self) -> int:
        return self.n_trials + self.n_spared

    @property
    def share(self) -> int:
        return round(100 * self.n_done / self.n_trials) if self.n_trials else 0


@dataclass(frozen=True)
class _Words:
    word: str
    headline: str
    detail: str = ""
    next_step: str = ""
    since: datetime | None = None
    shows_work: bool = False


#: How long after its end a job that ended early may still get an answer from the worker.
_ANSWER_WITHIN = timedelta(minutes=10)


def progress_of(job: Job, trials: Sequence[Trial], limits: Limits, now: datetime, *, for_team: bool, answered: bool) -> Progress:
    """A job in words, with what its reader can do next. Only the team is told of the host's troubles and reads its engine's live log.

    ``answered`` says that there is an analysis.
    """
    running = running_of(job)
    at_work = _at_work(running, trials) if running else None
    words = _words(job, job.reason_for(team=for_team), at_work, running, limits)
    not_needed = spared(job, trials)
    planned, trials = trials, [t for t in trials if t.plan_id not in not_needed]
    ended = [(t.block, _has_ended(t)) for t in trials]
    blocks = {block for block, _ in ended}
    stopping = _is_cancelling(job)
    ailing = for_team and job.host is not None and JobState(job.state) in HELD and not stopping
    problem = job.host.problem if ailing and job.host else None
    told = job.error_for(team=for_team) or problem
    n_done = sum(any(a.accepted for a in t.attempts.all()) for t in trials)
    awaited = job.is_final and not answered and n_done > 0 and job.ended_at is not None and now - job.ended_at < _ANSWER_WITHIN
    busy = job.state == JobState.RUNNING and not stopping and words.word == JobState.RUNNING
    return Progress(
        state=job.state,
        page=f"{job.state}{' paused' if job.is_paused else ''}{' cancelling' if stopping else ''}{' answered' if answered else ''}",
        word=words.word,
        headline=words.headline,
        detail=words.detail,
        next_step=words.next_step,
        note=running.note if for_team and running and not stopping and words.word != "paused" else "",
        since=words.since,
        log_tail=running.log_tail if for_team and running else [],
        error=ErrorBody.model_validate(told) if told else None,
        n_done=n_done,
        n_trials=len(trials),
        n_spared=len(planned) - len(trials),
        n_whole=len(blocks - {block for block, whole in ended if not whole}),
        n_blocks=len(blocks),
        live=not job.is_final or awaited,
        for_team=for_team,
        at_work=at_work if words.shows_work else None,
        began_at=job.running_at if not job.is_final else None,
        elapsed=since_in_words((now - job.running_at).total_seconds()) if job.running_at and not job.is_final else "",
        left=_left(trials, running, now) if busy else "",
    )


def _has_ended(trial: Trial) -> bool:
    return any(a.accepted or (a.counted and a.outcome == "failed") for a in trial.attempts.all())


def _left(trials: Sequence[Trial], running: Running | None, now: datetime) -> str:
    """The time that the trials without an end will take, judged by those that have one."""
    ended = sorted((a.started_at, a.ended_at, t.arm.name) for t in trials for a in t.attempts.all() if a.accepted)
    done = [Ran(arm, (end - start).total_seconds()) for start, end, arm in ended]
    gaps = [(b[0] - a[1]).total_seconds() for a, b in pairwise(ended)]
    usual_gap = max(0.0, median(gaps)) if gaps else 0.0
    at_work = running.trial if running else ""
    left = sorted((t for t in trials if not _has_ended(t)), key=lambda t: (t.plan_id != at_work, t.index))
    # By the service's clock, since the host's may be wrong.
    heard = max((a.received_at for t in trials for a in t.attempts.all()), default=now)
    since = (now - heard).total_seconds() if at_work else 0.0
    found = time_left(done, [t.arm.name for t in left], between_s=usual_gap, running_for_s=max(0.0, since - usual_gap))
    return in_words(found) if found and left else ""


def _words(job: Job, reason: str, at_work: AtWork | None, running: Running | None, limits: Limits) -> _Words:
    named = job.host or job.wanted_host
    host = named.name if named else "a host"
    if _is_cancelling(job):
        asked = f"{job.cancel_requested_by} asked for it" if job.cancel_requested_by else "it was asked for"
        return _Words(
            "cancelling",
            f"Cancelling on {host}",
            f"{asked}; the agent stops the engine when it hears of it, at its next poll",
            "What was measured until then is kept.",
            job.cancel_requested_at,
        )
    if job.state == JobState.STALLED:
        return _Words(
            "stalled",
            f"{host} is silent",
            "offline",
            f"See whether the machine, its network and its agent run; the job goes on by itself when {host} is back. "
            f"After {formats.long_time(limits.host_lost_after)} of silence it fails as lost and keeps its finished blocks.",
            job.host.last_seen_at if job.host else job.stalled_at,
        )
    if job.is_paused:
        return _paused(job, reason, running, at_work is not None, host)
    if job.state in (JobState.RUNNING, JobState.CLAIMED) and running and running.phase == "waiting for room":
        return _Words("waiting for room", f"{host} waits for room on its disk", "", "It goes on by itself when there is room.")
    headline, step = _STATES[job.state]
    if job.state == JobState.FAILED and named is None:
        headline = "Failed before a host took it"
    waiting_for = formats.long_time(limits.waiting_for)
    shows_work = job.state == JobState.RUNNING and at_work is not None and not job.error
    detail = "" if job.error or shows_work else reason
    return _Words(job.state, headline.format(host=host), detail, step.format(host=host, waiting_for=waiting_for), shows_work=shows_work)


def _paused(job: Job, reason: str, running: Running | None, works: bool, host: str) -> _Words:
    by = f"by {job.pause_requested_by}" if job.pause_requested_by else ""
    after = "Resume it to go on. If a block has begun and rests for more than 10 minutes, it is run whole once more."
    if job.state not in HELD:
        return _Words("paused", f"Paused {by} before it began".replace("  ", " "), reason, after, job.pause_requested_at)
    if running is not None and running.phase == "paused":
        return _Words("paused", f"Paused {by} on {host}".replace("  ", " "), "no engine runs", after, job.pause_requested_at)
    return _Words("pausing", f"{host} pauses after the trial that runs", "", after, job.pause_requested_at, shows_work=works)


_STATES: dict[str, tuple[str, str]] = {
    "waiting": (
        "Waiting for {host}",
        "The job is handed out by itself as soon as a host can take it, for up to {waiting_for}. "
        "Where the reason names a lack, mend it, or start the agent there (specweb-agent poll).",
    ),
    "queued": ("Ready for {host}", "{host} gets the job with its next poll."),
    "claimed": ("{host} has taken the job", "The first trial begins in a moment."),
    "running": ("Running on {host}", ""),
    "completed": ("Measured; the evidence is being read", "The comparison appears here by itself."),
    "processed": ("Finished on {host}", ""),
    "failed": ("Failed on {host}", ""),
    "cancelled": ("Cancelled", ""),
}


def _is_cancelling(job: Job) -> bool:
    return job.cancel_requested_at is not None and JobState(job.state) in HELD


def running_of(job: Job) -> Running | None:
    """What the agent said last about its work, while it works."""
    return Running.model_validate(job.progress) if job.progress and JobState(job.state) in HELD else None


#: The agent's phases as people read them.
_PHASES = {
    "starting": "starting the engine",
    "warm-up": "warming up",
    "probing": "probing",
    "stopping": "stopping the engine",
    "uploading": "sending the evidence",
    "looking": "waiting for the early look",
}


def _at_work(r: Running, trials: Sequence[Trial]) -> AtWork | None:
    trial = next((t for t in trials if t.plan_id == r.trial), None)
    if trial is None and not r.phase:
        return None
    probing = r.phase == "probing" and r.n_probes > 0
    return AtWork(
        phase=_PHASES.get(r.phase, r.phase or "at work"),
        number=trial.index + 1 if trial else 0,
        arm=trial.arm.name if trial else "",
        mode=trial.arm.mode if trial else "",
        block=trial.block if trial else 0,
        probe=r.probe if probing else 0,
        n_probes=r.n_probes if probing else 0,
        speed=f"{r.tokens_per_s:.0f}" if r.tokens_per_s else "",
    )


@dataclass(frozen=True)
class Controls:
    """What a person may do to a job now."""

    cancel: bool = False
    pause: bool = False
    resume: bool = False
    retry: bool = False
    rest: bool = False  # it has blocks that are whole, and lacks others
    history: list[tuple[str, str]] = field(default_factory=list)  # in words, and the address of the other try

    @property
    def any(self) -> bool:
        return self.cancel or self.pause or self.resume or self.retry or self.rest


def controls_of(job: Job, siblings: Sequence[Job], *, allowed: bool, base: str) -> Controls:
    """``siblings`` are all jobs of the experiment; a job that was retried can't be retried again."""
    retry = next((j for j in siblings if j.retry_of_id == job.pk), None)
    history = [("It was tried again: see the new try", f"{base}?job={retry.pk}")] if retry else []
    if job.retry_of_id:
        history.append(("An earlier try is kept as history", f"{base}?job={job.retry_of_id}"))
    if not allowed:
        return Controls(history=history)
    state, stopping = JobState(job.state), _is_cancelling(job)
    wanted: Any = job.wanted_host
    return Controls(
        cancel=state in PAUSABLE and not stopping,
        pause=state in PAUSABLE and not stopping and not job.is_paused,
        resume=job.is_paused and not stopping,
        retry=state in (JobState.FAILED, JobState.CANCELLED) and retry is None and not (wanted and wanted.revoked_at),
        rest=retry is None and _may_run_the_rest(job, siblings),
        history=history,
    )


def _may_run_the_rest(job: Job, siblings: Sequence[Job]) -> bool:
    """Whether the button is worth showing: the service knows which blocks are missing."""
    first = job.extends_id or job.pk
    family = [j for j in siblings if first in (j.pk, j.extends_id)]
    ended = JobState(job.state) in (JobState.FAILED, JobState.CANCELLED) and all(j.is_final for j in family)
    return ended and job.host is not None and job.host.revoked_at is None and not any(j.state == JobState.PROCESSED for j in family)


def incomplete(progress: Progress, *, answered: bool) -> str:
    """What a job that ended early still says; empty if nothing is missing."""
    if progress.state not in (JobState.FAILED, JobState.CANCELLED):
        return ""
    if not progress.n_done:
        return "Nothing was measured before it ended."
    so_far = f"{progress.n_whole} of {progress.n_blocks} blocks are whole, {progress.n_done} of {progress.n_trials} trials are done. "
    if answered:
        return f"Incomplete: {so_far}The answers below rest on these alone; the table’s column “blocks” says on how many each rests."
    return f"Incomplete: {so_far}What they say is being worked out and appears here by itself."
