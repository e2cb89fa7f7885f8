"""The engine's watchdog: two tiny processes that own an engine and all its descendants, and end them when the agent says so or is gone.

Standard library only, as all that it imports: it must be small and start at once. One JSON line on standard input says what to
start; after that a line "stop SECONDS", or the end of the input (the agent died), ends the engine: TERM, then KILL after
the grace time, then proof that nothing is left. On standard output: {"pid": …} or {"failed": …}, and at the end
{"exit", "stopped_by", "left", "log_errno"}.

The *guard* starts the *keeper*, which starts the engine; both are subreapers, each in a session of its own. Whichever of
them is killed, the other ends what is there: the keeper hears of the guard's death by a signal, and orphans of a killed
keeper come to the guard. For the case that both are killed together, what runs is on record before it runs, marked in
its environment and, where cgroup v2 can be written, in a cgroup of its own; the agent sweeps by these (``sweep.py``).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import time
from typing import Any

from .enginelog import EngineLog
from .processes import cgroup_pids, kill_cgroup, make_cgroup, remove_cgroup, write_record

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_KILL_WAIT_S = 5.0
_STRAY_WAIT_S = 0.5  # what is left when the engine's own group has ended
#: The log is drained this often while little comes, so that a line of the log wakes nobody in the middle of a probe.
_DRAIN_S = 0.1


def main() -> int:
    """The guard."""
    order = json.loads(_read_line(0))
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the agent speaks through the pipe
    guard = os.getpid()
    keeper = os.fork()
    if keeper == 0:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        os._exit(_keep(order, guard))
    status = 0
    while True:
        pid, ended = os.waitpid(-1, 0)
        if pid == keeper:
            status = ended
            break
    left = _end_children()
    if os.WIFSIGNALED(status):
        remove_cgroup(order.get("cgroup", ""))
        _say({"exit": None, "stopped_by": "agent", "left": left, "log_errno": 0})
    return 0


def _keep(order: dict[str, Any], guard: int) -> int:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)  # the wake-up pipe carries them
    if os.getppid() != guard:  # it died before the lines above
        return 0
    try:
        log_r, log_w = os.pipe2(os.O_CLOEXEC)
        log = EngineLog(order["log"], log_r)
        engine = _start(order, log_w)
        os.close(log_w)
    except OSError as error:
        remove_cgroup(order.get("cgroup", ""))
        _say({"failed": f"{error.filename or order['argv'][0]}: {error.strerror}", "errno": error.errno, "where": error.filename or ""})
        return 0
    _say({"pid": engine})
    exit_code, stopped_by, grace_s = _watch(engine, wake_r, log, float(order["grace_s"]))
    ended, left = _end_all(engine, grace_s, log, order.get("cgroup", ""))
    if exit_code is None:
        exit_code = ended.get(engine)
    log.close()
    _say({"exit": exit_code, "stopped_by": stopped_by, "left": left, "log_errno": log.errno})
    return 0


def _start(order: dict[str, Any], log_w: int) -> int:
    """Forks the engine, puts it on record, and only then lets it run. Raises OSError if it can't be run or recorded."""
    keeper = os.getpid()
    go_r, go_w = os.pipe2(os.O_CLOEXEC)
    failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
    cgroup = make_cgroup(order.get("cgroup", ""))
    engine = os.fork()
    if engine == 0:
        try:
            os.close(go_w)
            _become_engine(order, keeper, go_r, log_w)
        except OSError as error:
            os.write(failed_w, f"{error.errno} {error.filename or ''}".encode())
        finally:
            os._exit(127)
    os.close(go_r)
    os.close(failed_w)
    try:
        if cgroup:
            with contextlib.suppress(OSError), open(f"{cgroup}/cgroup.procs", "w", encoding="ascii") as f:
                f.write(str(engine))
        if order.get("record"):
            write_record(order["record"], order, engine=engine, keeper=keeper)
        os.write(go_w, b"g")
    except OSError:
        os.kill(engine, signal.SIGKILL)
        os.waitpid(engine, 0)
        raise
    finally:
        os.close(go_w)
    failed = b""
    while data := os.read(failed_r, 4096):
        failed += data
    os.close(failed_r)
    if failed:
        number, _, where = failed.decode("utf-8", "replace").partition(" ")
        os.waitpid(engine, 0)
        with contextlib.suppress(OSError):
            os.unlink(order.get("record", ""))
        raise OSError(int(number), os.strerror(int(number)), where or order["argv"][0])
    return engine


