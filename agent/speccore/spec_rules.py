"""What in an experiment is wrong only beside something else: baselines, names that are there twice, room for a point, flags.

The rules read plain data with defaults filled in, where any value may still be of a wrong type: each rule says nothing of a
value that it can't read, since that is told by itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .modes import BASELINE_MODE, MODES, MODES_BESIDE, MODES_WITH_DRAFT_MODEL
from .spec_words import FLAG_PATTERN, PLAIN_PATTERN, SETTING_PATTERN, given_in_words, nearest, shown

_SPECULATION_FIELDS = (
    "draft_model",
    "draft_limit",
    "draft_min",
    "p_min",
    "ngram_size",
    "draft_gpu_layers",
    "draft_device",
    "draft_kv_type_k",
    "draft_kv_type_v",
    "draft_threads",
    "p_split",
    "ngram_min",
    "ngram_hits",
    "also",
    "also_limit",
)

#: Of a point: keys that are rarely set and belong to its identity.
_RARE = ("rate_per_s", "warm", "thinking")
#: Examples where a name may be a flag or, for other engines, a key.
_SUCH_AS = "--spec-draft-poll, and no key such as draft_sample_method"

Fault = tuple[str, str]  # dotted field, words
#: Flags of the engine with their values, all together: more than anybody sets, and each is compared with all that the engine knows.
MAX_FLAG_VALUES = 200


def yaml_word(value: Any) -> Any:
    """YAML reads a bare ``off`` or ``on`` as a truth value; where a word is due, the word was meant."""
    return {False: "off", True: "on"}[value] if isinstance(value, bool) else value


def faults_between(data: Mapping[Any, Any]) -> Iterator[Fault]:
    """Everything in an experiment's data that is wrong only beside something else."""
    yield from whole_faults(data)
    for i, arm in enumerate(_mappings(data.get("arms"))):
        yield from ((f"arms.{i}.{key}", words) for key, words in (*arm_faults(arm), *idle_model(arm)))
        if "extra" in arm:
            yield from ((f"arms.{i}.extra{key and f'.{key}'}", words) for key, words in extra_faults(arm["extra"], SETTING_PATTERN))
    engine = data.get("engine")
    if isinstance(engine, dict) and "extra" in engine:
        yield from ((f"engine.extra{key and f'.{key}'}", words) for key, words in extra_faults(engine["extra"]))


def whole_faults(data: Mapping[Any, Any]) -> Iterator[Fault]:
    """Baselines, names and keys that are there twice, points that the engine's settings leave no room for."""
    arms, points = _mappings(data.get("arms")), _mappings(data.get("points"))
    modes = [yaml_word(a.get("mode")) for a in arms]
    plain = [yaml_word(a.get("name")) for a, mode in zip(arms, modes) if mode == BASELINE_MODE and a.get("control") in (None, False)]
    if len(plain) > 1:
        told = ", ".join(shown(n).strip("'") for n in plain)
        yield "arms", f"{len(plain)} baselines ({told}): keep one arm with mode off, mark others control: true"
    elif not plain and len(arms) > 1 and all(isinstance(m, str) and m in MODES for m in modes):
        yield "arms", "no baseline: add one arm with mode off"
    yield from (
        (f"arms.{i}.name", f"arm {shown(name)} is there twice: give it another name")
        for i, name in _twice([yaml_word(a.get("name")) for a in arms])
    )
    yield from (
        (f"points.{i}.workload", f"point {key!r} is there twice: change its workload, temperature or concurrency")
        for i, key in _twice([_key_of(p) for p in points])
    )
    for i, point in enumerate(points):
        rate, concurrency = _number(point, "rate_per_s"), _number(point, "concurrency")
        if rate is not None and concurrency is not None and concurrency > 1:
            words = f"requests come by the clock, {rate:g} a second, so none are held at {concurrency:g} at once: remove it, or set concurrency to 1"
            yield f"points.{i}.rate_per_s", words
    yield from _too_little_room(points, data.get("engine"))


def _too_little_room(points: list[Mapping[Any, Any]], engine: Any) -> Iterator[Fault]:
    given = engine if isinstance(engine, dict) else {}
    slots, context = (_number(given, key) for key in ("slots", "context"))
    for i, point in enumerate(points):
        concurrency, occupied, tokens = (_number(point, key) for key in ("concurrency", "occupied_context", "max_tokens"))
        if concurrency is not None and slots is not None and concurrency > slots:
            yield f"points.{i}.concurrency", f"{concurrency:g} requests at once need as many slots; engine.slots is {slots:g}"
        spare = 1 if occupied else 0  # an engine calls its context full when the last token is reached, and cuts the answer there
        if occupied is not None and tokens is not None and context is not None and occupied + tokens + spare > context:
            yield f"points.{i}.max_tokens", f"needs a context of more than {occupied + tokens:g} tokens; engine.context is {context:g}"


def arm_faults(arm: Mapping[Any, Any]) -> Iterator[Fault]:
    """What in one arm does not go with its mode."""
    mode = yaml_word(arm.get("mode"))
    if mode == BASELINE_MODE:
        for key in _SPECULATION_FIELDS:
            if arm.get(key) not in (None, []):
                yield key, f"an arm with mode off can't have {key}: remove it, or choose another mode"
    elif arm.get("control") is True:
        yield "control", "only an arm with mode off can be a control: remove it, or choose mode off"
    if mode == BASELINE_MODE and arm.get("extra") and arm.get("control") is not True:
        yield "extra", "the baseline runs as the engine does without speculation: set flags for all arms in engine.extra"
    yield from _beside(mode, arm)
    if isinstance(mode, str) and mode in MODES_WITH_DRAFT_MODEL and not arm.get("draft_model"):
        yield "draft_model", f"mode {mode} needs a draft_model: name a model"
    low, high = _number(arm, "draft_min"), _number(arm, "draft_limit")
    if low is not None and high is not None and low > high:
        yield "draft_min", f"draft_min {low:g} is over draft_limit {high:g}"


