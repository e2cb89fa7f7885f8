"""Do alerts of a watch hold what they promise? Simulated series of runs through the function that watches use.

``make bench-watch [OUT=F] [N=…]``: how many unchanged series of 50 runs raise an alert, and how often a change of 5 % at 1 % noise is
found within 4 runs, by how many runs there were before it. Exits with 1 where a promise is not kept; of noise that breaks
the method's assumptions (heavy tails, odd runs, runs that resemble the one before) the share is told, and promised nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from speccore.changes import Change, Run, changes

N_SIMULATED = 4_000
N_RUNS = 50
MOST_FALSE = 1 / 200
FOUND_WITHIN = 4
LEAST_FOUND = 0.95  # of changes after at least so many runs:
RUNS_FOR_IT = 16


@dataclass(frozen=True)
class Noise:
    """``sd`` of a run's logarithm. ``own``: a run brings an interval, of 0.7 of the noise; the rest is between runs.

    ``promised``: the runs are independent and Gaussian, as the method assumes.
    """

    name: str
    sd: float
    own: bool = False
    heavy: bool = False  # Student's t with 3 degrees of freedom, of the same standard deviation
    odd: float = 0.0  # share of runs with 8 times the noise
    like_the_last: float = 0.0  # correlation with the run before

    @property
    def promised(self) -> bool:
        return not (self.heavy or self.odd or self.like_the_last)


NOISES = [
    *(Noise(f"Gaussian {sd:.1%}", sd) for sd in (0.005, 0.01, 0.03, 0.1)),
    Noise("Gaussian 3%, with intervals", 0.03, own=True),
    Noise("heavy tails 3%", 0.03, heavy=True),
    Noise("every twentieth run odd, 3%", 0.03, odd=0.05),
    Noise("like the run before (0.3), 3%", 0.03, like_the_last=0.3),
]


def series(rng: random.Random, noise: Noise, n: int, changed_at: int | None = None, factor: float = 1.0) -> list[Run]:
    runs, error = [], 0.0
    for i in range(n):
        z = rng.gauss(0, 1)
        if noise.heavy:
            z /= math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(3)))
        if noise.odd and rng.random() < noise.odd:
            z *= 8
        error = noise.like_the_last * error + math.sqrt(1 - noise.like_the_last**2) * z
        value = math.exp(noise.sd * error) * (factor if changed_at is not None and i >= changed_at else 1.0)
        reach = math.exp(1.96 * 0.7 * noise.sd)
        ends = (value / reach, value * reach) if noise.own else (None, None)
        runs.append(Run(value, *ends, build=f"b{i}", key=str(i)))
    return runs


def false_share(noise: Noise, n: int, seed: int = 1) -> float:
    rng = random.Random(seed)
    return sum(bool(found(series(rng, noise, N_RUNS))) for _ in range(n)) / n


def found_share(before: int, n: int, *, factor: float = 0.95, seed: int = 2) -> float:
    """Of series that change after ``before`` runs: how many tell of it, in the right direction, within FOUND_WITHIN runs."""
    rng, hits = random.Random(seed), 0
    for _ in range(n):
        told = found(series(rng, Noise("", 0.01), before + FOUND_WITHIN, before, factor))
        hits += any(c.better == (factor > 1) and int(c.found_at) >= before for c in told)
    return hits / n


def found(runs: list[Run]) -> list[Change]:
    told = changes(runs)
    return told if isinstance(told, list) else []


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--n", type=int, default=N_SIMULATED)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    kept, told = True, {"n": args.n, "runs": N_RUNS, "false": [], "found": []}
    for noise in NOISES:
        share = false_share(noise, args.n)
        bad = noise.promised and share > MOST_FALSE
        kept &= not bad
        told["false"].append(asdict(noise) | {"promised": noise.promised, "share": share})
        note = "ABOVE 1 in 200" if bad else "" if noise.promised else "(nothing promised)"
        print(f"unchanged, {noise.name:32} {share:8.2%} of {args.n} series alert {note}", flush=True)
    for before in (5, 8, 10, 12, 16, 20):
        for factor in (0.95, 1.05):
            share = found_share(before, args.n // 2, factor=factor)
            bad = before >= RUNS_FOR_IT and share < LEAST_FOUND
            kept &= not bad
            told["found"].append({"before": before, "factor": factor, "share": share})
            print(
                f"x {factor} after {before:2} runs, 1% noise: {share:7.1%} found within {FOUND_WITHIN} {'TOO FEW' if bad else ''}",
                flush=True,
            )
    if args.out:
        args.out.write_text(json.dumps(told, indent=1) + "\n")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
