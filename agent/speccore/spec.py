"""What a person asks for: the experiment's schema, the same from form, YAML and API.

Unknown keys are refused with the nearest known one, since a person wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from .canonical import sha256_of
from .modes import BASELINE_MODE as BASELINE_MODE
from .modes import MODES as MODES
from .modes import MODES_BESIDE as MODES_BESIDE
from .modes import MODES_WITH_DRAFT_MODEL as MODES_WITH_DRAFT_MODEL
from .modes import STATEFUL_MODES as STATEFUL_MODES
from .modes import is_model_drafter as is_model_drafter
from .person import STORED, is_stored
from .person import Person as Person
from .points import Point as Point
from .points import Sampling as Sampling
from .points import SamplingTest as SamplingTest
from .points import Warmup as Warmup
from .spec_rules import Fault, arm_faults, extra_faults, faults_between, idle_model, whole_faults, yaml_word
from .spec_words import (
    DEVICE_PATTERN,
    NAME_PATTERN,
    PLAIN_PATTERN,
    SETTING_PATTERN,
    TEXT_PATTERN,
    TYPE_PATTERN,
    given_in_words,
    nearest,
    shown,
    words_of,
)
from .sweeps import MAX_ARMS, Swept, swept

BETWEEN = "between_fields"  # the type of the errors that rules between fields raise

#: Of very many faults only the first are told: nobody reads more, and words for each take time.
MAX_PROBLEMS = 100

Name = Annotated[str, Field(min_length=1, max_length=80, pattern=NAME_PATTERN)]
Plain = Annotated[str, Field(max_length=200, pattern=PLAIN_PATTERN)]
FlagValue = str | int | float | bool | list[str | int | float]


def engine_names() -> list[str]:
    """Of the engines that are registered. Their modules are made for specs, so they can't be loaded before this one."""
    from . import engines

    return engines.names()


def _stripped(value: Any) -> Any:
    """YAML's block text ends in a new line that nobody meant."""
    return value.strip() if isinstance(value, str) else value


def _raise_first(faults: Iterator[Fault]) -> None:
    for field, words in faults:
        raise PydanticCustomError(BETWEEN, "{words}", {"words": f"{field}: {words}" if field else words})


class Target(Person):
    """The model that is asked: by alias, or by the hash of its manifest."""

    model: Plain = Field(min_length=1, description="the alias of a model, or its hash")


class RuntimeSelector(Person):
    """Which engine build: the engine, and what must hold of its version, commit and backend."""

    engine: str = Field(default="llama-server", max_length=20)
    version: Plain | None = Field(default=None, max_length=80)
    source_commit: Plain | None = Field(default=None, max_length=64)
    backend: Plain | None = Field(default=None, max_length=40)
    manifest_hash: Plain | None = Field(default=None, max_length=64)
    attached: bool = Field(default=False, description="servers that stand already, one for each arm by its name; nothing is restarted")

    @field_validator("engine")
    @classmethod
    def _known(cls, engine: str, info: ValidationInfo) -> str:
        if not is_stored(info) and engine not in (known := engine_names()):
            raise ValueError(f"unknown engine {shown(engine)}{nearest(engine[:80], known)}; known: {', '.join(known)}")
        return engine


class EngineSettings(Person):
    """Settings that are equal in all arms. ``extra`` holds further flags of the engine, by their long name."""

    context: int = Field(default=4096, ge=64, le=4_194_304, description="tokens per slot")
    slots: int = Field(default=1, ge=1, le=256, description="requests that the engine serves at once")
    threads: int | None = Field(default=None, ge=1, le=1024, description="CPU threads; unset: all cores but one")
    gpu_layers: int | None = Field(default=None, ge=0, le=10_000, description="layers of the target on the GPU")
    kv_type_k: str | None = Field(default=None, max_length=16, pattern=TYPE_PATTERN)
    kv_type_v: str | None = Field(default=None, max_length=16, pattern=TYPE_PATTERN)
    batch: int | None = Field(default=None, ge=1, le=1_000_000)
    ubatch: int | None = Field(default=None, ge=1, le=1_000_000)
    flash_attention: Literal["on", "off", "auto"] | None = None
    prefix_cache: bool = False
    log_verbosity: int = Field(default=4, ge=0, le=10)
    start_timeout_s: float = Field(default=300, gt=0, le=7200, description="seconds until the engine must be healthy")
    probe_timeout_s: float = Field(default=300, gt=0, le=7200, description="seconds in which some bytes must come")
    extra: dict[str, FlagValue] = Field(default_factory=dict)

    _words = field_validator("flash_attention", mode="before")(yaml_word)

    @field_validator("extra", mode="before")
    @classmethod
    def _flags(cls, extra: Any, info: ValidationInfo) -> Any:
        if not is_stored(info):
            _raise_first(extra_faults(extra))
        return extra


