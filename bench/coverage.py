"""Do the intervals hold what they promise? Simulated experiments with known ratio through the formulas that jobs use.

``make bench-coverage [OUT=F]``: each scenario at 5, 7 and 10 blocks. *Coverage*: how often the 95 % interval holds the true
ratio. *False decisions*: of a plan of so many blocks with early looks, how often it ends with a wrong word, at that true
ratio (1, the margin, 1.1, 2, 0.8) at which it errs most. Then the same of blocks that are added until it pays
(:mod:`bench.adding`). Exits with 1 where a promise is not kept.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from speccore.order import balanced_orders
from speccore.sequential import looks, schedule
from speccore.stats import Rows, speedups
from speccore.verdict import keep_threshold, slower_threshold

N_SIMULATED = 60_000
N_ADDING = 10_000  # each is looked at dozens of times
N_BLOCKS = (5, 7, 10)
MARGIN = 0.03
TRUTHS = (0.8, 1.0, 1 + MARGIN, 1.1, 2.0)
ORDERS = 400  # that plans may draw, for each number of arms and blocks
WORDS = ("", "keep", "slower", "not worth it")
VERDICT = np.array([0, 1, 2, 2])  # inconclusive, keep, disable

LEAST_COVERAGE = 0.94
MOST_COVERAGE = 0.965  # where noise is Gaussian and nothing drifts
MOST_FALSE = 0.05


@dataclass(frozen=True)
class Scenario:
    """``noise``: standard deviation of ln seconds of a trial. ``drift``: how much slower each block is than the one before.

    A trial asks ``probes`` prompts, each with half the trial's noise of its own.
    """

    name: str
    noise: float
    drift: float = 0.0
    dying: bool = False  # the host warms up: the drift halves with each block
    outliers: bool = False  # 5 % of trials take 1.2 to 3 times as long
    unequal: bool = False  # answers of 16 to 1,024 tokens, other lengths in each arm, gains by prompt, a tenth of pairs lost
    arms: int = 2
    probes: int = 3

    @property
    def gaussian(self) -> bool:
        return not (self.drift or self.outliers or self.unequal)


def scenarios() -> Iterator[Scenario]:
    for noise in (0.005, 0.02, 0.05, 0.15):
        for drift in (0.0, 0.01, 0.03, 0.06):
            yield Scenario(f"noise {noise:.1%}, drift {drift:.0%} a block", noise, drift)
    for noise in (0.005, 0.02, 0.05, 0.15):
        yield Scenario(f"noise {noise:.1%}, outliers", noise, outliers=True)
        yield Scenario(f"noise {noise:.1%}, unequal lengths", noise, unequal=True)
    for noise, drift in ((0.005, 0.06), (0.02, 0.06), (0.15, 0.03)):
        yield Scenario(f"noise {noise:.1%}, drift {drift:.0%} a block, 4 arms", noise, drift, arms=4)
        yield Scenario(f"noise {noise:.1%}, warming by {drift:.0%} that dies out", noise, drift, dying=True)
    yield Scenario("noise 15.0%, 4 arms", 0.15, arms=4)
    for noise in (0.005, 0.02, 0.05, 0.15):
        yield Scenario(f"noise {noise:.1%}, drift 6% a block, outliers, unequal lengths", noise, 0.06, outliers=True, unequal=True)


@lru_cache(maxsize=20)
def _positions(arms: int, n_blocks: int) -> np.ndarray:
    """Plans as jobs draw them: (plan, arm, block) → position in the block, from 0."""
    plans = [balanced_orders(arms, n_blocks, random.Random(seed), anchor=True) for seed in range(ORDERS)]
    return np.array([[[order.index(arm) for order in plan] for arm in range(arms)] for plan in plans], dtype=float)


def simulate(s: Scenario, n_blocks: int, n: int, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Block values of ``n`` experiments whose true ratio is 1, and the arm's position minus the baseline's."""
    plans = _positions(s.arms, n_blocks)[rng.integers(0, ORDERS, n)]
    arm = rng.integers(1, s.arms, n)
    positions = np.stack([plans[:, 0], plans[np.arange(n), arm]], axis=1)
    at = np.arange(n_blocks) + positions / s.arms
    trials = math.log1p(s.drift) * (2 * (1 - 0.5**at) if s.dying else at) + rng.normal(0, s.noise, positions.shape)
    if s.outliers:
        trials += (rng.random(positions.shape) < 0.05) * rng.uniform(math.log(1.2), math.log(3), positions.shape)
    seconds = _seconds(s, trials, rng)
    gains = np.log(seconds[:, 0] / seconds[:, 1])
    if s.unequal:
        there = rng.random(gains.shape) < 0.9
        there[..., 0] |= ~there.any(axis=-1)
        values = np.sum(gains * there, axis=-1) / np.sum(there, axis=-1)
    else:
        values = gains.mean(axis=-1)
    return values, positions[:, 1] - positions[:, 0]