def _beside(mode: Any, arm: Mapping[Any, Any]) -> Iterator[Fault]:
    """What stands beside a drafter."""
    also = arm.get("also")
    beside = also if isinstance(also, list) else []
    known = [d for d in beside if isinstance(d, str)]
    for d in known:
        if d not in MODES_BESIDE:
            yield "also", f"{shown(d)} can't stand beside another drafter{nearest(d[:80], MODES_BESIDE)}; known: {', '.join(MODES_BESIDE)}"
        elif d == mode or known.count(d) > 1:
            yield "also", f"{d} is there twice: remove one"
            return
    if arm.get("also_limit") is not None and not beside:
        yield "also_limit", "limits the drafters of also, and there are none: remove it, or name one there"
    low, high = _number(arm, "ngram_min"), _number(arm, "ngram_size")
    if low is not None and high is not None and low > high:
        yield "ngram_min", f"ngram_min {low:g} is over ngram_size {high:g}"


def idle_model(arm: Mapping[Any, Any]) -> Iterator[Fault]:
    """A helper model that the mode has no use for. Only who submits is told: what is stored stays readable."""
    mode = arm.get("mode")
    if isinstance(mode, str) and MODES.get(mode) == "ngram" and arm.get("draft_model") is not None:
        # The engine would load it beside the target, and its memory would count as the n-gram's.
        yield "draft_model", f"mode {mode} has no use for a draft_model: remove it, or choose mode draft"


def extra_faults(extra: Any, names: str = FLAG_PATTERN) -> Iterator[Fault]:
    """What no engine's command line could take, by flag. ``names``: what a flag must look like."""
    if not isinstance(extra, dict):
        yield "", f"should be a mapping of flags, not {given_in_words(extra)}"
        return
    n = sum(len(given) if isinstance(given, list) else 1 for given in extra.values())
    if n > MAX_FLAG_VALUES or len(extra) > MAX_FLAG_VALUES:
        yield "", f"holds {max(n, len(extra)):,} flags and values; at most {MAX_FLAG_VALUES} are possible"
        return
    for flag, given in extra.items():
        values = given if isinstance(given, list) else [given]
        if not isinstance(flag, str) or not re.fullmatch(names, flag):
            yield (
                str(flag)[:80].encode("utf-8", "replace").decode(),
                f"{shown(flag)} is no long flag such as {'--override-tensor' if names == FLAG_PATTERN else _SUCH_AS}",
            )
        elif not values:
            yield flag, "has an empty list, which would leave it out: give a value, or remove it"
        elif words := next((w for v in values if (w := _no_value(v, in_list=values is given))), ""):
            yield flag, words


def _no_value(value: Any, *, in_list: bool) -> str:
    """Why a value can't stand after a flag; empty if it can."""
    if not isinstance(value, str | int | float) or (in_list and isinstance(value, bool)):
        return f"takes a text, a number, true or false, or a list of texts and numbers, not {given_in_words(value)}"
    if isinstance(value, str) and "\0" in value:
        return "holds a NUL character, which no command can"
    if isinstance(value, str) and not value.isascii() and value != value.encode("utf-8", "replace").decode():
        return "holds half of a character (a lone surrogate): remove it"
    if isinstance(value, str) and not re.match(PLAIN_PATTERN, value):
        return "holds a control character: remove it"
    if value == "":
        return "has an empty text: give a value, or remove it"
    if isinstance(value, float) and not math.isfinite(value):
        return f"is {value}: a number must be finite"
    return ""


def _mappings(value: Any) -> list[Mapping[Any, Any]]:
    """The entries of a list, an empty mapping for each that is none."""
    return [entry if isinstance(entry, dict) else {} for entry in value] if isinstance(value, list | tuple) else []


def _number(data: Mapping[Any, Any], key: str) -> float | None:
    """A number as pydantic would read it, None if it is none."""
    value = data.get(key)
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        return int(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15 else None


def _key_of(point: Mapping[Any, Any]) -> str | None:
    sampling = point.get("sampling", {})
    numbers = [_number(point, "concurrency"), _number(point, "occupied_context")]
    temperature = _number(sampling, "temperature") if isinstance(sampling, dict) else None
    if not isinstance(point.get("workload"), str) or temperature is None or None in numbers:
        return None
    usual = f"{point['workload'][:120]}/c{numbers[0]:g}/ctx{numbers[1]:g}/t{temperature:g}"
    rate = _number(point, "rate_per_s")
    rare = {name: point.get(name) for name in _RARE} | ({} if rate is None else {"rate_per_s": f"{rate:g}"})
    return "/".join([usual, *(f"{name} {shown(v)}" for name, v in rare.items() if v not in (None, "") and (name, v) != ("warm", False))])


def _twice(names: list[Any]) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for i, name in enumerate(names):
        if not isinstance(name, str):
            continue
        if name in seen:
            yield i, name
        seen.add(name)
