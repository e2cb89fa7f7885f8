"""llama-server: renders its command, asks for a completion, and reads what it streams, counts and logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ErrorBody, FlagNotAllowed
from ..inventory import Capabilities
from ..spec import BASELINE_MODE, Arm, EngineSettings, ExperimentSpec, FlagValue, Point
from .llamacpp_arms import SPEC_TYPES, arm_faults, speculation
from .llamacpp_command import Command, engine_flag_refused
from .llamacpp_counts import parse_metrics, probe_counts, window_disagreements
from .llamacpp_flags import DEFAULT_ALLOWED_FLAGS, MEASURING_FLAGS, OWNED_FLAGS, is_speculation, nearest_flag, without_speculation
from .llamacpp_help import capabilities
from .llamacpp_log import log_requests, memory_fault, parse_log, start_failure
from .llamacpp_look import is_cut, look_again, read_drafted, read_ids, read_look, whole_answer
from .llamacpp_stream import stream_events
from .llamacpp_text import (
    count_tokens,
    next_gap,
    next_token,
    put_by_template,
    put_in,
    text_in,
    text_of_tokens,
    thought_marks,
    tokens_in,
    tokens_of_text,
)
from .shapes import SYMBOLIC, Asked, Bindings, Rendered
from .words import value_faults

__all__ = [
    "ASKED",
    "BUILD_PATH",
    "DEFAULT_ALLOWED_FLAGS",
    "IMAGES",
    "IMAGE_ENTRY",
    "LOADED_PATHS",
    "MEASURING_FLAGS",
    "MODEL_ENDING",
    "MODEL_FORMATS",
    "NEVER_ENVIRONMENT",
    "OWNED_FLAGS",
    "SPEC_TYPES",
    "SYMBOLIC",
    "SYNTHETIC_FLAG",
    "TEMPLATE_PATH",
    "Bindings",
    "Rendered",
    "build_and_model",
    "capabilities",
    "context_and_slots",
    "count_tokens",
    "forbidden_flags",
    "is_cut",
    "is_speculation",
    "loaded",
    "loaded_problem",
    "log_requests",
    "look_again",
    "memory_fault",
    "never_asked",
    "never_possible",
    "next_gap",
    "next_token",
    "parse_log",
    "parse_metrics",
    "probe_counts",
    "put_by_template",
    "put_in",
    "read_drafted",
    "read_ids",
    "read_look",
    "render",
    "request",
    "start_failure",
    "stream_events",
    "text_in",
    "text_of_tokens",
    "thought_marks",
    "tokens_in",
    "tokens_of_text",
    "unknown_flags",
    "whole_answer",
    "window_disagreements",
    "without_speculation",
]

#: How a build is asked what it is.
ASKED = Asked("llama-server", devices=("--list-devices",), needed=("--model", "--port"))
#: What tells, once it is healthy, which model it has loaded.
LOADED_PATHS = ("/props",)
#: What tells its build, of servers that somebody else started; nothing where ``LOADED_PATHS`` do.
BUILD_PATH = ""
#: What tells the chat template; nothing where ``LOADED_PATHS`` do.
TEMPLATE_PATH = ""
#: How the name of a model's file ends; empty where it is a folder.
MODEL_ENDING = ".gguf"
#: With it and a mean acceptance length behind it dice decide what is accepted: what break-even is measured by.
SYNTHETIC_FLAG = "--spec-synth-len"
#: The project's own container images, by backend; how many words of a command such an image says by itself.
IMAGES = {
    "": "ghcr.io/ggml-org/llama.cpp:server",
    "cuda": "ghcr.io/ggml-org/llama.cpp:server-cuda",
    "vulkan": "ghcr.io/ggml-org/llama.cpp:server-vulkan",
    **dict.fromkeys(("rocm", "hip"), "ghcr.io/ggml-org/llama.cpp:server-rocm"),
    "sycl": "ghcr.io/ggml-org/llama.cpp:server-intel",
}
IMAGE_ENTRY = 1
#: Names in the environment that no owner's configuration may set, with the reason; a star stands for any ending.
NEVER_ENVIRONMENT: dict[str, str] = {
    "LLAMA_ARG_*": "sets a flag of the engine past every rule, in the baseline too",
    "LLAMA_API_KEY": "closes the engine to the agent",
    **dict.fromkeys(("HF_TOKEN", "LLAMA_CACHE"), "is for downloads, and there are none"),
    **dict.fromkeys(("LD_PRELOAD", "LD_AUDIT", "GGML_BACKEND_PATH"), "puts code into the engine that no hash of the build covers"),
}
MODEL_FORMATS = ("gguf",)

#: llama.cpp rounds the context of a sequence up to a multiple of this.
CONTEXT_STEP = 256


def render(
    settings: EngineSettings,
    arm: Arm,
    capabilities: Capabilities,
    bindings: Bindings,
    *,
    allowed_flags: Collection[str],
    threads: int,
) -> Rendered:
    """The command of one arm. Everything but speculation is the same for every arm of an experiment.

    ``threads`` is the number to use, already resolved from the settings and the host. Refusals name each thing that
    this build, host or rule stands against; a command with refusals is not to be started.
    """
    build = Command(capabilities, arm.name)
    _fixed(build, settings, bindings, threads)
    _extra(build, settings.extra, frozenset(allowed_flags))
    if arm.mode != BASELINE_MODE:
        speculation(build, arm, bindings)
    else:
        build.refusals += [error.body() for error in arm_faults(arm)]
    return Rendered(argv=[bindings.executable, *build.words], refusals=build.refusals)


def _fixed(build: Command, settings: EngineSettings, bindings: Bindings, threads: int) -> None:
    build.need("the target model", ("--model",), bindings.target)
    build.need("listening on loopback", ("--host",), bindings.host)
    build.need("listening on a port of its own", ("--port",), bindings.port)
    build.need("context", ("--ctx-size",), settings.context * settings.slots)  # the engine divides it among its slots
    build.need("slots", ("--parallel",), settings.slots)
    build.need("threads", ("--threads",), threads)
    if settings.gpu_layers is not None:
        build.need("gpu_layers", ("--gpu-layers", "--n-gpu-layers"), settings.gpu_layers)
    if settings.kv_type_k is not None:
        build.need("kv_type_k", ("--cache-type-k",), settings.kv_type_k)
    if settings.kv_type_v is not None:
        build.need("kv_type_v", ("--cache-type-v",), settings.kv_type_v)
    if settings.batch is not None:
        build.need("batch", ("--batch-size",), settings.batch)
    if settings.ubatch is not None:
        build.need("ubatch", ("--ubatch-size",), settings.ubatch)
    if settings.flash_attention is not None:
        _flash_attention(build, settings.flash_attention)
    # Fitting would move layers or shrink the context by the memory that happens to be free: an arm with a helper would
    # silently run another placement than the baseline. Without it a lack of memory is a plain failure.
    build.want("--fit", "off")
    if settings.prefix_cache:
        build.want("--cache-prompt")
    else:
        build.want("--no-cache-prompt")
        build.want("--cache-ram", 0)
        build.want("--cache-reuse", 0)
    build.want("--metrics")
    build.want("--log-verbosity", settings.log_verbosity)
    build.want("--no-webui")
    build.want("--offline")


def _flash_attention(build: Command, wanted: str) -> None:
    """Older builds have it off, and a flag without a value that switches it on."""
    flag = "--flash-attn"
    if build.name(flag) not in build.capabilities.switches:
        build.need("flash_attention", (flag,), wanted)
    elif wanted == "on":
        build.want(flag)
    elif wanted == "auto":
        build.refuse(f"flash_attention auto: this build knows on (by {flag}) and off (without it) only", flag=flag)


def _extra(build: Command, extra: dict[str, FlagValue], allowed: frozenset[str]) -> None:
    for given, value in extra.items():
        flag = build.name(given)
        names = {given, flag}
        refused = engine_flag_refused(given)
        if never := _never_extra(given, names):
            build.refusals.append(never.body())
        elif not flag:
            words = f"this build has no flag {given}{nearest_flag(given, build.capabilities.flags)}"
            build.refusals.append(refused(words, "Correct the flag, or choose a build that has it."))
        elif not names & allowed:
            build.refusals.append(FlagNotAllowed(f"engine.extra: this host doesn't allow {given}", flag=given).body())
        else:
            build.add_given(given, flag, value, refused)


def never_possible(settings: EngineSettings, arms: Iterable[Arm]) -> list[ErrorBody]:
    """What no build and no host can do, so that an experiment need not wait for one."""
    found: list[ErrorBody] = []
    for flag, value in settings.extra.items():
        if never := _never_extra(flag, {flag}):
            found.append(never.body())
        else:
            refused = engine_flag_refused(flag)
            found += [refused(f"{flag}: {words}", remedy, value=one) for one, words, remedy in value_faults(value)]
    return found + [error.body() for arm in arms for error in arm_faults(arm)]


def never_asked(spec: ExperimentSpec) -> list[ErrorBody]:
    """What the points would ask that the engine answers with an error: nothing."""
    return []


def unknown_flags(settings: EngineSettings, builds: Sequence[Capabilities]) -> dict[str, str]:
    """Flags of ``extra`` that none of the builds lists, each with the nearest that one of them does, or nothing."""
    known = {flag for build in builds for flag in build.flags}
    return {flag: nearest_flag(flag, known) for flag in settings.extra if flag not in known}


def forbidden_flags(settings: EngineSettings, places: Iterable[tuple[Iterable[Capabilities], Collection[str]]]) -> list[str]:
    """Flags of ``extra`` that none of the places allows; each place has its builds and what its owner allows."""
    left = dict.fromkeys(settings.extra)
    for builds, allowed in places:
        ways = [build.flags for build in builds]
        left = {flag: None for flag in left if not {flag, *(flags.get(flag, flag) for flags in ways)} & set(allowed)}
    return list(left)


def _never_extra(given: str, names: Collection[str]) -> FlagNotAllowed | None:
    if not (OWNED_FLAGS & set(names) or any(is_speculation(n) for n in names)):
        return None
    what = "belongs to speculation: set it in the arm" if is_speculation(given) else "is set by SpecWeb itself"
    return FlagNotAllowed(f"engine.extra: {given} {what}", remedy="Remove the flag from engine.extra.", flag=given)


def request(item_prompt: str, point: Point, seed: int, *, prefix_cache: bool = False) -> tuple[str, dict[str, Any]]:
    """Path and JSON body of one timed request: the raw prompt, so that no template comes between."""
    sampling = point.sampling
    body: dict[str, Any] = {
        "prompt": item_prompt,
        "n_predict": point.max_tokens,
        "seed": seed,
        "temperature": sampling.temperature,
        "cache_prompt": prefix_cache,
        "stream": True,
        "timings_per_token": True,
        "return_tokens": True,
    }
    body |= {k: v for k in ("top_k", "top_p", "min_p") if (v := getattr(sampling, k)) is not None}
    return "/completion", body


def loaded(answers: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What the server says of itself, of the answers to ``LOADED_PATHS``."""
    return answers["/props"]


