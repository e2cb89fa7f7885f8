"""What do early looks save, and what do they cost? Experiments that may stop after 3, 5 and 7 blocks, against 10 blocks always.

``make bench-sequential [OUT=F] [N=…]``: simulated over true ratios and noise, one arm beside the baseline and three; through the
formulas that jobs use. *Same verdict*: keep, disable or neither, as after 10 blocks of the same measurements. *Trials*: starts of
all arms, of those that 10 blocks take. *Overstated*: how far the speed-ups of arms that were decided early lie beyond the truth,
away from 1, on average.
With ``REAL=1`` also the demo's models on a real llama-server. Exits with 1 where a promise is not kept: in 95 % the same verdict,
with 0.6 of the trials. At the margin itself, where 10 blocks decide nothing either, no trials can be saved: told, not promised.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from specagent import evidence, local
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.sinks import FolderSink
from speccore import compare, early, measure
from speccore.measurement import ComparisonResult, Interval
from speccore.plan import next_trials
from speccore.spec import ExperimentSpec
from speccore.stats import Rows, speedups
from speccore.workloads import builtin

from bench.coverage import MARGIN, VERDICT, Scenario, decisions, simulate, words
from demo.prepare import MODELS, engine_path, inflated

N_SIMULATED = 20_000
BLOCKS = 10
RATIOS = (0.5, 0.8, 0.9, 1.0, 1 + MARGIN, 1.1, 1.3, 1.6, 2.0, 3.0)
NOISES = (0.005, 0.01, 0.02, 0.05, 0.1)
GRID = [(ratio, noise) for noise in NOISES for ratio in RATIOS]
#: Ensembles: ratios and noise that are drawn evenly on a log scale between these.
DRAWN_RATIO, DRAWN_NOISE = (0.7, 3.0), (0.005, 0.05)
ARMS = (1, 3)

LEAST_SAME, MOST_TRIALS = 0.95, 0.6


@dataclass(frozen=True)
class Row:
    """Shares of experiments (``same_verdict``: of arms), of trials, of arms; percent of the true ratio."""

    name: str
    same_verdict: float
    share_of_trials: float
    decided_early: float
    overstated_percent: float | None  # of those decided early; None: there are none
    n_simulated: int


@dataclass(frozen=True)
class Arms:
    """One arm of many experiments: the verdict's index after 10 blocks and early, blocks run, ln shown beyond ln true, away from 1."""

    fixed: np.ndarray
    word: np.ndarray
    used: np.ndarray
    beyond: Rows


def watch(values: Rows, differences: Rows, truth: Rows) -> Arms:
    """``values`` have the true ratio 1; ``truth`` (ln, one for each experiment) is added."""
    shown = values + truth[:, None]
    word, used, middles = decisions(shown, differences, MARGIN, 0.0)
    middle, half, _ = speedups(shown, differences, MARGIN)
    away = np.where(truth < 0, -1.0, 1.0)
    return Arms(VERDICT[words(middle, half, MARGIN)], VERDICT[word], used, (middles - truth) * away)


def summed(name: str, arms: Sequence[Arms]) -> Row:
    """The baseline runs as long as any arm does."""
    used = np.array([a.used for a in arms])
    early_ones = used < BLOCKS
    beyond = np.array([a.beyond for a in arms])[early_ones]
    return Row(
        name=name,
        same_verdict=float(np.mean([a.fixed == a.word for a in arms])),
        share_of_trials=float(np.mean(used.sum(axis=0) + used.max(axis=0)) / (BLOCKS * (len(arms) + 1))),
        decided_early=float(early_ones.mean()),
        overstated_percent=100 * math.expm1(float(beyond.mean())) if beyond.size else None,
        n_simulated=used.shape[1],
    )


def cell(ratio: float, noise: float, n: int, rng: np.random.Generator) -> Row:
    values, differences = simulate(Scenario("", noise), BLOCKS, n, rng)
    return summed(f"ratio {ratio:g}, noise {noise:.1%}", [watch(values, differences, np.full(n, math.log(ratio)))])


