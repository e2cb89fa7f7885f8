"""What sampling costs: the CPU time of the sampler's thread as a share of one core, beside an engine that rests and one that answers.

Run alone: ``python -m bench.sampler_cost [SECONDS]``. Exits with 1 over 1 % of one core.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from pathlib import Path

from specagent.asking import Address
from specagent.gpus import Gpus
from specagent.probe import run_probe
from specagent.ready import LOOPBACK
from specagent.sampler import INTERVAL_S, Sampler
from speccore import engines
from speccore.protocol import ProbePlan
from speccore.workloads import builtin

from bench.client_agreement import POINT, engine
from demo.prepare import MODELS

MOST = 0.01


def share(seconds: float, work: threading.Event | None, port: int, pid: int, gpus: Gpus) -> tuple[float, int]:
    """CPU seconds of the sampler for each second, and the number of its samples, while the engine rests or answers."""
    sampler = Sampler(pid, time.monotonic(), lambda: "probing", gpus)
    began = time.monotonic()
    sampler.start()
    if work:
        ask(port, began + seconds, work)
    else:
        time.sleep(seconds)
    sampler.stop()
    return sampler.cpu_s / (time.monotonic() - began), len(sampler.samples)


def ask(port: int, until: float, stop: threading.Event) -> None:
    items, n = builtin()["count"].items, 0
    while time.monotonic() < until:
        plan = ProbePlan(id=f"{POINT.key}#{n}", point=POINT.key, item=items[n % len(items)].id, seed=n)
        run_probe(
            engines.engine("llama-server"),
            Address(LOOPBACK, port),
            plan,
            POINT,
            items[n % len(items)].prompt,
            t0=0.0,
            timeout_s=60,
            stop=stop,
        )
        n += 1


def main(seconds: float) -> int:
    gpus = Gpus()
    worst = 0.0
    with tempfile.TemporaryDirectory(prefix="specweb-bench-") as folder, engine(MODELS / "target.gguf", Path(folder) / "log") as port:
        pid = listener(port)
        for name, work in (("resting", None), ("answering", threading.Event())):
            cost, n = share(seconds, work, port, pid, gpus)
            worst = max(worst, cost)
            print(
                f"sampler, {1 / INTERVAL_S:.0f} Hz, {len(gpus.cards)} GPUs, engine {name}: {100 * cost:.2f} % of one core, "
                f"{n / seconds:.1f} samples a second"
            )
    return worst > MOST


def listener(port: int) -> int:
    """The engine's process: whoever listens on its port."""
    import psutil

    return next(c.pid for c in psutil.net_connections("tcp") if c.status == "LISTEN" and c.laddr.port == port and c.pid)


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]) if sys.argv[1:] else 20.0))
