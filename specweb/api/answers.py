"""What the addresses for people's programs answer, as models: for the schema, and for the tests that hold answers against them."""

from __future__ import annotations

import types
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from pydantic import create_model
from speccore.measurement import ComparisonResult, Number, Withheld

from specweb.experiments.services.preview import Preview

from .describing import Answer


class NotHad(Answer):
    """A number that is not to be had, with the reason."""

    withheld: str


Figure = float | NotHad


class TeamLine(Answer):
    slug: str
    name: str
    role: str


class MeAnswer(Answer):
    user: str
    teams: list[TeamLine]


class JobLine(Answer):
    id: UUID
    host: str | None
    state: str
    paused: bool
    cancelling: bool
    reason: str
    retry_of: UUID | None
    extends: UUID | None
    blocks: list[int] | None


class JobAnswer(JobLine):
    experiment: UUID


class RuntimeLine(Answer):
    engine: str | None
    version: str | None
    source_commit: str | None
    backend: str | None
    manifest_hash: str | None


class JobWhole(JobLine):
    error: dict[str, Any] | None
    hardware: str | None
    runtime: RuntimeLine | None
    target_hash: str | None
    draft_hashes: dict[str, str]
    n_trials: int
    n_trials_done: int
    decided: dict[str, Any]
    progress: dict[str, Any] | None
    created_at: datetime
    running_at: datetime | None
    ended_at: datetime | None
    url: str
    evidence_url: str


class _ExperimentHead(Answer):
    id: UUID
    name: str
    question: str
    team: str
    visibility: str
    origin: str
    state: str
    created_at: datetime
    created_by: str | None
    url: str
    api_url: str


class ExperimentLine(_ExperimentHead):
    jobs: list[JobLine]


class ExperimentsAnswer(Answer):
    experiments: list[ExperimentLine]
    next: str | None


def _told(annotation: Any) -> Any:
    """The type of a number as it is told: its plain value, or the reason why it is withheld."""
    if annotation is Number:
        return float
    if annotation is Withheld:
        return NotHad
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(_told(a) for a in get_args(annotation))]  # noqa: UP007
    if get_origin(annotation) in (list, tuple) and get_args(annotation):
        return list[_told(get_args(annotation)[0])]  # type: ignore[misc]
    return annotation


def _comparison_fields() -> dict[str, Any]:
    """Those of the record; what it leaves empty for want of knowledge is withheld with the reason."""
    told = {name: _told(f.annotation) for name, f in ComparisonResult.model_fields.items()}
    return {name: (kind, ...) for name, kind in (told | {"noise_floor": Figure, "p_holm": Figure}).items()}


class _Compared(Answer):
    job: UUID
    host: str | None
    url: str


ComparisonAnswer = create_model("ComparisonAnswer", __base__=_Compared, **_comparison_fields())


class ExperimentAnswer(_ExperimentHead):
    jobs: list[JobWhole]
    spec: dict[str, Any]
    spec_hash: str
    spec_yaml_url: str
    comparisons: list[ComparisonAnswer]  # type: ignore[valid-type]


PreviewAnswer = create_model("PreviewAnswer", __base__=Answer, **{n: (kind, ...) for n, kind in get_type_hints(Preview).items()})


class EvidenceLine(Answer):
    trial: str
    arm: str
    block: int
    attempt: UUID
    accepted: bool
    file: str
    kind: str
    private: bool
    sha256: str
    bytes: int
    url: str | None


class EvidenceAnswer(Answer):
    evidence: list[EvidenceLine]
    next: str | None


class HostModelLine(Answer):
    alias: str
    manifest_hash: str
    size_bytes: int
    architecture: str
    quantization: str
    context_length: int | None
    has_mtp: bool | None


class HostLine(Answer):
    id: UUID
    name: str
    team: str
    state: str
    draining: bool
    labels: dict[str, Any]
    hardware: str | None
    last_seen_at: datetime | None
    agent_version: str | None
    problem: dict[str, Any] | None
    models: list[HostModelLine]
    runtimes: list[RuntimeLine]
    url: str


class HostsAnswer(Answer):
    hosts: list[HostLine]


class WorkloadLine(Answer):
    id: int
    name: str
    version: int
    ref: str
    title: str
    team: str | None
    n_items: int
    content_hash: str
    private: bool
    archived_at: datetime | None
    url: str


class WorkloadsAnswer(Answer):
    workloads: list[WorkloadLine]


class WorkloadMade(WorkloadLine):
    warnings: list[str]


class BlobAnswer(Answer):
    """``bytes`` of a file that is whole, ``offset`` of one that came in part."""

    sha256: str
    bytes: int | None = None
    offset: int | None = None


Role = Literal["viewer", "submitter", "maintainer"]
