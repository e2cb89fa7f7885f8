"""Further flags of vLLM that an experiment may hold: each by its whole name, from a list, with a value of the kind that it takes.

vLLM's own parser takes a flag by the first letters of its name, ``--flag=value``, ``--flag.key``, JSON and files of further flags.
None of that gets through: a flag must stand, letter by letter, in the build's help and in the tables of ``vllm_flags``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from ..errors import FlagNotAllowed
from ..inventory import Capabilities
from ..spec import FlagValue
from .llamacpp_flags import nearest_flag
from .vllm_flags import ALLOWABLE, IMPLIED, NEVER_FLAGS, SET_FLAGS, Takes, is_speculation

#: How a value is told in a refusal; longer ones only begin.
_SHOWN = 60


class _Wrong(NamedTuple):
    words: str
    remedy: str | None
    value: dict[str, str] = {}  # where that is what is wrong


def extra_problems(
    extra: Mapping[str, FlagValue],
    capabilities: Capabilities | None = None,
    allowed: Collection[str] | None = None,
    arm: str = "",
) -> Iterator[FlagNotAllowed]:
    """What stands against each flag. Without ``capabilities`` only what no build can do.

    ``arm``: a control's name, whose flags are those that another arm's speculation implies; ``allowed`` then says nothing.
    """
    where, place = (f"arm {arm!r}: extra", {"arm": arm}) if arm else ("engine.extra", {})
    said: dict[str, str] = {}
    for given, value in extra.items():
        flag = capabilities.flags.get(given, given) if capabilities else given
        if never := _never(given, flag, of_control=bool(arm)):
            wrong: _Wrong | None = _Wrong(f"{given} {never}", "Remove the flag.")
        elif capabilities:
            wrong = _not_here(given, flag, value, capabilities, None if arm else allowed, IMPLIED if arm else ALLOWABLE)
        else:
            wrong = _not_taken(given, (IMPLIED if arm else ALLOWABLE).get(flag), value, [])
        if wrong is None and (first := said.setdefault(f"--{flag.removeprefix('--').removeprefix('no-')}", given)) != given:
            wrong = _Wrong(f"{given} says again what {first} says", "Say it once.")
        if wrong:
            details = {**place, "field": f"extra.{given}"} if arm else {}
            yield FlagNotAllowed(f"{where}: {wrong.words}", remedy=wrong.remedy, flag=given, **wrong.value, **details)


def _not_here(
    given: str, flag: str, value: FlagValue, capabilities: Capabilities, allowed: Collection[str] | None, table: Mapping[str, Takes]
) -> _Wrong | None:
    """Why this build or its host does not take the flag."""
    if given not in capabilities.flags:
        near = nearest_flag(given, capabilities.flags)
        return _Wrong(f"this build has no flag {given}{near}", "Correct the flag, or choose a build that has it.")
    if flag not in table:
        words = f"Possible are {', '.join(table)}." if table is ALLOWABLE else f"A control can carry {', '.join(table)}."
        return _Wrong(f"{given} is none of the flags that SpecWeb lets through to vLLM", words)
    if allowed is not None and not {given, flag} & set(allowed):
        return _Wrong(f"this host doesn't allow {given}", None)
    if wrong := _not_taken(given, table[flag], value, capabilities.choices.get(flag, [])):
        return wrong
    if value is False and _negative(flag) not in capabilities.flags:
        return _Wrong(f"this build has no {_negative(flag)}, which {given}: false would need", "Remove the flag: it is off by default.")
    return None


def _never(given: str, flag: str, *, of_control: bool) -> str:
    """Why no host may let it through; empty if one may."""
    for name in dict.fromkeys((given, flag)):
        if name in SET_FLAGS:
            return SET_FLAGS[name]
        if is_speculation(name):
            return "belongs to speculation: set it in the arm"
        if name in NEVER_FLAGS:
            return NEVER_FLAGS[name]
        if name in IMPLIED and not of_control:
            return "may move with speculation, so the engine settles it in each arm: a control with mode off can carry it in its extra"
    return ""


def _not_taken(given: str, takes: Takes | None, value: FlagValue, choices: Collection[str]) -> _Wrong | None:
    """What the flag takes, in words, if the value is something else. ``choices``: those that the build's help lists."""
    if takes is None:
        return None
    words = [str(v) for v in (value if isinstance(value, list) else [value])]
    listed = [v for v in takes.values if not choices or v in choices] or list(choices)
    if not takes.values and takes.pattern is None:
        fits, due = isinstance(value, bool), "true or false"
    else:
        plain = all(takes.pattern is None or takes.pattern.fullmatch(w) for w in words)
        n_fits = len(words) == 1 or (bool(words) and takes.many)
        fits = plain and n_fits and not isinstance(value, bool) and (not listed or all(w in listed for w in words))
        due = " or ".join(listed) or f"{'plain numbers' if takes.many else 'a plain name or number'}, no path and no JSON"
    shown = str(value)[:_SHOWN]
    return None if fits else _Wrong(f"{given} is {shown!r}; it takes {due}", f"Give {given} {due}.", {"value": shown})


def _negative(flag: str) -> str:
    return f"--no-{flag.removeprefix('--')}"


def extra_words(
    extra: Mapping[str, FlagValue], capabilities: Capabilities, allowed: Collection[str] | None = None, arm: str = ""
) -> tuple[list[str], list[FlagNotAllowed]]:
    """The words of the flags that nothing stands against, one flag with all its values; and what stands against the others."""
    problems = list(extra_problems(extra, capabilities, allowed, arm))
    refused = {p.details["flag"] for p in problems}
    words: list[str] = []
    for given, value in extra.items():
        if given in refused:
            continue
        flag = capabilities.flags[given]
        if isinstance(value, bool):
            words.append(flag if value else _negative(flag))
        else:
            words += [flag, *map(str, value if isinstance(value, list) else [value])]
    return words, problems


def is_allowed(flag: str, flags: Mapping[str, str], allowed: Collection[str]) -> bool:
    """Whether a build of a host takes the flag and its owner allows it, by one of its names."""
    return flag in flags and bool({flag, flags[flag]} & set(allowed))
