"""Does it say so when there is nothing to see? The baseline against itself on a real llama-server, many times over.

``make bench-aa [OUT=F] [N=20] [CONDITION=quiet|bursty]``: experiments of 5 blocks in which both arms are the demo's target
without speculation, on the machine as it is and beside a neighbour that burns a core in bursts. Each is judged as an arm
with speculation would be. An experiment that its own integrity checks call invalid is counted as such. Exits with 1 where
any is kept, more than one is called slower, or fewer than 17 in 20 of the valid intervals hold 1.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from specagent import local
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from speccore.measurement import ComparisonResult, Interval
from speccore.spec import ExperimentSpec
from speccore.verdict import keep_threshold, slower_threshold
from speccore.workloads import builtin

from demo.prepare import MODELS, engine_path, inflated

N_EXPERIMENTS = 20
BLOCKS = 5
CONDITIONS = ("quiet", "bursty")
MOST_SLOWER = 1
LEAST_HOLDING = 17 / 20
#: Seconds of work and rest of the neighbour, drawn evenly between the two ends.
BURST_S, REST_S = (0.05, 0.4), (0.3, 1.5)

_NEIGHBOUR = f"""
import random, time
rng = random.Random(7)
print("burning", flush=True)
while True:
    until = time.monotonic() + rng.uniform{BURST_S}
    while time.monotonic() < until: pass
    time.sleep(rng.uniform{REST_S})
"""


def experiment(seed: int) -> ExperimentSpec:
    """Trials of a few seconds: one point, six probes of 48 tokens."""
    return ExperimentSpec.model_validate(
        {
            "name": f"A/A {seed}",
            "target": {"model": "target"},
            "engine": {"context": 512},
            "arms": [{"name": "off", "mode": "off"}, {"name": "off-again", "mode": "off", "control": True}],
            "points": [{"workload": "count", "max_tokens": 48, "probes": 6}],
            "blocks": BLOCKS,
            "warmup": {"mode": "fixed"},
            "seed": seed,
        }
    )


@contextmanager
def neighbour(condition: str) -> Iterator[None]:
    """The machine as it is, or with a program beside the engine that wants a core now and then. It ends with this process."""
    if condition == "quiet":
        yield
        return
    watched = f"import ctypes, os\nctypes.CDLL(None).prctl(1, {int(signal.SIGKILL)})\nif os.getppid() != {os.getpid()}: raise SystemExit\n"
    child = subprocess.Popen([sys.executable, "-c", watched + _NEIGHBOUR], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout
        child.stdout.readline()
        yield
    finally:
        child.kill()
        child.wait()


@dataclass(frozen=True)
class Told:
    """One experiment: the word that an arm with speculation would have got for these times, and the interval."""

    word: str  # keep, slower, not worth it, inconclusive, invalid
    reason: str
    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def holds_one(self) -> bool:
        return self.low is not None and self.high is not None and self.low <= 1 <= self.high


def told(c: ComparisonResult, margin: float) -> Told:
    """A control is never called faster or slower; here that is what is asked, so the rules on time are applied to it."""
    s = c.speedup
    if c.verdict.word == "invalid" or not isinstance(s, Interval) or s.low is None or s.high is None:
        return Told("invalid", c.verdict.reason or c.verdict.word)
    word = "inconclusive"
    if s.low > keep_threshold(margin, c.noise_floor):
        word = "keep"
    elif s.high < slower_threshold(c.noise_floor):
        word = "slower"
    elif s.high < 1 + margin:
        word = "not worth it"
    return Told(word, c.verdict.reason, s.estimate, s.low, s.high)


@dataclass(frozen=True)
class Row:
    """All experiments under one condition."""

    condition: str
    n_experiments: int
    n_invalid: int
    keep: int
    slower: int
    not_worth_it: int
    inconclusive: int
    holds_one: int  # of the valid ones
    half_width_percent: float | None  # median of the valid ones
    seconds: float
    invalid_reasons: dict[str, int] = field(default_factory=dict)
    experiments: list[dict[str, Any]] = field(default_factory=list)

    @property
    def n_valid(self) -> int:
        return self.n_experiments - self.n_invalid


def row(condition: str, found: Sequence[Told], seconds: float) -> Row:
    words = Counter(t.word for t in found)
    valid = [t for t in found if t.word != "invalid"]
    halves = sorted(100 * (math.sqrt(t.high / t.low) - 1) for t in valid if t.low and t.high)
    return Row(
        condition=condition,
        n_experiments=len(found),
        n_invalid=words["invalid"],
        keep=words["keep"],
        slower=words["slower"],
        not_worth_it=words["not worth it"],
        inconclusive=words["inconclusive"],
        holds_one=sum(t.holds_one for t in valid),
        half_width_percent=round(halves[len(halves) // 2], 2) if halves else None,
        seconds=round(seconds, 1),
        invalid_reasons=dict(Counter(t.reason for t in found if t.word == "invalid")),
        experiments=[asdict(t) for t in found],
    )


def broken(r: Row) -> str:
    """Which promise the row does not keep, in words."""
    if not r.n_valid:
        return "no valid experiment"
    if r.keep:
        return f"{r.keep} kept"
    if r.slower > MOST_SLOWER:
        return f"{r.slower} called slower"
    needed = math.ceil(LEAST_HOLDING * r.n_valid)
    return f"only {r.holds_one} of {r.n_valid} intervals hold 1, {needed} must" if r.holds_one < needed else ""


def run_one(host: Host, spec: ExperimentSpec, folder: Path) -> Told:
    folder.mkdir()
    done = local.run_local(spec, host, builtin(), folder, threading.Event(), lambda running: None, lambda report: None)
    if done.analysis is None:
        error = done.finished.error
        return Told("invalid", error.code if error else done.finished.outcome)
    return told(done.analysis.comparisons[0], spec.margin)


def host_of(home: Path, *, heavy: bool) -> Host:
    """This machine with the engine from the wheel and the demo's target, by default inflated to the pace of a real one."""
    config = Config(
        state_dir=home / "agent",
        runtimes=[RuntimeEntry(path=engine_path())],
        models=[ModelEntry(alias="target", path=inflated("target", home) if heavy else MODELS / "target.gguf")],
    )
    return take_inventory(config, FileCache(config.state_dir / "files.json"))


