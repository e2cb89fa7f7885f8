"""What is computed from evidence: numbers with their sources, for probes, attempts, and comparisons.

A number that can't be had is :class:`Withheld` with its reason; never zero, None or NaN.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, computed_field

from .fit import Fit
from .inventory import Peer
from .number import DEFINED_LATER as DEFINED_LATER
from .number import Maybe as Maybe
from .number import Number as Number
from .number import Source as Source
from .number import Withheld as Withheld
from .number import value_of as value_of
from .quality_results import AgreementResult, QualityMeasure, SamplingResult
from .settled_results import CameWith
from .time_split_results import TimeSplit

PARSER_VERSION = 5
ANALYSIS_VERSION = 5


class DrafterCounts(Peer):
    """What one of several drafters had in one request, by the engine's own tally."""

    type: str  # as the engine calls it
    drafts: Maybe  # steps whose draft was its own
    drafted: Maybe
    accepted: Maybe
    draft_ms: Maybe


class Counters(Peer):
    """Speculation counters of one probe. ``accepted_by_position`` is a list by position, or withheld."""

    drafted: Maybe
    accepted: Maybe
    committed: Maybe  # tokens that cycles committed: accepted + one for each decode step
    verify_steps: Maybe  # decode steps that had a draft
    decode_steps: Maybe  # all decode steps of the target
    emitted: Maybe  # tokens sent, without the prefill's first
    draft_ms: Maybe
    eval_ms: Maybe
    accepted_by_position: list[int] | Withheld
    accepted_by_position_source: Source | None = None
    drafters: list[DrafterCounts] = []  # where several stood beside each other and the engine tells them apart


class ProbeMeasurement(Peer):
    """One request. Seconds of the host's monotonic clock; counts in tokens."""

    probe: str
    point: str
    item: str
    warmup: bool
    ok: bool
    failure: str = ""  # error code
    failure_message: str = ""
    line: int  # its line in records.jsonl
    status: int = 0
    finish_reason: str = ""
    prompt_tokens: Maybe
    completion_tokens: Maybe  # the client's count, from ids
    server_tokens: Maybe  # the server's
    cache_hit_tokens: Maybe
    n_events: int
    n_chunks: int
    n_first: int  # tokens of the first chunk
    ttft_any_s: Maybe
    ttft_content_s: Maybe
    e2e_s: Maybe
    decode_tokens_per_s: Maybe
    n_queued_events: int = 0  # whose arrival is an upper bound
    prompt_ms: Maybe = DEFINED_LATER  # the engine's own time up to the first token
    batch_ratio: Maybe = DEFINED_LATER
    chunk_gap_ms_p50: Maybe = DEFINED_LATER
    chunk_gap_ms_p95: Maybe = DEFINED_LATER
    token_latency_ms: Maybe = DEFINED_LATER
    token_latency_ms_p50: Maybe = DEFINED_LATER
    token_latency_ms_p95: Maybe = DEFINED_LATER
    peak_tokens_per_s: Maybe = DEFINED_LATER
    speculation_reported: bool | None = None  # by the server in its settings; None: it doesn't say
    counters: Counters
    ids_sha256: str = ""
    check_passed: bool | None = None  # None: the item has no check
    turn: int | None = None  # of a task, from 1
    n_turns: int | None = None
    waited_s: float | None = None  # for the tools, before this turn was sent
    rest_s: float | None = None  # between the last token of the turn before and this request, without the wait
    check_note: str = ""


class LogFacts(Peer):
    """What an engine's log tells, each with its line."""

    build: str = ""
    backend_devices: list[str] = Field(default_factory=list)
    memory_mib: dict[str, float] = Field(default_factory=dict)  # e.g. "target model CPU_Mapped": 118.2
    devices: list[str] = Field(default_factory=list)  # beside the host's memory, where the engine holds buffers, e.g. "CUDA0"
    speculation: str = ""  # e.g. "draft-simple"
    speculation_line: int | None = None
    n_slots: int | None = None
    context_per_slot: int | None = None
    layers_offloaded: str = ""
    #: What the engine settled by itself, which speculation may change: name (speccore/settled.py): value.
    settled: dict[str, str | float] = Field(default_factory=dict)
    settled_lines: dict[str, int] = Field(default_factory=dict)
    error_code: str = ""  # of the error tree, where the log names a fault
    error: str = ""
    error_line: int | None = None
    draft_acceptance: list[dict[str, Any]] = Field(default_factory=list)  # by request, with its line


