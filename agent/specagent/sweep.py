"""Ends what an attempt left running: found by its record, its mark in the environment and its cgroup, never by a bare pid."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from speccore.errors import SpecWebError

from . import container_removal, processes, scratch
from .processes import MARKER, start_time

log = logging.getLogger(__name__)

_WAIT_S = 5.0


def sweep_records(folder: Path, container_engines: Iterable[str] = ()) -> list[int]:
    """Ends all that attempts on record left, unless their agent still lives; returns the pids that were ended.

    A record stays where something could not be ended, so that the next start tries again. ``container_engines``: addresses where
    containers of this state folder are looked for by their labels too.
    """
    ended: list[int] = []
    for path in sorted(folder.glob("*.json")) if folder.is_dir() else []:
        record = read_record(path)
        if record is None:
            path.unlink(missing_ok=True)
            continue
        rebooted = record.get("boot_id") != processes.boot_id()  # no process lives through that, but a container's remains do
        if not rebooted and _lives(record.get("agent")):
            continue
        found, left = ([], []) if rebooted else end_attempt(record)
        ended += found
        if left:
            log.error("processes %s of attempt %s can't be ended; see why they hang (ps -o stat,wchan -p PID)", left, path.stem)
        elif _container_is_gone(record, ended):
            scratch.sweep(path.stem)
            path.unlink(missing_ok=True)
    for address in dict.fromkeys(container_engines):
        try:
            ended += container_removal.remove_abandoned(address, folder, _label_lives)
        except SpecWebError as error:
            log.error("%s (%s)", error.message, error.remedy)
    return ended


def _container_is_gone(record: dict[str, Any], ended: list[int]) -> bool:
    """Whether the attempt's container, if it had one, is removed with its network and its private folder."""
    if not isinstance(container := record.get("container"), dict):
        return True
    try:
        ended += container_removal.remove_attempt(container["docker"], record["attempt"])
    except SpecWebError as error:
        log.error("container of attempt %s: %s (%s)", record.get("attempt"), error.message, error.remedy)
        return False
    shutil.rmtree(container["folder"], ignore_errors=True)
    return True


def _label_lives(label: str) -> bool:
    """Whether the agent runs that a label names (see ``container_removal.agent_label``)."""
    words = label.split()
    return len(words) == 3 and words[0] == processes.boot_id() and _lives([int(w) for w in words[1:] if w.isdigit()])


def read_record(path: Path) -> dict[str, Any] | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def end_attempt(record: dict[str, Any]) -> tuple[list[int], list[int]]:
    """KILL to all that belongs to the attempt until nothing is left; returns what was there and what is left all the same."""
    seen: set[int] = set()
    deadline = time.monotonic() + _WAIT_S
    while left := sorted(_belonging(record)):
        if time.monotonic() > deadline:
            return sorted(seen), left
        seen.update(left)
        processes.kill_cgroup(record.get("cgroup", ""))
        for pid in left:
            _kill(pid, record)
        time.sleep(0.02)
    processes.remove_cgroup(record.get("cgroup", ""))
    return sorted(seen), []


def _belonging(record: dict[str, Any]) -> set[int]:
    """The engine and what carries the attempt's mark or is in its cgroup. Keepers end by themselves when nothing is left for them."""
    pids = {*processes.cgroup_pids(record.get("cgroup", "")), *_marked(record.get("attempt", ""))}
    engine = record.get("engine")
    if engine and _lives(engine):
        pids.add(engine[0])
    return {pid for pid in pids if pid != os.getpid() and _runs(pid)}


def _marked(attempt: str) -> set[int]:
    """Processes whose environment at their start had the attempt's mark."""
    if not attempt:
        return set()
    mark = b"\0" + f"{MARKER}={attempt}".encode() + b"\0"
    found = set()
    for entry in os.scandir("/proc") if os.path.isdir("/proc") else []:
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{entry.name}/environ", "rb") as f:
            if mark in b"\0" + f.read() + b"\0":
                found.add(int(entry.name))
    return found


def _kill(pid: int, record: dict[str, Any]) -> None:
    """Through a handle on the process, looked at once more: between look and kill a pid may pass to somebody else."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, OSError):
        return
    try:
        if pid in _belonging(record):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    except OSError:
        pass
    finally:
        os.close(handle)


def _lives(identity: Any) -> bool:
    """Whether the very process runs that was put on record as [pid, start time]."""
    if not isinstance(identity, list) or len(identity) != 2:
        return False
    pid, started = identity
    return started > 0 and start_time(pid) == started and _runs(pid)


def _runs(pid: int) -> bool:
    """A zombie does not run: it only waits for its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return f.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False
