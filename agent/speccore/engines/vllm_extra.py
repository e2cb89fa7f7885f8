"""Further flags of vLLM that an experiment may hold: each by its whole name, from a list, with a value of the kind that it takes.

vLLM's own parser takes a flag by the first letters of its name, ``--flag=value``, ``--flag.key``, JSON and files of further flags.
None of that gets through: a flag must stand, letter by letter, in the build's help and in the tables of ``vllm_flags``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from ..errors import FlagNotAllowed
from ..inventory import Capabilities
from ..spec import FlagValue
from .llamacpp_flags import nearest_flag
from .vllm_flags import ALLOWABLE, IMPLIED, NEVER_FLAGS, SET_FLAGS, Takes, is_speculation

#: How a value is told in a refusal; longer ones only begin.
_SHOWN = 60


def extra_problems(
    extra: Mapping[str, FlagValue],
    capabilities: Capabilities | None = None,
    allowed: Collection[str] | None = None,
    arm: str = "",
) -> Iterator[FlagNotAllowed]:
    """What stands against each flag. Without ``capabilities`` only what no build can do.

    ``arm``: a control's name, whose flags are those that another arm's speculation implies; ``allowed`` then says nothing.
    """
    where = f"arm {arm!r}: extra" if arm else "engine.extra"
    table = IMPLIED if arm else ALLOWABLE
    for given, value in extra.items():
        place = {"arm": arm, "field": f"extra.{given}"} if arm else {}
        flag = capabilities.flags.get(given, given) if capabilities else given
        if why := _never(given, flag, of_control=bool(arm)):
            yield FlagNotAllowed(
                f"{where}: {given} {why}", remedy=f"Remove the flag from {where.rpartition(': ')[2]}.", flag=given, **place
            )
        elif capabilities and given not in capabilities.flags:
            message = f"{where}: this build has no flag {given}{nearest_flag(given, capabilities.flags)}"
            yield FlagNotAllowed(message, remedy="Correct the flag, or choose a build that has it.", flag=given, **place)
        elif flag not in table and capabilities:
            remedy = f"A control can carry {', '.join(IMPLIED)}." if arm else f"Possible are {', '.join(ALLOWABLE)}."
            yield FlagNotAllowed(
                f"{where}: {given} is none of the flags that SpecWeb lets through to vLLM", remedy=remedy, flag=given, **place
            )
        elif capabilities and not arm and allowed is not None and not {given, flag} & set(allowed):
            yield FlagNotAllowed(f"{where}: this host doesn't allow {given}", flag=given, **place)
        elif flag in table and (due := _not_taken(table[flag], value, capabilities.choices.get(flag, []) if capabilities else [])):
            message = f"{where}: {given} is {str(value)[:_SHOWN]!r}; it takes {due}"
            yield FlagNotAllowed(message, remedy=f"Give {given} {due}.", flag=given, value=str(value)[:_SHOWN], **place)
        elif value is False and capabilities and _negative(flag) not in capabilities.flags:
            message = f"{where}: this build has no {_negative(flag)}, which {given}: false would need"
            yield FlagNotAllowed(message, remedy="Remove the flag: it is off by default.", flag=given, **place)


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


def _not_taken(takes: Takes, value: FlagValue, choices: Collection[str]) -> str:
    """What the flag takes, in words, if the value is something else. ``choices``: those that the build's help lists."""
    if not takes.values and takes.pattern is None:
        return "" if isinstance(value, bool) else "true or false"
    words = [str(v) for v in (value if isinstance(value, list) else [value])]
    listed = [v for v in takes.values if not choices or v in choices] or list(choices)
    due = " or ".join(listed) or f"{'plain numbers' if takes.many else 'a plain name or number'}, no path and no JSON"
    if isinstance(value, bool) or not words or (len(words) > 1 and not takes.many):
        return due
    plain = all(takes.pattern is None or takes.pattern.fullmatch(w) for w in words)
    return "" if plain and (not listed or all(w in listed for w in words)) else due


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
