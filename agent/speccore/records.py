"""The shapes of the evidence files that an attempt leaves; each definition can be computed again from them.

| file                | kind     | content |
|---------------------|----------|---------|
| ``server.log``      | log      | stdout and stderr of the engine, as written; of more than 64 MiB the middle is left out, and a line says so |
| ``launch.json``     | launch   | :class:`Launch` |
| ``manifest.json``   | manifest | :class:`Manifest` |
| ``records.jsonl``   | records  | one :class:`StreamRecord` a line, warm-up first |
| ``texts.jsonl``     | texts    | one :class:`TextRecord` a line, same order (private) |
| ``metrics.jsonl``   | metrics  | one :class:`MetricsSnapshot` a line |
| ``samples.jsonl``   | samples  | one :class:`Sample` a line, ten each second; what is not known is left out |
| ``attempt.json``    | attempt  | :class:`AttemptSummary` |
| ``fit.json``        | attempt  | :class:`speccore.fit.Fit`, beside the job's last trial where the experiment asks for it |
| ``second-look.jsonl`` | texts  | one :class:`SecondLook` a line, where the baseline was asked again (private) |
| ``continuations.jsonl`` | texts | one :class:`Continuation` a line, where sampling is tested (private) |

Files travel as zstd; names and hashes are of the uncompressed bytes. Times are seconds of the host's monotonic
clock, counted from the attempt's start (``AttemptSummary.started_at``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from .errors import ErrorBody
from .inventory import Peer

LOG, LAUNCH, MANIFEST = "server.log", "launch.json", "manifest.json"
RECORDS, TEXTS, METRICS = "records.jsonl", "texts.jsonl", "metrics.jsonl"
SAMPLES, ATTEMPT = "samples.jsonl", "attempt.json"
FIT = "fit.json"
SECOND_LOOK, CONTINUATIONS = "second-look.jsonl", "continuations.jsonl"

#: A number that is none (NaN, infinite) makes its line unreadable: it is no measurement.
_FINITE = ConfigDict(allow_inf_nan=False)
#: What a sensor may say; sums of these can be had.
Whole = Annotated[int, Field(ge=0, le=1 << 60)]
Real = Annotated[float, Field(ge=-1e15, le=1e15)]


class StreamEvent(Peer):
    """One event of the stream. ``tokens`` from ids where the stream has them. ``predicted_n`` … are the engine's own per-token timings."""

    model_config = _FINITE

    at_s: float  # arrival of its last byte, before any JSON was parsed: the kernel's stamp where there is one
    read_at_s: float | None = None  # when the client read that byte; the difference is the client's own lag. None: ``at_s`` is it
    queued: bool = False  # the kernel had joined it with later bytes: ``at_s`` is an upper bound and no figure
    tokens: int = Field(ge=0)
    without_id: int = Field(default=0, ge=0)  # of these tokens: counted by the engine's running count, sent without an id
    uncounted: bool = False  # bears text, and the engine didn't say how many tokens: ``tokens`` is 0
    kind: Literal["content", "reasoning", "tool", "final", "error"] = "content"
    predicted_n: int | None = Field(default=None, ge=0)
    predicted_ms: float | None = None
    draft_n: int | None = Field(default=None, ge=0)
    draft_n_accepted: int | None = Field(default=None, ge=0)


class Thought(Peer):
    """What tells a thought from the answer proper in a model's text; marks are empty where the template has none that is known."""

    asked: bool = False  # the model was asked to think
    opened: bool = False  # the prompt itself has begun it
    opens: str = ""
    ends: str = ""


class StreamRecord(Peer):
    """One request, timed. ``failure`` is a code of the error tree, else empty."""

    model_config = _FINITE

    probe: str
    warmup: bool = False
    ahead: bool = False  # of a warm point: asked so that a probe repeats it; counts neither as a probe nor for settling
    point: str
    item: str
    turn: int | None = None  # of a task, from 1
    n_turns: int | None = None
    waited_s: float | None = None  # for the tools, before this turn was sent
    thought: Thought | None = None  # where the model was asked through its chat template
    seed: int
    path: str  # "/completion"
    request_sha256: str
    connected_at_s: float
    scheduled_at_s: float | None = None  # open loop: when it was due; its latency counts from here
    sent_at_s: float  # last byte of the request written
    closed_at_s: float
    status: int
    stamps: Literal["kernel", "user"] = "user"  # where the arrivals come from
    events: list[StreamEvent]
    final: dict[str, Any] = {}  # the last event's counts and timings, without text: tokens_predicted, timings, stop_type, …
    generation_settings: dict[str, Any] = {}  # as the server echoes them
    ids_sha256: str = ""  # of the canonical JSON of all token ids; equal outputs have equal hashes
    failure: str = ""
    failure_message: str = ""


class ClientHealth(Peer):
    """How the client itself did while it measured; a client that is the bottleneck measures itself."""

    n_events: int = 0
    n_late: int = 0  # read more than 1 ms after they had arrived; the kernel's stamp is a figure all the same
    n_queued: int = 0  # read so late that the kernel had joined them to later ones: their arrival is an upper bound
    lag_ms_p50: float | None = None  # from the kernel's stamp to the read
    lag_ms_p99: float | None = None
    lag_ms_max: float | None = None
    round_ms_p99: float | None = None  # how long one round over its sockets kept the client from looking again
    cpu_share: float | None = None  # of one core, of the measuring thread
    observed_concurrency: float | None = None  # mean number of requests in flight in the window
    stamps: Literal["kernel", "user"] = "user"


