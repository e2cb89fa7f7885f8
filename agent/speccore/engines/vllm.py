"""vLLM: renders its command, asks for a completion, and reads what it streams, counts and logs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..errors import ArmNotSupported, ErrorBody, FlagNotAllowed, SpecError, UnknownModel
from ..inventory import Capabilities
from ..spec import BASELINE_MODE, MODES_WITH_DRAFT_MODEL, Arm, EngineSettings, ExperimentSpec, FlagValue, Point
from .llamacpp_flags import nearest_flag
from .shapes import SYMBOLIC, Asked, Bindings, Rendered
from .vllm_config import Fault, config_faults, place_faults, speculative_config
from .vllm_counts import parse_metrics, probe_counts, window_disagreements
from .vllm_extra import extra_problems, extra_words, is_allowed
from .vllm_flags import (
    DEFAULT_ALLOWED_FLAGS,
    KV_TYPE_FLAG,
    MEASURING_FLAGS,
    NEVER_ENVIRONMENT,
    OWNED_FLAGS,
    REQUEST_STEPS_FLAG,
    SPEC_TYPES,
    SPECULATIVE_CONFIG_FLAG,
    capabilities,
    first_known,
    is_speculation,
    without_speculation,
)
from .vllm_log import log_requests, memory_fault, parse_log, start_failure
from .vllm_look import is_cut, look_again, read_drafted, read_ids, read_look, whole_answer
from .vllm_stream import stream_events
from .vllm_text import (
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
ASKED = Asked("vllm", help=("serve", "--help=all"), needed=("--max-model-len", "--port"), packaged="python")
#: What tells, once it is healthy, which model it has loaded.
LOADED_PATHS = ("/v1/models",)
#: What tells its version, of servers that somebody else started.
BUILD_PATH = "/version"
#: What tells the chat template; nothing where ``LOADED_PATHS`` do.
TEMPLATE_PATH = "/tokenizer_info"
#: How the name of a model's file ends; empty where it is a folder.
MODEL_ENDING = ""
#: It has synthetic acceptance, by keys of its speculative config and not by a flag; SpecWeb measures no break-even by it.
SYNTHETIC_FLAG = ""
#: The project's own container images, by backend; how many words of a command such an image says by itself.
IMAGES = {"": "vllm/vllm-openai", "rocm": "vllm/vllm-openai-rocm", "cpu": "vllm/vllm-openai-cpu"}
IMAGE_ENTRY = 2
MODEL_FORMATS = ("hf",)
#: What requests may call the model, so that no answer bears a path of the host.
SERVED_NAME = "target"
#: Settings that mean nothing to vLLM, with what to do instead.
_NO_SETTINGS = {
    "gpu_layers": ("keeps all layers on its devices", "Remove it, or name --cpu-offload-gb in engine.extra."),
    "ubatch": ("has one size of batch", "Set engine.batch."),
    "flash_attention": ("chooses its attention by a backend", "Name --attention-backend in engine.extra."),
}
#: The log levels of llama-server that stand for vLLM's.
_DEBUG_FROM = 5


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

    Refusals name each thing that this build, host or rule stands against; a command with refusals is not to be started.
    ``threads`` binds the engine only where the experiment asks for a number of them: else it knows its processor best.
    """
    build = _Command(capabilities, arm.name)
    _fixed(build, settings, bindings)
    build.add_extra(settings.extra, allowed_flags)
    if arm.mode != BASELINE_MODE:
        _speculation(build, arm, bindings)
    elif arm.extra:
        build.add_extra(arm.extra, of_control=True)
    environment = _environment(settings, threads)
    return Rendered(argv=[bindings.executable, "serve", bindings.target, *build.words], env=environment, refusals=build.refusals)


class _Command:
    """Words of a command as they are added, each flag by the name that this build lists."""

    def __init__(self, capabilities: Capabilities, arm: str) -> None:
        self.capabilities = capabilities
        self.arm = arm
        self.words: list[str] = []
        self.refusals: list[ErrorBody] = []

    def need(self, what: str, name: str, *values: object) -> None:
        """Adds a flag that the command can't do without; refuses if the build lacks it."""
        if flag := first_known(self.capabilities.flags, name):
            texts = [str(v) for v in values]
            for _, words, remedy in value_faults(list(texts)):
                self.refuse(f"{what}: {words}", remedy, flag=flag)
            self.words += [flag, *texts]
        else:
            self.refuse(f"{what} needs the flag {name}, which this build doesn't have", flag=name)

    def want(self, name: str, *values: object) -> None:
        """Adds a flag that only helps; builds without it are the same without it."""
        if flag := first_known(self.capabilities.flags, name):
            self.words += [flag, *map(str, values)]

    def add_extra(self, flags: Mapping[str, FlagValue], allowed: Collection[str] | None = None, *, of_control: bool = False) -> None:
        words, problems = extra_words(flags, self.capabilities, allowed, self.arm if of_control else "")
        self.words += words
        self.refusals += [error.body() for error in problems]

    def refuse(self, message: str, remedy: str | None = None, **details: Any) -> None:
        self.refusals.append(ArmNotSupported(f"arm {self.arm!r}: {message}", remedy=remedy, arm=self.arm, **details).body())


