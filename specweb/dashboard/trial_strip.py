"""The order of a job's trials as a picture: a row for each block, widths by duration, with what became of each. No database access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import median
from uuid import UUID

from django.urls import reverse

from specweb.experiments.models import Job
from specweb.results.models import Attempt, Trial
from specweb.results.page_queries import Climate

from . import formats
from .spared import spared
from .tries import Fate, fate_of

#: A gap between two trials is drawn at most so wide, as a share of a usual trial; longer ones say how long they were.
_WIDEST_GAP = 0.25
#: A trial is never narrower than this share of a row, so that it can be seen and pressed.
_NARROWEST = 0.018
#: Shares of a wide screen's row that an arm's name takes, and what stands beside it; trials are widened so that names can be
#: read, where all of a row's together take no more of it than the last.
_LETTER, _BESIDE, _MOST_FOR_NAMES = 0.0076, 0.06, 0.9
#: Names up to so many letters share a style that knows how wide they are.
_FITS = (4, 6, 8, 10, 12, 14, 16, 20, 24, 32, 40)


@dataclass(frozen=True)
class ArmKey:
    """An arm by the letter that stands for it in a box that is too narrow for its name."""

    key: str
    name: str
    mode: str


@dataclass(frozen=True)
class TrialBox:
    """One planned server start, with what became of it; ``x`` and ``width`` are percent of its row."""

    number: int  # from 1, in order of running
    arm: str
    key: str  # the arm's letter
    fits: int  # letters that a box must hold to show the name
    mode: str
    state: str  # accepted, failed, cancelled, void, late, running, planned, spared
    duration: str
    title: str
    href: str
    n_attempts: int
    climate: str  # clock and temperature while it was probed, where they were sampled
    pause: str  # how long nothing ran before it, if that was long
    x: float = 0.0
    width: float = 0.0


@dataclass(frozen=True)
class Uncounted:
    """Attempts of a block that share a fate and its reason: they are kept and don't count."""

    word: str
    why: str
    tries: list[tuple[str, str]]  # what it is called, and its address


@dataclass(frozen=True)
class Block:
    number: int
    run: int  # the one that counts, from 1
    trials: list[TrialBox]
    uncounted: list[Uncounted]
    duration: str


@dataclass(frozen=True)
class _Placed:
    """A trial in seconds of its row."""

    box: TrialBox
    gap_s: float
    length_s: float


def arm_keys(trials: Sequence[Trial]) -> list[ArmKey]:
    """The arms of a job in their order, with letters: A to Z, then AA and on."""
    arms = {t.arm.name: t.arm for t in trials}
    ordered = sorted(arms.values(), key=lambda a: a.position)
    return [ArmKey(_letters(i), arm.name, arm.mode) for i, arm in enumerate(ordered)]