class HostFacts(Peer):
    """What the samples say of the host while probing, on whichever the engine computes. None: not recorded, never zero."""

    device: Literal["gpu", "cpu"] = "cpu"
    n_samples: int = 0
    throttle: dict[str, int] | None = None  # reason: samples with it (of a CPU: how often), all but harmless ones
    others_busy_percent: float | None = None  # of the device, by other processes than the engine's, mean
    other_pids: list[int] = Field(default_factory=list)
    clock_mhz: float | None = None  # median while busy, of the slowest device
    loaded_bytes: float | None = None  # on devices, by the engine's log
    held_bytes: float | None = None  # on devices, highest sample
    cards_bytes: float | None = None  # the same of all processes together
    free_bytes: float | None = None  # left where the model runs, lowest while probing; of several devices on the fullest
    layers_asked: int | None = None
    layers_placed: tuple[int, int] | None = None  # on devices, of all


class LoadMeasurement(Peer):
    """The requests of one point that ran together. Seconds count from the attempt's start."""

    point: str
    concurrency: int  # as asked for
    n_requests: int
    window_s: tuple[float, float] | None  # all decoding at once → last waiting request sent; by the clock: first due → last due
    tokens_per_s: Maybe  # tokens that came in the window ÷ its seconds, of all requests together
    observed_concurrency: Maybe  # mean number of requests in flight in the window
    rate_per_s: float | None = None  # as asked for, of requests that came by the clock
    observed_rate_per_s: Maybe | None = None
    overloaded: str = ""  # in words, if they came faster than they were answered, or that can't be told


class Settling(Peer):
    """The warm-up of one point in one start. ``windows_ms``: ms per token in the last two windows, the earlier first."""

    point: str
    n: int  # requests
    settled: bool
    windows_ms: tuple[float, float] | None = None
    why: str = ""  # in words, where two windows could not be compared

    @property
    def apart(self) -> float | None:
        """By how much the slower window exceeds the faster one: 0.05 is 5 %."""
        return max(self.windows_ms) / min(self.windows_ms) - 1 if self.windows_ms else None


class AttemptMeasurement(Peer):
    """All that one attempt's evidence says."""

    parser_version: int = PARSER_VERSION
    attempt_id: str
    trial: str
    arm: str
    mode: str
    block: int
    probes: list[ProbeMeasurement]
    log: LogFacts
    engaged: bool | None  # speculation is on: by settings and by drafts; None for mode off
    engaged_why: str = ""
    peak_memory_bytes: Maybe  # host and devices together, peak while probing
    peak_device_bytes: Maybe
    memory_after_load_bytes: Maybe = DEFINED_LATER
    memory_growth_bytes_per_min: Maybe = DEFINED_LATER
    energy_j_per_1k_tokens: Maybe = DEFINED_LATER
    host: HostFacts = HostFacts()
    fit: Fit | None = None  # of all arms; beside the job's last trial, where the experiment asks for it
    context_per_slot: int | None = None
    slots: int | None = None
    healthy_after_s: float | None = None
    n_late_events: int = 0
    n_events: int = 0
    cpu_percent_mean: float | None = None
    clock_mhz: tuple[float, float] | None = None  # of the device while probing: lowest, highest
    temperature_c: float | None = None  # of the device while probing: highest
    problems: list[str] = Field(default_factory=list)  # evidence that is missing or can't be read
    disagreements: list[str] = Field(default_factory=list)  # of sources that count several requests together
    not_restarted: bool = False  # asked of a server that somebody else had started
    loads: list[LoadMeasurement] = Field(default_factory=list)  # of points with several requests under way
    settlings: list[Settling] = Field(default_factory=list)  # of each point, where warm-up goes on until the speed has settled
    pair_fields: dict[str, str]  # what the pair key is made of, but speculation: name → value