def _fixed(build: _Command, settings: EngineSettings, bindings: Bindings) -> None:
    build.want("--served-model-name", SERVED_NAME)
    build.need("listening on loopback", "--host", bindings.host)
    build.need("listening on a port of its own", "--port", bindings.port)
    build.need("context", "--max-model-len", settings.context)
    build.need("slots", "--max-num-seqs", settings.slots)
    if settings.kv_type_k is not None:
        build.need("kv_type_k", KV_TYPE_FLAG, settings.kv_type_k)
        known = build.capabilities.choices.get(KV_TYPE_FLAG, [])
        if known and settings.kv_type_k not in known:
            message = f"engine.kv_type_k is {settings.kv_type_k}, which this build's {KV_TYPE_FLAG} doesn't take"
            build.refuse(message, f"It takes {', '.join(known)}.", place="engine.kv_type_k")
    if settings.batch is not None:
        build.need("batch", "--max-num-batched-tokens", settings.batch)
    build.refusals += [error.body() for error in _setting_problems(settings)]
    prefix_cache = "--enable-prefix-caching" if settings.prefix_cache else "--no-enable-prefix-caching"
    build.need("prefix_cache", prefix_cache)
    build.need("sampling as asked for, and not as the model's folder has it", "--generation-config", "vllm")
    build.want("--stream-interval", 1)
    build.want("--seed", 0)
    build.want("--enable-per-request-metrics")
    build.want("--enable-prompt-tokens-details")
    build.want("--enable-tokenizer-info-endpoint")


