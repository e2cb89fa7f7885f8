"""The preview as its template shows it: the order by blocks, each host's answer, how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from speccore.estimate import Minutes
from speccore.memory_needs import Need, size
from speccore.spec import SpecProblem

from specweb.experiments.services.preview import HostPreview, Preview, TrialLine

from .form_expected import ExpectedShown, expected_shown
from .form_page import Fault

#: Blocks that are shown at once; the others follow the same rule and can be opened.
N_BLOCKS_SHOWN = 5
#: Trials after which further blocks are only counted: nobody reads thousands, and each time somebody types they are laid out anew.
MOST_TRIALS = 600
#: Length of the longest bar of memory.
BAR = 100.0
#: Of what a host has: below it a bar shows nothing.
LEAST_SHARE = 0.02


@dataclass(frozen=True)
class BlockLine:
    number: int
    trials: list[TrialLine]


@dataclass(frozen=True)
class MemoryBar:
    """An arm's estimate against what the host has, drawn to the scale of the largest of them. Lengths out of :data:`BAR`."""

    need: Need
    parts: list[tuple[str, float, float, str]]  # what, x, width, in words
    room: float
    reserve: float  # x where what must stay free begins; ``room`` where nothing must


@dataclass(frozen=True)
class HostLine:
    host: HostPreview
    minutes: str
    memory: list[MemoryBar]

    @property
    def with_bars(self) -> bool:
        return any(bar.parts for bar in self.memory)


@dataclass(frozen=True)
class PreviewShown:
    n_trials: int
    attached: bool
    n_requests: int
    n_untimed: int
    blocks: list[BlockLine]
    more_blocks: list[BlockLine]
    n_blocks_left: int  # neither shown nor to be opened
    hosts: list[HostLine]
    n_chosen: int
    warnings: list[Fault]
    minutes: str
    basis: str
    looks: str
    expected: list[ExpectedShown]


def preview_shown(found: Preview, beside: Callable[[Sequence[SpecProblem]], list[Fault]]) -> PreviewShown:
    """``beside`` finds the field of each warning."""
    blocks = [BlockLine(n, list(trials)) for n, trials in groupby(found.order, key=lambda t: t.block)]
    most = max(N_BLOCKS_SHOWN, MOST_TRIALS * len(blocks) // max(found.n_trials, 1))
    # Where it would run stands first, then where it could.
    hosts = sorted(found.hosts, key=lambda h: (not h.chosen, not h.fits, h.name))
    return PreviewShown(
        n_trials=found.n_trials,
        attached=found.attached,
        n_requests=found.n_requests,
        n_untimed=found.n_untimed,
        blocks=blocks[:N_BLOCKS_SHOWN],
        more_blocks=blocks[N_BLOCKS_SHOWN:most],
        n_blocks_left=len(blocks[most:]),
        hosts=[HostLine(h, minutes_in_words(h.minutes), memory_bars(h.memory)) for h in hosts],
        n_chosen=sum(h.chosen for h in hosts),
        warnings=beside(found.warnings),
        minutes=minutes_in_words(found.minutes),
        basis=found.minutes.basis if found.minutes else "",
        looks=found.looks,
        expected=expected_shown(hosts, minutes_in_words),
    )


def memory_bars(needs: Sequence[Need]) -> list[MemoryBar]:
    """Without parts where even the largest takes next to nothing of what is there: the words say so."""
    room = max((n.room_bytes for n in needs), default=0)
    most = max((n.needs_bytes or 0.0 for n in needs), default=0.0)
    scale = BAR / max(room, most, 1.0)
    drawn = most >= LEAST_SHARE * room
    found = []
    for need in needs:
        parts, x = [], 0.0
        for what, n_bytes in need.parts.items() if drawn else ():
            parts.append((what, round(x, 2), round(n_bytes * scale, 2), f"{what} {size(n_bytes)}"))
            x += n_bytes * scale
        edge = need.room_bytes * scale
        found.append(MemoryBar(need, parts, round(edge, 2), round(edge - need.reserve_bytes * scale, 2)))
    return found


def minutes_in_words(minutes: Minutes | None) -> str:
    """``4–9 min``, ``under a minute``, ``1.5–4 h``: no more digits than a guess has."""
    if minutes is None:
        return ""
    if minutes.high < 1:
        return "under a minute"
    hours = minutes.low >= 90
    low, high = (_short(m / 60 if hours else m) for m in (minutes.low, minutes.high))
    return (low if low == high else f"{low}–{high}") + (" h" if hours else " min")


def _short(x: float) -> str:
    return f"{x:.0f}" if x >= 10 else f"{x:.1f}".removesuffix(".0")