class Check(Peer):
    """One line of the integrity panel."""

    name: str
    kind: Literal["hard", "soft"]
    passed: bool
    sentence: str
    evidence: dict[str, Any] = {}
    not_checked: bool = False  # what it needs was not measured; then ``passed`` is False, and nothing has failed

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> Literal["passed", "failed", "not checked"]:
        if self.not_checked:
            return "not checked"
        return "passed" if self.passed else "failed"


class Interval(Peer):
    """A ratio with its 95 % interval; withheld below 3 blocks."""

    estimate: float
    low: float | None = None
    high: float | None = None
    n_blocks: int
    withheld: str = ""
    method: str = "t over blocks"  # or "regression on position", where the host drifted; with the look, where one looks early


class Variation(Peer):
    """Variances of ln(baseline ÷ arm): ``between`` blocks, and of one matched prompt ``within`` a block. For planning."""

    between: float
    within: float
    n_blocks: int
    n_pairs: int


class TailLine(Peer):
    """A high percentile of one side's probes, with its 95 % interval. ``high`` None: not known, and ``note`` says why."""

    side: Literal["arm", "baseline"]
    metric: str  # id of the metric of a probe
    quantile: float
    value: float
    low: float
    high: float | None
    n_probes: int
    n_trials: int
    note: str = ""


class WithheldTail(Peer):
    side: Literal["arm", "baseline"]
    metric: str
    quantile: float
    withheld: str


VerdictWord = Literal["keep", "shorten", "disable", "inconclusive", "invalid", "not engaged"]


class Verdict(Peer):
    """``reason`` is a short code-like phrase ("slower", "noise-limited"); ``sentence`` and ``next_step`` are for people."""

    word: VerdictWord
    reason: str = ""
    sentence: str = ""
    next_step: str = ""  # what to do now; empty where the answer is final


class LookTaken(Peer):
    """The early look whose interval a comparison shows. ``confidence`` is that interval's; it holds however the stopping came about."""

    number: int  # from 1
    n_looks: int
    n_blocks: int
    n_planned: int
    confidence: float
    decided: bool  # by the rules on time


class JoinedAnswer(Peer):
    """How sure a comparison over the blocks of several jobs is. ``n_first``: values that an earlier answer rested on; 0: none was there."""

    n_first: int
    n_blocks: int
    confidence: float  # of its interval; it holds however often blocks were added, and whenever that ended


class JoinedPart(Peer):
    """A job of the same experiment and host. Its blocks are in the comparison unless it ``differs``, each in words."""

    job: str
    blocks: list[int]
    differs: list[str] = []


