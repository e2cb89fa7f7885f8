"""Memory and load while a trial runs: a thread that looks some times each second and keeps what it saw, raw."""

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
        """One look more, now; without the load, which needs an interval."""
        with contextlib.suppress(psutil.Error, OSError):  # the engine may be gone
            self.samples.append(self._sample(None))

    def _run(self) -> None:
        while not self._done.wait(INTERVAL_S):
            with contextlib.suppress(psutil.Error, OSError):
                self.samples.append(self._sample(psutil.cpu_percent(None)))

    def _sample(self, cpu_percent: float | None) -> Sample:
        pids = process_tree(self._pid)
        rss, pss = memory_of(pids)
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


def memory_of(pids: list[int]) -> tuple[int | None, int | None]:
    """(resident, proportional) bytes of all these processes; None where the platform doesn't say."""
    rss, pss = 0, 0
    rss_known = pss_known = False
    for pid in pids:
        try:
            rollup = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:] if ":" in line)
            rss += _kib(rollup["Rss"])
            pss += _kib(rollup["Pss"])
            rss_known = pss_known = True
        except (OSError, KeyError):
            with contextlib.suppress(psutil.Error):
                rss += psutil.Process(pid).memory_info().rss
                rss_known = True
    return (rss if rss_known else None), (pss if pss_known else None)


def _kib(text: str) -> int:
    return int(text.split()[0]) * 1024