class Arm(Person):
    """One speculation setting. Exactly one arm of an experiment is the baseline (mode off)."""

    name: Name
    mode: str
    draft_model: Plain | None = Field(default=None, description="the helper model: its alias or hash")
    draft_limit: int | None = Field(default=None, ge=1, le=1024, description="most tokens drafted per cycle")
    draft_min: int | None = Field(default=None, ge=0, le=1024, description="fewest tokens worth a draft")
    p_min: float | None = Field(default=None, ge=0, le=1, description="least probability of a drafted token")
    draft_gpu_layers: int | None = Field(default=None, ge=0, le=10_000, description="layers of the helper model on the GPU")
    draft_device: str | None = Field(
        default=None,
        max_length=80,
        pattern=DEVICE_PATTERN,
        description="device of the helper model as the engine names it, or none for the CPU",
    )
    draft_kv_type_k: str | None = Field(default=None, max_length=16, pattern=TYPE_PATTERN)
    draft_kv_type_v: str | None = Field(default=None, max_length=16, pattern=TYPE_PATTERN)
    draft_threads: int | None = Field(default=None, ge=1, le=1024, description="CPU threads of the helper model")
    p_split: float | None = Field(default=None, ge=0, le=1, description="least probability of a second branch of the draft")
    ngram_size: int | None = Field(default=None, ge=1, le=1024, description="length of the looked-up n-gram; where a range, its longest")
    ngram_min: int | None = Field(default=None, ge=1, le=1024, description="shortest n-gram that is looked up")
    ngram_hits: int | None = Field(default=None, ge=1, le=1024, description="how often an n-gram must have come before it is believed")
    #: Drafters without a model beside the mode's own, in the order in which they are asked; of engines that can combine.
    also: list[str] = Field(default_factory=list, max_length=len(MODES_BESIDE), description="n-gram drafters that stand beside it")
    also_limit: int | None = Field(default=None, ge=1, le=1024, description="most tokens that those beside it draft per cycle")
    #: What the typed fields don't hold: flags of llama-server that belong to speculation, keys of vLLM's speculative config; of a
    #: control, engine flags that another arm's speculation implies.
    extra: dict[str, FlagValue] = Field(default_factory=dict)
    #: A second arm of mode off that measures the host's noise floor or, with ``extra``, what speculation implies; never the baseline.
    control: bool = False

    _words = field_validator("name", "mode", mode="before")(yaml_word)

    @field_validator("extra", mode="before")
    @classmethod
    def _settings(cls, extra: Any, info: ValidationInfo) -> Any:
        if not is_stored(info):
            _raise_first(extra_faults(extra, SETTING_PATTERN))
        return extra

    @field_validator("mode")
    @classmethod
    def _known(cls, mode: str, info: ValidationInfo) -> str:
        if mode not in MODES and not is_stored(info):
            raise ValueError(f"unknown speculation mode {shown(mode)}{nearest(mode[:80], MODES)}; known: {', '.join(MODES)}")
        return mode

    @model_validator(mode="after")
    def _fitting(self, info: ValidationInfo) -> Arm:
        if not is_stored(info):
            _raise_first(arm_faults(self.__dict__))
        return self

    @property
    def is_baseline(self) -> bool:
        return self.mode == BASELINE_MODE and not self.control

    @property
    def drafters(self) -> tuple[str, ...]:
        """Its mode, and what stands beside it."""
        return self.mode, *self.also

    @property
    def explains(self) -> bool:
        """Whether it is off with what another arm's speculation implies: it explains a difference, and is no second baseline."""
        return self.control and bool(self.extra)

    @property
    def is_repeat(self) -> bool:
        """Whether it is the baseline once more, which tells what the host varies by."""
        return self.control and not self.extra

    @property
    def is_stateful(self) -> bool:
        """Whether a drafter of it remembers earlier requests."""
        return any(d in STATEFUL_MODES for d in self.drafters)