def measure(condition: str, n: int, host: Host, folder: Path, first_seed: int) -> Row:
    found: list[Told] = []
    began = time.monotonic()
    with neighbour(condition):
        for i in range(n):
            one = run_one(host, experiment(first_seed + i), folder / f"{condition}-{i}")
            found.append(one)
            shown = f"{one.estimate:.3f}× [{one.low:.3f}–{one.high:.3f}]" if one.estimate else one.reason
            print(f"  {condition} {i + 1}/{n}: {one.word}, {shown}", file=sys.stderr, flush=True)
    return row(condition, found, time.monotonic() - began)


HEAD = "| condition | experiments | invalid | keep | slower | not worth it | inconclusive | interval holds 1 | median half-width |"


def table_line(r: Row) -> str:
    width = f"±{r.half_width_percent:.1f} %" if r.half_width_percent is not None else "–"
    counts = (r.n_experiments, r.n_invalid, r.keep, r.slower, r.not_worth_it, r.inconclusive)
    return f"| {r.condition} | {' | '.join(map(str, counts))} | {r.holds_one} of {r.n_valid} | {width} |"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.aa", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the rows as JSON into this file")
    parser.add_argument("--n", type=int, default=N_EXPERIMENTS, help=f"experiments under each condition (default {N_EXPERIMENTS})")
    parser.add_argument("--condition", choices=CONDITIONS, help="only this one (default: both)")
    parser.add_argument("--seed", type=int, default=100, help="of the first experiment; the next ones have the next numbers")
    parser.add_argument("--bare", action="store_true", help="the small target itself: quicker, and far above the pace of a real model")
    args = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory(prefix="specweb-aa-") as home:
        host = host_of(Path(home), heavy=not args.bare)
        for condition in [args.condition] if args.condition else CONDITIONS:
            rows.append(measure(condition, args.n, host, Path(home), args.seed))
    print(f"{HEAD}\n|{'---|' * 9}")
    for r in rows:
        why = broken(r)
        print(table_line(r) + (f" ← {why}" if why else ""), flush=True)
    for r in rows:
        reasons = ", ".join(f"{n} by {name}" for name, n in r.invalid_reasons.items())
        print(f"{r.condition}: {r.seconds:.0f} s" + (f"; invalid: {reasons}" if reasons else ""))
    if args.out:
        args.out.write_text(json.dumps({"blocks": BLOCKS, "rows": [asdict(r) for r in rows]}, indent=1) + "\n")
    return int(any(broken(r) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
