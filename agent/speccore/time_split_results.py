"""Where the time of one side's requests went: the parts that the engine told, and what is left of the whole that the client saw."""

from __future__ import annotations

from typing import Literal

from .inventory import Peer

#: ``prefill``: by the engine's clock, or up to the first token by the client's. ``draft`` and ``verify``: the drafter's and the
#: target's share of decoding; ``decode``: both, where they are not told apart; ``after_first``: all after the first token, where the
#: engine tells no time of decoding. ``rest``: what is left of the whole.
PartName = Literal["prefill", "draft", "verify", "decode", "after_first", "rest"]


class TimePart(Peer):
    name: PartName
    ms: float


class TimeSplit(Peer):
    """Sums over the requests of one side. The parts add up to ``whole_ms``; they stand in the order in which time passes."""

    whole_ms: float  # from sending to the last token, by the client's clock
    tokens: float  # of the answers
    n_probes: int
    prefill_by: Literal["engine", "client"]
    parts: list[TimePart]
    not_told: dict[str, str] = {}  # part → why the engine doesn't tell it

    def share(self, part: TimePart) -> float:
        return part.ms / self.whole_ms

    def ms_per_token(self, part: TimePart) -> float:
        return part.ms / self.tokens
