"""What a person asks for: the experiment's schema, the same from form, YAML and API.

Unknown keys are refused with the nearest known one, since a person wrote them.
"""

from __future__ import annotations

import difflib
import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from .canonical import sha256_of

SPEC_VERSION = 1
BASELINE_MODE = "off"

#: Speculation modes that SpecWeb knows, with the kind of drafter behind each.
MODES: dict[str, str] = {
    "off": "off",
    "draft": "model",
    "mtp": "model",
    "eagle3": "model",
    "dflash": "model",
    "dspark": "model",
    "ngram": "ngram",
    "ngram-simple": "ngram",
    "ngram-map-k": "ngram",
    "ngram-map-k4v": "ngram",
    "ngram-mod": "ngram",
    "ngram-cache": "ngram",
    "suffix": "ngram",
}
#: Modes that need a second model file.
MODES_WITH_DRAFT_MODEL = frozenset({"draft", "eagle3", "dflash", "dspark"})
#: Drafters whose state outlives a request: each point gets a trial of its own.
STATEFUL_MODES = frozenset({"ngram-mod", "ngram-cache", "suffix"})

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._+/@-]*$")]
FlagValue = str | int | float | bool | list[str | int | float]


def _yaml_word(value: Any) -> Any:
    """YAML reads a bare ``off`` or ``on`` as a truth value; where a word is due, the word was meant."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


def is_model_drafter(mode: str) -> bool:
    """Whether a model proposes the tokens (it must then draft something, or speculation is not engaged)."""
    return MODES[mode] == "model"


class Person(BaseModel):
    """Base of what people write: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @field_validator("*", mode="before")
    @classmethod
    def _numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """``draft_limit: yes`` is a slip and not a one."""
        if isinstance(value, bool) and cls.model_fields[info.field_name or ""].annotation in (int, float, int | None, float | None):
            raise ValueError("a number is due, not yes or no")
        return value


class Target(Person):
    """The model that is asked: by alias, or by the hash of its manifest."""

    model: str = Field(min_length=1, max_length=200)


class RuntimeSelector(Person):
    """Which engine build: the engine, and what must hold of its version, commit and backend."""

    engine: Literal["llama-server", "vllm"] = "llama-server"
    version: str | None = Field(default=None, max_length=80)
    source_commit: str | None = Field(default=None, max_length=64)
    backend: str | None = Field(default=None, max_length=40)
    manifest_hash: str | None = Field(default=None, max_length=64)


class EngineSettings(Person):
    """Settings that are equal in all arms. ``extra`` holds further flags of the engine, by their long name."""

    context: int = Field(default=4096, ge=64, le=4_194_304, description="tokens per slot")
    slots: int = Field(default=1, ge=1, le=256)
    threads: int | None = Field(default=None, ge=1, le=1024, description="CPU threads; unset: all cores but one")
    gpu_layers: int | None = Field(default=None, ge=0, le=10_000)
    kv_type_k: str | None = Field(default=None, max_length=16, pattern=r"^[a-z0-9_]+$")
    kv_type_v: str | None = Field(default=None, max_length=16, pattern=r"^[a-z0-9_]+$")
    batch: int | None = Field(default=None, ge=1, le=1_000_000)
    ubatch: int | None = Field(default=None, ge=1, le=1_000_000)
    flash_attention: Literal["on", "off", "auto"] | None = None
    prefix_cache: bool = False
    log_verbosity: int = Field(default=4, ge=0, le=10)
    start_timeout_s: float = Field(default=300, gt=0, le=7200)
    probe_timeout_s: float = Field(default=300, gt=0, le=7200)
    extra: dict[str, FlagValue] = Field(default_factory=dict)

    _words = field_validator("flash_attention", mode="before")(_yaml_word)

    @field_validator("extra")
    @classmethod
    def _long_names(cls, extra: dict[str, FlagValue]) -> dict[str, FlagValue]:
        for flag in extra:
            if not re.fullmatch(r"--[a-z0-9][a-z0-9-]*", flag):
                raise ValueError(f"{flag!r} is no long flag such as --override-tensor")
            given = extra[flag]
            values = given if isinstance(given, list) else [given]
            if any(isinstance(v, str) and "\0" in v for v in values):
                raise ValueError(f"{flag} holds a NUL character, which no command can")
            if any(isinstance(v, float) and not math.isfinite(v) for v in values):
                raise ValueError(f"{flag} is {given}: a number must be finite")
        return extra


