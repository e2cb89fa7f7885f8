"""llama-server: renders its command, asks for a completion, and reads what it streams, counts and logs."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..errors import ArmNotSupported, ErrorBody, FlagNotAllowed, SpecError, UnknownModel
from ..inventory import Capabilities
from ..spec import BASELINE_MODE, MODES_WITH_DRAFT_MODEL, Arm, EngineSettings, FlagValue, Point
from .llamacpp_counts import parse_metrics, probe_counts, window_disagreements
from .llamacpp_flags import (
    ARM_FIELDS,
    ARM_FLAGS,
    DEFAULT_ALLOWED_FLAGS,
    DRAFT_MODEL_FLAGS,
    OWNED_FLAGS,
    SPEC_TYPE_FLAG,
    SPEC_TYPES,
    capabilities,
    is_speculation,
    nearest_flag,
    without_speculation,
)
from .llamacpp_log import log_requests, memory_fault, parse_log, start_failure
from .llamacpp_look import is_cut, look_again, read_drafted, read_ids, read_look, whole_answer
from .llamacpp_stream import stream_events
from .llamacpp_text import count_tokens, put_by_template, text_in, text_of_tokens, thought_marks, tokens_in, tokens_of_text
from .shapes import SYMBOLIC, Bindings, Rendered

__all__ = [
    "DEFAULT_ALLOWED_FLAGS",
    "LOADED_PATHS",
    "OWNED_FLAGS",
    "SPEC_TYPES",
    "SYMBOLIC",
    "Bindings",
    "Rendered",
    "capabilities",
    "context_and_slots",
    "count_tokens",
    "is_cut",
    "is_speculation",
    "loaded",
    "loaded_problem",
    "log_requests",
    "look_again",
    "memory_fault",
    "parse_log",
    "parse_metrics",
    "probe_counts",
    "put_by_template",
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
    "whole_answer",
    "window_disagreements",
    "without_speculation",
]

#: What tells, once it is healthy, which model it has loaded.
LOADED_PATHS = ("/props",)

#: llama.cpp rounds the context of a sequence up to a multiple of this.
CONTEXT_STEP = 256
_NEGATIVE_NUMBER = re.compile(r"-\d+(\.\d+)?")
#: ngram-mod drops drafts shorter than this unless told otherwise.
NGRAM_MOD_DEFAULT_MIN = 48


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
    build = _Command(capabilities, arm.name)
    _fixed(build, settings, bindings, threads)
    _extra(build, settings.extra, frozenset(allowed_flags))
    if arm.mode != BASELINE_MODE:
        _speculation(build, arm, bindings)
    return Rendered(argv=[bindings.executable, *build.words], refusals=build.refusals)


class _Command:
    """Words of a command as they are added, each flag by the name that this build lists."""

    def __init__(self, capabilities: Capabilities, arm: str) -> None:
        self.capabilities = capabilities
        self.arm = arm
        self.words: list[str] = []
        self.refusals: list[ErrorBody] = []

    def name(self, *names: str) -> str:
        """The first of the names that the build knows, as its long name; empty if it knows none."""
        return next((self.capabilities.flags[n] for n in names if n in self.capabilities.flags), "")

    def need(self, what: str, names: tuple[str, ...], *values: object) -> None:
        """Adds a flag that the command can't do without; refuses if the build lacks it."""
        if flag := self.name(*names):
            self.words += [flag, *map(str, values)]
        else:
            removed = " (this build has removed it)" if names[-1] in self.capabilities.removed_flags else ""
            self.refuse(f"{what} needs the flag {' or '.join(names)}{removed}, which this build doesn't have", flag=names[0])

    def want(self, name: str, *values: object) -> None:
        """Adds a flag that only helps; builds without it are the same without it."""
        if flag := self.name(name):
            self.words += [flag, *map(str, values)]

    def refuse(self, message: str, **details: Any) -> None:
        self.refusals.append(ArmNotSupported(f"arm {self.arm!r}: {message}", arm=self.arm, **details).body())


def _fixed(build: _Command, settings: EngineSettings, bindings: Bindings, threads: int) -> None:
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
        build.need("flash_attention", ("--flash-attn",), settings.flash_attention)
    # Fitting would move layers or shrink the context by the memory that happens to be free: an arm with a helper would
    # silently run another placement than the baseline. Without it a lack of memory is a plain failure.
    build.want("--fit", "off")
    if settings.prefix_cache:
        build.want("--cache-prompt")
    else:
        build.want("--no-cache-prompt")
        build.want("--cache-ram", 0)
    build.want("--metrics")
    build.want("--log-verbosity", settings.log_verbosity)
    build.want("--no-webui")
    build.want("--offline")


