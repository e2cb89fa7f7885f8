"""What came with speculation: settings that an engine settles by itself, where an arm's differ from the baseline's.

Three classes of settings: *requested* ones are equal in all arms, and a difference breaks the pair; those *implied by speculation*
are left to the engine, recorded and shown; those of the *environment* belong to the host.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from .measurement import AttemptMeasurement, LogFacts
from .settled_results import CameWith, SettledSide
from .spec import EngineSettings

Value = str | float

#: Names as people read them, in the order of a table; with the flags of ``engine.extra`` by which one asks for the setting.
WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "max_num_scheduled_tokens": ("tokens a step may schedule", ("--max-num-scheduled-tokens",)),
    "max_num_batched_tokens": ("tokens a step may hold", ("--max-num-batched-tokens",)),
    # Asked for are bytes: how many tokens they hold is less where a helper keeps some of them for its own layers.
    "kv_cache_tokens": ("tokens that the KV cache holds", ("--num-gpu-blocks-override",)),
    "kv_cache_bytes": ("bytes of the KV cache", ("--kv-cache-memory-bytes",)),
    "max_concurrency": ("requests of full context that fit at once", ()),
    "async_scheduling": ("asynchronous scheduling", ("--async-scheduling", "--no-async-scheduling")),
    "graph_mode": ("CUDA graphs", ()),
    "graph_sizes": ("sizes that graphs are captured for", ("--cudagraph-capture-sizes",)),
    "graph_largest": ("largest captured size", ("--max-cudagraph-capture-size",)),
    "compile_mode": ("compilation", ("--optimization-level",)),
    "attention_backend": ("attention backend", ("--attention-backend",)),
    "block_size": ("tokens in a block of the KV cache", ("--block-size",)),
    "kv_cache_layout": ("layout of the KV cache", ()),
    "model_runner": ("model runner", ()),
    "chunked_prefill": ("chunked prefill", ("--enable-chunked-prefill", "--no-enable-chunked-prefill")),
    "n_batch": ("batch", ()),
    "n_ubatch": ("physical batch", ()),
    "flash_attention": ("flash attention", ()),
    "kv_unified": ("one KV cache for all slots", ("--kv-unified", "--no-kv-unified")),
    "outputs_per_sequence": ("tokens of a request whose outputs a step keeps", ()),
    "state_copies": ("copies of a request's recurrent state, to go back to", ()),
    "dtype": ("type of the weights", ("--dtype",)),
    "quantization": ("quantization", ("--quantization",)),
    "kv_cache_dtype": ("type of the KV cache", ("--kv-cache-dtype",)),
    "max_model_len": ("context", ("--max-model-len",)),
    "prefix_caching": ("prefix cache", ("--enable-prefix-caching", "--no-enable-prefix-caching")),
    "eager": ("eager execution", ("--enforce-eager", "--no-enforce-eager")),
    "tensor_parallel": ("devices for each layer", ("--tensor-parallel-size",)),
    "pipeline_parallel": ("pipeline stages", ("--pipeline-parallel-size",)),
}
#: What speculation has no business to change, asked for or not.
_ALWAYS_REQUESTED = (
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "max_model_len",
    "prefix_caching",
    "eager",
    "tensor_parallel",
    "pipeline_parallel",
)
#: Fields of the experiment that ask for the setting.
_FIELDS = {"max_num_batched_tokens": "batch", "n_batch": "batch", "n_ubatch": "ubatch", "flash_attention": "flash_attention"}
#: How a pair's fields name them.
PAIR_PREFIX = "settled:"


def is_requested(name: str, settings: EngineSettings) -> bool:
    """Whether the experiment asks for it, for all arms alike."""
    if name in _ALWAYS_REQUESTED:
        return True
    _, flags = WORDS.get(name, (name, ()))
    asked = {flag.replace("_", "-") for flag in settings.extra}
    field = _FIELDS.get(name)
    left_to_engine = field is None or getattr(settings, field) in (None, "auto")
    return bool(asked.intersection(flags)) or not left_to_engine


def pair_fields(log: LogFacts, settings: EngineSettings) -> dict[str, str]:
    """What of the settled must be equal inside a ratio, by field."""
    return {
        PAIR_PREFIX + name: f"{value:g}" if isinstance(value, float) else value
        for name, value in log.settled.items()
        if is_requested(name, settings)
    }


def came_with(baseline: Sequence[AttemptMeasurement], arm: Sequence[AttemptMeasurement], settings: EngineSettings) -> list[CameWith]:
    """The implied settings in which the two arms differ beyond what their own starts differ in.

    A value of one arm must lie outside all that the other's starts had: how much memory is free moves KV capacities a little.
    """
    found: list[CameWith] = []
    if not all(any(a.log.settled for a in side) for side in (baseline, arm)):
        return found  # a log that tells nothing at all differs in nothing
    for name in in_order({name for a in (*baseline, *arm) for name in a.log.settled}):
        if is_requested(name, settings):
            continue
        left, right = _side(baseline, name), _side(arm, name)
        if _apart(_values(baseline, name), _values(arm, name)):
            found.append(CameWith(name=name, baseline=left, arm=right))
    return found


def _values(attempts: Sequence[AttemptMeasurement], name: str) -> list[Value]:
    return [a.log.settled[name] for a in attempts if name in a.log.settled]


def _apart(left: Sequence[Value], right: Sequence[Value]) -> bool:
    """Whether no start of one arm has a value of the other's; a log that never tells a setting stands apart from one that does."""
    if not left or not right:
        return bool(left or right)
    numbers = [[v for v in side if isinstance(v, float)] for side in (left, right)]
    if len(numbers[0]) == len(left) and len(numbers[1]) == len(right):
        return max(numbers[0]) < min(numbers[1]) or max(numbers[1]) < min(numbers[0])
    return not {shown(v) for v in left} & {shown(v) for v in right}