class TextRecord(Peer):
    probe: str
    request: dict[str, Any]  # the body that was sent
    texts: list[str]  # one for each event
    ids: list[list[int]]  # one list for each event


class SecondLook(Peer):
    """A greedy request that the baseline was asked once more after the timed part, with how sure it was of each token."""

    model_config = _FINITE

    probe: str  # whose request this is again
    point: str
    item: str
    ids: list[int] = []
    gaps_nat: list[float] = []  # for each id: how far apart the two likeliest tokens were (difference of natural log-probabilities)
    cut: bool = False  # the length limit ended it
    problem: str = ""  # in words, why there is no answer


class Continuation(Peer):
    """A short answer under a seed of its own, for the test of the sampling rule. ``drafted``: None where the engine doesn't say."""

    item: str
    seed: int
    ids: list[int] = []
    drafted: int | None = None
    problem: str = ""  # in words, why there is no answer


class MetricsSnapshot(Peer):
    """The engine's /metrics as text. ``when`` is before or after; ``probe`` is empty around requests that ran together."""

    model_config = _FINITE

    at_s: float
    when: Literal["before", "after"]
    probe: str = ""
    status: int
    text: str


class DeviceSample(Peer):
    """What one device says of itself at one moment. None: it doesn't say, or not at this moment."""

    model_config = _FINITE

    used_bytes: Whole | None = None  # by all processes
    total_bytes: Whole | None = None  # that it has
    clock_mhz: Real | None = None
    memory_clock_mhz: Real | None = None
    power_w: Real | None = None
    cap_w: Real | None = None
    energy_j: Real | None = None  # counted since the driver was loaded
    temperature_c: Real | None = None
    busy_percent: Real | None = None
    throttle: list[str] | None = None  # why its clock is not at its highest: see host_series.HARMLESS
    pcie_rx_kb_s: Real | None = None
    pcie_tx_kb_s: Real | None = None
    other_pids: list[Whole] | None = None  # on it beside the engine's; None where the engine itself is not seen there
    other_busy_percent: Real | None = None  # by these
    host_bytes: Whole | None = None  # of the engine, in the host's memory but the device's to use; pinned buffers too


class Sample(Peer):
    """Memory and load at one moment. Bytes are of the engine's process tree; ``pss_bytes`` (shared pages counted once) is
    read between requests only, since reading it holds up the engine."""

    model_config = _FINITE

    at_s: Real
    phase: str
    rss_bytes: Whole | None = None
    pss_bytes: Whole | None = None
    available_bytes: Whole | None = None  # of the host's memory, that programs could still take without swapping
    device_bytes: dict[str, Whole] = {}  # by device UUID
    cpu_percent: Real | None = None  # whole machine, 0 … 100
    load_1m: Real | None = None
    temperature_c: Real | None = None  # of the hottest device
    clock_mhz: Real | None = None  # of the slowest device
    devices: dict[str, DeviceSample] = {}  # by device UUID
    others_cpu_percent: Real | None = None  # of the whole machine, by programs that are neither the engine nor this client
    cpu_mhz: Real | None = None  # of the fastest core among those looked at
    cpu_throttled: Whole | None = None  # how often heat has held a processor down since the start of the machine


class Launch(Peer):
    """How an attempt's engine was started, where it answered, and how it ended."""

    argv: list[str]
    env: dict[str, str]  # what was set for the engine beside the inherited PATH and locale
    cwd: str
    port: int
    pid: int
    started_at: datetime
    host: str = "127.0.0.1"  # where it answered
    kind: Literal["process", "container", "attached"] = "process"
    container: dict[str, Any] = {}  # image, id, limits, mounts, user, network; how it ended
    healthy_after_s: float | None = None
    exit_code: int | None = None
    stopped_by: Literal["agent", "itself", ""] = ""
    props: dict[str, Any] = {}  # what the server said of itself when it was ready, prompts left out


class Manifest(Peer):
    runtime: dict[str, str]
    runtime_hash: str
    runtime_version: str
    target: dict[str, str]
    target_hash: str
    draft: dict[str, str] = {}
    draft_hash: str = ""
    workloads: dict[str, str]  # name: content hash
    agent_version: str
    inventory_hash: str
    boot_id: str
    os: dict[str, str]


class AttemptSummary(Peer):
    """What the agent did, in its own words; the numbers are computed from the other files."""

    attempt_id: str
    job_id: str
    trial: str
    arm: str
    block: int
    n: int
    outcome: Literal["ok", "failed", "cancelled"]
    error: ErrorBody | None = None
    started_at: datetime
    ended_at: datetime
    phases: list[tuple[str, float]]  # (phase, second at which it began)
    client_late_events: int = 0  # events read so late that their arrival is only a bound: ClientHealth.n_queued
    client_events: int = 0  # 0 where the client can't tell: it had no stamps of the kernel
    client: ClientHealth | None = None
    leftover_pids: list[int] = []
