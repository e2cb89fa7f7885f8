"""A llama-server command as it is put together: each flag by the name that the build lists, and every reason why it can't be had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import ArmNotSupported, ErrorBody, FlagNotAllowed
from ..inventory import Capabilities
from ..spec import FlagValue
from .words import value_faults, values_of


class Command:
    """Words of a command as they are added, each flag by the name that this build lists."""

    def __init__(self, capabilities: Capabilities, arm: str) -> None:
        self.capabilities = capabilities
        self.arm = arm
        self.words: list[str] = []
        self.refusals: list[ErrorBody] = []
        self._knobs: dict[str, tuple[str, str]] = {}  # flag: value, and what asked for it

    def name(self, *names: str) -> str:
        """The first of the names that the build knows, as its long name; empty if it knows none."""
        return next((self.capabilities.flags[n] for n in names if n in self.capabilities.flags), "")

    def need(self, what: str, names: tuple[str, ...], *values: object) -> None:
        """Adds a flag that the command can't do without; refuses if the build lacks it."""
        if flag := self.name(*names):
            texts = [str(v) for v in values]
            for _, words, remedy in value_faults(list(texts)):
                self.refuse(f"{what}: {words}", remedy=remedy, flag=flag)
            self.words += [flag, *texts]
        else:
            removed = " (this build has removed it)" if names[-1] in self.capabilities.removed_flags else ""
            self.refuse(f"{what} needs the flag {' or '.join(names)}{removed}, which this build doesn't have", flag=names[0])

    def want(self, name: str, *values: object) -> None:
        """Adds a flag that only helps; builds without it are the same without it."""
        if flag := self.name(name):
            self.words += [flag, *map(str, values)]

    def knob(self, what: str, names: tuple[str, ...], value: int | float | str) -> None:
        """Adds a flag once: in some builds two knobs are one flag, which can't have two values."""
        text, flag = f"{value:g}" if isinstance(value, float) else str(value), self.name(*names)
        if flag not in self._knobs:
            self.need(what, names, text)
            if flag:
                self._knobs[flag] = text, what
        elif self._knobs[flag][0] != text:
            earlier, asked = self._knobs[flag]
            self.refuse(f"{what} is {text} and {asked} is {earlier}, and in this build both are the flag {flag}: give one value", flag=flag)

    def knob_value(self, flag: str) -> str | None:
        """What a flag was given by :meth:`knob`."""
        return self._knobs[flag][0] if flag in self._knobs else None

    def refuse(self, message: str, remedy: str | None = None, **details: Any) -> None:
        self.refusals.append(ArmNotSupported(f"arm {self.arm!r}: {message}", remedy=remedy, arm=self.arm, **details).body())

    def add_given(self, given: str, flag: str, value: FlagValue, error: Callable[..., ErrorBody]) -> None:
        """Adds a flag that a person named, ``flag`` being its long name here. ``error(words, remedy, **details)`` makes a refusal."""
        switches = self.capabilities.switches
        if (opposite := _opposite(flag)) in self.words:
            self.refusals.append(error(f"{given} says the opposite of {opposite}", "Say one of them."))
        elif isinstance(value, bool):
            if not value:
                self._add_negative(given, flag, error)
            elif switches and flag not in switches:
                self.refusals.append(error(f"{given} takes a value in this build", "Give the value in place of true."))
            else:
                self.words.append(flag)
        elif refused := [error(f"{given}: {words}", remedy, value=one) for one, words, remedy in value_faults(value)]:
            self.refusals += refused
        elif flag in switches:
            self.refusals.append(error(f"{given} takes no value in this build", "Give true in place of a value."))
        else:
            self.words += [word for one in values_of(value) for word in (flag, one)]

    def _add_negative(self, given: str, flag: str, error: Callable[..., ErrorBody]) -> None:
        negative = f"--no-{flag.removeprefix('--')}"
        if known := self.name(negative):
            self.words.append(known)
        else:
            words = f"{given}: false needs the flag {negative}, which this build doesn't have"
            self.refusals.append(error(words, f"Remove {given}: without it the engine does as it does by itself."))


def _opposite(flag: str) -> str:
    return f"--{flag.removeprefix('--no-')}" if flag.startswith("--no-") else f"--no-{flag.removeprefix('--')}"


def engine_flag_refused(flag: str) -> Callable[..., ErrorBody]:
    """Makes refusals of a flag that stands in ``engine.extra``."""

    def refused(words: str, remedy: str, **details: Any) -> ErrorBody:
        return FlagNotAllowed(f"engine.extra: {words}", remedy=remedy, flag=flag, **details).body()

    return refused
