"""What the addresses about a job's numbers answer, as models."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from .answers import ComparisonAnswer, JobWhole
from .describing import Answer


class JobFound(JobWhole):
    experiment: UUID
    experiment_name: str


class SourceLine(Answer):
    """A file of an attempt's evidence, the line in it (from 1) where there is one, and what stands there."""

    file: str
    line: int | None
    field: str


class NumberLine(Answer):
    """One number of one side, or the reason why there is none, with its definition and where it was read."""

    metric: str
    side: str
    name: str
    unit: str
    definition: str
    definition_id: str
    value: float | None
    withheld: str | None
    source: SourceLine | None


class ProbeLine(Answer):
    """A timed request of one of the two arms; `numbers` by metric, each with its source."""

    attempt: UUID
    block: int
    arm: str
    item: str
    turn: int | None
    ok: bool
    failure: str
    numbers: dict[str, Any]


class NumbersAnswer(Answer):
    job: UUID
    experiment: UUID
    arm: str
    baseline: str
    point: str
    comparison: ComparisonAnswer  # type: ignore[valid-type]
    numbers: list[NumberLine]
    block_values: dict[str, float]
    probes: list[ProbeLine]
    url: str


class CheckLine(Answer):
    name: str
    kind: str
    state: str
    sentence: str
    evidence: dict[str, Any]


class ComparedChecks(Answer):
    arm: str
    point: str
    checks: list[CheckLine]


class IntegrityAnswer(Answer):
    """`checks` of the job as a whole, then those of each comparison."""

    checks: list[CheckLine]
    comparisons: list[ComparedChecks]


class AnalysisLine(Answer):
    """`current`: the one that counts, which is the newest."""

    id: int
    analysis_version: int
    created_at: datetime
    n_comparisons: int
    current: bool
    api_url: str


class AnalysesAnswer(Answer):
    analyses: list[AnalysisLine]
    next: str | None


class AnalysisAnswer(Answer):
    """As it was computed: every comparison with every number and its source."""

    id: int
    analysis_version: int
    created_at: datetime
    content: dict[str, Any]


class AttemptLine(Answer):
    id: UUID
    n: int
    outcome: str
    accepted: bool
    void_reason: str
    started_at: datetime
    ended_at: datetime
    api_url: str


class TrialAnswerLine(Answer):
    """`number` from 1, in the order of running."""

    plan_id: str
    number: int
    block: int
    position: int
    arm: str
    points: list[str]
    attempts: list[AttemptLine]


class TrialsAnswer(Answer):
    trials: list[TrialAnswerLine]
    next: str | None


class AttemptAnswer(AttemptLine):
    """`measurement`: all that was read from the evidence, each number with its source; null until it was read."""

    job: UUID
    experiment: UUID
    trial: str
    arm: str
    block: int
    error: dict[str, Any] | None
    durations_s: dict[str, float]
    parse_error: dict[str, Any] | None
    measurement: dict[str, Any] | None
    evidence_url: str
    url: str


class CandidateLine(Answer):
    attempt: UUID
    trial: int
    n: int
    arm: str
    block: int
    accepted: bool


class DifferenceLine(Answer):
    """What differs by its name, such as `command.--draft-max`; null on the side that has no such thing."""

    name: str
    a: Any
    b: Any


class DiffAnswer(Answer):
    """`a` and `b` side by side; `one_pair`: whether all is equal that must be equal inside a ratio."""

    candidates: list[CandidateLine]
    a: dict[str, Any] | None
    b: dict[str, Any] | None
    one_pair: bool | None
    differences: list[DifferenceLine]
