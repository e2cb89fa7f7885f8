"""What vLLM settles by itself, as its log tells: graphs, token budget, KV capacity, backends; and what it says of its memory.

Several processes write one log, and some say the same thing again. A value is that of the first line that has it, and sizes that
each worker or engine core has for itself add up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

_COUNT = r"[0-9][0-9,]{0,18}"
_REAL = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
_GIB = 2.0**30
#: A line's process, its level and its message: ``(Worker_TP0 pid=7) INFO 11-30 05:09:40 [core.py:133] …``.
STAMP = re.compile(
    r"^(?:\((?P<who>[\w-]+ pid=\d+)\) )?(?:(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) [\d-]+ [\d:.]+ \[(?P<place>[^\]]*)\] ?)?"
)
#: One line has the whole configuration.
CONFIG = re.compile(r"Initializing an? (?:V\d )?LLM engine \((?P<version>v?[\w.+-]+)\) with config: (?P<config>.*)$")
SPECULATION = re.compile(r"\bspeculative_config=(?:(?P<none>None)\b|SpeculativeConfig\(method='?(?P<method>\w+)'?)")


class Settled(NamedTuple):
    """``values`` and their ``lines`` by name; ``memory_mib`` by part and device."""

    values: dict[str, str | float]
    lines: dict[str, int]
    memory_mib: dict[str, float]


def _word(text: str) -> str:
    return {"True": "on", "False": "off", "None": "none"}.get(text, text)


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _sizes(text: str) -> str:
    return text.strip("[]").strip() or "none"


_Read = Callable[[str], str | float]
#: Of the configuration: name: (pattern, how its value is read).
_OF_CONFIG: dict[str, tuple[re.Pattern[str], _Read]] = {
    "dtype": (re.compile(r"(?<![\w.])dtype=(?:torch\.)?(\w+)"), _word),
    "quantization": (re.compile(r"(?<![\w.])quantization=([\w-]+)"), _word),
    "kv_cache_dtype": (re.compile(r"\bkv_cache_dtype=([\w-]+)"), _word),
    "max_model_len": (re.compile(rf"\bmax_seq_len=({_COUNT})\b"), _number),
    "prefix_caching": (re.compile(r"\benable_prefix_caching=(\w+)"), _word),
    "chunked_prefill": (re.compile(r"\benable_chunked_prefill=(\w+)"), _word),
    "eager": (re.compile(r"\benforce_eager=(\w+)"), _word),
    "tensor_parallel": (re.compile(r"\btensor_parallel_size=(\d{1,6})\b"), _number),
    "pipeline_parallel": (re.compile(r"\bpipeline_parallel_size=(\d{1,6})\b"), _number),
    "compile_mode": (re.compile(r"'mode': <CompilationMode\.(\w+)"), str.lower),
    "graph_mode": (re.compile(r"'cudagraph_mode': <CUDAGraphMode\.(\w+)"), str.lower),
    "graph_sizes": (re.compile(r"'cudagraph_capture_sizes': (\[[\d, ]*\])"), _sizes),
    "graph_largest": (re.compile(r"'max_cudagraph_capture_size': (\d{1,9}|None)\b"), lambda t: 0.0 if t == "None" else _number(t)),
}
#: Of lines of their own. Of two patterns for one name the first line counts.
_OF_LINES: tuple[tuple[str, re.Pattern[str], _Read], ...] = (
    ("max_num_scheduled_tokens", re.compile(rf"max_num_scheduled_tokens is set to ({_COUNT})\b"), _number),
    ("max_num_batched_tokens", re.compile(rf"(?:enabled with |'|\b)max_num_batched_tokens'?(?:=|: )({_COUNT})\b"), _number),
    ("max_concurrency", re.compile(rf"Maximum concurrency for {_COUNT} tokens per request: ({_REAL})x"), _number),
    ("async_scheduling", re.compile(r"Async(?:hronous)? scheduling (?:is )?(not supported|not compatible|disabled|will be disabled)"), lambda _: "off"),
    ("async_scheduling", re.compile(r"Async(?:hronous)? scheduling is (enabled)"), lambda _: "on"),
    ("attention_backend", re.compile(r"Using ([A-Z]\w*) (?:attention backend|backend out of)"), str),
    ("attention_backend", re.compile(r"Using ([\w ]{2,40}?) backend on V1 engine"), str),
    ("block_size", re.compile(rf"[Ss]etting attention block size to ({_COUNT}) tokens"), _number),
    ("block_size", re.compile(r"'block_size': (\d{1,6})\b"), _number),
    ("model_runner", re.compile(r"using the (V1) model runner"), str),
    ("model_runner", re.compile(r"Using (V2) Model Runner"), str),
    ("kv_cache_layout", re.compile(r"Using (\w{2,20}) KV cache layout"), str),
)  # fmt: skip
#: Sizes that each process has for itself.
_KV_TOKENS = re.compile(rf"KV cache size: ({_COUNT}) tokens")
_KV_BYTES = (
    re.compile(rf"Available KV cache memory: ({_REAL}) GiB"),
    re.compile(rf"(?:Explicitly|Auto) set \(({_REAL})/{_REAL}\) GiB for KV cache"),
    re.compile(rf"reserved ({_REAL}) GiB memory for KV Cache as specified"),
)
_WEIGHTS = re.compile(rf"(?:Model loading|Loading model weights) took ({_REAL}) (?:GiB|GB)\b")
#: What any line that matters here has: most lines of a long log have none of it.
_OF_INTEREST = re.compile(r"LLM engine|_tokens|KV [Cc]ache|Maximum concurrency|[Aa]sync|backend|block.size|[Mm]odel [Rr]unner| took ")
_GRAPHS = re.compile(rf"Graph capturing finished in .*, took ({_REAL}) GiB")


def settled(lines: Iterable[str], device: str) -> Settled:
    """``device``: on which the engine computes, e.g. ``cuda``; memory is told by it."""
    values: dict[str, str | float] = {}
    places: dict[str, int] = {}
    sizes: dict[str, dict[str, float]] = {}

    def take(name: str, value: str | float, number: int) -> None:
        if name not in values:
            values[name], places[name] = value, number

    def add(name: str, line: str, value: float, number: int) -> None:
        sizes.setdefault(name, {})[STAMP.match(line)["who"] or ""] = value  # type: ignore[index]
        places.setdefault(name, number)

    for number, line in enumerate(lines, 1):
        if not _OF_INTEREST.search(line):
            continue
        if match := CONFIG.search(line):
            for name, (pattern, read) in _OF_CONFIG.items():
                if found := pattern.search(match["config"]):
                    take(name, read(found[1]), number)
            continue
        for name, pattern, read in _OF_LINES:
            if found := pattern.search(line):
                take(name, read(found[1]), number)
        for name, patterns, scale in _SIZES:
            if found := next((m for p in patterns if (m := p.search(line))), None):
                add(name, line, _number(found[1]) * scale, number)
    for name in ("kv_cache_tokens", "kv_cache_bytes"):
        if name in sizes:
            values[name] = sum(sizes[name].values())
    parts = {"model": "weights", "KV": "kv_cache_bytes", "graphs": "graphs"}
    memory = {f"{part} {device}": round(sum(sizes[name].values()) / 2**20, 2) for part, name in parts.items() if name in sizes}
    return Settled(values, {n: at for n, at in places.items() if n in values}, memory)


_SIZES: tuple[tuple[str, tuple[re.Pattern[str], ...], float], ...] = (
    ("kv_cache_tokens", (_KV_TOKENS,), 1.0),
    ("kv_cache_bytes", _KV_BYTES, _GIB),
    ("weights", (_WEIGHTS,), _GIB),
    ("graphs", (_GRAPHS,), _GIB),
)
