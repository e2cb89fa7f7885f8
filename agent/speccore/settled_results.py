"""What a comparison stores of the settings that came with speculation."""

from __future__ import annotations

from .inventory import Peer


class SettledSide(Peer):
    """A setting as one arm's engine settled it, with the attempt and the line of its log that tell it."""

    value: str | float
    attempt: str
    line: int | None = None


class CameWith(Peer):
    """A setting that the engine settled by itself, otherwise with the arm's speculation than without. None: its log doesn't tell."""

    name: str
    baseline: SettledSide | None
    arm: SettledSide | None
