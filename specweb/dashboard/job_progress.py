"""How far a job is: its state in words with the next step, its trials in order, and what a person may do to it. No database access."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from typing import Any

from django.urls import reverse
from speccore.errors import ErrorBody
from speccore.jobstate import HELD, JobState
from speccore.protocol import Running

from specweb.experiments.models import Job
from specweb.experiments.services.jobs import PAUSABLE
from specweb.experiments.services.silence import Limits
from specweb.results.models import Trial

from . import formats
from .tries import Fate, fate_of


@dataclass(frozen=True)
class TrialChip:
    """One planned server start, with what became of it."""

    number: int  # from 1, in order of running
    arm: str
    mode: str
    state: str  # accepted, failed, cancelled, void, late, running, planned
    duration: str
    title: str
    href: str
    n_attempts: int


@dataclass(frozen=True)
class Uncounted:
    """Attempts of a block that share a fate and its reason: they are kept and don't count."""

    word: str
    why: str
    tries: list[tuple[str, str]]  # what it is called, and its address


@dataclass(frozen=True)
class Block:
    number: int
    run: int  # the one that counts, from 1
    trials: list[TrialChip]
    uncounted: list[Uncounted]


def trial_blocks(job: Job, trials: Sequence[Trial]) -> list[Block]:
    """Trials in order of running, by block. Attempts come with their leases."""
    running = running_of(job)
    blocks = []
    for number, group in groupby(trials, key=lambda t: t.block):
        here = list(group)
        blocks.append(Block(number, job.run_of(number), [_chip(t, running) for t in here], _uncounted(here)))
    return blocks


def _chip(trial: Trial, running: Running | None) -> TrialChip:
    attempts = list(trial.attempts.all())
    shown = next((a for a in attempts if a.accepted), attempts[-1] if attempts else None)
    fate = fate_of(shown, attempts) if shown else Fate("planned")
    state = fate.word
    if running is not None and running.trial == trial.plan_id and state != "accepted":
        state = "running"
    seconds = formats.seconds_between(shown.started_at, shown.ended_at) if shown else None
    return TrialChip(
        number=trial.index + 1,
        arm=trial.arm.name,
        mode=trial.arm.mode,
        state=state,
        duration=formats.duration(seconds) if seconds else "",
        title=f"trial {trial.index + 1}: {trial.arm.name}, block {trial.block}, place {trial.position} — {state}"
        + (f": {fate.why}" if fate.why else ""),
        href=reverse("attempt", args=[shown.id]) if shown else "",
        n_attempts=len(attempts),
    )


def _uncounted(trials: Sequence[Trial]) -> list[Uncounted]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for trial in trials:
        attempts = list(trial.attempts.all())
        for attempt in attempts:
            fate = fate_of(attempt, attempts)
            if fate.word != "accepted":
                name = f"{trial.index + 1} {trial.arm.name}" + (f", attempt {attempt.n}" if len(attempts) > 1 else "")
                found.setdefault((fate.word, fate.why), []).append((name, reverse("attempt", args=[attempt.id])))
    return [Uncounted(word, why, tries) for (word, why), tries in found.items()]


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
    n_trials: int
    n_whole: int  # blocks of which every trial has ended
    n_blocks: int
    live: bool  # something will change by itself
    for_team: bool

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


def progress_of(job: Job, trials: Sequence[Trial], limits: Limits, *, for_team: bool) -> Progress:
    """A job in words, with what its reader can do next. Only the team is told of the host's troubles and reads its engine's live log."""
    running = running_of(job)
    words = _words(job, trials, running, limits)
    ended = [(t.block, any(a.accepted or (a.counted and a.outcome == "failed") for a in t.attempts.all())) for t in trials]
    blocks = {block for block, _ in ended}
    live, stopping = not job.is_final, _is_cancelling(job)
    ailing = for_team and job.host is not None and JobState(job.state) in HELD and not stopping
    problem = job.host.problem if ailing and job.host else None
    told = job.error or problem
    return Progress(
        state=job.state,
        page=f"{job.state}{' paused' if job.is_paused else ''}{' cancelling' if stopping else ''}",
        word=words.word,
        headline=words.headline,
        detail=words.detail,
        next_step=words.next_step,
        note=running.note if for_team and running and not stopping and words.word != "paused" else "",
        since=words.since,
        log_tail=running.log_tail if for_team and running else [],
        error=ErrorBody.model_validate(told) if told else None,
        n_done=sum(any(a.accepted for a in t.attempts.all()) for t in trials),
        n_trials=len(trials),
        n_whole=len(blocks - {block for block, whole in ended if not whole}),
        n_blocks=len(blocks),
        live=live,
        for_team=for_team,
    )