def _become_engine(order: dict[str, Any], keeper: int, go_r: int, log_w: int) -> None:
    """In the fork: a process group of its own, killed with the keeper, its output in the pipe."""
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != keeper:  # it died before the line above
        os._exit(127)
    # when the machine runs out of memory, the kernel shall take the engine and not the agent that reports it
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as f:
        f.write("500")
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log_w, 1), (log_w, 2)):
        os.dup2(source, target)
    os.chdir(order["cwd"])
    if os.read(go_r, 1) != b"g":  # the keeper is gone
        os._exit(127)
    os.execvpe(order["argv"][0], order["argv"], order["env"])  # noqa: S606  no shell is wanted


def _watch(engine: int, wake_r: int, log: EngineLog, grace_s: float) -> tuple[int | None, str, float]:
    """Waits until the engine ends by itself, or until the agent says stop or is gone; with the grace time to give."""
    while True:
        fds = [0, wake_r, log.pipe] if log.is_busy else [0, wake_r]
        ready, _, _ = select.select(fds, [], [], _DRAIN_S)
        log.drain()
        if wake_r in ready:
            numbers = os.read(wake_r, 512)
            ended = _reap()
            if engine in ended:
                return ended[engine], "itself", grace_s
            if signal.SIGTERM in numbers:
                return None, "agent", grace_s
        if 0 in ready:  # "stop SECONDS", or the end of the input
            words = _read_line(0).split()
            return None, "agent", float(words[1]) if len(words) == 2 else grace_s


def _end_all(engine: int, grace_s: float, log: EngineLog, cgroup: str) -> tuple[dict[int, int], list[int]]:
    """TERM to the engine's group, KILL after the grace time to all; returns exit codes by pid, and the pids that are left all the same.

    What left the group never hears TERM from us, so it is killed soon after the group has ended.
    """
    ended: dict[int, int] = {}
    _signal_group(engine, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    heard = [0]
    while _remaining(engine, cgroup) and time.monotonic() < deadline:
        if select.select(heard, [], [], 0.01)[0]:  # the agent is in a hurry now, or is gone
            words = _read_line(0).split()
            deadline = min(deadline, time.monotonic() + float(words[1])) if len(words) == 2 else deadline
            heard = heard if words else []
        log.drain()
        ended |= _reap()
        if not _group_lives(engine):
            deadline = min(deadline, time.monotonic() + _STRAY_WAIT_S)
    deadline = time.monotonic() + _KILL_WAIT_S
    while left := _remaining(engine, cgroup):
        if time.monotonic() > deadline:
            return ended, left
        _signal_group(engine, signal.SIGKILL)
        kill_cgroup(cgroup)
        _kill(left)
        log.drain()
        time.sleep(0.01)
        ended |= _reap()  # children of the killed come to us only now
    remove_cgroup(cgroup)
    return ended | _reap(), []


def _end_children() -> list[int]:
    """The guard's part: what came to it when its keeper died."""
    deadline = time.monotonic() + _KILL_WAIT_S
    while children := _children():
        if time.monotonic() > deadline:
            return children
        _kill(children)
        time.sleep(0.01)
        _reap()
    return []


def _signal_group(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
        os.killpg(group, signal.SIGCONT)  # a stopped process hears TERM only when it goes on


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _remaining(group: int, cgroup: str) -> list[int]:
    pids = {*_children(), *cgroup_pids(cgroup)}
    if _group_lives(group):
        pids.add(group)
    return sorted(pids)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


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
