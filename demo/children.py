"""Child processes that never outlive their parent: started in their own group, told when the parent dies, stopped in order."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
# Loaded before any fork: a child between fork and exec must not import or open libraries.
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class User:
    """The account that a child runs under."""

    name: str
    uid: int
    gid: int


def service_user() -> User | None:
    """The unprivileged account for servers when the caller is root (``SPECWEB_USER``, default nobody); else None."""
    if os.geteuid() != 0:
        return None
    name = os.environ.get("SPECWEB_USER", "nobody")
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise LookupError(f"user {name!r} does not exist; create it (useradd --system {name}) or set SPECWEB_USER") from None
    if entry.pw_uid == 0:
        raise LookupError(f"SPECWEB_USER={name} is root, and PostgreSQL refuses to run as root; name another user")
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def spawn(
    argv: Sequence[str | Path],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    user: User | None = None,
    on_parent_death: signal.Signals = signal.SIGTERM,
    nice: int = 0,
    stdin: str | None = None,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[str]:
    """Starts a child in its own process group; the kernel sends it ``on_parent_death`` when this process dies.

    The kernel ties that signal to the *thread* that forked, so only the main thread may call this. ``log`` takes both
    outputs (appended), else both are captured in a pipe. ``stdin`` is text to feed to the child before it is awaited.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("spawn() must run in the main thread: a child dies with the thread that started it")
    parent = os.getpid()

    def between_fork_and_exec() -> None:
        # Popen has changed user and group by now; doing so later would clear the death signal.
        _LIBC.prctl(_PR_SET_PDEATHSIG, int(on_parent_death), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)
        if nice:
            os.nice(nice)

    output = log.open("ab") if log else None
    try:
        child = subprocess.Popen(
            [str(a) for a in argv],
            stdin=subprocess.DEVNULL if stdin is None else subprocess.PIPE,
            stdout=output or subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=None if env is None else dict(env),
            cwd=cwd,
            text=True,
            start_new_session=True,  # a Ctrl-C in the terminal reaches us alone; we stop the children in order
            preexec_fn=between_fork_and_exec,
            user=user.uid if user else None,
            group=user.gid if user else None,
            extra_groups=[] if user else None,
            pass_fds=pass_fds,
        )
    finally:
        if output:
            output.close()
    if stdin is not None and child.stdin:
        child.stdin.write(stdin)
        child.stdin.close()
        child.stdin = None
    return child


def stop(child: subprocess.Popen[str], *, first: signal.Signals = signal.SIGTERM, grace_s: float = 10.0) -> None:
    """Asks the child to end, then kills its whole group; returns when the child is reaped."""
    if child.poll() is None:
        child.send_signal(first)
        try:
            child.wait(grace_s)
        except subprocess.TimeoutExpired:
            _kill_group(child.pid)
            child.wait()
    # Whatever the child itself left behind in its group goes too.
    _kill_group(child.pid)


def _kill_group(pgid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pgid, signal.SIGKILL)


def tail(path: Path, n_lines: int = 15) -> str:
    """The last lines of a log, or a note that there is none."""
    try:
        with path.open("rb") as f:
            f.seek(max(0, path.stat().st_size - 64_000))
            lines = f.read().decode(errors="replace").splitlines()
    except OSError:
        return f"(no log at {path})"
    return "\n".join(lines[-n_lines:])
