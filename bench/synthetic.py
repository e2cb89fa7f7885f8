"""Is the acceptance that we count the one that an engine was told to have?

``make bench-synthetic [OUT=F]``: a llama-server with ``--spec-synth-len 3.2`` accepts drafts by dice, so that the mean length
of its cycles is known beforehand. Counted from the stream over at least 2,500 cycles it must be 3.2 within 0.1. The cycles at
an answer's end are left out: the engine drafts no further than the length limit. Only newer builds have the flag; with any
other one nothing is run, and that is what is said. ``LLAMA_SERVER`` names the build.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specagent.asking import Address
from specagent.probe import run_probe
from specagent.ready import LOOPBACK, free_port
from speccore import engines
from speccore.cycles import cycles
from speccore.engines.llamacpp import SYNTHETIC_FLAG as SYNTH_FLAG
from speccore.protocol import ProbePlan
from speccore.records import StreamRecord
from speccore.spec import Point
from speccore.workloads import builtin

from demo.children import spawn, stop, tail
from demo.prepare import MODELS, engine_path

LENGTH, TOLERANCE = 3.2, 0.1
LIMIT = 4
LEAST_CYCLES = 2500
MOST_REQUESTS = 200
POINT = Point(workload="count", max_tokens=256, probes=1)


def has_flag(binary: Path) -> bool:
    """By the build's own help."""
    shown = subprocess.run([binary, "--help"], capture_output=True, text=True, env=_environment(binary), timeout=60)
    return SYNTH_FLAG in shown.stdout + shown.stderr


@contextmanager
def engine(binary: Path, log: Path) -> Iterator[int]:
    """Yields the port of one that accepts by dice."""
    port = free_port()
    argv: list[str | Path] = [binary, "--model", MODELS / "target.gguf", "--host", "127.0.0.1", "--port", str(port), "--ctx-size", "1024"]
    argv += ["--parallel", "1", "--threads", "1", "--spec-draft-model", MODELS / "draft.gguf", "--spec-type", "draft-simple"]
    argv += ["--spec-draft-n-max", str(LIMIT), SYNTH_FLAG, str(LENGTH)]
    server = spawn(argv, log=log, env=_environment(binary))
    try:
        until = time.monotonic() + 60
        while not _is_healthy(port):
            if server.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"llama-server does not answer:\n{tail(log)}")
            time.sleep(0.1)
        yield port
    finally:
        stop(server)


def _environment(binary: Path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(binary.parent)}


def _is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def whole_cycles(record: StreamRecord) -> list[int]:
    """Tokens of each cycle that had room for a whole draft, what was accepted and the target's own."""
    left = sum(e.tokens for e in record.events) - 1  # the prefill gives the first
    lengths = []
    for cycle in cycles(record) or []:
        if cycle.drafted and left > LIMIT:
            lengths.append(1 + cycle.accepted)
        left -= cycle.emitted
    return lengths


def counted(port: int, least: int) -> list[int]:
    """Lengths of at least so many cycles."""
    dialect, never = engines.engine("llama-server"), threading.Event()
    items, lengths = builtin()["count"].items, list[int]()
    for i in range(MOST_REQUESTS):
        item = items[i % len(items)]
        plan = ProbePlan(id=f"{POINT.key}#{i}", point=POINT.key, item=item.id, seed=i)
        done = run_probe(dialect, Address(LOOPBACK, port), plan, POINT, item.prompt, t0=0.0, timeout_s=60, stop=never)
        if done.record.failure:
            raise SystemExit(f"request {i} failed: {done.record.failure_message}")
        lengths += whole_cycles(done.record)
        if len(lengths) >= least:
            break
    return lengths


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.synthetic", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the result as JSON into this file")
    parser.add_argument("--cycles", type=int, default=LEAST_CYCLES, help=f"at least so many (default {LEAST_CYCLES})")
    args = parser.parse_args(argv)
    binary = engine_path()
    found: dict[str, object] = {"ran": False, "asked": LENGTH, "engine": str(binary)}
    code = 0
    if not has_flag(binary):
        found["why"] = f"NOT RUN: this build's help lists no {SYNTH_FLAG}; name a newer one with LLAMA_SERVER"
        print(found["why"])
    else:
        with tempfile.TemporaryDirectory(prefix="specweb-bench-") as folder, engine(binary, Path(folder) / "engine.log") as port:
            lengths = counted(port, args.cycles)
        mean = sum(lengths) / len(lengths) if lengths else 0.0
        enough, near = len(lengths) >= args.cycles, abs(mean - LENGTH) <= TOLERANCE
        found |= {"ran": True, "mean_length": round(mean, 4), "n_cycles": len(lengths), "within": enough and near}
        verdict = (
            "as asked" if enough and near else f"not within {TOLERANCE:g}" if enough else f"too few cycles, {args.cycles:,} are needed"
        )
        print(f"synthetic acceptance: mean length {mean:.3f} over {len(lengths):,} cycles, asked for was {LENGTH:g}: {verdict}")
        code = int(not (enough and near))
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
