"""How often blocks that are added until it pays lead to a wrong word: simulated, through the formulas that jobs use.

A part of ``make bench-coverage``. Who is simulated looks at the first answer and then after each further block, up to
:data:`MOST` in all, and stops at the first word that pleases; that is the worst that somebody can do who adds any number at
a time and stops when they like. *Stops at any word*: keep, slower or not worth it. *Until it pays*: stops at keep only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from speccore.extending import WRONG_IN_ALL, FirstLooks, joined_confidence
from speccore.stats import CONFIDENCE, Rows, speedups

from .coverage import MARGIN, TRUTHS, Scenario, is_false, simulate, words

FIRST = (3, 5, 10)
MOST = 40


@dataclass(frozen=True)
class Adding:
    """Shares of experiments, at the true ratio at which they are largest. ``naive``: with a 95 % interval after each block."""

    noise: float
    n_first: int
    wrong_at_any_word: float
    wrong_keeps: float
    naive: float
    misses: float  # of the truth, by any of the intervals that are looked at
    half_width_at_twice: float  # of the interval at twice the first answer's blocks, as a share of the first one's


def adding(noise: float, n_first: int, n: int, rng: np.random.Generator) -> Adding:
    values, differences = simulate(Scenario("", noise), MOST, n, rng)
    steps = range(n_first, MOST + 1)
    levels = [joined_confidence(FirstLooks(n_first), n_first, k) for k in steps]
    found = {t: _stopped(values + math.log(t), differences, steps, levels) for t in TRUTHS}
    plain = {t: _stopped(values + math.log(t), differences, steps, [CONFIDENCE] * len(levels)) for t in TRUTHS}
    first, twice = (speedups(values[:, :k], differences[:, :k], MARGIN, c)[1] for k, c in _widths(n_first))
    missed = np.zeros(n, dtype=bool)
    for k, confidence in zip(steps, levels, strict=True):
        middle, half, _ = speedups(values[:, :k], differences[:, :k], MARGIN, confidence)
        missed |= np.abs(middle) > half
    return Adding(
        noise=noise,
        n_first=n_first,
        wrong_at_any_word=max(float(is_false(w.any_word, t).mean()) for t, w in found.items()),
        wrong_keeps=max(float(w.ever_kept.mean()) for t, w in found.items() if t <= 1 + MARGIN),
        naive=max(float(is_false(w.any_word, t).mean()) for t, w in plain.items()),
        misses=float(missed.mean()),
        half_width_at_twice=float(np.median(twice / first)),
    )


def _widths(n_first: int) -> Sequence[tuple[int, float]]:
    return [(k, joined_confidence(FirstLooks(n_first), n_first, k)) for k in (n_first, 2 * n_first)]


@dataclass(frozen=True)
class _Stopped:
    any_word: np.ndarray  # the first word, as an index into coverage.WORDS
    ever_kept: np.ndarray


def _stopped(values: Rows, differences: Rows, steps: Sequence[int], levels: Sequence[float]) -> _Stopped:
    first, kept = np.zeros(len(values), dtype=int), np.zeros(len(values), dtype=bool)
    for k, confidence in zip(steps, levels, strict=True):
        middle, half, _ = speedups(values[:, :k], differences[:, :k], MARGIN, confidence)
        now = words(middle, half, MARGIN)
        first = np.where(first == 0, now, first)
        kept |= now == 1
    return _Stopped(first, kept)


def rows(n: int, rng: np.random.Generator) -> list[Adding]:
    return [adding(noise, n_first, n, rng) for noise in (0.02, 0.05) for n_first in FIRST]


def broken(row: Adding) -> str:
    """What of the promise the row does not keep, in words."""
    worst = max(row.wrong_at_any_word, row.wrong_keeps, row.misses)
    return f"wrong in over {WRONG_IN_ALL:.0%}" if worst > WRONG_IN_ALL else ""


HEAD = "| noise | first answer of | wrong at any word | wrong keeps | intervals that ever miss | the same at 95 % each time | half-width at twice |"


def line(row: Adding) -> str:
    shares = (row.wrong_at_any_word, row.wrong_keeps, row.misses, row.naive)
    told = " | ".join(f"{100 * share:.1f} %" for share in shares)
    why = broken(row)
    return f"| {row.noise:.1%} | {row.n_first} blocks | {told} | {row.half_width_at_twice:.2f} |" + (f" ← {why}" if why else "")
