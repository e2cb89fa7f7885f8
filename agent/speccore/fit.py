"""The largest context that loads: which one to try next, and what the tries say. Pure; the engine is started elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ConfigDict

from .inventory import Peer

CONTEXT_STEP = 256  # llama-server rounds a slot's context up to it
#: Starts of the engine for one arm at the most.
MOST_STARTS = 8
#: The first guess is the estimate; the next ones lie this share of it above or below, then twice that, …
_FIRST_STRIDE = 1 / 16
#: A number that is none (NaN, infinite) is no finding, and no database takes it.
_FINITE = ConfigDict(allow_inf_nan=False)


class FitTry(Peer):
    """One context, in tokens per slot. ``started``: the engine was; else what is known beforehand decided."""

    model_config = _FINITE

    context: int
    loads: bool
    started: bool = True
    why: str = ""  # it doesn't load
    seconds: float = 0.0
    free_bytes: float | None = None  # left where the model runs, while it answered
    memory_mib: dict[str, float] = {}  # the engine's own, as in LogFacts
    devices: list[str] = []


class ArmFit(Peer):
    """Of one arm. ``top``: tokens that the target was trained for, beyond which nothing is asked. ``withheld``: why nothing is said."""

    arm: str
    mode: str
    top: int
    tries: list[FitTry] = []
    withheld: str = ""

    @property
    def largest(self) -> int | None:
        """None: nothing loaded, or nothing is known."""
        return max((t.context for t in self.tries if t.loads), default=None) if not self.withheld else None

    @property
    def smallest_refused(self) -> int | None:
        return min((t.context for t in self.tries if not t.loads), default=None)

    @property
    def exact(self) -> bool:
        """To one step of the engine's."""
        largest, refused = self.largest, self.smallest_refused
        return largest is not None and (largest == self.top or (refused is not None and refused - largest <= CONTEXT_STEP))

    def words(self) -> str:
        """``loads 96,256 tokens per slot and not 96,512 (out of memory)``."""
        if self.withheld:
            return f"nothing is said: {self.withheld}"
        largest, refused = self.largest, self.smallest_refused
        why = next((f" ({t.why})" for t in self.tries if t.context == refused and t.why), "")
        if largest is None:
            return f"loads not even {refused:,} tokens per slot{why}" if refused is not None else "was not tried"
        if largest == self.top:
            return f"loads up to the model's own {self.top:,} tokens per slot: nothing here limits it"
        said = f"loads {largest:,} tokens per slot"
        return f"{said} and not {refused:,}{why}" if refused is not None else f"{said}; larger ones were not tried"


class Fit(Peer):
    """Of all arms on one host. ``reserve_bytes``: what must stay free for a context to count as loaded; None: not asked."""

    model_config = _FINITE

    reserve_bytes: float | None = None
    place: str = "memory"
    arms: list[ArmFit]


def top_of(trained: int | None, asked: int) -> int:
    """The largest context worth a try: what the model was trained for in whole steps; else what the experiment asks for."""
    limit = trained or asked
    return limit // CONTEXT_STEP * CONTEXT_STEP or limit


def next_context(tries: Sequence[FitTry], top: int, guess: int | None, most_starts: int = MOST_STARTS) -> int | None:
    """What to try next; None when the largest is known to one step, or the starts are used up.

    From the guess (the estimate) it strides until one loads and one doesn't, then halves what lies between.
    """
    loads = max((t.context for t in tries if t.loads), default=0)
    refused = min((t.context for t in tries if not t.loads), default=top + CONTEXT_STEP)
    if sum(t.started for t in tries) >= most_starts or refused - loads <= CONTEXT_STEP or loads >= top:
        return None
    first = min(max(_step(guess if guess is not None else top), min(CONTEXT_STEP, top)), top)
    if not tries:
        return first
    n_same = sum(t.loads == tries[-1].loads for t in tries)
    stride = max(CONTEXT_STEP, _step(int(first * _FIRST_STRIDE))) * 2 ** (n_same - 1)
    if not loads:
        wanted = first - stride
    elif refused > top:
        wanted = first + stride
    else:
        wanted = (loads + refused) // 2
    return min(max(_step(wanted), loads + CONTEXT_STEP, min(CONTEXT_STEP, top)), refused - CONTEXT_STEP, top)


def _step(tokens: int) -> int:
    return tokens // CONTEXT_STEP * CONTEXT_STEP


def together(fit: Fit, baseline: str) -> str:
    """``131,072 tokens per slot without, 96,256 with draft-4``: what the helpers cost, in one line; empty without the baseline's."""
    known = {a.arm: a for a in fit.arms if a.largest is not None}
    if baseline not in known:
        return ""
    others = [f"{a.largest:,} with {a.arm}" for a in fit.arms if a.arm in known and a.arm != baseline]
    return ", ".join([f"{known[baseline].largest:,} tokens per slot without", *others])