class Arm(Person):
    """One speculation setting. Exactly one arm of an experiment is the baseline (mode off)."""

    name: Name
    mode: str
    draft_model: str | None = Field(default=None, max_length=200)
    draft_limit: int | None = Field(default=None, ge=1, le=1024, description="most tokens drafted per cycle")
    draft_min: int | None = Field(default=None, ge=0, le=1024)
    p_min: float | None = Field(default=None, ge=0, le=1)
    draft_gpu_layers: int | None = Field(default=None, ge=0, le=10_000)
    ngram_size: int | None = Field(default=None, ge=1, le=1024, description="length of the looked-up n-gram")
    #: A second arm of mode off that measures the host's noise floor; never the baseline.
    control: bool = False

    _words = field_validator("name", "mode", mode="before")(_yaml_word)

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str) -> str:
        if mode not in MODES:
            raise ValueError(f"unknown speculation mode {mode!r}{_nearest(mode, MODES)}; known: {', '.join(MODES)}")
        return mode

    @model_validator(mode="after")
    def _fitting(self) -> Arm:
        if self.mode == BASELINE_MODE:
            given = [
                k
                for k in ("draft_model", "draft_limit", "draft_min", "p_min", "ngram_size", "draft_gpu_layers")
                if getattr(self, k) is not None
            ]
            if given:
                raise ValueError(f"arm {self.name!r} has mode off and can't have {', '.join(given)}")
        elif self.control:
            raise ValueError(f"arm {self.name!r}: only an arm with mode off can be a control")
        if self.mode in MODES_WITH_DRAFT_MODEL and not self.draft_model:
            raise ValueError(f"arm {self.name!r} has mode {self.mode} and needs draft_model")
        if self.draft_min is not None and self.draft_limit is not None and self.draft_min > self.draft_limit:
            raise ValueError(f"arm {self.name!r}: draft_min {self.draft_min} is over draft_limit {self.draft_limit}")
        return self

    @property
    def is_baseline(self) -> bool:
        return self.mode == BASELINE_MODE and not self.control


class Sampling(Person):
    temperature: float = Field(default=0.0, ge=0, le=5)
    top_k: int | None = Field(default=None, ge=0, le=1_000_000)
    top_p: float | None = Field(default=None, ge=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)


class Point(Person):
    """One combination of workload, concurrency, occupied context and sampling; ``probes`` are per trial."""

    workload: str = Field(min_length=1, max_length=120, pattern=r"^[^\x00-\x1f]+$", description="name, or name@version")
    concurrency: int = Field(default=1, ge=1, le=256)
    occupied_context: int = Field(default=0, ge=0, le=4_194_304)
    sampling: Sampling = Sampling()
    max_tokens: int = Field(default=128, ge=2, le=131_072)
    probes: int = Field(default=2, ge=1, le=10_000)

    @property
    def key(self) -> str:
        """Identity inside the experiment, e.g. ``count/c1/ctx0/t0``."""
        return f"{self.workload}/c{self.concurrency}/ctx{self.occupied_context}/t{self.sampling.temperature:g}"


class Warmup(Person):
    """Requests before the first probe, kept and never counted. ``fixed`` sends ``requests`` of them."""

    mode: Literal["fixed"] = "fixed"
    requests: int = Field(default=1, ge=1, le=100)


class Requirements(Person):
    """What an arm must still offer to be worth keeping."""

    context: int | None = Field(default=None, ge=1, description="tokens per slot")
    slots: int | None = Field(default=None, ge=1)


class Placement(Person):
    """Where to run: named hosts, or hosts with labels; ``count`` hosts, or each that fits."""

    hosts: list[str] = Field(default_factory=list, max_length=100)
    labels: dict[str, str] = Field(default_factory=dict)
    count: int = Field(default=1, ge=1, le=100)
    each: bool = False


