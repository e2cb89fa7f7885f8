"""Launch commands side by side, with what an arm adds to the baseline's and what it lacks."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .spec import ExperimentSpec

#: What stands in a command for what a host decides; JSON in braces is none.
_BINDING = re.compile(r"\{[a-z]+\}")


@dataclass(frozen=True)
class Part:
    """A flag with its values, quoted where a shell needs it."""

    text: str
    added: bool


@dataclass(frozen=True)
class Command:
    arm: str
    mode: str
    parts: list[Part]
    missing: list[str]  # what the baseline has and this arm lacks


def command_differences(spec: ExperimentSpec, commands: Mapping[str, Sequence[str]]) -> list[Command]:
    """Each arm's launch command, flag by flag, with what it adds to the baseline's marked."""
    base = Counter(_units(commands.get(spec.baseline.name, [])))
    result = []
    for arm in spec.arms:
        if arm.name not in commands:
            continue
        units = _units(commands[arm.name])
        left = base.copy()
        parts = []
        for unit in units:
            known = left[unit] > 0
            left[unit] -= 1
            parts.append(Part(unit, added=not known and not arm.is_baseline))
        result.append(Command(arm.name, arm.mode, parts, [] if arm.is_baseline else sorted((base - Counter(units)).elements())))
    return result


def units(argv: Iterable[str]) -> list[list[str]]:
    """A command cut before each flag, so that a flag stays with its values."""
    found: list[list[str]] = []
    for i, word in enumerate(argv):
        if i < 2 or word.startswith("-") or not found:
            found.append([word])
        else:
            found[-1].append(word)
    return found


def _units(argv: Iterable[str]) -> list[str]:
    """The same, quoted for a shell; what stands for a binding is not."""
    return [" ".join(w if _BINDING.fullmatch(w) else shlex.quote(w) for w in unit) for unit in units(argv)]