def _words(job: Job, trials: Sequence[Trial], running: Running | None, limits: Limits) -> _Words:
    named = job.host or job.wanted_host
    host = named.name if named else "a host"
    at_work = _running_words(running, trials) if running else ""
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
        return _paused(job, running, at_work, host)
    if job.state in (JobState.RUNNING, JobState.CLAIMED) and running and running.phase == "waiting for room":
        return _Words("waiting for room", f"{host} waits for room on its disk", "", "It goes on by itself when there is room.")
    headline, step = _STATES[job.state]
    if job.state == JobState.FAILED and named is None:
        headline = "Failed before a host took it"
    waiting_for = formats.long_time(limits.waiting_for)
    detail = "" if job.error else (at_work if job.state == JobState.RUNNING and at_work else job.reason)
    return _Words(job.state, headline.format(host=host), detail, step.format(host=host, waiting_for=waiting_for))


def _paused(job: Job, running: Running | None, at_work: str, host: str) -> _Words:
    by = f"by {job.pause_requested_by}" if job.pause_requested_by else ""
    after = "Resume it to go on. If a block has begun and rests for more than 10 minutes, it is run whole once more."
    if job.state not in HELD:
        return _Words("paused", f"Paused {by} before it began".replace("  ", " "), job.reason, after, job.pause_requested_at)
    if running is not None and running.phase == "paused":
        return _Words("paused", f"Paused {by} on {host}".replace("  ", " "), "no engine runs", after, job.pause_requested_at)
    return _Words("pausing", f"{host} pauses after the trial that runs", at_work, after, job.pause_requested_at)


_STATES: dict[str, tuple[str, str]] = {
    "waiting": (
        "Waiting for {host}",
        "Mend what the reason names, or start the agent there (specweb-agent poll); "
        "the job is handed out by itself as soon as a host can take it, for up to {waiting_for}.",
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


def _running_words(r: Running, trials: Sequence[Trial]) -> str:
    parts = []
    trial = next((t for t in trials if t.plan_id == r.trial), None)
    if trial is not None:
        parts += [f"trial {trial.index + 1} of {len(trials)}", f"{trial.arm.name} in block {trial.block}"]
    if r.phase:
        parts.append(f"{r.phase}, probe {r.probe} of {r.n_probes}" if r.phase == "probing" and r.n_probes else r.phase)
    if r.tokens_per_s:
        parts.append(f"{r.tokens_per_s:.0f} tokens/s")
    if r.eta_s:
        parts.append(f"about {formats.duration(r.eta_s)} left")
    return " · ".join(parts)


@dataclass(frozen=True)
class Controls:
    """What a person may do to a job now."""

    cancel: bool = False
    pause: bool = False
    resume: bool = False
    retry: bool = False
    history: list[tuple[str, str]] = field(default_factory=list)  # in words, and the address of the other try

    @property
    def any(self) -> bool:
        return self.cancel or self.pause or self.resume or self.retry


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
        history=history,
    )


def incomplete(progress: Progress, *, answered: bool) -> str:
    """What a job that ended early still says; empty if nothing is missing."""
    if progress.live or progress.state == JobState.PROCESSED:
        return ""
    if not progress.n_done:
        return "Nothing was measured before it ended."
    so_far = f"{progress.n_whole} of {progress.n_blocks} blocks are whole, {progress.n_done} of {progress.n_trials} trials are done. "
    if answered:
        return f"Incomplete: {so_far}The answers below rest on these alone; the table’s column “blocks” says on how many each rests."
    return f"Incomplete: {so_far}What they say is being worked out; load the page again in a moment."
