"""The preview as its template shows it: the order by blocks, each host's answer, how long it takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from speccore.estimate import Minutes
from speccore.spec import SpecProblem

from specweb.experiments.services.preview import HostPreview, Preview, TrialLine

from .form_expected import ExpectedShown, expected_shown
from .form_page import Fault

#: Blocks that are shown at once; the others follow the same rule and can be opened.
N_BLOCKS_SHOWN = 5
#: Trials after which further blocks are only counted: nobody reads thousands, and each time somebody types they are laid out anew.
MOST_TRIALS = 600


@dataclass(frozen=True)
class BlockLine:
    number: int
    trials: list[TrialLine]


@dataclass(frozen=True)
class HostLine:
    host: HostPreview
    minutes: str


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
        hosts=[HostLine(h, minutes_in_words(h.minutes)) for h in hosts],
        n_chosen=sum(h.chosen for h in hosts),
        warnings=beside(found.warnings),
        minutes=minutes_in_words(found.minutes),
        basis=found.minutes.basis if found.minutes else "",
        looks=found.looks,
        expected=expected_shown(hosts, minutes_in_words),
    )


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
