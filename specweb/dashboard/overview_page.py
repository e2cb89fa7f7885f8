"""What the overview shows: what runs now, the answers of each experiment, the hosts. No database access."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.urls import reverse

from specweb.experiments.models import Host, Job, Origin
from specweb.experiments.services.silence import Limits
from specweb.results.models import Trial
from specweb.results.overview_queries import PointTold

from . import formats, hosts_page
from .job_progress import Progress, progress_of


@dataclass(frozen=True)
class RunLine:
    """A job that has not ended."""

    name: str
    href: str
    team: str
    host: str
    host_id: UUID | None
    progress: Progress


def run_lines(jobs: Sequence[Job], trials: Mapping[UUID, Sequence[Trial]], limits: Limits, now: datetime) -> list[RunLine]:
    return [
        RunLine(
            name=job.experiment.question or job.experiment.name,
            href=f"{reverse('experiment', args=[job.experiment_id])}?job={job.pk}",
            team=job.experiment.team.name,
            host=host.name if (host := job.host or job.wanted_host) else "any host",
            host_id=job.host_id,
            progress=progress_of(job, trials.get(job.pk, []), limits, now, for_team=job.for_team, answered=False),
        )
        for job in jobs
    ]


def set_of(jobs: Sequence[Job]) -> str:
    """A name for which jobs have not ended: when it changes, the answers below may have changed too."""
    return hashlib.sha256(" ".join(sorted(str(j.pk) for j in jobs)).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Answer:
    """The answer for one kind of work; ``x``, ``low`` and ``high`` are percent of an axis that all answers of the page share."""

    title: str
    detail: str
    word: str
    arm: str
    mode: str
    speedup: str  # of the arm, empty if withheld
    interval: str
    not_restarted: bool
    at_best: bool  # no arm is worth running: the figure is that of the best
    x: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class JobLine:
    host: str
    href: str
    state: str
    reason: str
    answers: list[Answer]


@dataclass(frozen=True)
class Card:
    id: UUID
    name: str
    question: str
    team: str
    public: bool
    self_run: str  # the mark of who ran it; empty: this service
    created_at: datetime
    jobs: list[JobLine]


@dataclass(frozen=True)
class Axis:
    """A log axis of ratios in percent."""

    low: float
    high: float

    def place(self, ratio: float) -> float:
        share = (math.log(min(max(ratio, 1e-3), 1e3)) - self.low) / (self.high - self.low)
        return round(3 + 94 * min(max(share, 0.0), 1.0), 2)


def axis_of(answers: Iterable[Mapping[str, Any]]) -> Axis:
    """It holds every figure and interval, and never less than ⅔ to 1.5."""
    values = [a[key] for a in answers for key in ("speedup", "ci_low", "ci_high") if a.get(key)]
    logs = [math.log(min(max(v, 1e-3), 1e3)) for v in (*values, 1.5, 1 / 1.5)]
    return Axis(min(logs), max(logs))


def card(experiment: Any, axis: Axis) -> Card:
    """An experiment, as ``experiments_shown`` reads it, with the newest answers of each of its jobs.

    A job that was tried again leaves the word to its retry; one that added blocks, whose answer is that of all blocks, to the first.
    """
    retried = {job.retry_of_id for job in experiment.jobs.all()}
    told = {job.pk: job.answers for job in experiment.jobs.all()}
    base = reverse("experiment", args=[experiment.pk])
    jobs = []
    for job in experiment.jobs.all():
        if job.pk in retried or (job.extends_id and job.answers and job.answers == told.get(job.extends_id)):
            continue
        host = job.host or job.wanted_host
        jobs.append(
            JobLine(
                host=host.name if host else "any host",
                href=f"{base}?job={job.pk}",
                state="paused" if job.is_paused else job.state,
                reason=job.reason_for(team=job.for_team),
                answers=[_answer(a, experiment.points_told, experiment.modes, axis.place) for a in job.answers],
            )
        )
    return Card(
        id=experiment.pk,
        name=experiment.name,
        question=experiment.question,
        team=experiment.team.name,
        public=experiment.visibility == "public",
        self_run="" if experiment.origin == Origin.SERVICE else experiment.origin,
        created_at=experiment.created_at,
        jobs=jobs,
    )


def _answer(
    answer: Mapping[str, Any], points: Mapping[str, PointTold], modes: Mapping[str, str], place: Callable[[float], float]
) -> Answer:
    low, high, speedup, word = answer.get("ci_low"), answer.get("ci_high"), answer.get("speedup"), str(answer.get("word", ""))
    point, arm = points.get(str(answer.get("point"))), str(answer.get("arm") or "")
    known = bool(low and high)
    return Answer(
        title=point.title if point else str(answer.get("point")),
        detail=_detail(point) if point else "",
        word=word,
        arm=arm,
        mode=modes.get(arm, "off"),
        speedup=formats.ratio(speedup) if speedup else "",
        interval=formats.ratio_range(low, high) if low and high else "",
        not_restarted=bool(answer.get("not_restarted")),
        at_best=bool(speedup) and word not in ("keep", "shorten"),
        x=place(speedup) if speedup else None,
        low=place(low) if known and low else None,
        high=place(high) if known and high else None,
    )


def _detail(point: PointTold) -> str:
    parts = ["greedy" if point.temperature == 0 else f"temperature {point.temperature:g}"]
    parts += point.parsed.manner
    parts += [f"{point.occupied_context:,} tokens of context"] if point.occupied_context else []
    return ", ".join(parts)


@dataclass(frozen=True)
class HostLine:
    id: UUID
    name: str
    hardware: str
    last_seen_at: datetime | None
    state: str  # online, stalled, lost, never seen
    draining: bool
    problem: str
    work: RunLine | None


def host_line(host: Host, runs: Sequence[RunLine], now: datetime, limits: Limits) -> HostLine:
    """``work`` is what it runs now, of ``runs``."""
    return HostLine(
        host.pk,
        host.name,
        host.inventory.hardware if host.inventory else "",
        host.last_seen_at,
        hosts_page.state_of(host, now, limits),
        host.takes_no_jobs,
        str((host.problem or {}).get("code", "")),
        next((r for r in runs if r.host_id == host.pk and r.progress.state in ("claimed", "running", "stalled")), None),
    )
