"""What an arm becomes on llama-server's command line: its drafters by type, the knobs of each, and what none of them has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..errors import ArmNotSupported, ErrorBody, FlagNotAllowed, SpecError, UnknownModel
from ..spec import BASELINE_MODE, MODES_WITH_DRAFT_MODEL, Arm
from .llamacpp_command import Command
from .llamacpp_flags import nearest_flag
from .shapes import Bindings
from .words import value_faults

SPEC_TYPE_FLAG = "--spec-type"
DRAFT_MODEL_FLAGS = ("--spec-draft-model", "--model-draft")
DRAFT_LIMIT_FLAGS = ("--spec-draft-n-max", "--draft-max")

#: speculation mode: the value of --spec-type
SPEC_TYPES: dict[str, str] = {
    "draft": "draft-simple",
    "mtp": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "ngram-simple": "ngram-simple",
    "ngram-map-k": "ngram-map-k",
    "ngram-map-k4v": "ngram-map-k4v",
    "ngram-mod": "ngram-mod",
    "ngram-cache": "ngram-cache",
}
#: In which order the engine asks drafters that stand beside each other, however --spec-type lists them: the first that has a
#: draft makes the step's draft, and drafts are never joined.
_ASKED = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft", "eagle3", "mtp", "dflash", "dspark")
_ONE_TYPE_ONLY = "--spec-type takes one type in this build"

#: Field of an arm whose drafter is a model: names of its flag, the first that the build lists is taken.
_OF_MODELS: dict[str, tuple[str, ...]] = {
    "draft_limit": DRAFT_LIMIT_FLAGS,
    "draft_min": ("--spec-draft-n-min", "--draft-min"),
    "p_min": ("--spec-draft-p-min", "--draft-p-min"),
    "draft_gpu_layers": ("--spec-draft-ngl", "--gpu-layers-draft", "--n-gpu-layers-draft"),
    "draft_device": ("--spec-draft-device", "--device-draft"),
    "draft_kv_type_k": ("--spec-draft-type-k", "--cache-type-k-draft"),
    "draft_kv_type_v": ("--spec-draft-type-v", "--cache-type-v-draft"),
    "draft_threads": ("--spec-draft-threads", "--threads-draft"),
    "p_split": ("--spec-draft-p-split", "--draft-p-split"),
}
#: The same of each drafter without a model.
_OF_NGRAMS: dict[str, dict[str, tuple[str, ...]]] = {
    **{
        mode: {
            "draft_limit": (f"--spec-{mode}-size-m", "--spec-ngram-size-m"),
            "ngram_size": (f"--spec-{mode}-size-n", "--spec-ngram-size-n"),
            "ngram_hits": (f"--spec-{mode}-min-hits", "--spec-ngram-min-hits"),
        }
        for mode in ("ngram-map-k", "ngram-map-k4v")
    },
    "ngram-simple": {
        "draft_limit": ("--spec-ngram-simple-size-m", "--spec-ngram-size-m"),
        "ngram_size": ("--spec-ngram-simple-size-n", "--spec-ngram-size-n"),
        "ngram_hits": ("--spec-ngram-simple-min-hits",),  # where one flag was for all, this drafter took no heed of it
    },
    "ngram-mod": {
        "draft_limit": ("--spec-ngram-mod-n-max", "--draft-max"),
        "draft_min": ("--spec-ngram-mod-n-min", "--draft-min"),
        "ngram_size": ("--spec-ngram-mod-n-match", "--spec-ngram-size-n"),
    },
    "ngram-cache": {},
}
#: Fields that belong to every drafter of an arm that looks n-grams up, its own and those beside it.
_OF_ALL_NGRAMS = ("ngram_size", "ngram_hits")
#: Fields of an arm that become flags, in the order of the command; ``ngram_min`` belongs to other engines.
ARM_FIELDS = (*_OF_MODELS, *_OF_ALL_NGRAMS, "ngram_min")
#: Where one flag limits the drafts of every drafter, whatever each has of its own.
_LIMIT_OF_ALL = "--draft-max"
#: Least tokens worth a draft, where the help doesn't tell what a build takes by itself: drafts that are shorter are dropped.
_DEFAULT_MIN = {"--spec-ngram-mod-n-min": 48}

#: Flags that an arm's ``extra`` may hold, by all names that builds have for them: how a draft is made and where its model
#: computes. None names a file, a download or a made-up acceptance.
ARM_EXTRA_FLAGS: frozenset[str] = frozenset(
    """
    --spec-draft-sampling --spec-draft-backend-sampling --no-spec-draft-backend-sampling
    --spec-draft-threads-batch --threads-batch-draft --spec-draft-ctx-size --ctx-size-draft
    --spec-draft-poll --poll-draft --spec-draft-poll-batch --poll-batch-draft
    --spec-draft-prio --prio-draft --spec-draft-prio-batch --prio-batch-draft
    --spec-draft-cpu-mask --cpu-mask-draft --spec-draft-cpu-mask-batch --cpu-mask-batch-draft
    --spec-draft-cpu-range --cpu-range-draft --spec-draft-cpu-range-batch --cpu-range-batch-draft
    --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-cpu-strict-batch --cpu-strict-batch-draft
    --spec-draft-override-tensor --override-tensor-draft
    --spec-draft-cpu-moe --cpu-moe-draft --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft
    --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
    --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits
    --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits
    --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m --spec-ngram-map-k4v-min-hits
    """.split()  # noqa: SIM905 - names read better as a table
)
#: flag: the field that says it, so that an arm has one way to say a thing
_SAID_BY = {name: field for field, names in _OF_MODELS.items() for name in names} | dict.fromkeys(DRAFT_MODEL_FLAGS, "draft_model")


def speculation(build: Command, arm: Arm, bindings: Bindings) -> None:
    """Adds what switches the arm's drafters on, and their knobs. Every refusal is told, not the first alone."""
    build.refusals += [error.body() for error in arm_faults(arm)]
    known = [d for d in arm.drafters if d in SPEC_TYPES]
    offered = _switch_on(build, known)
    if known and _has_model(arm):
        if not bindings.draft:
            message = f"arm {arm.name!r}: the draft model {arm.draft_model!r} is not on this host"
            build.refusals.append(UnknownModel(message, arm=arm.name, model=arm.draft_model).body())
        if set(offered) & set(known) - set(_OF_NGRAMS):
            build.need(f"mode {arm.mode}", DRAFT_MODEL_FLAGS, bindings.draft)
    if arm.mode in offered:
        _own_knobs(build, arm)
    for drafter in offered:
        if drafter in arm.also and arm.also_limit is not None:
            _limit_beside(build, drafter, arm.also_limit)
    for field in _OF_ALL_NGRAMS:
        for drafter in offered:
            if (value := getattr(arm, field)) is not None and field in _OF_NGRAMS.get(drafter, {}):
                build.knob(f"{field} of {drafter}", _OF_NGRAMS[drafter][field], value)
    _limit_all(build, arm, offered)
    _extra(build, arm)