def _seconds(s: Scenario, trials: Rows, rng: np.random.Generator) -> Rows:
    """Equal-work seconds (experiment, side, block, prompt): the prompt's length over what the answer's own length measured."""
    shape = (*trials.shape, s.probes)
    own = rng.normal(0, s.noise / 2, shape)
    if not s.unequal:
        return np.exp(trials[..., None] + own)
    prompts = (trials.shape[0], 1, trials.shape[2], s.probes)  # the same for both sides of a block
    log_length = rng.uniform(math.log(16), math.log(1024), prompts)
    answered = np.maximum(np.exp(log_length + rng.normal(0, 0.4, shape)), 8)
    gain = rng.normal(0, 0.06, prompts) + 0.03 * (log_length - math.log(128))
    side = np.array([0.5, -0.5])[None, :, None, None]
    return np.exp(log_length + trials[..., None] + own * np.sqrt(128 / answered) + side * gain)


def decisions(values: Rows, differences: Rows, margin: float, truth: float) -> tuple[np.ndarray, np.ndarray, Rows]:
    """Early looks at many experiments at once: index into WORDS, blocks used, and the middle (ln) at the end."""
    n_planned = values.shape[1]
    word, used = np.zeros(len(values), dtype=int), np.full(len(values), n_planned)
    middles = np.zeros(len(values))
    for look in looks(schedule(n_planned)):
        n = look.n_blocks
        middle, half, _ = speedups(values[:, :n] + truth, differences[:, :n], margin, look.confidence)
        found = words(middle, half, margin)
        is_open = word == 0
        word, middles = np.where(is_open, found, word), np.where(is_open, middle, middles)
        used = np.where(is_open & (found > 0), n, used)
    return word, used, middles


def words(middle: Rows, half: Rows, margin: float) -> np.ndarray:
    """The verdict's rules on time, without a noise floor, as indices into WORDS."""
    low, high = np.exp(middle - half), np.exp(middle + half)
    return np.select([low > keep_threshold(margin, None), high < slower_threshold(None), high < 1 + margin], [1, 2, 3], 0)


def is_false(word: np.ndarray, ratio: float) -> np.ndarray:
    """Which words claim what is not so: more than the margin, slower, less than the margin."""
    wrong = np.array([False, ratio <= 1 + MARGIN, ratio >= 1, ratio >= 1 + MARGIN])
    return wrong[word]


@dataclass(frozen=True)
class Row:
    scenario: str
    n_blocks: int
    coverage: float
    false_decisions: float
    n_simulated: int


def row(s: Scenario, n_blocks: int, n: int, rng: np.random.Generator) -> Row:
    values, differences = simulate(s, n_blocks, n, rng)
    middle, half, _ = speedups(values, differences, MARGIN)
    wrong = [float(is_false(decisions(values, differences, MARGIN, math.log(t))[0], t).mean()) for t in TRUTHS]
    return Row(s.name, n_blocks, float(np.mean(np.abs(middle) <= half)), max(wrong), n)