def build_and_model(props: Mapping[str, Any]) -> tuple[str, str]:
    """What the server says of its build, and the model by the name that it goes by; empty where it doesn't."""
    return str(props.get("build_info") or ""), str(props.get("model_path") or props.get("model_alias") or "")


def context_and_slots(props: Mapping[str, Any]) -> tuple[Any, Any]:
    """Tokens per slot, and slots, as the server says them; None where it doesn't."""
    slot = props.get("default_generation_settings")
    return slot.get("n_ctx") if isinstance(slot, dict) else None, props.get("total_slots")


def loaded_problem(props: dict[str, Any], settings: EngineSettings, target_path: str, context: int) -> str:
    """What /props contradicts of what was asked for, in a sentence; empty if the right thing is loaded.

    ``context`` is per slot, in tokens.
    """
    if props.get("role") == "router":
        return "the server started without a model (router mode)"
    loaded = [str(props[k]) for k in ("model_path", "model_alias") if props.get(k)]
    if loaded and not any(name == target_path or name == target_path.rsplit("/", 1)[-1] for name in loaded):
        return f"the server loaded {loaded[0]!r}, asked for was {target_path!r}"
    slots = props.get("total_slots")
    if slots is not None and slots != settings.slots:
        return f"the server has {slots} slots, asked for were {settings.slots}"
    defaults = props.get("default_generation_settings")
    has = defaults.get("n_ctx") if isinstance(defaults, dict) else None
    highest = -(-context // CONTEXT_STEP) * CONTEXT_STEP
    if has is not None and not context <= has <= highest:
        why = " (longer than the model was trained for?)" if has < context else ""
        return f"the server gives {has} tokens of context to a slot, asked for were {context}{why}"
    if not loaded and slots is None and has is None:
        return "/props says nothing of model, slots or context"
    return ""
