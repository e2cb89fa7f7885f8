"""Starts an engine under its keeper and stops it so that nothing is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from speccore.errors import DiskFull, EngineExitedAtStart, HostError

from . import processes, sweep
from .asking import Address
from .listeners import check_listener
from .sampler import process_tree

GRACE_S = 5.0
#: Grace where somebody waits for the end: a cancelled job is gone within five seconds, whatever the engine does.
SHORT_GRACE_S = 1.0
_TAIL_BYTES = 1 << 16
_KEEPER = "import sys; sys.path.insert(0, {root!r}); from specagent.keeper import main; sys.exit(main())"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class Stopped(Exception):
    """Somebody asked the agent to stop what it does; no failure of the engine."""


@dataclass(frozen=True)
class Ended:
    """How an engine ended. ``exit_code`` is negative for a signal, None if it could not be learnt."""

    exit_code: int | None
    stopped_by: Literal["agent", "itself", ""]  # empty: it was not stopped, since it is somebody else's
    left: list[int] = field(default_factory=list)  # pids that outlived KILL
    log_errno: int = 0  # why its log is not whole


class Engine:
    """A running engine. ``pid`` is also its process group."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        log: Path,
        *,
        record: Path | None = None,
        container: Mapping[str, str] | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        """``record``: where it is put on record before it runs, named after its attempt. ``container``: what goes on record of the container
        that this process stands for. ``grace_s``: from TERM to KILL if the agent is gone.

        Raises :class:`EngineExitedAtStart` if the executable can't be started at all, OSError if the disk is full.
        """
        self._buffer = b""
        self._ended: Ended | None = None
        attempt = record.stem if record else str(uuid.uuid4())
        self._record = record
        self.keeps_record = False  # set where something of the attempt is left that the next start of the agent must end
        self._oom_kills = _oom_kills()
        self._identity: dict[str, Any] = {"attempt": attempt, "cgroup": _cgroup(attempt)}
        self._keeper = _keeper_started()
        order = {
            "argv": list(argv),
            "env": {**env, processes.MARKER: attempt},
            "cwd": str(cwd),
            "log": str(log),
            "grace_s": grace_s,
            "container": dict(container) if container else None,
            "record": str(record) if record else "",
            "agent": [os.getpid(), processes.start_time(os.getpid())],
            "cgroup": self._identity["cgroup"],
        }
        self._tell(json.dumps(order).encode() + b"\n")
        first = self._next_message(timeout_s=30)
        if not first or "pid" not in first:
            self._close()
            if first and first["errno"] in _NO_ROOM:
                raise OSError(first["errno"], os.strerror(first["errno"]), first["where"])
            raise EngineExitedAtStart(f"the engine can't be started: {first['failed'] if first else 'its keeper ended'}")
        self.pid = int(first["pid"])
        self._identity["engine"] = [self.pid, processes.start_time(self.pid)]

    def ended(self, timeout_s: float = 0) -> Ended | None:
        """None while it runs. Waits up to ``timeout_s`` for its end."""
        if self._ended is None:
            message = self._next_message(timeout_s)
            if message:
                self._ended = Ended(message["exit"], message["stopped_by"], message["left"], message["log_errno"])
            elif self._keeper.poll() is not None:
                self._ended = self._without_keeper()
        return self._ended

    def kernel_oom(self) -> bool:
        """Whether the kernel has killed a process of this machine for want of memory since the engine was started."""
        return _oom_kills() > self._oom_kills

    def stop(self, hurry: threading.Event | None = None) -> Ended:
        """TERM, KILL after the grace time, then proof that nothing of it is left. Safe to call twice.

        ``hurry``: somebody waits for the end, from the start on or from when it is set.
        """
        if self._ended is None:
            self._tell(f"stop {GRACE_S:g}\n".encode())
            # the keeper needs its grace time and then some for KILL
            deadline = time.monotonic() + GRACE_S + 10
            hurried = False
            while self.ended(timeout_s=0.05) is None and time.monotonic() < deadline:
                if hurry and hurry.is_set() and not hurried:
                    hurried = True
                    self._tell(f"stop {SHORT_GRACE_S:g}\n".encode())
        if self._ended is None:
            self._keeper.kill()
            self._ended = self._without_keeper()
        self._close()
        if self._record and not self._ended.left and not self.keeps_record:
            self._record.unlink(missing_ok=True)
        return self._ended

    def has_gone(self) -> bool:
        """Its end is told a moment later than it happens."""
        gone = os.path.isdir("/proc") and not os.path.isdir(f"/proc/{self.pid}")
        return self.ended(timeout_s=2.0 if gone else 0.0) is not None

    def signal(self, number: int) -> None:
        """To its first process, if it still is that one."""
        if self._ended is None and processes.start_time(self.pid) == self._identity["engine"][1]:
            with contextlib.suppress(OSError):
                os.kill(self.pid, number)

    def check_listener(self, at: Address) -> None:
        """Raises :class:`PortUnavailable` if a process that is not of this engine takes connections there."""
        check_listener(self.pid, self.pids, at.port)

    def pids(self) -> set[int]:
        """The engine and what is below it."""
        return {*process_tree(self.pid), *processes.cgroup_pids(self._identity["cgroup"])}

    def _without_keeper(self) -> Ended:
        _, left = sweep.end_attempt(self._identity)
        return Ended(None, "agent", left)

    def _tell(self, data: bytes) -> None:
        assert self._keeper.stdin
        with contextlib.suppress(BrokenPipeError):
            self._keeper.stdin.write(data)
            self._keeper.stdin.flush()

    def _next_message(self, timeout_s: float) -> dict[str, Any] | None:
        assert self._keeper.stdout
        fd = self._keeper.stdout.fileno()
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            data = os.read(fd, 65536)
            if not data:  # guard and keeper are gone
                self._keeper.wait(timeout=5)
                return None
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _close(self) -> None:
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe and not pipe.closed:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        try:
            self._keeper.wait(timeout=GRACE_S + 10)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()


def _keeper_started() -> subprocess.Popen[bytes]:
    """It waits for its order, and outlives the agent."""
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _KEEPER.format(root=str(Path(__file__).resolve().parents[1]))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        cwd="/",
    )


def _cgroup(attempt: str) -> str:
    """Where the engine's own cgroup would be, '' where none may be made."""
    parent = processes.cgroup_parent()
    return f"{parent}/specweb-{attempt}" if parent else ""


def read_log(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def log_tail(log: Path, n_lines: int = 12, width: int = 2000) -> list[str]:
    """The last lines, each cut to ``width`` characters; of a log of any size, since only its end is read."""
    try:
        with log.open("rb") as f:
            start = max(0, f.seek(0, os.SEEK_END) - _TAIL_BYTES)
            f.seek(start)
            lines = f.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    return [line[:width] for line in lines[1 if start else 0 :][-n_lines:]]


def is_no_room(error: OSError) -> bool:
    return error.errno in _NO_ROOM


def disk_error(error: OSError, what: str) -> HostError:
    """An operating system error in words; a full disk has a class of its own."""
    where = f" ({error.filename})" if error.filename else ""
    if is_no_room(error):
        return DiskFull(f"{what}: {error.strerror}{where}")
    return HostError(f"{what}: {error.strerror or error}{where}")


def _oom_kills() -> int:
    """Processes that the kernel has killed for want of memory since it was started (Linux); 0 where it doesn't tell."""
    with contextlib.suppress(OSError, ValueError), open("/proc/vmstat", encoding="ascii") as f:
        return next((int(line.split()[1]) for line in f if line.startswith("oom_kill ")), 0)
    return 0