@dataclass(frozen=True)
class Early:
    """Early looks against 10 blocks always. ``same_verdict``: keep, disable or neither; that an arm is not worth it may be
    plain before it is plain that it is slower. ``bias_percent``: of the speed-up shown at the end."""

    ratio: float
    noise: float
    same_verdict: float
    share_of_trials: float
    bias_percent: float


def early(ratio: float, noise: float, n: int, rng: np.random.Generator) -> Early:
    values, differences = simulate(Scenario("", noise), N_BLOCKS[-1], n, rng)
    truth = math.log(ratio)
    word, used, middles = decisions(values, differences, MARGIN, truth)
    middle, half, _ = speedups(values + truth, differences, MARGIN)
    same = VERDICT[word] == VERDICT[words(middle, half, MARGIN)]
    bias = 100 * (np.exp(np.mean(middles) - truth) - 1)
    return Early(ratio, noise, float(same.mean()), float(used.mean()) / N_BLOCKS[-1], float(bias))


def broken(s: Scenario, r: Row) -> str:
    """What of the promises the row does not keep, in words."""
    if r.coverage < LEAST_COVERAGE:
        return f"coverage under {LEAST_COVERAGE:.0%}"
    if s.gaussian and r.coverage > MOST_COVERAGE:
        return f"coverage over {MOST_COVERAGE:.1%}"
    return f"false decisions over {MOST_FALSE:.0%}" if r.false_decisions > MOST_FALSE else ""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.coverage", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows as JSON into this file")
    parser.add_argument("--n", type=int, default=N_SIMULATED, help=f"experiments for each row (default {N_SIMULATED})")
    parser.add_argument("--seed", type=int, default=6)
    args = parser.parse_args(argv)
    began, rng = time.monotonic(), np.random.default_rng(args.seed)
    rows, faults = [], 0
    print(f"| scenario | coverage at {', '.join(map(str, N_BLOCKS))} blocks | false decisions with early looks |\n|---|---|---|")
    for s in scenarios():
        found = [row(s, n_blocks, args.n, rng) for n_blocks in N_BLOCKS]
        rows += found
        why = ", ".join(dict.fromkeys(w for r in found if (w := broken(s, r))))
        faults += bool(why)
        coverage, wrong = (" · ".join(f"{100 * getattr(r, what):.1f} %" for r in found) for what in ("coverage", "false_decisions"))
        print(f"| {s.name} | {coverage} | {wrong} |{' ← ' + why if why else ''}", flush=True)
    print("\n| true ratio | noise | same verdict as 10 blocks | share of their trials | bias of the speed-up |\n|---|---|---|---|---|")
    early_rows = [early(ratio, noise, args.n, rng) for noise in (0.005, 0.02, 0.05) for ratio in (0.8, 1.0, 1.1, 1.3, 2.0)]
    for e in early_rows:
        print(f"| {e.ratio:g} | {e.noise:.1%} | {e.same_verdict:.1%} | {e.share_of_trials:.2f} | {e.bias_percent:+.2f} % |")
    mean = {what: float(np.mean([getattr(e, what) for e in early_rows])) for what in ("same_verdict", "share_of_trials")}
    print(f"| all | | {mean['same_verdict']:.1%} | {mean['share_of_trials']:.2f} | |")
    from . import adding

    print(
        f"\nBlocks added to a first answer, up to {adding.MOST} in all, with a look after each:\n\n{adding.HEAD}\n|---|---|---|---|---|---|---|"
    )
    added = []
    for found_of in adding.rows(min(args.n, N_ADDING), rng):
        added.append(found_of)
        faults += bool(adding.broken(found_of))
        print(adding.line(found_of), flush=True)
    print(f"\n{len(rows)} rows of {args.n:,} experiments in {time.monotonic() - began:.0f} s; {faults} scenarios break a promise")
    if args.out:
        args.out.write_text(
            json.dumps(
                {
                    "rows": [asdict(r) for r in rows],
                    "early_stopping": [asdict(e) for e in early_rows],
                    "adding": [asdict(a) for a in added],
                },
                indent=1,
            )
        )
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
