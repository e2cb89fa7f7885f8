"""Does the client's clock agree with the engine's own? Decode time of each request by both, at a slow and a very fast rate.

The engine tells in every event how long it has decoded so far; the client stamps arrivals. Both spans run from a
request's first event to its last, so a client that reads late, or whose work slows the engine, shows up as a difference.
"""

from __future__ import annotations

import os
import statistics
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
from specagent.ready import LOOPBACK
from speccore import engines
from speccore.protocol import ProbePlan
from speccore.spec import Point
from speccore.workloads import builtin

from demo.children import spawn, stop, tail
from demo.inflate import inflate
from demo.preflight import first_free_port
from demo.prepare import MODELS, engine_path

N_REQUESTS = 40
POINT = Point(workload="count", max_tokens=64, probes=N_REQUESTS)


@contextmanager
def engine(model: Path, log: Path) -> Iterator[int]:
    """A llama-server with one thread on the model; yields its port."""
    port = first_free_port(18080)
    if port is None:
        raise SystemExit("no free port from 18080 on")
    binary = engine_path()
    argv: list[str | Path] = [binary, "-m", model, "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-np", "1", "-t", "1"]
    server = spawn(argv, log=log, env={**os.environ, "LD_LIBRARY_PATH": str(binary.parent)})
    try:
        until = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5):
                    break
            except (urllib.error.URLError, OSError):
                if server.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"llama-server does not answer:\n{tail(log)}") from None
                time.sleep(0.1)
        yield port
    finally:
        stop(server)


def spans(port: int) -> list[tuple[float, float]]:
    """(seconds by the client, seconds by the engine) from first to last event of each request."""
    dialect, never = engines.engine("llama-server"), threading.Event()
    found = []
    for i, item in enumerate(builtin()["count"].items[:N_REQUESTS]):
        plan = ProbePlan(id=f"{POINT.key}#{i}", point=POINT.key, item=item.id, seed=i)
        done = run_probe(dialect, Address(LOOPBACK, port), plan, POINT, item.prompt, t0=0.0, timeout_s=60, stop=never)
        events = [e for e in done.record.events if e.tokens and e.predicted_ms is not None]
        if done.record.failure or len(events) < 2:
            raise SystemExit(f"request {i} failed: {done.record.failure_message or 'no timed events'}")
        first, last = events[0], events[-1]
        found.append((last.at_s - first.at_s, ((last.predicted_ms or 0) - (first.predicted_ms or 0)) / 1000))
    return found[1:]  # the first one warms up


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="specweb-bench-") as folder:
        heavy = Path(folder) / "heavy.gguf"
        inflate(MODELS / "target.gguf", heavy)
        for name, model in (("inflated target", heavy), ("bare target", MODELS / "target.gguf")):
            before = time.process_time()
            with engine(model, Path(folder) / "engine.log") as port:
                both = spans(port)
            cpu = time.process_time() - before
            differences = sorted(client / server - 1 for client, server in both)
            rate = statistics.median((POINT.max_tokens - 1) / server for _, server in both)
            print(
                f"client against engine, {name}, {rate:.0f} tokens/s, {len(both)} requests of {POINT.max_tokens} tokens: "
                f"median difference {100 * statistics.median(differences):+.2f} %, "
                f"range {100 * differences[0]:+.2f} … {100 * differences[-1]:+.2f} %; "
                f"client's CPU {1e3 * cpu / (N_REQUESTS * POINT.max_tokens):.2f} ms a token"
            )


if __name__ == "__main__":
    main()