def _extra(build: _Command, extra: dict[str, FlagValue], allowed: frozenset[str]) -> None:
    for given, value in extra.items():
        flag = build.name(given)
        names = {given, flag}
        if never := _never_extra(given, names):
            build.refusals.append(never.body())
        elif not flag:
            message = f"engine.extra: this build has no flag {given}{nearest_flag(given, build.capabilities.flags)}"
            build.refusals.append(FlagNotAllowed(message, remedy="Correct the flag, or choose a build that has it.", flag=given).body())
        elif not names & allowed:
            build.refusals.append(FlagNotAllowed(f"engine.extra: this host doesn't allow {given}", flag=given).body())
        elif value is False:
            build.need(f"engine.extra: {given}: false", (f"--no-{flag.removeprefix('--')}",))
        elif value is True:
            build.words.append(flag)
        else:
            if refused := _never_values(given, value):
                build.refusals += [error.body() for error in refused]
            else:
                build.words += [word for one in _values(value) for word in (flag, one)]


def never_possible(settings: EngineSettings, arms: Iterable[Arm]) -> list[ErrorBody]:
    """What no build and no host can do, so that an experiment need not wait for one."""
    found: list[SpecError] = []
    for flag, value in settings.extra.items():
        never = _never_extra(flag, {flag})
        found += [never] if never else _never_values(flag, value)
    for arm in arms:
        if arm.mode not in (BASELINE_MODE, *SPEC_TYPES):
            found.append(_no_mode(arm))
        elif arm.mode != BASELINE_MODE:
            found += [_no_field(arm, field) for field in ARM_FIELDS if getattr(arm, field) is not None and field not in ARM_FLAGS[arm.mode]]
    return [error.body() for error in found]


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


def _values(value: FlagValue) -> list[str]:
    return [str(v) for v in (value if isinstance(value, list) else [value])]


def _never_values(given: str, value: FlagValue) -> list[FlagNotAllowed]:
    """After a flag that takes no value, a word that begins with a dash would be a flag of its own, past every rule."""
    return [
        FlagNotAllowed(
            f"engine.extra: {given}: the value {one!r} begins with a dash and would be read as a flag",
            remedy="Give a value that is no flag.",
            flag=given,
            value=one,
        )
        for one in _values(value)
        if one.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(one)
    ]


def _no_field(arm: Arm, field: str) -> ArmNotSupported:
    message = f"arm {arm.name!r}: mode {arm.mode} of llama-server has no {field}"
    return ArmNotSupported(message, remedy=f"Remove {field}, or choose another mode.", arm=arm.name, field=field)


def _never_extra(given: str, names: Collection[str]) -> FlagNotAllowed | None:
    if not (OWNED_FLAGS & set(names) or any(is_speculation(n) for n in names)):
        return None
    what = "belongs to speculation: set it in the arm" if is_speculation(given) else "is set by SpecWeb itself"
    return FlagNotAllowed(f"engine.extra: {given} {what}", remedy="Remove the flag from engine.extra.", flag=given)


def _no_mode(arm: Arm) -> ArmNotSupported:
    message = f"arm {arm.name!r}: llama-server has no mode {arm.mode!r}; its modes are {', '.join(SPEC_TYPES)}"
    return ArmNotSupported(message, arm=arm.name, mode=arm.mode)


def _speculation(build: _Command, arm: Arm, bindings: Bindings) -> None:
    spec_type = SPEC_TYPES.get(arm.mode)
    if spec_type is None:
        build.refusals.append(_no_mode(arm).body())
        return
    if spec_type in build.capabilities.spec_types:
        build.words += [build.name(SPEC_TYPE_FLAG), spec_type]
    elif arm.mode != "draft" or build.capabilities.dialect != "draft-flag":
        # In the draft-flag dialect the helper model alone switches speculation on.
        offered = ", ".join(build.capabilities.spec_types) or "none"
        build.refuse(
            f"mode {arm.mode} needs {SPEC_TYPE_FLAG} {spec_type}, which this build doesn't offer (it offers: {offered})", mode=arm.mode
        )
        return
    if arm.mode in MODES_WITH_DRAFT_MODEL or arm.draft_model:
        if not bindings.draft:
            message = f"arm {arm.name!r}: the draft model {arm.draft_model!r} is not on this host"
            build.refusals.append(UnknownModel(message, arm=arm.name, model=arm.draft_model).body())
        build.need(f"mode {arm.mode}", DRAFT_MODEL_FLAGS, bindings.draft)
    known = ARM_FLAGS[arm.mode]
    for field in ARM_FIELDS:
        value = getattr(arm, field)
        if value is None:
            continue
        if field not in known:
            build.refusals.append(_no_field(arm, field).body())
        else:
            build.need(f"{field} of mode {arm.mode}", known[field], f"{value:g}" if isinstance(value, float) else value)
    if arm.mode == "ngram-mod" and arm.draft_min is None and arm.draft_limit is not None and arm.draft_limit < NGRAM_MOD_DEFAULT_MIN:
        # A limit under the default minimum would never draft.
        build.need("draft_limit of mode ngram-mod", known["draft_min"], arm.draft_limit)


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
