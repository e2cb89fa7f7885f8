"""What the service answers, as frozen values. A field of a newer service is ignored; :attr:`Answer.raw` has the answer as it came.

A number that is not to be had is :class:`Withheld`, with the reason; it is never None or zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, PrivateAttr, ValidationError, model_validator
from speccore.jobstate import FINAL
from speccore.measurement import Withheld
from speccore.plain import one_line
from speccore.spec import ExperimentSpec

from .errors import NotTheApi

#: Jobs in these states change no more.
FINAL_STATES = frozenset(state.value for state in FINAL)
Maybe = float | Withheld


class Answer(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    _raw: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def raw(self) -> dict[str, Any]:
        """The answer as it came, for what has no field here."""
        return self._raw

    @classmethod
    def read(cls, data: Any) -> Self:
        """Raises :class:`NotTheApi` for a value of another shape."""
        try:
            found = cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise NotTheApi(f"the service's answer can't be read: {where or 'it'}: {one_line(first['msg'])}") from None
        return found

    @model_validator(mode="wrap")
    @classmethod
    def _with_raw(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Also of what stands inside another answer."""
        found = handler(data)
        if isinstance(data, dict):
            found._raw = data
        return found


A = TypeVar("A", bound=Answer)


def read_list(kind: type[A], data: Any, name: str) -> list[A]:
    """The entries that stand under ``name``."""
    entries = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise NotTheApi(f"the service's answer can't be read: it has no list {name!r}")
    return [kind.read(entry) for entry in entries]


class TeamRole(Answer):
    slug: str
    name: str
    role: str


class Me(Answer):
    user: str
    teams: list[TeamRole]


class Token(Answer):
    id: int
    name: str
    prefix: str
    scopes: list[str]
    expires_at: datetime | None
    expired: bool
    current: bool


class Doing(Answer):
    """What the agent of a running job does."""

    trial: str = ""
    phase: str = ""
    probe: int = 0
    n_probes: int = 0
    tokens_per_s: float | None = None
    eta_s: float | None = None
    note: str = ""


class Job(Answer):
    """As experiments name it; ``n_trials`` and what follows only :meth:`Client.experiment` and :meth:`Client.job` tell."""

    id: str
    host: str | None
    state: str
    paused: bool
    cancelling: bool
    reason: str
    retry_of: str | None
    extends: str | None
    blocks: list[int] | None
    experiment: str = ""
    error: dict[str, Any] | None = None
    hardware: str | None = None
    n_trials: int = 0
    n_trials_done: int = 0
    progress: Doing | None = None
    url: str = ""

    @property
    def is_final(self) -> bool:
        return self.state in FINAL_STATES

    @property
    def is_measured(self) -> bool:
        """Its evidence is read and compared."""
        return self.state == "processed"


class VerdictTold(Answer):
    word: str
    reason: str
    sentence: str
    next_step: str = ""


class Ratio(Answer):
    """``low`` and ``high`` are None below 3 blocks."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n_blocks: int = 0
    withheld: str = ""


class Comparison(Answer):
    """An arm against the baseline at one point; ``raw`` has every metric."""

    job: str
    host: str | None
    arm: str
    mode: str
    point: str
    workload: str
    speedup: Ratio | Withheld
    acceptance_rate: Maybe
    tokens_per_target_pass: Maybe
    memory_bill_bytes: Maybe
    verdict: VerdictTold
    recommended: bool
    not_restarted: bool = False
    url: str


class Experiment(Answer):
    id: str
    name: str
    question: str
    team: str
    visibility: str
    origin: str
    state: str
    created_at: datetime
    created_by: str | None
    url: str
    jobs: list[Job]

    @property
    def current_jobs(self) -> list[Job]:
        """Without those that were tried again."""
        retried = {j.retry_of for j in self.jobs}
        return [j for j in self.jobs if j.id not in retried]

    @property
    def is_final(self) -> bool:
        return all(j.is_final for j in self.current_jobs)


class ExperimentWhole(Experiment):
    spec: dict[str, Any]
    spec_hash: str
    comparisons: list[Comparison]

    @property
    def margin(self) -> float:
        """What a gain must be over, as a share."""
        told = self.spec.get("margin")
        return float(told) if isinstance(told, int | float) else float(ExperimentSpec.model_fields["margin"].default)


class Row(Answer):
    """A row of Compare, and with ``n_runs`` 1 a comparison by itself."""

    comparison: str
    job: str
    experiment: str
    experiment_name: str
    host: str | None
    speedup: float | None
    low: float | None
    high: float | None
    withheld: str | None
    n_blocks: int
    verdict: str
    reason: str
    measured_at: datetime
    url: str
    question_key: str
    target: str
    engine: str
    work: str
    concurrency: int
    context: int
    mode: str
    arm: str
    arm_in_words: str
    hardware: str
    build: str
    self_run: bool
    not_restarted: bool
    recommended: bool
    n_runs: int = 1
    n_hosts: int = 1


class HostModel(Answer):
    alias: str
    manifest_hash: str


class HostRuntime(Answer):
    engine: str | None
    version: str | None
    backend: str | None


class Host(Answer):
    id: str
    name: str
    team: str
    state: str
    draining: bool
    hardware: str | None
    last_seen_at: datetime | None
    agent_version: str | None
    problem: dict[str, Any] | None
    models: list[HostModel]
    runtimes: list[HostRuntime]
    url: str


class Workload(Answer):
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
    warnings: list[str] = []


class EvidenceFile(Answer):
    trial: str
    attempt: str
    accepted: bool
    file: str
    kind: str
    private: bool
    sha256: str
    bytes: int
    url: str | None


class Report(Answer):
    """Another tool's results: reported, not verified."""

    id: str
    mark: str
    title: str
    team: str
    tool_name: str
    n_runs: int
    models: list[str]
    hardware: list[str]
    url: str
    warnings: list[str] = []


class Taken(Answer):
    """An archive that was imported; ``created`` false: it was there."""

    experiment: str
    created: bool
    url: str


class Difference(Answer):
    arm: str
    point: str
    what: str
    there: str
    here: str


class Imported(Answer):
    """How the numbers computed here compare with those of the archive; ``pending``: they are still being computed."""

    server: str
    measured_on: str
    pending: bool
    same: bool
    n_differences: int
    differences: list[Difference]
