"""Agent protocol v1: the messages between agent and server. Pinned by ``tests/wire``; see docs/protocol.md.

An optional field keeps the version; a new meaning bumps it. Unknown fields are ignored.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WrapValidator

from .errors import ErrorBody
from .inventory import HostInventory, Peer
from .spec import ExperimentSpec, read_stored_spec

PROTOCOL = 1


def _in_utc(moment: datetime) -> datetime:
    """A moment that every reader can hold: year 1 or 9999 would leave the calendar in another zone."""
    if not 1970 <= moment.year < 9999:
        raise ValueError("a moment lies between the years 1970 and 9998")
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


#: The service has accepted it, perhaps of another release: an agent runs it or says why it can't.
AcceptedSpec = Annotated[ExperimentSpec, WrapValidator(lambda data, _: read_stored_spec(data))]
Moment = Annotated[datetime, AfterValidator(_in_utc)]

EvidenceKind = Literal["log", "launch", "manifest", "records", "texts", "metrics", "samples", "attempt"]


class EnrolRequest(Peer):
    protocol: int = PROTOCOL
    code: str
    hostname: str
    agent_version: str


class EnrolReply(Peer):
    protocol: int = PROTOCOL
    host_id: str
    host_name: str
    agent_token: str


class ProbePlan(Peer):
    """One timed request. ``id`` is unique in the trial, e.g. ``count/c1/ctx0/t0#3``; ``item`` names the workload's item."""

    id: str
    point: str
    item: str
    seed: int


class WarmupPlan(Peer):
    id: str
    point: str  # whose shape (sampling, max_tokens) it has
    item: str  # from the workload's reserved items
    seed: int
    ahead: bool = False  # an item of the point's probes, asked so that its probe repeats it


class TrialPlan(Peer):
    """One server start of one arm in one block. ``index`` counts from 0 through the job in order of running."""

    id: str  # "b1-draft-3": block, arm; with a point's number where a trial has one point of its own
    index: int
    block: int  # from 1
    position: int  # in the block, from 1
    arm: str
    points: list[str]
    warmup: list[WarmupPlan]
    probes: list[ProbePlan]


class JobPlan(Peer):
    """All trials of a job in order. ``workloads`` maps each point's workload name to the hash of its content."""

    seed: int
    trials: list[TrialPlan]
    workloads: dict[str, str]


class JobOffer(Peer):
    """A job with its lease. ``commands`` are the rendered commands with symbolic bindings ({target}, {port}, …)."""

    job_id: str
    experiment_id: str
    lease: int  # n-th lease of this job
    lease_token: str
    spec: AcceptedSpec
    plan: JobPlan
    runtime_hash: str
    target_hash: str
    draft_hashes: dict[str, str] = {}  # arm: manifest hash of its draft model
    device_uuids: list[str]
    commands: dict[str, list[str]] = {}
    done_trials: list[str] = []  # trials that need no further attempt
    block_runs: dict[int, int] = {}  # block: its n-th run, where that is not the first (see AttemptReport.block_run)
    looked_after: int = 0  # the last block with which an early look was taken (see Looked)
    decided: dict[str, int] = {}


class Running(Peer):
    """What the agent is doing, for people to watch."""

    job_id: str
    lease: int
    trial: str = ""
    attempt: str = ""
    phase: str = ""  # starting, warm-up, probing, stopping, uploading, paused, waiting for room
    probe: int = 0
    n_probes: int = 0
    tokens_per_s: float | None = None
    eta_s: float | None = None
    note: str = ""  # in words, e.g. why nothing moves
    log_tail: list[str] = []  # the last lines of the engine's log


class Finished(Peer):
    """The agent's last word on a job, repeated in each poll until acknowledged."""

    job_id: str
    lease: int
    outcome: Literal["completed", "failed", "cancelled"]
    error: ErrorBody | None = None


class PollRequest(Peer):
    protocol: int = PROTOCOL
    agent_version: str = ""
    inventory_hash: str
    running: Running | None = None
    finished: list[Finished] = Field(default=[], max_length=1000)
    draining: bool = False
    spooled_bytes: int = 0
    problem: ErrorBody | None = None  # what ails the host now, with its remedy
    sent_at: Moment | None = None  # by the host's clock, which may be wrong


class Looked(Peer):
    """What early looks say of a job that runs. State and no command: an agent that doesn't read it runs more trials, and none is lost.

    ``after_block``: evidence of so many blocks was looked at. ``decided``: arm → the block after which it needs no other; when
    every arm with speculation is decided, the baseline needs none either.
    """

    job_id: str
    after_block: int = 0
    decided: dict[str, int] = {}


class PollReply(Peer):
    """The full desired state: a lost reply heals itself with the next."""

    protocol: int = PROTOCOL
    job: JobOffer | None = None
    cancel: list[str] = []  # job ids
    pause: list[str] = []  # job ids that shall rest between trials until they are no longer named
    acknowledged: list[str] = []  # job ids of Finished that the server has stored
    looked: Looked | None = None  # of the job that runs, where it stops early
    drain: bool = False
    send_inventory: bool = False
    poll_after_s: float = 10.0
    server_time: datetime | None = None


class InventoryRequest(Peer):
    protocol: int = PROTOCOL
    inventory: HostInventory


class EvidenceRef(Peer):
    """A raw file: its name in the attempt, the SHA-256 and size of its uncompressed bytes."""

    name: str
    kind: EvidenceKind
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    bytes: int = Field(ge=0)
    private: bool = False  # holds prompt or answer text


class AttemptReport(Peer):
    """One try at a trial has ended. Accepted when every blob is there and re-hashed."""

    protocol: int = PROTOCOL
    attempt_id: str  # UUID, made by the agent
    job_id: str
    lease: int
    trial: str
    n: int = Field(ge=1)  # n-th attempt at this trial
    outcome: Literal["ok", "failed", "cancelled"]
    error: ErrorBody | None = None
    boot_id: str
    started_at: Moment
    ended_at: Moment
    durations_s: dict[str, float] = {}  # start, warmup, probe, stop
    #: n-th run of the trial's block. A block is run whole once more when it was torn apart (restart of the machine, a
    #: changed inventory, a gap of 10 minutes); the attempts of its earlier runs are then void.
    block_run: int = Field(default=1, ge=1, le=10_000)
    evidence: list[EvidenceRef] = Field(max_length=1000)


class ReportReply(Peer):
    protocol: int = PROTOCOL
    stored: bool
    counted: bool  # False: kept as evidence only (stale lease, or the trial already has an accepted attempt)
    missing: list[str] = []  # blobs to send first


class Refusal(Peer):
    """The one shape of an error reply: {"error": {code, message, details}}."""

    error: ErrorBody


def decode(model: type[Peer], data: Any) -> Any:
    """Parses a peer's message; raises ``pydantic.ValidationError``."""
    return model.model_validate(data)
