"""High percentiles with intervals: how slow the slow requests are, with requests of one start taken as the kin they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq
from scipy.special import betainc

from .measurement import Withheld
from .stats import CONFIDENCE, t_quantile

#: Probes that a percentile needs. With fewer the interval's upper end would be beyond the largest value.
LEAST_PROBES = {0.95: 100, 0.99: 500}
#: Starts of the engine: from one alone nothing is known of how starts differ.
LEAST_TRIALS = 2
_HAIR = 1e-9  # what rounding may add to a rank


@dataclass(frozen=True)
class Tail:
    """A percentile with its 95 % interval. ``effective`` probes: so many independent ones would tell as much."""

    quantile: float
    estimate: float
    low: float
    high: float | None  # None: beyond the largest value; then ``high_withheld`` says why
    n_probes: int
    n_trials: int
    effective: float
    high_withheld: str = ""


def tail(trials: Sequence[Sequence[float]], quantile: float) -> Tail | Withheld:
    """Of the values of all probes, grouped by trial (start). Nearest rank, as other percentiles here.

    The interval is Woodruff's (1952): the ranks that the percentile may have, by the binomial distribution with the
    effective number of probes (Korn & Graubard 1998), which is smaller where the probes of a start resemble each other.
    """
    used = [np.asarray(t, dtype=float) for t in trials if len(t)]
    n, name = sum(len(t) for t in used), f"p{100 * quantile:g}"
    if quantile not in LEAST_PROBES:
        raise ValueError(f"{name} is not offered; known: {', '.join(f'p{100 * q:g}' for q in LEAST_PROBES)}")
    if n < LEAST_PROBES[quantile]:
        return Withheld(withheld=f"{name} needs {LEAST_PROBES[quantile]} probes, has {n}", reason_code="too_few_probes")
    if len(used) < LEAST_TRIALS:
        return Withheld(withheld=f"{name} needs {LEAST_TRIALS} starts, has {len(used)}", reason_code="too_few_trials")
    ordered = np.sort(np.concatenate(used))
    estimate = ordered[math.ceil(quantile * n) - 1]
    effective = _effective(used, float(estimate), quantile)
    low_rank, high_rank = (rank * n / effective for rank in _ranks(effective, quantile))
    reachable = high_rank <= n
    why = f"the {len(used)} starts differ so much that their {n} probes tell as much as {effective:.0f}; more starts would tell it"
    return Tail(
        quantile=quantile,
        estimate=float(estimate),
        low=float(ordered[max(math.floor(low_rank + _HAIR), 1) - 1]),
        high=float(ordered[math.ceil(high_rank - _HAIR) - 1]) if reachable else None,
        n_probes=n,
        n_trials=len(used),
        effective=effective,
        high_withheld="" if reachable else f"the upper end of {name} is not known: {why}",
    )


def _ranks(n: float, quantile: float) -> tuple[float, float]:
    """Ranks between which the percentile lies, each end wrong at 2.5 %; the upper is over n where n is too small for one.

    At least u of n values are below the percentile with probability I(u, n − u + 1), also for what is no whole number.
    """
    miss = (1 - CONFIDENCE) / 2

    def over(rank: float, chance: float) -> float:
        return float(betainc(rank, n - rank + 1, quantile)) - chance

    high = float(brentq(over, _HAIR, n, args=(miss,))) if over(n, miss) <= 0 else math.inf
    low = float(brentq(over, _HAIR, n, args=(1 - miss,))) if over(_HAIR, 1 - miss) > 0 > over(n, 1 - miss) else 0.0
    return low, high


def _effective(trials: Sequence[np.ndarray], estimate: float, quantile: float) -> float:
    """Probes ÷ design effect; the latter is the variance of the share below ``estimate`` by starts against that of a coin."""
    n, m = sum(len(t) for t in trials), len(trials)
    off = np.array([float(np.sum(t <= estimate)) - quantile * len(t) for t in trials])
    by_starts = m / (m - 1) * float(np.sum((off - off.mean()) ** 2)) / n**2
    alone = quantile * (1 - quantile) / n
    effect = by_starts / alone
    # What few starts say of their own differences is unsure itself, hence Student's t for the normal distribution's quantile.
    return n / (effect * (t_quantile(m - 1) / t_quantile(math.inf)) ** 2) if effect > 1 else float(n)
