"""What an experiment would do if it were submitted now: its trials in order, each host's answer and commands, minutes, warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from speccore.commandline import Command
from speccore.estimate import Minutes, TrialCost
from speccore.spec import ExperimentSpec, SpecProblem

from specweb.accounts.models import Team


@dataclass(frozen=True)
class TrialLine:
    number: int  # from 1, in order of running
    block: int
    position: int
    arm: str
    mode: str
    points: list[str]


@dataclass(frozen=True)
class HostPreview:
    """A host of the team. ``commands`` hold the host's own paths; the port, drawn at the start, stands as {port}."""

    id: UUID
    name: str
    hardware: str
    state: str  # online, draining, stalled, lost, never seen
    fits: bool
    chosen: bool  # a job of the experiment would go to it
    why_not: str  # in words, one clause; empty where it could run it now
    refusals: list[str]
    runtime: str
    target: str
    commands: list[Command]
    minutes: Minutes | None


@dataclass(frozen=True)
class Preview:
    n_trials: int
    n_requests: int
    order: list[TrialLine]
    hosts: list[HostPreview]
    warnings: list[SpecProblem]
    minutes: Minutes | None  # of the slowest of the hosts that it would go to


def preview(
    spec: ExperimentSpec,
    team: Team,
    *,
    now: datetime,
    history: Mapping[UUID, Sequence[TrialCost]] | None = None,
) -> Preview:
    return Preview(0, 0, [], [], [], None)