def _letters(i: int) -> str:
    return (_letters(i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)


def trial_blocks(job: Job, trials: Sequence[Trial], running: str, climates: Mapping[UUID, Climate]) -> list[Block]:
    """Trials in order of running, by block. Attempts come with their leases; ``running`` is the plan's id of the trial at work.

    ``climates`` has clocks and temperatures by the attempt's id.
    """
    lengths = {t.plan_id: s for t in trials if (a := _shown(t)) and (s := formats.seconds_between(a.started_at, a.ended_at))}
    usual = median(lengths.values()) if lengths else 1.0
    by_arm: dict[str, list[float]] = {}
    for t in trials:
        if t.plan_id in lengths:
            by_arm.setdefault(t.arm.name, []).append(lengths[t.plan_id])
    keys = {k.name: k.key for k in arm_keys(trials)}
    not_needed = spared(job, trials)
    rows = []
    for number, group in groupby(trials, key=lambda t: t.block):
        here = list(group)
        placed, before = [], None
        for t in here:
            shown = _shown(t)
            gap = max(0.0, (shown.started_at - before.ended_at).total_seconds()) if shown and before else 0.0
            length = lengths.get(t.plan_id) or median(by_arm.get(t.arm.name, [usual]))
            box = _box(t, keys[t.arm.name], shown, running, climates, gap if gap > _WIDEST_GAP * usual and gap > 30 else 0.0)
            if t.plan_id in not_needed and box.state == "planned":
                box = _not_needed(box, not_needed[t.plan_id])
            placed.append(_Placed(box, min(gap, _WIDEST_GAP * usual), length))
            before = shown or before
        rows.append((number, here, placed))
    longest = max((_row_length(placed) for _, _, placed in rows), default=1.0)
    return [Block(n, job.run_of(n), _scaled(placed, longest), _uncounted(here), _spent(here)) for n, here, placed in rows]


def _shown(trial: Trial) -> Attempt | None:
    attempts = list(trial.attempts.all())
    return next((a for a in attempts if a.accepted), attempts[-1] if attempts else None)


def _row_length(placed: Sequence[_Placed]) -> float:
    return sum(p.gap_s + p.length_s for p in placed)


def _scaled(placed: Sequence[_Placed], longest_s: float) -> list[TrialBox]:
    """Percent of the row's width; short trials are widened until their arms' names fit, or at least until they can be seen."""
    needs = [p.box.fits * _LETTER + _BESIDE for p in placed]
    names_fit = sum(needs) <= _MOST_FOR_NAMES
    widths = [max(p.length_s, (need if names_fit else _NARROWEST) * longest_s) for p, need in zip(placed, needs, strict=True)]
    scale = 100 / max(longest_s, sum(widths) + sum(p.gap_s for p in placed))
    boxes, at = [], 0.0
    for p, width in zip(placed, widths, strict=True):
        at += p.gap_s * scale
        boxes.append(replace(p.box, x=round(at, 3), width=round(width * scale, 3)))
        at += width * scale
    return boxes


def _box(trial: Trial, key: str, shown: Attempt | None, running: str, climates: Mapping[UUID, Climate], pause_s: float) -> TrialBox:
    attempts = list(trial.attempts.all())
    fate = fate_of(shown, attempts) if shown else Fate("planned")
    state = fate.word
    if running == trial.plan_id and state != "accepted":
        state = "running"
    seconds = formats.seconds_between(shown.started_at, shown.ended_at) if shown else None
    climate = climate_words(climates.get(shown.id)) if shown else ""
    told = [f"trial {trial.index + 1}: {trial.arm.name}, block {trial.block}, place {trial.position} — {state}"]
    told += [formats.duration(seconds)] if seconds else []
    told += [climate] if climate else []
    return TrialBox(
        number=trial.index + 1,
        arm=trial.arm.name,
        key=key,
        fits=next((n for n in _FITS if n >= len(trial.arm.name)), _FITS[-1]),
        mode=trial.arm.mode,
        state=state,
        duration=formats.duration(seconds) if seconds else "",
        title=", ".join(told) + (f": {fate.why}" if fate.why else ""),
        href=reverse("attempt", args=[shown.id]) if shown else "",
        n_attempts=len(attempts),
        climate=climate,
        pause=formats.duration(pause_s) if pause_s else "",
    )


def _not_needed(box: TrialBox, after_block: int) -> TrialBox:
    title = box.title.removesuffix("planned") + f"not needed: decided after block {after_block}"
    return replace(box, state="spared", title=title)


def climate_words(climate: Climate | None) -> str:
    """``1,380–1,410 MHz, 61 °C``; empty where nothing was sampled."""
    if climate is None:
        return ""
    words = []
    if climate.clock_mhz:
        low, high = climate.clock_mhz
        words.append(f"{low:,.0f} MHz" if round(low) == round(high) else f"{low:,.0f}–{high:,.0f} MHz")
    if climate.temperature_c is not None:
        words.append(f"{climate.temperature_c:.0f} °C")
    return ", ".join(words)


def _spent(trials: Sequence[Trial]) -> str:
    """From the first start to the last end of a block's shown attempts, if all have one."""
    shown = [_shown(t) for t in trials]
    if not all(shown):
        return ""
    return formats.duration((max(a.ended_at for a in shown if a) - min(a.started_at for a in shown if a)).total_seconds())


def _uncounted(trials: Sequence[Trial]) -> list[Uncounted]:
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for trial in trials:
        attempts = list(trial.attempts.all())
        for attempt in attempts:
            fate = fate_of(attempt, attempts)
            if fate.word != "accepted":
                name = f"{trial.index + 1} {trial.arm.name}" + (f", attempt {attempt.n}" if len(attempts) > 1 else "")
                found.setdefault((fate.word, fate.why), []).append((name, reverse("attempt", args=[attempt.id])))
    return [Uncounted(word, why, tries) for (word, why), tries in found.items()]
