"""What the overview shows of an experiment and of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from specweb.experiments.models import Experiment, Host
from specweb.experiments.services.silence import Limits

from . import formats, hosts_page


@dataclass(frozen=True)
class Answer:
    title: str
    word: str
    arm: str
    speedup: str  # of the arm, empty if withheld
    interval: str


@dataclass(frozen=True)
class JobLine:
    host: str
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
    state: str
    created_at: datetime
    jobs: list[JobLine]


def card(experiment: Experiment, answers: Mapping[UUID, Sequence[Mapping[str, Any]]]) -> Card:
    """An experiment with the newest answers of each of its jobs."""
    titles = {p.key: p.workload.title for p in experiment.points.all()}
    jobs = []
    retried = {job.retry_of_id for job in experiment.jobs.all()}
    for job in experiment.jobs.all():
        if job.pk in retried:
            continue  # its retry speaks for it
        host = job.host or job.wanted_host
        found = [_answer(a, titles) for a in answers.get(job.id, [])]
        jobs.append(JobLine(host.name if host else "any host", "paused" if job.is_paused else job.state, job.reason, found))
    return Card(
        id=experiment.id,
        name=experiment.name,
        question=experiment.question,
        team=experiment.team.name,
        public=experiment.visibility == "public",
        state=str(experiment.state),
        created_at=experiment.created_at,
        jobs=jobs,
    )


def _answer(answer: Mapping[str, Any], titles: Mapping[str, str]) -> Answer:
    low, high, speedup = answer.get("ci_low"), answer.get("ci_high"), answer.get("speedup")
    return Answer(
        title=titles.get(str(answer.get("point")), str(answer.get("point"))),
        word=str(answer.get("word", "")),
        arm=str(answer.get("arm") or ""),
        speedup=formats.ratio(speedup) if speedup else "",
        interval=formats.ratio_range(low, high) if low and high else "",
    )


@dataclass(frozen=True)
class HostLine:
    id: UUID
    name: str
    hardware: str
    last_seen_at: datetime | None
    state: str  # online, stalled, lost, never seen
    draining: bool
    problem: str


def host_line(host: Host, now: datetime, limits: Limits) -> HostLine:
    return HostLine(
        host.pk,
        host.name,
        host.inventory.hardware if host.inventory else "",
        host.last_seen_at,
        hosts_page.state_of(host, now, limits),
        host.takes_no_jobs,
        str((host.problem or {}).get("code", "")),
    )
