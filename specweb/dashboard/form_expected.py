"""How wide the intervals of a plan would be, and the plans that are proposed beside it, as the preview shows them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from speccore.estimate import Minutes
from speccore.measurement import Withheld
from speccore.proposals import Expected, PlanChoice

from specweb.experiments.services.preview import HostPreview


@dataclass(frozen=True)
class ChoiceLine:
    """A plan in a row; ``action`` takes it into the form, empty for the one that stands there."""

    name: str
    words: str
    width: str
    action: str


@dataclass(frozen=True)
class ExpectedShown:
    """``why`` stands where a plan is missing."""

    host: str
    asked: str
    basis: str
    lines: list[ChoiceLine]
    why: list[str]
    plans: list[str]  # heads of the widths by point
    points: list[tuple[str, list[str]]]  # point, and ±% with each plan; none where there is one point


#: What a narrow table calls the plans.
_SHORT = {"as it stands": "now", "in half the time": "half", "in twice the time": "twice"}


def expected_shown(hosts: Sequence[HostPreview], in_words: Callable[[Minutes | None], str]) -> list[ExpectedShown]:
    """Of the hosts that plans were proposed for; ``in_words`` says how long."""
    return [_shown(h.name, h.expected, in_words) for h in hosts if h.expected is not None]


def _shown(host: str, e: Expected, in_words: Callable[[Minutes | None], str]) -> ExpectedShown:
    named: list[tuple[str, PlanChoice | Withheld | None]] = [
        ("as it stands", e.as_typed),
        ("proposed", e.proposal),
        ("in half the time", e.shorter),
        ("in twice the time", e.longer),
    ]
    typed = (e.as_typed.blocks, e.as_typed.probes) if isinstance(e.as_typed, PlanChoice) else None
    lines = [_line(name, p, typed, in_words) for name, p in named if isinstance(p, PlanChoice)]
    why = [f"{name}: {p.withheld}" for name, p in named if isinstance(p, Withheld)]
    choices = [(name, p) for name, p in named if isinstance(p, PlanChoice)]
    keys = list(dict.fromkeys(key for _, p in choices for key in p.percent_at))
    points = (
        [(key, [_width(p.percent_at[key]) if key in p.percent_at else "" for _, p in choices]) for key in keys] if len(keys) > 1 else []
    )
    return ExpectedShown(host, e.asked, e.basis, lines, why, [_SHORT.get(name, name) for name, _ in choices], points)


def _width(percent: float) -> str:
    return f"±{percent:.2g}" if percent < 100 else "over ±100"


def _line(name: str, p: PlanChoice, typed: tuple[int, int | None] | None, in_words: Callable[[Minutes | None], str]) -> ChoiceLine:
    action = f"take-{p.blocks}" + (f"-{p.probes}" if p.probes is not None else "")
    probes = "" if p.probes is None else f" of {p.probes} probe{'' if p.probes == 1 else 's'}"
    return ChoiceLine(
        name=name,
        words=f"{p.blocks} blocks{probes}, {in_words(Minutes(p.low_minutes, p.high_minutes, ''))}",
        width=_width(p.percent),
        action="" if name == "as it stands" or (p.blocks, p.probes) == typed else action,
    )
