"""Metrics of what an arm takes of its host, and of what the host can tell."""

from __future__ import annotations

from .metric import Metric

_MIB = 1 / 2**20

OF_HOSTS = (
    Metric(
        "memory_bill_bytes",
        1,
        "memory bill",
        "MiB",
        "The arm's peak memory while probing minus the baseline's in the same block, devices and process tree together; median over blocks. "
        "Of an engine that fills a budget of memory with its KV cache, the bytes of the tokens that the cache lost are added.",
        "{:+z,.0f}",
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