def _side(attempts: Sequence[AttemptMeasurement], name: str) -> SettledSide | None:
    """The middle of numbers, the commonest of words, with the start that says it; None where no log does."""
    known = [(a, a.log.settled[name]) for a in attempts if name in a.log.settled]
    if not known:
        return None
    numbers = [v for _, v in known if isinstance(v, float)]
    value: Value
    if len(numbers) == len(known):
        value = statistics.median_low(numbers)
    else:
        value = Counter(shown(v) for _, v in known).most_common(1)[0][0]
    teller = next(a for a, v in known if v == value or shown(v) == value)
    return SettledSide(value=value, attempt=teller.attempt_id, line=teller.log.settled_lines.get(name))


def in_order(names: Collection[str]) -> list[str]:
    """As a table has them: known ones first."""
    return [*(n for n in WORDS if n in names), *sorted(set(names) - WORDS.keys())]


def words(name: str) -> str:
    """What people call the setting; one that a newer agent knows is told by its own name."""
    return WORDS[name][0] if name in WORDS else name.replace("_", " ")


def shown(value: Value | None) -> str:
    """As people read it."""
    if value is None:
        return "not told"
    if isinstance(value, float):
        return f"{value:,.0f}" if value == int(value) else f"{value:,g}"
    return value


def lines(found: Sequence[CameWith], arm: str) -> list[str]:
    """For a report: ``ngram-4: asynchronous scheduling off (baseline: not told)``."""
    return [
        f"{arm}: {words(c.name)} {shown(c.arm.value if c.arm else None)} (baseline: {shown(c.baseline.value if c.baseline else None)})"
        for c in found
    ]


def kv_tokens_lost(baseline: Mapping[str, Value], arm: Mapping[str, Value]) -> float | None:
    """Tokens of KV cache that an arm lacks at the same budget of memory; None for engines that allocate as much as is asked for."""
    before, after = baseline.get("kv_cache_tokens"), arm.get("kv_cache_tokens")
    return before - after if isinstance(before, float) and isinstance(after, float) else None


def kv_bytes_lost(baseline: Mapping[str, Value], arm: Mapping[str, Value]) -> float | None:
    """Those tokens in bytes, as the baseline's cache holds them. None where it is not told."""
    lost, tokens, size = kv_tokens_lost(baseline, arm), baseline.get("kv_cache_tokens"), baseline.get("kv_cache_bytes")
    if lost is None or not isinstance(tokens, float) or not isinstance(size, float) or tokens <= 0:
        return None
    return lost * size / tokens