class ComparisonResult(Peer):
    """Arm against baseline at one point of one job."""

    analysis_version: int = ANALYSIS_VERSION
    arm: str
    mode: str
    draft_limit: int | None
    point: str
    workload: str
    concurrency: int
    occupied_context: int
    temperature: float
    speedup: Interval | Withheld  # Withheld when no block has a matched pair
    total_time: Interval | Withheld  # ratio of total equal-work seconds
    leave_one_prompt_out: tuple[float, float] | Withheld
    block_values: dict[int, float]  # block: mean ln(baseline ÷ arm)
    n_prompts: int  # distinct matched prompts
    n_pairs_dropped: int
    p_holm: float | None = None
    noise_floor: float | None = None  # None: unknown
    arm_equal_work_s: Maybe  # mean over matched prompts
    baseline_equal_work_s: Maybe
    arm_tokens_per_s: Maybe  # median decode speed over probes
    baseline_tokens_per_s: Maybe
    arm_e2e_s: Maybe
    baseline_e2e_s: Maybe
    arm_tokens: Maybe  # mean answer length
    baseline_tokens: Maybe
    acceptance_rate: Maybe  # token-weighted over the arm's probes
    mean_acceptance_length: Maybe
    tokens_per_target_pass: Maybe
    drafted_per_cycle: Maybe
    accepted_by_position: list[float] | Withheld  # survival: accepted at position ÷ verify steps
    conditional_by_position: list[float] | Withheld = DEFINED_LATER
    drafters: list[DrafterCounts] = []  # of the arm, where several stand beside each other
    acceptance_rate_by_request: Maybe = DEFINED_LATER
    decoding_gain: Maybe = DEFINED_LATER
    draft_ms_per_cycle: Maybe = DEFINED_LATER
    verify_ms_per_cycle: Maybe = DEFINED_LATER
    arm_chunk_gap_ms_p50: Maybe = DEFINED_LATER  # of the arm alone: events hold other numbers of tokens in the baseline
    arm_chunk_gap_ms_p95: Maybe = DEFINED_LATER
    arm_batch_ratio: Maybe = DEFINED_LATER
    baseline_batch_ratio: Maybe = DEFINED_LATER
    arm_token_latency_ms: Maybe = DEFINED_LATER
    baseline_token_latency_ms: Maybe = DEFINED_LATER
    arm_token_latency_ms_p95: Maybe = DEFINED_LATER
    baseline_token_latency_ms_p95: Maybe = DEFINED_LATER
    arm_loaded_tokens_per_s: Maybe = DEFINED_LATER  # of all requests together, where several ran at once
    baseline_loaded_tokens_per_s: Maybe = DEFINED_LATER
    arm_observed_concurrency: Maybe = DEFINED_LATER
    baseline_observed_concurrency: Maybe = DEFINED_LATER
    arm_task_prefill_s: Maybe = DEFINED_LATER  # of tasks of several turns, at equal work; the four parts make equal_work_s
    baseline_task_prefill_s: Maybe = DEFINED_LATER
    arm_task_decode_s: Maybe = DEFINED_LATER
    baseline_task_decode_s: Maybe = DEFINED_LATER
    arm_task_tool_wait_s: Maybe = DEFINED_LATER
    baseline_task_tool_wait_s: Maybe = DEFINED_LATER
    arm_task_rest_s: Maybe = DEFINED_LATER
    baseline_task_rest_s: Maybe = DEFINED_LATER
    arm_task_passed: Maybe = DEFINED_LATER
    baseline_task_passed: Maybe = DEFINED_LATER
    task_decode_ratio: Interval | Withheld = DEFINED_LATER  # decoding alone, beside the speed-up of the whole task
    arm_peak_tokens_per_s: Maybe = DEFINED_LATER
    baseline_peak_tokens_per_s: Maybe = DEFINED_LATER
    cycle_ms: Maybe
    plain_step_ms: Maybe  # of the baseline
    break_even_tokens_per_pass: Maybe  # what the arm needs here
    arm_time_split: TimeSplit | Withheld = DEFINED_LATER
    baseline_time_split: TimeSplit | Withheld = DEFINED_LATER
    memory_bill_bytes: Maybe
    context_lost_tokens: int | None = None
    slots_lost: int | None = None
    kv_tokens_lost: float | None = None  # of engines that fill a budget of memory with their cache; None: of others, or not told
    came_with: list[CameWith] | None = (
        None  # settled by the engine, and not as in the baseline; None: not computed by the version that stored this
    )
    agreement: AgreementResult | Withheld = DEFINED_LATER
    own_agreement: AgreementResult | Withheld = DEFINED_LATER  # of the baseline with itself, at this point
    quality: list[QualityMeasure] = []
    variation: Variation | Withheld = DEFINED_LATER
    tails: list[TailLine | WithheldTail] = []  # empty: not computed by the version that stored this
    checks: list[Check]
    verdict: Verdict
    recommended: bool = False
    look: LookTaken | None = None  # where the experiment stops early
    joined: JoinedAnswer | None = None  # where blocks were added to a job that had ended
    not_restarted: bool = False  # no trial of it was a start of the engine


class JobAnalysis(Peer):
    """Everything computed for one job."""

    analysis_version: int = ANALYSIS_VERSION
    comparisons: list[ComparisonResult]
    checks: list[Check]  # of the job as a whole
    answers: list[dict[str, Any]]  # for each point: {"point", "word", "arm", "sentence"}
    attempts_used: list[str]
    fit: Fit | None = None  # the largest contexts that load, where the experiment asked for them
    sampling: SamplingResult | Withheld | None = None  # None: the experiment doesn't ask for the test
    parts: list[JoinedPart] = []  # the jobs whose blocks are compared together, and those that can't be; empty where there is one