class ExperimentSpec(Person):
    """One question: a target, an engine, fixed settings, two or more arms, one or more points."""

    version: Literal[1] = 1
    name: str = Field(min_length=1, max_length=120)
    question: str = Field(default="", max_length=300)
    target: Target
    runtime: RuntimeSelector = RuntimeSelector()
    engine: EngineSettings = EngineSettings()
    arms: list[Arm] = Field(min_length=2, max_length=40)
    points: list[Point] = Field(min_length=1, max_length=60)
    blocks: int = Field(default=5, ge=1, le=100)
    warmup: Warmup = Warmup()
    seed: int = Field(default=1, ge=0, le=2**31 - 1)
    margin: float = Field(default=0.03, ge=0, le=1)
    requirements: Requirements = Requirements()
    placement: Placement = Placement()

    @model_validator(mode="after")
    def _whole(self) -> ExperimentSpec:
        baselines = [a.name for a in self.arms if a.is_baseline]
        if not baselines:
            raise ValueError("no baseline: add one arm with mode off")
        if len(baselines) > 1:
            raise ValueError(f"{len(baselines)} baselines ({', '.join(baselines)}): keep one arm with mode off, mark others control: true")
        for what, names in (("arm", [a.name for a in self.arms]), ("point", [p.key for p in self.points])):
            twice = sorted({n for n in names if names.count(n) > 1})
            if twice:
                raise ValueError(f"{what} {twice[0]!r} is there twice")
        for point in self.points:
            if point.concurrency > self.engine.slots:
                raise ValueError(f"point {point.key!r} needs {point.concurrency} slots, engine.slots is {self.engine.slots}")
            if point.occupied_context + point.max_tokens > self.engine.context:
                raise ValueError(
                    f"point {point.key!r} needs a context of more than {point.occupied_context + point.max_tokens} tokens, "
                    f"engine.context is {self.engine.context}"
                )
        return self

    @property
    def baseline(self) -> Arm:
        return next(a for a in self.arms if a.is_baseline)

    def arm(self, name: str) -> Arm:
        return next(a for a in self.arms if a.name == name)

    def point(self, key: str) -> Point:
        return next(p for p in self.points if p.key == key)

    def spec_hash(self) -> str:
        """SHA-256 of the canonical JSON, defaults filled in."""
        return sha256_of(self.model_dump(mode="json"))


class SpecProblem(BaseModel):
    """One fault of a spec in words: where (dotted path), what and its remedy, the value that was given.

    ``line`` is the one in the file that a person sent, where it came as one. ``code`` is that of the error tree.
    """

    model_config = ConfigDict(frozen=True)
    field: str
    message: str
    value: str = ""
    code: str = "spec_invalid"
    line: int | None = None


def parse_spec(data: Any) -> tuple[ExperimentSpec | None, list[SpecProblem]]:
    """Checks untrusted data (already decoded from YAML, JSON or a form). Returns the spec, or every problem in words."""
    if not isinstance(data, dict):
        return None, [SpecProblem(field="", message=f"an experiment is a mapping of keys, not {_kind(data)}")]
    try:
        return ExperimentSpec.model_validate(data), []
    except ValidationError as error:
        return None, [_problem(e) for e in error.errors(include_url=False)]


def problem_lines(problems: list[SpecProblem], most: int = 30) -> list[str]:
    """The problems for a person, a line each; of very many only the first."""
    lines = [f"  {_where(p)}: {p.message}{f' (given: {p.value})' if p.value else ''}" for p in problems[:most]]
    return lines + ([f"  … and {len(problems) - most} more"] if len(problems) > most else [])


def _where(p: SpecProblem) -> str:
    field = p.field or "the file"
    return field if p.line is None else f"line {p.line}, {field}"


def _problem(e: Any) -> SpecProblem:
    field = ".".join(str(p) for p in e["loc"])
    message = e["msg"].removeprefix("Value error, ")
    if e["type"] == "extra_forbidden":
        key = str(e["loc"][-1])
        message = f"unknown key {key!r}{_nearest(key, _known_keys())}"
    elif e["type"] == "missing":
        message = "is required"
    elif e["type"] in ("model_type", "list_type", "dict_type"):
        due = "a list" if e["type"] == "list_type" else "a mapping of keys"
        message = f"should be {due}, not {_kind(e['input'])}"
    value = "" if e["type"] == "missing" or isinstance(e["input"], dict | list) else repr(e["input"])[:80]
    return SpecProblem(field=field, message=message, value=value)


def _known_keys() -> list[str]:
    models = (ExperimentSpec, Target, RuntimeSelector, EngineSettings, Arm, Sampling, Point, Warmup, Requirements, Placement)
    return sorted({k for m in models for k in m.model_fields})


def _nearest(word: str, known: Any) -> str:
    match = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def _kind(value: Any) -> str:
    return {list: "a list", dict: "a mapping", str: "a text", int: "a number", float: "a number", type(None): "nothing"}.get(
        type(value), type(value).__name__
    )
