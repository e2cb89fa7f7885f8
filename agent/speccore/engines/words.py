"""Words of a command: which of them an engine could take for a flag, or no command can hold."""

from __future__ import annotations

import re

from ..spec import FlagValue

_NEGATIVE_NUMBER = re.compile(r"-[0-9]+(\.[0-9]+)?")


def values_of(value: FlagValue) -> list[str]:
    return [str(v) for v in (value if isinstance(value, list) else [value])]


def value_faults(value: FlagValue) -> list[tuple[str, str, str]]:
    """(value, what is wrong, remedy). After a flag that takes no value, a word that begins with a dash would be a flag of its own,
    past every rule. Also asked of typed fields: what a server sends has passed no rule of people's input."""
    found = []
    for one in values_of(value):
        if one.startswith("-") and not _NEGATIVE_NUMBER.fullmatch(one):
            found.append((one, f"the value {one!r} begins with a dash and would be read as a flag", "Give a value that is no flag."))
        elif "\0" in one or one != one.encode("utf-8", "replace").decode():
            found.append((one, f"the value {one!r} holds a character that no command can", "Remove that character."))
    return found
