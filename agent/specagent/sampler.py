"""Memory, load, clocks and heat while a trial runs: a thread that looks ten times each second and keeps what it saw, raw.

Proportional memory (PSS) is read between requests only: the kernel then walks every page of the engine, about 20 ms for
each GiB, and holds its memory map meanwhile. In a timed request that would slow the arm with more memory. For the same
reason what costs more than a file's read is asked twice a second only: which processes there are, and who is on a device.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
from speccore.records import DeviceSample, Sample

from . import cpus
from .gpus import Gpus
from .priority import before_others

INTERVAL_S = 0.1
#: Each so-manieth look is a thorough one.
THOROUGH = 5
#: Why there may be no sample at a moment: the engine is gone, or a sensor says what can't be.
_NO_SAMPLE = (psutil.Error, OSError, ValueError)

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class Sampler:
    """Samples of the process tree of ``pid`` (0: none can be seen) from :meth:`start` to :meth:`stop`. ``phase`` names what the trial does now.

    ``memory``: what tells an engine's memory where its processes can't be seen.
    """

    def __init__(self, pid: int, t0: float, phase: Callable[[], str], gpus: Gpus, memory: Callable[[], int | None] | None = None) -> None:
        self._memory = memory
        self.samples: list[Sample] = []
        self.cpu_s = 0.0  # what sampling has cost, once it is over
        self._pid, self._t0, self._phase, self._gpus = pid, t0, phase, gpus
        self._pids = _below(pid)
        self._load = cpus.CpuLoad()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sampler", daemon=True)

    def start(self) -> None:
        self._load.machine()  # the first answer has no interval behind it
        self._load.begin(self._pids)
        self._thread.start()

    def stop(self) -> None:
        self._done.set()
        self._thread.join(timeout=5)

    def look(self) -> None:
        """One look more, now, while no request runs: with proportional memory, without the loads, which need an interval."""
        with contextlib.suppress(*_NO_SAMPLE):
            pids = _below(self._pid)
            devices, held = self._gpus.sample(pids, processes=True, rates=False)
            self.samples.append(
                self._sample(pids, devices, held, pss_bytes=proportional_of(pids), available_bytes=psutil.virtual_memory().available)
            )

    def _run(self) -> None:
        with before_others():  # put aside while it holds the interpreter, it would hold up the client too
            self._look_often()

    def _look_often(self) -> None:
        n, due = 0, time.monotonic()
        while True:
            # from when it was due, so that a slow answer shifts no later look; a missed one is not made up for
            due = max(due + INTERVAL_S, time.monotonic())
            if self._done.wait(max(0.0, due - time.monotonic())):
                break
            with contextlib.suppress(*_NO_SAMPLE):
                self.samples.append(self._thorough() if n % THOROUGH == 0 else self._quick())
            n += 1
        self.cpu_s = time.thread_time()

    def _quick(self) -> Sample:
        devices, held = self._gpus.sample(self._pids, processes=False, rates=False)
        return self._sample(self._pids, devices, held, cpu_percent=self._load.machine())

    def _thorough(self) -> Sample:
        self._pids = _below(self._pid)
        devices, held = self._gpus.sample(self._pids, processes=True, rates=True)
        return self._sample(
            self._pids,
            devices,
            held,
            cpu_percent=self._load.machine(),
            others_cpu_percent=self._load.others(self._pids) if self._pid else None,
            cpu_mhz=cpus.clock_mhz(),
            cpu_throttled=cpus.throttle_count(),
            available_bytes=psutil.virtual_memory().available,
        )

    def _sample(self, pids: Sequence[int], devices: dict[str, DeviceSample], held: dict[str, int], **seen: int | float | None) -> Sample:
        heat = [d.temperature_c for d in devices.values() if d.temperature_c is not None]
        clocks = [d.clock_mhz for d in devices.values() if d.clock_mhz is not None]
        return Sample(
            at_s=time.monotonic() - self._t0,
            phase=self._phase(),
            rss_bytes=self._memory() if self._memory and not pids else resident(pids),
            device_bytes=held if pids else {},
            load_1m=os.getloadavg()[0],
            temperature_c=max(heat, default=None),
            clock_mhz=min(clocks, default=None),
            devices=devices,
            **seen,
        )


def _below(pid: int) -> list[int]:
    """0 stands for an engine whose processes can't be seen: then nothing is its own."""
    return process_tree(pid) if pid else []


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


def resident(pids: Sequence[int]) -> int | None:
    """Resident bytes of all these processes together; None if none of them is there."""
    sizes = []
    for pid in pids:
        with contextlib.suppress(psutil.Error):
            sizes.append(_resident_of(pid))
    return sum(sizes) if sizes else None


def _resident_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as f:
            pages = int(f.read().split()[1])
    except (OSError, IndexError, ValueError):
        return int(psutil.Process(pid).memory_info().rss)
    if not pages:  # it has ended and only its number is left
        raise psutil.NoSuchProcess(pid)
    return pages * _PAGE_BYTES


def proportional_of(pids: Sequence[int]) -> int | None:
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
