"""Which processes belong to an attempt: their identity (pid and start time), their record on disk, their mark, their cgroup.

Standard library only: the keeper imports it.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

#: The engine and its descendants carry the attempt's id under this name in their environment.
MARKER = "SPECWEB_ATTEMPT"


def write_record(path: str, order: dict[str, Any], **pids: int) -> None:
    """Who runs for this attempt: each process with the time at which it started, so that a recycled pid is never taken for it."""
    record = {
        "attempt": order["env"].get(MARKER, ""),
        "boot_id": boot_id(),
        "agent": order.get("agent"),
        "cgroup": order.get("cgroup", ""),
        "container": order.get("container"),
        "guard": [os.getppid(), start_time(os.getppid())],
        **{name: [pid, start_time(pid)] for name, pid in pids.items()},
    }
    part = f"{path}.part"
    try:
        fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            write_all(fd, json.dumps(record).encode())
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(part, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def write_all(fd: int, data: bytes) -> None:
    """A disk that is nearly full takes a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def cgroup_parent() -> str:
    """The folder of this process's own cgroup v2, '' if there is none that may get children.

    Only one that hands no controllers down: elsewhere a cgroup would change the share of the machine that an engine gets.
    """
    try:
        with open("/proc/self/mountinfo", encoding="utf-8") as f:
            mounts = [line.split() for line in f if " - cgroup2 " in line]
        with open("/proc/self/cgroup", encoding="utf-8") as f:
            own = next(line.rstrip("\n")[3:] for line in f if line.startswith("0::"))
        folder = mounts[0][4].rstrip("/") + (own if own != "/" else "")
        with open(f"{folder}/cgroup.subtree_control", encoding="ascii") as f:
            handed_down = f.read().strip()
    except (OSError, IndexError, StopIteration):
        return ""
    return folder if not handed_down and os.access(folder, os.W_OK) and os.path.exists(f"{folder}/cgroup.procs") else ""


def make_cgroup(cgroup: str) -> str:
    try:
        os.mkdir(cgroup)
    except OSError:  # '' too
        return ""
    return cgroup


def cgroup_pids(cgroup: str) -> list[int]:
    try:
        with open(f"{cgroup}/cgroup.procs", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]
    except OSError:
        return []


def kill_cgroup(cgroup: str) -> None:
    with contextlib.suppress(OSError), open(f"{cgroup}/cgroup.kill", "w", encoding="ascii") as f:
        f.write("1")


def remove_cgroup(cgroup: str) -> None:
    with contextlib.suppress(OSError):
        os.rmdir(cgroup)


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid its identity. 0 if it is not there or can't be told."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            return int(f.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as f:
            return f.read().strip()
    except OSError:
        return ""