def arm_faults(arm: Arm) -> Iterator[SpecError]:
    """What no build of llama-server can make of an arm."""
    if arm.mode == BASELINE_MODE:
        for given in arm.extra:
            words = f"arm {arm.name!r}: llama-server's speculation implies no engine flags, so {given} would make another engine of it"
            yield ArmNotSupported(words, remedy=f"Remove {given}.", arm=arm.name, field=f"extra.{given}")
        return
    unknown = [d for d in arm.drafters if d not in SPEC_TYPES]
    yield from (_no_mode(arm, d) for d in unknown)
    if unknown:
        return
    if arm.draft_model and not _has_model(arm):
        # The engine would load it and not use it, or in older builds draft with it unasked.
        yield _no_field(arm, "draft_model", arm.mode)
    own = _knobs_of(arm.mode)
    for field in ARM_FIELDS:
        if getattr(arm, field) is None:
            continue
        if field in _OF_ALL_NGRAMS:
            if not any(field in _knobs_of(d) for d in arm.drafters):
                yield _no_field(arm, field, " with ".join(arm.drafters))
        elif field not in own:
            yield _no_field(arm, field, arm.mode)
    if arm.also_limit is not None:
        yield from (_no_field(arm, "also_limit", d) for d in arm.also if "draft_limit" not in _knobs_of(d))
    for given, value in arm.extra.items():
        yield from _never_extra(arm, given, value)


