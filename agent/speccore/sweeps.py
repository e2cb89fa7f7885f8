"""A sweep makes the arms: an arm whose axis fields hold lists stands for one arm for each combination of their values."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .spec_words import given_in_words, shown

#: Fields of an arm that may hold a list, with what stands before the value in a name that doesn't say where it goes.
AXES: dict[str, str] = {
    "draft_model": "",
    "draft_limit": "",
    "p_min": "p",
    "draft_device": "on-",
    "draft_kv_type_k": "k-",
    "draft_kv_type_v": "v-",
}
MAX_ARMS = 40
_MAX_NAME = 80
_PLACE = re.compile(r"\{([^{}]*)\}")
_ARM_FIELD = re.compile(r"arms\.(\d+)(\..*)?")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ._+/@-]+")


@dataclass(frozen=True)
class Swept:
    """``data`` with each sweep replaced by its arms. ``written`` tells for each arm which one of the person's it came from.

    ``faults`` are (dotted field, words) of sweeps that can't be; in ``data`` a single arm stands for such a one, so that what
    else is wrong can be found.
    """

    data: Any
    written: list[int] = field(default_factory=list)
    faults: list[tuple[str, str]] = field(default_factory=list)

    def field_as_written(self, dotted: str) -> str:
        """A field of ``data`` by the number of the arm that the person wrote."""
        match = _ARM_FIELD.fullmatch(dotted)
        if match is None or int(match[1]) >= len(self.written):
            return dotted
        return f"arms.{self.written[int(match[1])]}{match[2] or ''}"


def swept(data: Any) -> Swept:
    """Replaces the sweeps of an experiment's data, as a person wrote it. Data without any is handed back as it is."""
    arms = data.get("arms") if isinstance(data, dict) else None
    if not isinstance(arms, list) or not any(_lists(arm) or _has_places(arm) for arm in arms):
        return Swept(data)
    faults = [(f"arms.{i}.{key}", words) for i, arm in enumerate(arms) for key, words in _faults(arm)]
    wrong = {name.split(".")[1] for name, _ in faults}
    sizes = [math.prod(map(len, _lists(arm).values())) if str(i) not in wrong else 1 for i, arm in enumerate(arms)]
    if sum(sizes) > MAX_ARMS:
        faults.append(_too_many(arms, sizes))
        return Swept({**data, "arms": [_stand_in(arm) for arm in arms]}, list(range(len(arms))), faults)
    made: list[Any] = []
    written: list[int] = []
    taken = {arm.get("name") for arm in arms if isinstance(arm, dict) and not _lists(arm) and isinstance(arm.get("name"), str)}
    for i, arm in enumerate(arms):
        combined = [_stand_in(arm)] if str(i) in wrong else list(_combined(arm, taken))
        made += combined
        written += [i] * len(combined)
    return Swept({**data, "arms": made}, written, faults)


def _lists(arm: Any) -> dict[str, list[Any]]:
    return {key: arm[key] for key in AXES if isinstance(arm.get(key), list)} if isinstance(arm, dict) else {}


def _has_places(arm: Any) -> bool:
    return isinstance(arm, dict) and isinstance(arm.get("name"), str) and bool(_PLACE.search(arm["name"]))


def _faults(arm: Any) -> Iterator[tuple[str, str]]:
    """(field, words) of what keeps an arm from being a sweep."""
    for key, values in _lists(arm).items():
        if not values:
            yield key, "is an empty list: give the values to try, or leave it out"
        if again := [v for i, v in enumerate(values[:MAX_ARMS]) if v in values[:i]]:
            yield key, f"holds {shown(again[0])} twice: each value makes an arm of its own"
        if odd := [v for v in values if isinstance(v, list | dict)]:
            yield key, f"holds {given_in_words(odd[0])}: a sweep is a list of single values"
    if _has_places(arm):
        for place in _PLACE.findall(arm["name"]):
            if place not in AXES:
                yield "name", f"has a place for {shown(place)}, which is no axis of a sweep: {', '.join(AXES)}"
            elif arm.get(place) is None:
                yield "name", f"has a place for {place}, which this arm doesn't set: set it, or take the place out"


def _stand_in(arm: Any) -> Any:
    """The arm with the first of each list's values, and a name without places."""
    if not isinstance(arm, dict):
        return arm
    firsts = {key: next((v for v in values if not isinstance(v, list | dict)), None) for key, values in _lists(arm).items()}
    return arm | firsts | ({"name": _PLACE.sub("x", arm["name"])} if _has_places(arm) else {})


def _too_many(arms: Sequence[Any], sizes: Sequence[int]) -> tuple[str, str]:
    largest = max(range(len(arms)), key=lambda i: sizes[i])
    lists = _lists(arms[largest])
    product = " × ".join(f"{len(values)} of {key}" for key, values in lists.items())
    words = f"{product} make {sizes[largest]:,} arms, with the others {sum(sizes):,}; an experiment has at most {MAX_ARMS}: shorten a list"
    return f"arms.{largest}.{max(lists, key=lambda key: len(lists[key]))}", words


def _combined(arm: Any, taken: set[Any]) -> Iterator[Any]:
    """One arm for each combination, the last axis fastest. ``taken`` grows by the names that are given."""
    lists = _lists(arm)
    if not lists and not _has_places(arm):
        yield arm
        return
    for values in itertools.product(*lists.values()):
        one = arm | dict(zip(lists, values))
        name = base = _name(arm, one, list(lists))
        n = 2
        while name in taken:
            name, n = f"{base}-{n}", n + 1
        taken.add(name)
        yield {key: name if key == "name" else value for key, value in ({"name": name} | one).items()}


def _name(arm: Mapping[str, Any], one: Mapping[str, Any], axes: list[str]) -> str:
    """The written name with each value in its place, and at its end what has no place."""
    pattern = arm.get("name")
    if not isinstance(pattern, str) or not pattern:
        pattern = str(arm.get("mode") or "arm")
    name = _PLACE.sub(lambda m: _word(one.get(m[1])), pattern)
    placed = set(_PLACE.findall(pattern))
    name += "".join(f"-{AXES[key]}{_word(one.get(key))}" for key in axes if key not in placed)
    return name[:_MAX_NAME]


def _word(value: Any) -> str:
    """A value as part of a name, which holds fewer kinds of characters."""
    if isinstance(value, int) and value.bit_length() > 8 * _MAX_NAME:
        return "x"  # no field takes it, and to write it out would take long
    text = "unset" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return _NOT_IN_NAMES.sub("-", text).strip("-") or "x"
