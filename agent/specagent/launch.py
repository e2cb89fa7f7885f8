"""Starts an engine under its keeper, waits until it answers, and stops it so that nothing is left."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from speccore.errors import EngineExitedAtStart, EngineNotHealthy, HostError

from . import keeper

LOOPBACK = "127.0.0.1"
GRACE_S = 5.0
_HEALTH_INTERVAL_S = 0.05


class Stopped(Exception):
    """Somebody asked the agent to stop what it does; no failure of the engine."""


@dataclass(frozen=True)
class Ended:
    """How an engine ended. ``exit_code`` is negative for a signal, None if it could not be learnt."""

    exit_code: int | None
    stopped_by: Literal["agent", "itself"]
    left: list[int] = field(default_factory=list)  # pids that outlived KILL


class Engine:
    """A running engine. ``pid`` is also its process group."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path) -> None:
        """Raises :class:`EngineExitedAtStart` if the executable can't be started at all."""
        self._messages: list[dict[str, Any]] = []
        self._buffer = b""
        self._ended: Ended | None = None
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", keeper.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
        )
        order = {"argv": list(argv), "env": dict(env), "cwd": str(cwd), "log": str(log), "grace_s": GRACE_S}
        self._tell(json.dumps(order).encode() + b"\n")
        first = self._next_message(timeout_s=30)
        if not first or "pid" not in first:
            self._close()
            raise EngineExitedAtStart(f"the engine can't be started: {first['failed'] if first else 'its keeper ended'}")
        self.pid = int(first["pid"])

    def ended(self, timeout_s: float = 0) -> Ended | None:
        """None while it runs. Waits up to ``timeout_s`` for its end."""
        if self._ended is None:
            message = self._next_message(timeout_s)
            if message:
                self._ended = self._learn(message)
            elif self._keeper.poll() is not None:
                self._ended = self._without_keeper()
        return self._ended

    def stop(self) -> Ended:
        """TERM, then KILL, then proof that the group is gone. Safe to call twice."""
        if self._ended is None:
            self._tell(b"stop\n")
            # the keeper needs its grace time and then some for KILL
            self.ended(timeout_s=GRACE_S + 10)
        if self._ended is None:
            self._keeper.kill()  # the engine goes with it, by its parent-death signal
            self._ended = self._without_keeper()
        self._close()
        return self._ended

    def _learn(self, message: Mapping[str, Any]) -> Ended:
        return Ended(message["exit"], message["stopped_by"], message["left"] or self._group_left())

    def _without_keeper(self) -> Ended:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, 9)
        deadline = time.monotonic() + 2
        while self._group_left() and time.monotonic() < deadline:
            time.sleep(0.02)
        return Ended(None, "agent", self._group_left())

    def _group_left(self) -> list[int]:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return []
        except PermissionError:
            pass
        return [self.pid]

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
            if not data:
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


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        port: int = s.getsockname()[1]
        return port


def fetch(port: int, path: str, timeout_s: float = 5.0) -> tuple[int, str]:
    """One GET to the engine: status and text. Raises OSError or ``http.client.HTTPException``."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Connection": "close"})
        response = connection.getresponse()
        return response.status, response.read().decode("utf-8", "replace")
    finally:
        connection.close()


def wait_healthy(engine: Engine, dialect: ModuleType, port: int, log: Path, timeout_s: float, stop: threading.Event) -> None:
    """Until /health answers 200. Raises what the log says if it exits, :class:`EngineNotHealthy` at the deadline."""
    deadline = time.monotonic() + timeout_s
    last = "it answers nothing"
    while True:
        if stop.is_set():
            raise Stopped
        ended = engine.ended()
        if ended is not None:
            failure: Exception = dialect.start_failure(read_log(log), ended.exit_code)
            raise failure
        try:
            status, _ = fetch(port, "/health", timeout_s=2.0)
            if status == 200:
                return
            last = f"/health answers {status}"
        except (OSError, http.client.HTTPException) as error:
            last = f"/health: {error}"
        if time.monotonic() > deadline:
            raise EngineNotHealthy(
                f"the engine did not become healthy within {timeout_s:g} s ({last})", start_timeout_s=timeout_s, log_tail=log_tail(log)
            )
        time.sleep(_HEALTH_INTERVAL_S)


def read_log(log: Path) -> str:
    try:
        return log.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return ""


def log_tail(log: Path, n_lines: int = 12) -> list[str]:
    return read_log(log).splitlines()[-n_lines:]


def disk_error(error: OSError, what: str) -> HostError:
    """An operating system error in words; a full disk has a class of its own."""
    from speccore.errors import DiskFull

    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{what}: {error.strerror}")
    return HostError(f"{what}: {error.strerror or error}")
