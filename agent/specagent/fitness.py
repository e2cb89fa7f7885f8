"""Whether this machine is fit to measure on: its GPUs, clocks, other users, memory, disk and time."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import psutil
from speccore.host_series import HARMLESS
from speccore.inventory import HostInventory

from . import cpus, priority
from .findings import GIB, Finding
from .gpus import Card, Gpus

_LEAST_FREE = 2 * GIB
#: Of the cores: a load above it is somebody else's work.
_MOST_LOAD = 0.25
#: Of a card's memory: so much the driver keeps for itself.
_DRIVERS_OWN = 0.05
_NVIDIA_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/dev/dxg"))

#: struct timex of a 64-bit Linux: where the status lies, and its bit for a clock that nobody sets.
_TIMEX_BYTES, _TIMEX_STATUS, _UNSYNCHRONISED = 256, 40, 0x0040


def gpu_findings(gpus: Gpus, driver_files: tuple[Path, ...] = _NVIDIA_DRIVER) -> list[Finding]:
    found = [f for n, card in enumerate(gpus.cards) for f in _card(n, card)]
    if gpus.status != "ok" and any(f.exists() for f in driver_files):
        why = gpus.status.removeprefix("missing: ")
        remedy = "Install the library with the agent: pip install 'specweb-agent[nvidia]'. Without it neither memory nor heat is seen."
        found.append(Finding("warn", "GPUs", f"an NVIDIA driver is here, but its cards can't be seen: {why}", remedy))
    return found or [Finding("ok", "GPUs", "none seen: engines run on the processor")]


def _card(n: int, card: Card) -> list[Finding]:
    device = card.device()
    now, _ = card.sample(set(), processes=False, rates=True)
    subject = f"GPU {n}"
    used = "" if now.used_bytes is None else f", {(device.memory_bytes - now.used_bytes) / GIB:.1f} GiB free"
    text = f"{device.name}, {device.memory_bytes / GIB:.1f} GiB{used}, driver {device.driver}, {device.uuid}"
    found = [Finding("ok", subject, text, details=now.model_dump(exclude_none=True))]
    cap, usual = card.power_cap_w(), card.default_power_cap_w()
    if cap is not None and usual is not None and cap < 0.99 * usual:
        remedy = f"If it is not meant: nvidia-smi -i {n} -pl {usual:.0f}. Results hold for the cap that was in force."
        found.append(Finding("warn", f"{subject} power", f"capped at {cap:.0f} W, the maker's cap is {usual:.0f} W", remedy))
    elif cap is not None:
        found.append(Finding("ok", f"{subject} power", f"cap {cap:.0f} W"))
    if held := sorted(set(now.throttle or []) - HARMLESS):
        remedy = "Cool the card, and wait until it is idle and cold; measured now, it would be slower than it is."
        found.append(Finding("warn", f"{subject} clock", f"held down by: {', '.join(held).replace('_', ' ')}", remedy))
    if card.persistent() is False:
        remedy = f"nvidia-smi -i {n} -pm 1, else each start of an engine loads the driver anew."
        found.append(Finding("warn", f"{subject} driver", "is unloaded while nobody uses the card (persistence mode is off)", remedy))
    return [*found, _users(subject, card, now.used_bytes, device.memory_bytes)]


def _users(subject: str, card: Card, used: int | None, total: int) -> Finding:
    subject = f"{subject} users"
    there = card.processes()
    if there is None:
        return Finding("warn", subject, "the driver doesn't tell who uses it", "Make sure that nobody does while you measure.")
    if there:
        said = ", ".join(f"{_name(pid)} ({pid}{'' if size is None else f', {size / GIB:.1f} GiB'})" for pid, size in sorted(there.items()))
        return Finding("warn", subject, said, "Stop them, or measure on a card that nobody uses.", {"pids": sorted(there)})
    if used is not None and used > _DRIVERS_OWN * total:
        text = f"{used / GIB:.1f} GiB are in use, by processes that can't be seen from here"
        return Finding("warn", subject, text, "Look at nvidia-smi outside of this container, or at another user's processes.")
    return Finding("ok", subject, "nobody")


def _name(pid: int) -> str:
    try:
        return str(psutil.Process(pid).name())
    except psutil.Error:
        return "a process"


def machine_findings(inventory: HostInventory, state_dir: Path) -> list[Finding]:
    loaded = load(os.getloadavg()[0], inventory.n_cores)
    return [governor(cpus.governors()), loaded, client(first=priority.may_go_first()), _memory(inventory), disk(state_dir), clock()]


def governor(found: list[str]) -> Finding:
    if not found:
        text = "the system doesn't show how clocks are chosen, as in most virtual machines"
        return Finding("warn", "CPU governor", text, "Look at the spread between blocks: it is all that tells of a clock that moves.")
    if found == ["performance"]:
        return Finding("ok", "CPU governor", "governor performance")
    remedy = "cpupower frequency-set -g performance, so that the first request after a pause is not the slow one."
    return Finding("warn", "CPU governor", f"governor {', '.join(found)}", remedy)


def load(load_1m: float, n_cores: int) -> Finding:
    text = f"load {load_1m:.2f} over the last minute, on {n_cores} cores"
    if load_1m > _MOST_LOAD * n_cores:
        return Finding("warn", "other work", text, "Stop what else runs here (top shows it), then wait a minute.")
    return Finding("ok", "other work", text)


def client(*, first: bool) -> Finding:
    if first:
        return Finding("ok", "client", "is served before other programs while it measures")
    remedy = "Allow it real-time priority 1 (LimitRTPRIO=1 in its systemd unit, rtprio in limits.conf), or keep a core free."
    return Finding(
        "warn", "client", "waits for its turn like any program: beside busy ones it reads late, and measures nothing then", remedy
    )


def _memory(inventory: HostInventory) -> Finding:
    free = psutil.virtual_memory().available
    text = f"{free / GIB:.1f} GiB of {inventory.memory_bytes / GIB:.1f} GiB free"
    largest = max(inventory.models, key=lambda m: m.size_bytes, default=None)
    if largest and largest.size_bytes > free:
        remedy = "Free memory, or take a smaller model; one that is read from disk again and again measures the disk."
        return Finding("warn", "memory", f"{text}; {largest.alias} alone has {largest.size_bytes / GIB:.1f} GiB", remedy)
    return Finding("ok", "memory", text)


def disk(state_dir: Path) -> Finding:
    there = state_dir
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    text = f"{free / GIB:.1f} GiB free for {state_dir}"
    if free < _LEAST_FREE:
        return Finding("fail", "disk", text, f"Free {_LEAST_FREE / GIB:.0f} GiB, or set state_dir to another disk.")
    return Finding("ok", "disk", text)


def clock(status: Callable[[], int | None] | None = None) -> Finding:
    """By the kernel's own word, which every time service keeps up to date."""
    bits = (status or _timex_status)()
    if bits is None:
        return Finding("warn", "time", "the kernel doesn't say whether its clock is kept right", "Compare it with another clock.")
    if bits & _UNSYNCHRONISED:
        remedy = "Start a time service (systemd-timesyncd, chrony). Durations are not touched by it; moments on pages are."
        return Finding("warn", "time", "nobody keeps the clock right", remedy)
    return Finding("ok", "time", "the clock is kept right")


def _timex_status() -> int | None:
    try:
        ask = ctypes.CDLL(None, use_errno=True).adjtimex
        answer = ctypes.create_string_buffer(_TIMEX_BYTES)  # all zeros: nothing is to be changed
        if ctypes.sizeof(ctypes.c_long) != 8 or ask(answer) < 0:
            return None
    except (OSError, AttributeError):
        return None
    return int(ctypes.c_int.from_buffer(answer, _TIMEX_STATUS).value)