class Requirements(Person):
    """What an arm must still offer to be worth keeping. ``quality``: not shown to be lost, or shown to be held."""

    context: int | None = Field(default=None, ge=1, description="tokens per slot")
    slots: int | None = Field(default=None, ge=1)
    free_memory_mib: int | None = Field(default=None, ge=0, le=2**30, description="MiB that must be left free where the model runs")
    quality: Literal["not lost", "held"] = "not lost"


class Placement(Person):
    """Where to run: named hosts, or hosts with labels; ``count`` hosts, or each that fits."""

    hosts: list[Plain] = Field(default_factory=list, max_length=100)
    labels: dict[Plain, Plain] = Field(default_factory=dict, max_length=100)
    count: int = Field(default=1, ge=1, le=100, description="hosts to run on")
    each: bool = False


class ExperimentSpec(Person):
    """One question: a target, an engine, fixed settings, two or more arms, one or more points."""

    version: Literal[1] = 1
    name: Annotated[str, BeforeValidator(_stripped)] = Field(min_length=1, max_length=120, pattern=PLAIN_PATTERN)
    question: Annotated[str, BeforeValidator(_stripped)] = Field(default="", max_length=300, pattern=TEXT_PATTERN)
    target: Target
    runtime: RuntimeSelector = RuntimeSelector()
    engine: EngineSettings = EngineSettings()
    arms: list[Arm] = Field(min_length=2, max_length=MAX_ARMS)
    points: list[Point] = Field(min_length=1, max_length=60)
    blocks: int = Field(default=5, ge=1, le=100, description="how often each arm is started")
    sequential: bool = Field(default=False, description="look after blocks 3, 5, 7 and 10: an arm that is decided leaves later ones")
    warmup: Warmup = Warmup()
    seed: int = Field(default=1, ge=0, le=2**31 - 1, description="draws orders, prompts and their seeds")
    margin: float = Field(default=0.03, ge=0, le=1, description="the speed-up that is worth having: 0.03 is 3 %")
    requirements: Requirements = Requirements()
    sampling_test: SamplingTest | None = None
    second_look: Literal["once", "never"] = Field(
        default="once",
        description="ask the baseline each greedy prompt once more, untimed, so that near-ties can be told from wrong tokens",
    )
    fit: bool = Field(default=False, description="after the blocks, find the largest context that loads with and without each helper")
    placement: Placement = Placement()

    @model_validator(mode="after")
    def _whole(self, info: ValidationInfo) -> ExperimentSpec:
        if not is_stored(info):
            _raise_first(whole_faults(self.model_dump(include={"engine": True, "arms": True, "points": True})))
        return self

    @property
    def baseline(self) -> Arm:
        return next(a for a in self.arms if a.is_baseline)

    @property
    def workload_names(self) -> list[str]:
        """Of all workloads that a job needs, as the experiment names them."""
        return list(dict.fromkeys([*(p.workload for p in self.points), *([self.sampling_test.workload] if self.sampling_test else [])]))

    def arm(self, name: str) -> Arm:
        return next(a for a in self.arms if a.name == name)

    def point(self, key: str) -> Point:
        return next(p for p in self.points if p.key == key)

    def spec_hash(self) -> str:
        """SHA-256 of the canonical JSON, defaults filled in."""
        return sha256_of(self.model_dump(mode="json"))


def read_stored_spec(data: Any) -> ExperimentSpec:
    """A spec that was accepted before, from a database, a file of a run or a peer's message.

    Rules of people's input are not asked again: they may have come later. Types are; raises ``pydantic.ValidationError``.
    """
    return ExperimentSpec.model_validate(data, context=STORED)


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
        return None, [SpecProblem(field="", message=f"an experiment is a mapping of keys, not {given_in_words(data)}")]
    found = swept(data)
    spec, problems = _parsed(found.data)
    told = [SpecProblem(field=field, message=words) for field, words in found.faults]
    if told:
        problems = told + [p for p in problems if not any(p.field.startswith(t.field) for t in told)]
    return (None if problems else spec), as_written(found, problems)


