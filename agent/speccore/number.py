"""A number with the place where it was read, or the reason why it can't be had; never zero, None or NaN in its stead."""

from __future__ import annotations

from pydantic import ConfigDict

from .inventory import Peer


class Source(Peer):
    """Where a number was read: a file of the attempt's evidence, and the line in it (from 1) where there is one."""

    file: str
    line: int | None = None
    field: str = ""  # e.g. "timings.draft_n", "llamacpp:spec_decode_num_drafts_total after − before"


class Number(Peer):
    """``also``: what other sources say of the same thing, in their order of trust. Those that differ are a finding, never averaged."""

    model_config = ConfigDict(allow_inf_nan=False)

    value: float
    source: Source
    also: list[Number] = []

    def place(self) -> str:
        """Where the number stands, in words: ``server.log line 187 (draft acceptance)``."""
        line = f" line {self.source.line}" if self.source.line else ""
        return f"{self.source.file}{line} ({self.source.field})"


class Withheld(Peer):
    """A number that is not shown, and why."""

    withheld: str
    reason_code: str = ""


Maybe = Number | Withheld

#: What a measurement stored by an earlier version has in the place of a number that was defined later.
DEFINED_LATER = Withheld(withheld="not defined yet when this was computed; parse the evidence again", reason_code="defined_later")


def value_of(m: Maybe) -> float | None:
    """The plain value, or None if withheld."""
    return m.value if isinstance(m, Number) else None
