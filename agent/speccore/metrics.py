"""Every metric that SpecWeb shows: one table that tooltips, docs and formatting come from.

A definition that changes gets a higher version; numbers stored under the old one can be computed again from evidence.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """``format`` is a Python format of the value as shown, after ``scale``; ``source`` says what it is read or computed from."""

    id: str
    version: int
    name: str
    unit: str
    definition: str
    format: str
    source: str
    scale: float = 1.0

    def show(self, value: float) -> str:
        """The value as people read it, without its unit: 0.7834 → "78" for a share in percent."""
        return self.format.format(value * self.scale)

    @property
    def definition_id(self) -> str:
        return f"{self.id}/{self.version}"


_MIB = 1 / 2**20

_ALL = (
    Metric(
        "speedup",
        1,
        "speed-up",
        "×",
        "Mean over blocks of the block value, as a ratio: how many times as fast as the baseline the arm does the same work. The block "
        "value is the mean over matched prompts of ln(baseline ÷ arm) in equal-work seconds; with several requests at once it is "
        "ln(arm ÷ baseline) in tokens per second of all of them. The 95 % interval is a t interval over blocks.",
        "{:.2f}",
        "equal_work_s of matched probes, or loaded_tokens_per_s",
    ),
    Metric(
        "total_time",
        1,
        "total-time ratio",
        "×",
        "Sum of the baseline's equal-work seconds ÷ sum of the arm's, by block, then as the speed-up: long prompts weigh more.",
        "{:.2f}",
        "equal_work_s of matched probes",
    ),
    Metric(
        "equal_work_s",
        1,
        "task time",
        "s",
        "ttft_any_s + (L − n_first) ÷ decode_tokens_per_s: the time for an answer of L tokens. L is one number for a prompt in all arms: "
        "its reference length, else the median length of the baseline's answers. Where the answer has L tokens it equals the observed time.",
        "{:.2f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "e2e_s",
        1,
        "observed time",
        "s",
        "From the last byte of the request (the connection was open) to the last event that bears tokens.",
        "{:.2f}",
        "the stream's arrivals",
    ),
    Metric(
        "ttft_any_s",
        1,
        "time to first token",
        "s",
        "From the last byte of the request to the first event that bears tokens, thinking included.",
        "{:.3f}",
        "the stream's arrivals",
    ),
    Metric(
        "ttft_content_s",
        1,
        "time to first content",
        "s",
        "From the last byte of the request to the first event that bears content; differs from the time to first token if a model thinks.",
        "{:.3f}",
        "the stream's arrivals",
    ),
    Metric(
        "decode_tokens_per_s",
        1,
        "decoding speed",
        "tokens/s",
        "Tokens after the first chunk ÷ time after it. A chunk is what arrived within 1 ms of its first event.",
        "{:.1f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "loaded_tokens_per_s",
        1,
        "speed of all requests",
        "tokens/s",
        "With several requests at once: tokens that came in the window ÷ its seconds, of all requests together; mean over blocks. The window "
        "begins when all are decoding for the first time and ends when the last waiting request is sent.",
        "{:.1f}",
        "the streams' arrivals and token ids",
    ),
    Metric(
        "observed_concurrency",
        1,
        "requests in flight",
        "requests",
        "Mean number of requests sent and not yet answered in the window; mean over blocks. Below 95 % of what was asked for, the client or the "
        "server didn't keep up, and the comparison is invalid.",
        "{:.2f}",
        "the streams' arrivals",
    ),
    Metric(
        "task_prefill_s",
        1,
        "reading, of a task",
        "s",
        "Of a task of several turns: the sum of its turns' times to the first token; mean over matched tasks. With the three below it makes "
        "the task time.",
        "{:.2f}",
        "the streams' arrivals",
    ),
    Metric(
        "task_decode_s",
        1,
        "decoding, of a task",
        "s",
        "Of a task of several turns: the sum over its turns of (L − n_first) ÷ decode_tokens_per_s; mean over matched tasks. L is each "
        "turn's own, one number in all arms.",
        "{:.2f}",
        "the streams' arrivals and token ids",
    ),
    Metric(
        "task_tool_wait_s",
        1,
        "waits for tools, of a task",
        "s",
        "Of a task of several turns: what passed while the scripted tools ran, by the client's clock; mean over matched tasks. No drafter "
        "shortens it.",
        "{:.2f}",
        "the client's clock between two turns",
    ),
    Metric(
        "task_rest_s",
        1,
        "rest, of a task",
        "s",
        "Of a task of several turns: from each turn's last token to the next turn's request, without the wait for tools: the end of the "
        "answer, the client, a new connection; mean over matched tasks.",
        "{:.3f}",
        "the streams' arrivals",
    ),
    Metric(
        "task_decode_ratio",
        1,
        "decoding alone",
        "×",
        "Of tasks of several turns: how many times as fast as the baseline's the arm's decoding is, over blocks as the speed-up, from "
        "task_decode_s of matched tasks. The speed-up beside it is the whole task's.",
        "{:.2f}",
        "task_decode_s of matched tasks",
    ),
    Metric(
        "task_passed",
        1,
        "tasks passed",
        "%",
        "Of tasks of several turns: those whose checks all passed in every turn ÷ those with a check.",
        "{:.0f}",
        "the answers' texts",
        scale=100,
    ),
    Metric(
        "batch_ratio",
        1,
        "chunks per token",
        "",
        "Chunks ÷ tokens of the answer. Under 0.8 most tokens came in company, and percentiles of token latency are withheld.",
        "{:.2f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "chunk_gap_ms_p50",
        1,
        "chunk gap, median",
        "ms",
        "Median (nearest rank) of the times from one chunk's first event to the next chunk's. Gaps beside an arrival that is an upper "
        "bound are left out. How long a reader waits for more text; a chunk holds other numbers of tokens in other arms, so it is never "
        "compared between arms.",
        "{:.1f}",
        "the stream's arrivals",
    ),
    Metric(
        "chunk_gap_ms_p95",
        1,
        "chunk gap, p95",
        "ms",
        "The same at the 95th percentile (nearest rank).",
        "{:.1f}",
        "the stream's arrivals",
    ),
    Metric(
        "token_latency_ms",
        1,
        "time per token",
        "ms",
        "Time after the first chunk ÷ tokens after it: 1000 ÷ decode_tokens_per_s.",
        "{:.2f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "token_latency_ms_p50",
        1,
        "token latency, median",
        "ms",
        "Median (nearest rank) over tokens of their chunk's gap ÷ its tokens. Withheld below 0.8 chunks per token.",
        "{:.2f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "token_latency_ms_p95",
        1,
        "token latency, p95",
        "ms",
        "The same at the 95th percentile (nearest rank).",
        "{:.2f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "peak_tokens_per_s",
        1,
        "peak speed",
        "tokens/s",
        "The time after the first chunk in equal parts of a second or little more: most tokens in one part ÷ its seconds. Never below the "
        "mean, which is decode_tokens_per_s. Withheld where decoding took less than a second.",
        "{:.1f}",
        "the stream's arrivals and token ids",
    ),
    Metric(
        "completion_tokens",
        1,
        "answer length",
        "tokens",
        "Tokens of the answer by the client's count of ids; the server's count must agree, or the probe is invalid.",
        "{:.0f}",
        "token ids in the stream",
    ),
    Metric(
        "prompt_tokens",
        1,
        "prompt length",
        "tokens",
        "Tokens of the prompt by the server's count.",
        "{:.0f}",
        "the final event of the stream",
    ),
    Metric(
        "cache_hit_tokens",
        1,
        "cache hits",
        "tokens",
        "Prompt tokens that the server took from its prefix cache. Must be 0 in a cold trial.",
        "{:.0f}",
        "timings of the final event, else /metrics",
    ),
    Metric(
        "drafted",
        1,
        "drafted",
        "tokens",
        "Tokens that the helper proposed to the target.",
        "{:.0f}",
        "per-token timings, else final event, /metrics, log",
    ),
    Metric(
        "accepted",
        1,
        "accepted",
        "tokens",
        "Proposed tokens that the target agreed with. The last cycle may accept tokens that are not sent.",
        "{:.0f}",
        "per-token timings, else final event, /metrics, log",
    ),
    Metric(
        "committed",
        1,
        "committed",
        "tokens",
        "Tokens that cycles added to the answer: accepted ones and one of the target's own for each decode step.",
        "{:.0f}",
        "accepted and decode steps",
    ),
    Metric(
        "emitted", 1, "emitted", "tokens", "Tokens sent, without the first, which the prefill made.", "{:.0f}", "token ids in the stream"
    ),
    Metric(
        "verify_steps",
        1,
        "verification steps",
        "steps",
        "Decode steps of the target that had a draft to check.",
        "{:.0f}",
        "per-token timings, else /metrics, log",
    ),
    Metric(
        "decode_steps",
        1,
        "decode steps",
        "steps",
        "All decode steps of the target, with a draft or without.",
        "{:.0f}",
        "per-token timings, else emitted and accepted",
    ),
    Metric(
        "draft_ms", 1, "drafting time", "ms", "Time that the engine spent on making drafts.", "{:.0f}", "the engine's log, where it says"
    ),
    Metric(
        "eval_ms",
        1,
        "decoding time",
        "ms",
        "Time of all decode steps by the engine's clock, drafting included.",
        "{:.0f}",
        "timings of the final event, else the log",
    ),
    Metric(
        "acceptance_rate",
        1,
        "accepted share",
        "%",
        "accepted ÷ drafted, over all probes of the arm. It falls with longer drafts at equal quality of the helper and says nothing on speed.",
        "{:.0f}",
        "drafted and accepted",
        scale=100,
    ),
    Metric(
        "acceptance_rate_by_request",
        1,
        "accepted share by request",
        "%",
        "Mean over requests of accepted ÷ drafted: each request weighs the same, however much was drafted for it. Requests without a draft "
        "are left out.",
        "{:.0f}",
        "drafted and accepted",
        scale=100,
    ),
    Metric(
        "mean_acceptance_length",
        1,
        "mean acceptance length",
        "tokens",
        "1 + accepted ÷ verify_steps: tokens for each verification step, the target's own included.",
        "{:.2f}",
        "accepted and verify_steps",
    ),
    Metric(
        "tokens_per_target_pass",
        1,
        "tokens per target pass",
        "tokens",
        "emitted ÷ decode_steps over all steps, also those without a draft.",
        "{:.2f}",
        "emitted and decode_steps",
    ),
    Metric(
        "drafted_per_cycle",
        1,
        "drafted per cycle",
        "tokens",
        "drafted ÷ verify_steps. A high accepted share with few tokens drafted is a cautious helper, not a good one.",
        "{:.2f}",
        "drafted and verify_steps",
    ),
    Metric(
        "accepted_by_position",
        1,
        "accepted by position",
        "%",
        "For each position in the draft, the share of verification steps that accepted the token there (survival).",
        "{:.0f}",
        "per-token timings, else /metrics, log",
        scale=100,
    ),
    Metric(
        "conditional_by_position",
        1,
        "accepted where reached",
        "%",
        "For each position in the draft, the steps that accepted the token there ÷ those that accepted the position before it (all "
        "verification steps for the first).",
        "{:.0f}",
        "accepted_by_position and verify_steps",
        scale=100,
    ),
    Metric(
        "cycle_ms",
        1,
        "time per cycle",
        "ms",
        "Decoding time ÷ decode steps, drafting included; by the engine's clock where all probes of both arms have it, else by the client's.",
        "{:.1f}",
        "eval_ms and decode_steps",
    ),
    Metric(
        "plain_step_ms", 1, "plain step", "ms", "The same in the baseline: one step makes one token.", "{:.1f}", "eval_ms and decode_steps"
    ),
    Metric(
        "break_even_tokens_per_pass",
        1,
        "break-even",
        "tokens",
        "cycle_ms ÷ plain_step_ms: tokens per target pass that the arm needs on this host so that decoding does not slow down.",
        "{:.2f}",
        "cycle_ms and plain_step_ms",
    ),
    Metric(
        "decoding_gain",
        1,
        "decoding gain",
        "×",
        "tokens_per_target_pass ÷ (cycle_ms ÷ plain_step_ms): how many times as fast decoding is by its parts. Four tokens in a cycle of "
        "40 ms against plain steps of 20 ms: 2.0; in one of 90 ms: 0.89. The time to the first token is not in it.",
        "{:.2f}",
        "tokens_per_target_pass, cycle_ms and plain_step_ms",
    ),
    Metric(
        "draft_ms_per_cycle",
        1,
        "drafting per cycle",
        "ms",
        "draft_ms ÷ decode_steps, over probes that have both and eval_ms.",
        "{:.2f}",
        "draft_ms and decode_steps",
    ),
    Metric(
        "verify_ms_per_cycle",
        1,
        "verifying per cycle",
        "ms",
        "(eval_ms − draft_ms) ÷ decode_steps, over the same probes: the target's part of a cycle, by the engine's clock.",
        "{:.2f}",
        "eval_ms, draft_ms and decode_steps",
    ),
    Metric(
        "memory_bill_bytes",
        1,
        "memory bill",
        "MiB",
        "The arm's peak memory while probing minus the baseline's in the same block, devices and process tree together; median over blocks.",
        "{:+,.0f}",
        "memory samples",
        scale=_MIB,
    ),
    Metric(
        "peak_memory_bytes",
        1,
        "peak memory",
        "MiB",
        "Largest sum of device memory and process-tree memory of the engine while probing. Memory of processes is proportional (PSS), "
        "read between requests, since reading it holds up the engine; resident (RSS) where the system has no PSS.",
        "{:.0f}",
        "memory samples",
        scale=_MIB,
    ),
    Metric(
        "peak_device_bytes",
        1,
        "peak device memory",
        "MiB",
        "Largest device memory of the engine while probing.",
        "{:.0f}",
        "samples",
        scale=_MIB,
    ),
    Metric(
        "memory_after_load_bytes",
        1,
        "memory after loading",
        "MiB",
        "Resident memory of the engine's processes and its memory on devices, in the first sample of the warm-up.",
        "{:.0f}",
        "samples",
        scale=_MIB,
    ),
    Metric(
        "memory_growth_bytes_per_min",
        1,
        "memory growth",
        "MiB/min",
        "Slope of resident and device memory over time while probing, by least squares over all samples; "
        "needs 3 samples over 2 s. A cache that fills grows, and so does a leak.",
        "{:+.1f}",
        "samples",
        scale=_MIB,
    ),
    Metric(
        "energy_j_per_1k_tokens",
        1,
        "energy",
        "J per 1,000 tokens",
        "Growth of the devices' energy counters from the first to the last sample while probing ÷ tokens of all answers × 1,000. "
        "Pauses between requests are in it, processors and the rest of the machine are not.",
        "{:.0f}",
        "energy counters in samples",
    ),
    Metric("healthy_after_s", 1, "start time", "s", "From the engine's start to its first healthy answer.", "{:.1f}", "launch record"),
    Metric(
        "p_holm",
        1,
        "adjusted p",
        "",
        "Two-sided p of a t test that the arm equals the baseline, adjusted by Holm for the arms of the point. Adds a warning; the interval decides.",
        "{:.3f}",
        "block values",
    ),
    Metric(
        "noise_floor",
        1,
        "noise floor",
        "%",
        "Bias that blocks don't remove on the host: exp(2·√max(0, var(estimates) − mean(se²))) − 1 over at least 10 baseline-against-baseline "
        "contrasts. Smaller effects can't be told there.",
        "{:.1f}",
        "control arms of earlier jobs",
        scale=100,
    ),
)

METRICS: dict[str, Metric] = {m.id: m for m in _ALL}


def markdown_table() -> str:
    """The table as it stands in docs/measurement.md."""
    rows = ["| metric | id/version | unit | definition | from |", "|---|---|---|---|---|"]
    rows += [f"| {m.name} | `{m.definition_id}` | {m.unit or '–'} | {m.definition} | {m.source} |" for m in METRICS.values()]
    return "\n".join(rows)