def _parsed(data: dict[Any, Any]) -> tuple[ExperimentSpec | None, list[SpecProblem]]:
    try:
        spec = ExperimentSpec.model_validate(data)
    except ValidationError as error:
        return None, _problems(data, error)
    # Said to who asks, and no rule of the model: what was stored before stays readable.
    idle = [SpecProblem(field=f"arms.{i}.{key}", message=words) for i, a in enumerate(spec.arms) for key, words in idle_model(a.__dict__)]
    return (None if idle else spec), idle


def as_written(found: Swept, problems: list[SpecProblem]) -> list[SpecProblem]:
    """The problems beside the arms that a person wrote; what several arms of one sweep share is told once."""
    placed = [p.model_copy(update={"field": found.field_as_written(p.field)}) for p in problems]
    return list({(p.field, p.message): p for p in reversed(placed)}.values())[::-1]


def _problems(data: dict[Any, Any], error: ValidationError) -> list[SpecProblem]:
    """Faults of single fields, as pydantic finds them; and those between fields, also where others are wrong."""
    errors = error.errors(include_url=False)
    readable = _without(_filled(data), [e["loc"] for e in errors if e["type"] != BETWEEN])
    between = [SpecProblem(field=field, message=words) for field, words in faults_between(readable)]
    found = []
    for e in errors[: MAX_PROBLEMS + 1]:
        field = ".".join(str(step) for step in e["loc"] if step != "[key]")
        if e["type"] != BETWEEN:
            found.append(SpecProblem(field=field, message=words_of(ExperimentSpec, e), value=shown(e["input"])))
        elif not any(p.field.startswith(field) for p in between):
            found.append(SpecProblem(field=field, message=e["msg"]))
    told = {p.field for p in found}
    found += [p for p in between if p.field not in told]
    if len(found) > MAX_PROBLEMS:
        found = [*found[:MAX_PROBLEMS], SpecProblem(field="", message=f"there are more than {MAX_PROBLEMS} faults: correct these first")]
    return found


def _filled(data: dict[Any, Any]) -> dict[Any, Any]:
    """The same data with the defaults of what the rules between fields look at; wrong values stay."""
    filled = dict(data)
    for key, model in (("arms", Arm), ("points", Point)):
        if isinstance(data.get(key), list | tuple):
            filled[key] = [_defaults(model) | entry if isinstance(entry, dict) else entry for entry in data[key]]
    engine = data.get("engine", {})
    return filled | {"engine": _defaults(EngineSettings) | engine if isinstance(engine, dict) else {}}


def _without(filled: dict[Any, Any], places: list[tuple[int | str, ...]]) -> dict[Any, Any]:
    """The same with nothing in the places of faults that are told by themselves, so that no rule builds on them."""
    for where, *steps in places:
        node: Any = filled.get(where) if where in ("engine", "arms", "points") else None  # the parts that are copies
        if isinstance(node, list) and len(steps) > 1 and isinstance(steps[0], int):
            node, steps = node[steps[0]], steps[1:]
        if isinstance(node, dict) and steps:
            node[steps[0]] = None
    return filled


def _defaults(model: type[Person]) -> dict[Any, Any]:
    given = {name: info.get_default(call_default_factory=True) for name, info in model.model_fields.items() if not info.is_required()}
    return {name: value.model_dump() if isinstance(value, BaseModel) else value for name, value in given.items()}


def problem_lines(problems: list[SpecProblem], most: int = 30) -> list[str]:
    """The problems for a person, a line each; of very many only the first."""
    lines = [f"  {_where(p)}: {p.message}{_given(p)}" for p in problems[:most]]
    return lines + ([f"  … and {len(problems) - most} more"] if len(problems) > most else [])


def _given(p: SpecProblem) -> str:
    told = not p.value or ("not the " in p.message and p.value in p.message)
    return "" if told else f" (given: {p.value})"


def _where(p: SpecProblem) -> str:
    field = p.field or "the file"
    return field if p.line is None else f"line {p.line}, {field}"