def ensemble(n_arms: int, n: int, rng: np.random.Generator) -> Row:
    """Experiments as they come: each with its own noise, each arm with its own ratio."""
    noise = np.exp(rng.uniform(*np.log(DRAWN_NOISE), n))[:, None]
    baseline = rng.normal(0, 1, (n, BLOCKS))
    found = []
    for _ in range(n_arms):
        _, differences = simulate(Scenario("", 1.0, arms=n_arms + 1), BLOCKS, n, rng)
        own = rng.normal(0, 1, (n, BLOCKS)) + rng.normal(0, math.sqrt(0.5 / 3), (n, BLOCKS))  # three prompts, each with half the noise
        found.append(watch(noise * (baseline - own), differences, rng.uniform(*np.log(DRAWN_RATIO), n)))
    return summed(f"{n_arms} arm{'s' if n_arms > 1 else ''} beside the baseline, ratios and noise drawn", found)


def broken(r: Row) -> str:
    """Which promise a summary does not keep, in words."""
    found = [f"same verdict under {LEAST_SAME:.0%}"] if r.same_verdict < LEAST_SAME else []
    found += [f"trials over {MOST_TRIALS}"] if round(r.share_of_trials, 2) > MOST_TRIALS else []
    return ", ".join(found)


# --- on the demo's models ---


def experiment(seed: int) -> ExperimentSpec:
    draft = {"mode": "draft", "draft_model": "draft"}
    return ExperimentSpec.model_validate(
        {
            "name": f"time to decide {seed}",
            "target": {"model": "target"},
            "engine": {"context": 512},
            "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", **draft, "draft_limit": 3}],
            "points": [{"workload": "count", "max_tokens": 48, "probes": 4}],
            "blocks": BLOCKS,
            "warmup": {"mode": "fixed"},
            "seed": seed,
        }
    )


@dataclass(frozen=True)
class Real:
    """One real experiment of 10 blocks, judged whole, and as it would have stopped: on the same measurements."""

    fixed: str
    early: str
    after_block: int
    speedup_fixed: float | None
    speedup_early: float | None
    share_of_trials: float


def run_real(host: Host, spec: ExperimentSpec, folder: Path) -> Real:
    folder.mkdir()
    workloads = builtin()
    done = local.run_local(spec, host, workloads, folder, threading.Event(), lambda running: None, lambda report: None)
    if done.analysis is None:
        raise SystemExit(f"the experiment {done.finished.outcome}: {done.finished.error}")
    spec_early = spec.model_copy(update={"sequential": True})
    measured = [
        measure.measure_attempt(evidence.read(at), spec, workloads)
        for r, at in local.counted(done.offer, FolderSink(folder))
        if r.outcome == "ok"
    ]
    decided = dict(early.look(early.Basis(spec_early, done.offer.plan, workloads), measured).decided)
    left_out = {t.id for t, _ in next_trials(spec, done.offer.plan, [])} - {
        t.id for t, _ in next_trials(spec, done.offer.plan, [], decided)
    }
    facts = compare.JobFacts(hashes_verified=True, n_hashes=1, decided=decided)
    stopped = compare.analyse_job(
        spec_early, done.offer.plan, [m for m in measured if m.trial not in left_out], [], facts, workloads=workloads
    )
    fixed, looked = done.analysis.comparisons[0], stopped.comparisons[0]
    return Real(
        fixed=_word(fixed),
        early=_word(looked),
        after_block=decided.get("draft-3", BLOCKS),
        speedup_fixed=getattr(fixed.speedup, "estimate", None),
        speedup_early=getattr(looked.speedup, "estimate", None),
        share_of_trials=1 - len(left_out) / len(done.offer.plan.trials),
    )


def _word(c: ComparisonResult) -> str:
    """The verdict by the rules on time alone, and beside it why a busy machine made it invalid, if it did."""
    s, word = c.speedup, "inconclusive"
    if isinstance(s, Interval) and s.low is not None and s.high is not None:
        middle, half = np.array([math.log(s.low * s.high) / 2]), np.array([math.log(s.high / s.low) / 2])
        word = ("inconclusive", "keep", "disable")[VERDICT[words(middle, half, MARGIN)[0]]]
    return f"{word} (invalid: {c.verdict.reason})" if c.verdict.word == "invalid" else word


