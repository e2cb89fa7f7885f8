"""Memory and load while a trial runs: a thread that looks some times each second and keeps what it saw, raw.

Proportional memory (PSS) is read between requests only: the kernel then walks every page of the engine, about 20 ms for
each GiB, and holds its memory map meanwhile. In a timed request that would slow the arm with more memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from speccore.records import Sample

from .gpus import Gpus

INTERVAL_S = 0.5


class Sampler:
    """Samples of the process tree of ``pid`` from :meth:`start` to :meth:`stop`. ``phase`` names what the trial does now."""

    def __init__(self, pid: int, t0: float, phase: Callable[[], str], gpus: Gpus) -> None:
        self.samples: list[Sample] = []
        self._pid, self._t0, self._phase, self._gpus = pid, t0, phase, gpus
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        psutil.cpu_percent(None)  # the first answer has no interval behind it
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def look(self) -> None:
        """One look more, now, while no request runs: with proportional memory, without the load, which needs an interval."""
        with contextlib.suppress(psutil.Error, OSError):  # the engine may be gone
            self.samples.append(self._sample(None, proportional=True))

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            with contextlib.suppress(psutil.Error, OSError):
                self.samples.append(self._sample(psutil.cpu_percent(None), proportional=False))

    def _sample(self, cpu_percent: float | None, *, proportional: bool) -> Sample:
        pids = process_tree(self._pid)
        rss = resident(pids)
        pss = proportional_of(pids) if proportional else None
        temperature, clock = self._gpus.temperature_and_clock()
        return Sample(
            at_s=time.monotonic() - self._t0,
            phase=self._phase(),
            rss_bytes=rss,
            pss_bytes=pss,
            device_bytes=self._gpus.memory_by_uuid(pids),
            cpu_percent=cpu_percent,
            load_1m=os.getloadavg()[0],
            temperature_c=temperature,
            clock_mhz=clock,
        )


def process_tree(pid: int) -> list[int]:
    """The process and all below it. From /proc where it can be had: a scan of all processes would disturb a probe."""
    pids, todo = [pid], [pid]
    while todo:
        parent = todo.pop()
        try:
            for children in Path(f"/proc/{parent}/task").glob("*/children"):
                found = [int(p) for p in children.read_text().split()]
                pids += found
                todo += found
        except OSError:
            continue
    return pids


def resident(pids: list[int]) -> int | None:
    """Resident bytes of all these processes together; None if none of them is there."""
    sizes = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            sizes.append(psutil.Process(pid).memory_info().rss)
    return sum(sizes) if sizes else None


def proportional_of(pids: list[int]) -> int | None:
    """Proportional bytes of all these processes together, shared pages counted once; None where one doesn't say."""
    sizes = []
    for pid in pids:
        try:
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            sizes.append(next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:")))
        except (FileNotFoundError, ProcessLookupError):  # this one has ended
            continue
        except (OSError, StopIteration):
            return None
    return sum(sizes) if sizes else None