def _knobs_of(drafter: str) -> Mapping[str, tuple[str, ...]]:
    return _OF_NGRAMS.get(drafter, _OF_MODELS)


def _has_model(arm: Arm) -> bool:
    """Whether a second model file belongs to the arm. The head of mtp may be in one, and is usually in the target's."""
    return arm.mode in MODES_WITH_DRAFT_MODEL or (arm.mode == "mtp" and bool(arm.draft_model))


def _switch_on(build: Command, drafters: list[str]) -> list[str]:
    """Adds --spec-type, and returns the drafters that this build offers. In the draft-flag dialect the helper model alone
    switches its drafter on."""
    can = build.capabilities
    by_type = [d for d in sorted(drafters, key=_ASKED.index) if d != "draft" or can.dialect != "draft-flag"]
    lacking = [d for d in by_type if SPEC_TYPES[d] not in can.spec_types]
    for d in lacking:
        listed = ", ".join(can.spec_types) or "none"
        build.refuse(f"mode {d} needs {SPEC_TYPE_FLAG} {SPEC_TYPES[d]}, which this build doesn't offer (it offers: {listed})", mode=d)
    types = [SPEC_TYPES[d] for d in by_type if d not in lacking]
    if len(types) > 1 and can.one_spec_type:
        build.refuse(f"{_ONE_TYPE_ONLY}, so {' and '.join(types)} can't stand beside each other", flag=SPEC_TYPE_FLAG)
    elif types:
        build.words += [build.name(SPEC_TYPE_FLAG), ",".join(types)]
    return [d for d in drafters if d not in lacking]


def _own_knobs(build: Command, arm: Arm) -> None:
    known = _knobs_of(arm.mode)
    for field in ARM_FIELDS:
        value = getattr(arm, field)
        if value is not None and field in known and field not in _OF_ALL_NGRAMS:
            build.knob(f"{field} of mode {arm.mode}", known[field], value)
            if field == "draft_limit" and arm.draft_min is None:
                _lower_minimum(build, f"draft_limit of mode {arm.mode}", known, value)


def _limit_beside(build: Command, drafter: str, limit: int) -> None:
    known = _knobs_of(drafter)
    if "draft_limit" in known:
        build.knob(f"also_limit of {drafter}", known["draft_limit"], limit)
        _lower_minimum(build, f"also_limit of {drafter}", known, limit)


def _lower_minimum(build: Command, what: str, known: Mapping[str, tuple[str, ...]], limit: int) -> None:
    """A limit under the minimum that a build takes by itself would never draft."""
    if "draft_min" not in known or not (flag := build.name(*known["draft_min"])):
        return
    default = build.capabilities.defaults.get(flag, str(_DEFAULT_MIN.get(flag, 0)))
    if build.knob_value(flag) is None and default.isdigit() and limit < int(default):
        build.knob(what, known["draft_min"], limit)