def _environment(settings: EngineSettings, threads: int) -> dict[str, str]:
    """No downloads, no reports; threads where the experiment says how many."""
    env = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK"), "1")
    env["VLLM_LOGGING_LEVEL"] = "DEBUG" if settings.log_verbosity >= _DEBUG_FROM else "INFO"
    if settings.threads is not None:
        env |= {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return env


def _setting_problems(settings: EngineSettings) -> Iterator[SpecError]:
    """Settings that vLLM can't follow."""
    for field, (what, remedy) in _NO_SETTINGS.items():
        if getattr(settings, field) is not None:
            yield ArmNotSupported(f"engine.{field} means nothing to vLLM, which {what}", remedy=remedy, place=f"engine.{field}")
    if settings.kv_type_k != settings.kv_type_v:
        yield ArmNotSupported(
            "engine.kv_type_k and kv_type_v differ, and vLLM has one type for keys and values",
            remedy="Set both to the same, or none.",
            place="engine.kv_type_v",
        )


def never_possible(settings: EngineSettings, arms: Iterable[Arm]) -> list[ErrorBody]:
    """What no build and no host can do, so that an experiment need not wait for one."""
    found: list[SpecError] = [*_setting_problems(settings), *extra_problems(settings.extra)]
    for arm in arms:
        if arm.mode == BASELINE_MODE:
            found += extra_problems(arm.extra, arm=arm.name)
        elif arm.mode not in SPEC_TYPES:
            found.append(_no_mode(arm))
        else:
            found += [_problem(arm, fault) for fault in config_faults(arm)]
    return [error.body() for error in found]


def never_asked(spec: ExperimentSpec) -> list[ErrorBody]:
    """What the points or the sampling test would ask that the engine answers with an error. ``place`` is the field."""
    speculating = next((a.name for a in spec.arms if a.mode != BASELINE_MODE), "")
    asked = [(f"points.{i}.sampling", point.sampling) for i, point in enumerate(spec.points)]
    asked += [("sampling_test.sampling", spec.sampling_test.sampling)] if spec.sampling_test else []
    found = []
    for place, sampling in asked:
        if speculating and sampling.min_p:
            words = f"{place}.min_p: vLLM refuses it under speculation, which arm {speculating!r} has"
            found.append(ArmNotSupported(words, remedy="Remove min_p, or use top_p.", place=f"{place}.min_p"))
        if sampling.top_p == 0:
            words = f"{place}.top_p: vLLM takes no 0"
            found.append(ArmNotSupported(words, remedy="Set temperature to 0 for the likeliest token.", place=f"{place}.top_p"))
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
        left = {flag: None for flag in left if not any(is_allowed(flag, flags, allowed) for flags in ways)}
    return list(left)


def _no_mode(arm: Arm) -> ArmNotSupported:
    message = f"arm {arm.name!r}: vLLM has no mode {arm.mode!r}; its modes are {', '.join(SPEC_TYPES)}"
    remedy = "Choose ngram, which looks in the prompt and the answer." if arm.mode.startswith("ngram") else "Choose one of them."
    return ArmNotSupported(message, remedy=remedy, arm=arm.name, mode=arm.mode)


def _problem(arm: Arm, fault: Fault) -> SpecError:
    kind = ArmNotSupported if fault.flag is None else FlagNotAllowed
    field = fault.field if fault.flag is None else f"extra.{fault.flag}"
    return kind(f"arm {arm.name!r}: {fault.message}", remedy=fault.remedy, arm=arm.name, field=field)


def _speculation(build: _Command, arm: Arm, bindings: Bindings) -> None:
    method = SPEC_TYPES.get(arm.mode)
    if method is None:
        build.refusals.append(_no_mode(arm).body())
        return
    if method not in build.capabilities.spec_types:
        offered = ", ".join(build.capabilities.spec_types) or "none"
        build.refuse(f"mode {arm.mode} needs the method {method}, which this build doesn't offer (it offers: {offered})", mode=arm.mode)
        return
    faults = list(config_faults(arm))
    if arm.mode in MODES_WITH_DRAFT_MODEL or arm.draft_model:
        faults += place_faults(arm, bindings.draft)
        if not bindings.draft:
            message = f"arm {arm.name!r}: the draft model {arm.draft_model!r} is not on this host"
            build.refusals.append(UnknownModel(message, arm=arm.name, model=arm.draft_model).body())
    elif arm.mode == "mtp":  # the head is the target's own
        faults += place_faults(arm, bindings.target)
    build.refusals += [_problem(arm, fault).body() for fault in faults]
    build.need(f"mode {arm.mode}", SPECULATIVE_CONFIG_FLAG, speculative_config(arm, bindings.draft))
    # Refused by vLLM without speculation, so the baseline can't have it; its replies bear no counts of drafts anyway.
    build.want(REQUEST_STEPS_FLAG, "detailed")


def request(item_prompt: str, point: Point, seed: int, *, prefix_cache: bool = False) -> tuple[str, dict[str, Any]]:
    """Path and JSON body of one timed request: the raw prompt, so that no template comes between.

    ``prefix_cache`` is the server's to decide. The model goes unnamed: the server has one.
    """
    sampling = point.sampling
    body: dict[str, Any] = {
        "prompt": item_prompt,
        "max_tokens": point.max_tokens,
        "seed": seed,
        "temperature": sampling.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_token_ids": True,
    }
    body |= {k: v for k in ("top_k", "top_p", "min_p") if (v := getattr(sampling, k)) is not None}
    return "/v1/completions", body


def loaded(answers: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """What the server says of itself, of the answers to ``LOADED_PATHS``."""
    models = answers["/v1/models"].get("data")
    first = models[0] if isinstance(models, list) and models else {}
    return {key: first[key] for key in ("id", "root", "max_model_len") if key in first} if isinstance(first, dict) else {}


def build_and_model(props: Mapping[str, Any]) -> tuple[str, str]:
    """What the server says of its build, and the model by the name that it goes by; empty where it doesn't."""
    return str(props.get("version") or ""), str(props.get("root") or props.get("id") or "")


def context_and_slots(props: Mapping[str, Any]) -> tuple[Any, Any]:
    """Tokens per slot, and slots, as the server says them; None where it doesn't: it doesn't tell its slots."""
    return props.get("max_model_len"), None


def loaded_problem(props: dict[str, Any], settings: EngineSettings, target_path: str, context: int) -> str:
    """What /v1/models contradicts of what was asked for, in a sentence; empty if the right thing is loaded.

    ``context`` is per slot, in tokens.
    """
    name, has = props.get("root") or props.get("id"), props.get("max_model_len")
    if name and name not in (target_path, SERVED_NAME, target_path.rstrip("/").rsplit("/", 1)[-1]):
        return f"the server loaded {name!r}, asked for was {target_path!r}"
    if has is not None and has != context:
        return f"the server gives {has} tokens of context to a slot, asked for were {context}"
    return "" if name or has is not None else "/v1/models names no model and no context"
