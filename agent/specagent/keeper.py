"""The engine's watchdog: a tiny process in its own session that owns the engine's process group and ends it when the agent says so or is gone.

Standard library only, since it is run by its path without site packages. One JSON line on standard input says what to
start; after that a line "stop", or the end of the input (the agent died), ends the engine: TERM, then KILL after the
grace time. On standard output: {"pid": …} or {"failed": …}, and at the end {"exit", "stopped_by", "left"}.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_WAIT_S = 5.0


def main() -> int:
    order = json.loads(_read_line(0))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the wake-up pipe carries them
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        engine = _start(order)
    except OSError as error:
        _say({"failed": f"{order['argv'][0]}: {error.strerror}"})
        return 1
    _say({"pid": engine})
    exit_code, stopped_by = _watch(engine, wake_r)
    ended, left = _end_group(engine, float(order["grace_s"]))
    if exit_code is None:
        exit_code = ended.get(engine)
    _say({"exit": exit_code, "stopped_by": stopped_by, "left": left})
    return 0


def _start(order: dict[str, Any]) -> int:
    keeper = os.getpid()

    def die_with_keeper() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != keeper:  # it died before the line above
            os._exit(127)
        # when the machine runs out of memory, the kernel shall take the engine and not the agent that reports it
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as f:
            f.write("500")

    with open(order["log"], "ab", buffering=0) as log:
        process = subprocess.Popen(
            order["argv"],
            env=order["env"],
            cwd=order["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            process_group=0,
            preexec_fn=die_with_keeper,
        )
    process.returncode = 0  # reaped below with all other children, so Popen must not
    return process.pid


def _watch(engine: int, wake_r: int) -> tuple[int | None, str]:
    """Waits until the engine ends by itself, or until the agent says stop or is gone."""
    while True:
        ready, _, _ = select.select([0, wake_r], [], [])
        if wake_r in ready:
            numbers = os.read(wake_r, 512)
            ended = _reap()
            if engine in ended:
                return ended[engine], "itself"
            if signal.SIGTERM in numbers:
                return None, "agent"
        if 0 in ready:
            return None, "agent"  # "stop", or the end of the input


def _end_group(engine: int, grace_s: float) -> tuple[dict[int, int], list[int]]:
    """TERM to the group, KILL after the grace time; returns exit codes by pid, and the pids that are left all the same."""
    ended: dict[int, int] = {}
    for number, wait_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
        deadline = time.monotonic() + wait_s
        _signal_all(engine, number)
        while time.monotonic() < deadline:
            ended |= _reap()
            if not _remaining(engine):
                return ended, []
            if number == signal.SIGKILL:
                _signal_all(engine, number)  # children of the killed come to us only now
            time.sleep(0.01)
    return ended, _remaining(engine)


def _signal_all(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        os.killpg(group, signal.SIGCONT)  # a stopped process hears TERM only when it goes on
    if number != signal.SIGKILL:
        return  # a second TERM to the same process would cut its orderly end short
    for pid in _children():  # a child that left the group comes to us when its parent ends
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _remaining(group: int) -> list[int]:
    pids = set(_children())
    try:
        os.killpg(group, 0)
        pids.add(group)
    except ProcessLookupError:
        pass
    except PermissionError:
        pids.add(group)
    return sorted(pids)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as f:
            return [int(pid) for pid in f.read().split()]
    except OSError:
        return []


def _reap() -> dict[int, int]:
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = os.waitstatus_to_exitcode(status)


def _read_line(fd: int) -> bytes:
    """One line and no byte more, so that select sees what follows."""
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(fd, 1)
        if not byte:
            break
        line += byte
    return line


def _say(message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # the agent may be gone; the work goes on
        os.write(1, json.dumps(message).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(AttributeError, OSError):  # Linux only
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