def _limit_all(build: Command, arm: Arm, offered: list[str]) -> None:
    """Builds in which one flag limits every draft cut a longer n-gram draft to it, also where its own length is set."""
    flag = build.name(_LIMIT_OF_ALL)
    sized = [d for d in offered if _LIMIT_OF_ALL not in _knobs_of(d).get("draft_limit", (_LIMIT_OF_ALL,))]
    limits = [limit for d in sized if (limit := arm.draft_limit if d == arm.mode else arm.also_limit) is not None]
    if not flag or not limits:
        return
    held = build.knob_value(flag)
    if held is None and len(sized) == len(offered):
        build.knob(f"draft_limit of mode {arm.mode}", (flag,), max(limits))
    elif held is None or int(held) < max(limits):
        words = f"drafts of {max(limits)} tokens need a limit of all drafters that is no shorter, and in this build that is the flag {flag}"
        build.refuse(f"{words}: set draft_limit to {max(limits)} or more, or also_limit to less", flag=flag)


def _extra(build: Command, arm: Arm) -> None:
    for given, value in arm.extra.items():
        flag = build.name(given)
        if list(_never_extra(arm, given, value)):
            continue  # told among the arm's faults
        if not flag:
            words = f"this build has no flag {given}{nearest_flag(given, build.capabilities.flags)}"
            build.refusals.append(_extra_refused(arm, given)(words, "Correct the flag, or choose a build that has it."))
        elif flag in build.words:
            words = f"{given} is there twice in the command"
            build.refusals.append(_extra_refused(arm, given)(words, "Say it once: by its field, or here."))
        else:
            build.add_given(given, flag, value, _extra_refused(arm, given))


def _never_extra(arm: Arm, given: str, value: Any) -> Iterator[FlagNotAllowed]:
    own = {name: field for field in ("draft_limit", "draft_min") for name in _knobs_of(arm.mode).get(field, ())}
    if field := _SAID_BY.get(given, own.get(given)):
        yield _flag_error(arm, given, f"{given} is set by the arm's {field}", f"Set {field} in place of the flag.")
    elif given not in ARM_EXTRA_FLAGS:
        words = f"{given} is none of the flags of speculation that an arm may set{nearest_flag(given, ARM_EXTRA_FLAGS)}"
        yield _flag_error(arm, given, words, "Remove it, or set it for all arms in engine.extra, if it is a setting of the engine.")
    elif idle := _idle(arm, given):
        yield _flag_error(arm, given, f"{given} says something of {idle}, which this arm doesn't have", "Remove it.")
    else:
        yield from (_flag_error(arm, given, f"{given}: {words}", remedy, value=one) for one, words, remedy in value_faults(value))


def _idle(arm: Arm, given: str) -> str:
    """Of which drafter a flag speaks, if that is none of the arm's: the engine would take it and heed it not."""
    of = next((d for d in sorted(_OF_NGRAMS, key=len, reverse=True) if given.startswith(f"--spec-{d}-")), "")
    if of:
        return "" if of in arm.drafters else of
    return "a helper model" if all(d in _OF_NGRAMS for d in arm.drafters) else ""


def _flag_error(arm: Arm, given: str, words: str, remedy: str, **details: Any) -> FlagNotAllowed:
    return FlagNotAllowed(f"arm {arm.name!r}: {words}", remedy=remedy, arm=arm.name, field=f"extra.{given}", **details)


def _extra_refused(arm: Arm, given: str) -> Callable[..., ErrorBody]:
    def refused(words: str, remedy: str, **details: Any) -> ErrorBody:
        return _flag_error(arm, given, words, remedy, **details).body()

    return refused


def _no_field(arm: Arm, field: str, drafter: str) -> ArmNotSupported:
    message = f"arm {arm.name!r}: mode {drafter} of llama-server has no {field}"
    return ArmNotSupported(message, remedy=f"Remove {field}, or choose another mode.", arm=arm.name, field=field)


def _no_mode(arm: Arm, drafter: str) -> ArmNotSupported:
    message = f"arm {arm.name!r}: llama-server has no mode {drafter!r}; its modes are {', '.join(SPEC_TYPES)}"
    return ArmNotSupported(message, arm=arm.name, mode=drafter)
