"""The processors of this machine, from the kernel's files: load, by whom, clock, heat. What a system doesn't show is None."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import psutil

_CPUS = Path("/sys/devices/system/cpu")
_LOOKED_AT = 8  # cores whose clock is read, spread over all


class CpuLoad:
    """Shares since the call before, in per cent of the whole machine. Time counts in ticks of 10 ms."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._machine = self._others = self._ticks()
        self._known: dict[int, int] = {}

    def machine(self) -> float | None:
        """All that is not idle."""
        if self._ticks() is None:
            return float(psutil.cpu_percent(None))
        before, self._machine = self._machine, self._ticks()
        if before is None or self._machine is None or self._machine[0] <= before[0]:
            return None
        return 100 * (self._machine[1] - before[1]) / (self._machine[0] - before[0])

    def begin(self, pids: Iterable[int]) -> None:
        """From here on :meth:`others` counts."""
        self._others, self._known = self._ticks(), self._of(pids)

    def others(self, pids: Iterable[int]) -> float | None:
        """Programs beside these processes and this one. The kernel's own work (interrupts) is nobody's and is left out.
        One that started since the call before counts from the next on."""
        known, before = self._known, self._others
        self._others, self._known = self._ticks(), self._of(pids)
        if before is None or self._others is None or self._others[0] <= before[0]:
            return None
        ours = sum(max(0, ticks - known[pid]) for pid, ticks in self._known.items() if pid in known)
        return max(0.0, 100 * (self._others[2] - before[2] - ours) / (self._others[0] - before[0]))

    def _ticks(self) -> tuple[int, int, int] | None:
        """All, not idle, and in programs."""
        try:
            with (self._proc / "stat").open("rb") as f:
                user, nice, system, idle, iowait, *kernel = (int(n) for n in f.readline().split()[1:9])
        except (OSError, ValueError):
            return None
        programs = user + nice + system
        busy = programs + sum(kernel)
        return busy + idle + iowait, busy, programs

    def _of(self, pids: Iterable[int]) -> dict[int, int]:
        return {pid: ticks for pid in {*pids, os.getpid()} if (ticks := self._used(pid)) is not None}

    def _used(self, pid: int) -> int | None:
        try:
            fields = (self._proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
            return int(fields[11]) + int(fields[12])
        except (OSError, ValueError, IndexError):
            return None


def clock_mhz(cpus: Path = _CPUS, cpuinfo: Path = Path("/proc/cpuinfo")) -> float | None:
    """Of the fastest core among some: the idle ones are slow for want of work. What a virtual machine shows as its clock is
    a fixed figure and none of this moment."""
    try:
        if files := _clock_files(cpus):
            return max(int(f.read_text()) for f in files) / 1000
        with cpuinfo.open("rb") as f:
            lines = f.read(1 << 14).decode(errors="replace").splitlines()[:-1]  # a machine of many cores has a long list
        if any(line.startswith("flags") and "hypervisor" in line.split() for line in lines):
            return None
        return max((float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")), default=None)
    except (OSError, ValueError):
        return None


@cache
def _clock_files(cpus: Path) -> list[Path]:
    files = sorted(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"), key=lambda f: int(f.parts[-3][3:]))
    return files[:: max(1, -(-len(files) // _LOOKED_AT))]


def governors(cpus: Path = _CPUS) -> list[str]:
    """How the cores' clocks are chosen, each word once; empty where the system doesn't show it."""
    found = set()
    for file in cpus.glob("cpu[0-9]*/cpufreq/scaling_governor"):
        try:
            found.add(file.read_text().strip())
        except OSError:
            continue
    return sorted(found)


def throttle_count(cpus: Path = _CPUS) -> int | None:
    """How often heat has held a processor down since the start of the machine, over one core of each."""
    try:
        counts = [int(f.read_text()) for f in _throttle_files(cpus)]
    except (OSError, ValueError):
        return None
    return sum(counts) if counts else None


@cache
def _throttle_files(cpus: Path) -> list[Path]:
    by_package: dict[str, Path] = {}
    for count in sorted(cpus.glob("cpu[0-9]*/thermal_throttle/package_throttle_count")):
        with contextlib.suppress(OSError):
            by_package.setdefault((count.parents[1] / "topology/physical_package_id").read_text().strip(), count)
    return list(by_package.values())


def sensors() -> dict[str, str]:
    """Name → "ok", or that it is missing."""
    there = {"CPU clock": clock_mhz(), "CPU throttling": throttle_count()}
    return {name: "missing: this system doesn't show it" if value is None else "ok" for name, value in there.items()}