def host_of(home: Path) -> Host:
    config = Config(
        state_dir=home / "agent",
        runtimes=[RuntimeEntry(path=engine_path())],
        models=[ModelEntry(alias="target", path=inflated("target", home)), ModelEntry(alias="draft", path=MODELS / "draft.gguf")],
    )
    return take_inventory(config, FileCache(config.state_dir / "files.json"))


def real(n: int) -> list[Real]:
    found = []
    with tempfile.TemporaryDirectory(prefix="specweb-sequential-") as home:
        host = host_of(Path(home))
        for i in range(n):
            one = run_real(host, experiment(200 + i), Path(home) / str(i))
            found.append(one)
            print(f"  real {i + 1}/{n}: {one}", file=sys.stderr, flush=True)
    return found


# --- the table ---

HEAD = "| experiments | same verdict as 10 blocks | share of their trials | decided early | overstated where decided early |\n|---|---|---|---|---|"


def line(r: Row) -> str:
    beyond = "–" if r.overstated_percent is None else f"{r.overstated_percent:+.2f} %"
    return f"| {r.name} | {r.same_verdict:.1%} | {r.share_of_trials:.2f} | {r.decided_early:.0%} | {beyond} |"


def mean_of(name: str, rows: Sequence[Row]) -> Row:
    """Each with the same weight; what is overstated by how many were decided early."""
    weights = [r.decided_early for r in rows if r.overstated_percent is not None]
    beyond = [r.overstated_percent for r in rows if r.overstated_percent is not None]
    first = replace(rows[0], name=name, n_simulated=sum(r.n_simulated for r in rows))
    means = {key: float(np.mean([getattr(r, key) for r in rows])) for key in ("same_verdict", "share_of_trials", "decided_early")}
    return replace(first, **means, overstated_percent=float(np.average(beyond, weights=weights)) if sum(weights) else None)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.time_to_decide", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows as JSON into this file")
    parser.add_argument("--n", type=int, default=N_SIMULATED, help=f"experiments for each row (default {N_SIMULATED})")
    parser.add_argument("--seed", type=int, default=8)
    parser.add_argument("--real", type=int, default=0, metavar="N", help="also so many experiments on the demo's models, a minute each")
    args = parser.parse_args(argv)
    began, rng = time.monotonic(), np.random.default_rng(args.seed)
    grid = [cell(ratio, noise, args.n, rng) for ratio, noise in GRID]
    drawn = [ensemble(n_arms, args.n, rng) for n_arms in ARMS]
    print(HEAD)
    for r in grid:
        print(line(r))
    beside = [cell for cell, (ratio, _) in zip(grid, GRID, strict=True) if ratio != 1 + MARGIN]
    promised = [*drawn, mean_of("all cells above but those at the margin itself", beside)]
    summaries = [*promised, mean_of("all cells above, each the same weight", grid)]
    faults = 0
    for r in summaries:
        why = broken(r) if r in promised else ""
        faults += bool(why)
        print(line(r) + (f" ← {why}" if why else ""), flush=True)
    reals = real(args.real)
    for one in reals:
        print(
            f"demo: {one.fixed} after {BLOCKS} blocks, {one.early} after {one.after_block} ({one.share_of_trials:.2f} of the trials); "
            f"{one.speedup_fixed:.2f}× and {one.speedup_early:.2f}×"
        )
    print(
        f"\n{len(grid) + len(drawn)} rows of {args.n:,} experiments in {time.monotonic() - began:.0f} s; {faults} summaries break a promise"
    )
    if args.out:
        data = {"grid": grid, "summaries": summaries, "real": reals}
        args.out.write_text(json.dumps({k: [asdict(r) for r in v] for k, v in data.items()}, indent=1) + "\n")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
