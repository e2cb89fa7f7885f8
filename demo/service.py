"""The whole service on one machine: embedded servers, web, worker, timetable and an agent, started and stopped in order.

Who holds it either asks :meth:`Service.check` and stops when a part has ended, as the demo does, or calls
:meth:`Service.mend`, which starts ended parts again, as a supervisor in production does.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from demo import preflight
from demo.children import spawn, stop, tail
from demo.stack import Stack

ROOT = Path(__file__).resolve().parent.parent
WEB_READY_S = 60.0
#: The port of a web server that was killed is free when the last of its processes has noticed.
PORT_FREE_S = 15.0
#: The engine under test shares the cores, so everything of ours but the agent (which takes the times) stands back.
LOW_PRIORITY = 10
#: What ``manage.py`` must know to speak with the service.
_TOLD = ("DEBUG", "DATABASE_URL", "BROKER_URL", "SECRET_KEY", "SPECWEB_BASE_URL", "SPECWEB_EVIDENCE_DIR", "SPECWEB_STATIC_ROOT")


class ChildDied(RuntimeError):
    """A part of the service has ended by itself; the message names it and shows the end of its log."""


class Service:
    """State lives in ``home``; the web listens on loopback at ``port``. Servers of your own replace the embedded ones.

    ``settings`` are environment variables for all parts. The parts are called web, worker, beat and agent, and the embedded
    servers postgres and valkey.
    """

    def __init__(
        self, home: Path, port: int, *, database_url: str = "", broker_url: str = "", settings: Mapping[str, str] | None = None
    ) -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        self.environment: dict[str, str] = {}
        self._port = port
        self._given = (database_url, broker_url)
        self._stack = Stack(home, postgres=not database_url, valkey=not broker_url)
        self._settings = settings or {}
        self._children: dict[str, subprocess.Popen[str]] = {}
        self._listener: socket.socket | None = None
        self._starters: dict[str, Callable[[], None]] = {}

    def start_servers(self) -> None:
        """PostgreSQL and Valkey. Afterwards ``environment`` holds what Django and its processes need."""
        # Taken first and handed on to the web server: were the port free until that starts, another service could have it.
        self._listener = _listening(self._port)
        addresses = self._stack.start()
        database_url, broker_url = self._given
        self.environment = {
            **os.environ,
            "DEBUG": "0",
            "DJANGO_SETTINGS_MODULE": "specweb.settings",
            "DATABASE_URL": database_url or addresses.database_url,
            "BROKER_URL": broker_url or addresses.broker_url,
            "SECRET_KEY": _kept_secret(self.home / "secret_key"),
            "SPECWEB_BASE_URL": self.url,
            "SPECWEB_EVIDENCE_DIR": str(_private_folder(self.home / "evidence")),
            "SPECWEB_STATIC_ROOT": str(self.home / "static"),
            "SPECWEB_POLL_IDLE_S": "2",  # nobody is far away
            "PYTHONUNBUFFERED": "1",
            **self._settings,
        }
        told = {name: self.environment[name] for name in _TOLD if name in self.environment}
        _write_private(self.home / preflight.ENVIRONMENT_FILE, json.dumps(told, indent=1) + "\n")

    def start_web(self) -> None:
        """Web server, worker and timetable; returns when the web answers. Raises :class:`ChildDied`."""
        self._start("web", self._spawn_web)
        celery = ["celery", "-A", "workers.app"]
        worker = [*celery, "worker", "--concurrency", "1", "--without-gossip", "--without-mingle"]
        self._start("worker", lambda: self._spawn("worker", worker, nice=LOW_PRIORITY))
        beat = [*celery, "beat", "--pidfile", "", "--schedule", str(self.home / "timetable")]
        self._start("beat", lambda: self._spawn("beat", beat, nice=LOW_PRIORITY))
        until = time.monotonic() + WEB_READY_S
        while not self._web_answers():
            self.check()
            if time.monotonic() > until:
                raise ChildDied(f"web does not answer at {self.url}; last lines of {self._log('web')}:\n{tail(self._log('web'))}")
            time.sleep(0.1)

    def start_agent(self, config: Path) -> None:
        self._start("agent", lambda: self._spawn("agent", ["specagent.cli", "poll", "--config", str(config)]))

    def run_agent_command(self, *arguments: str) -> str:
        """Runs a short command of the agent and returns its output. Raises :class:`ChildDied` if it fails."""
        child = spawn([sys.executable, "-m", "specagent.cli", *arguments], env=self.environment, cwd=ROOT)
        output, _ = child.communicate(timeout=60)
        if child.returncode != 0:
            raise ChildDied(f"specweb-agent {arguments[0]} failed with code {child.returncode}:\n{output.strip()}")
        return output

    def check(self) -> None:
        """Raises :class:`ChildDied` if any part has ended."""
        for name, child in self._children.items():
            if child.poll() is not None:
                raise ChildDied(f"{name} ended with code {child.returncode}; last lines of {self._log(name)}:\n{tail(self._log(name))}")
        if why := self._stack.dead():
            raise ChildDied(why)

    def pid(self, part: str) -> int:
        """The first process of a part that was started. Its other processes, if any, are in the process group of this number."""
        return self._children[part].pid if part in self._children else self._stack.pid(part)

    def dead(self) -> list[str]:
        """The parts that have ended, in the order in which they are to be started again."""
        return [*self._stack.ended(), *(name for name, child in self._children.items() if child.poll() is not None)]

    def mend(self, but: Collection[str] = ()) -> list[str]:
        """Starts the parts again that have ended, and returns which. What an ended part left in its group is killed first.

        Parts in ``but`` stay as they are for now. Does not wait until a part answers, but for the servers. Raises :class:`ChildDied` or ``StackError`` if one can't start.
        """
        dead = [name for name in self.dead() if name not in but]
        for name in dead:
            if name in self._children:
                stop(self._children[name])
                self._starters[name]()
            else:
                self._stack.start_again(name)
        return dead

    def stop(self) -> None:
        """Stops everything, the agent (and with it the engine) first, the database last. Safe to call twice."""
        if self.environment:
            (self.home / preflight.ENVIRONMENT_FILE).unlink(missing_ok=True)
        for name in ("agent", "beat", "worker", "web"):
            if child := self._children.pop(name, None):
                stop(child, grace_s=20)
        if self._listener:
            self._listener.close()
            self._listener = None
        self._stack.stop()

    def _start(self, name: str, starter: Callable[[], None]) -> None:
        """Starts a part for the first time: its log begins afresh, and ``starter`` is kept for when it has to be started again."""
        log = self._log(name)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        self._starters[name] = starter
        starter()

    def _spawn_web(self) -> None:
        listener, self._listener = self._listener, None
        with listener or _listening(self._port, within_s=PORT_FREE_S) as listener:
            web = ["gunicorn", "specweb.wsgi:application", "--bind", f"fd://{listener.fileno()}", "--worker-class", "gthread"]
            web += ["--workers", "1", "--threads", "4", "--no-control-socket", "--graceful-timeout", "5"]
            self._spawn("web", web, nice=LOW_PRIORITY, pass_fds=[listener.fileno()])

    def _spawn(self, name: str, arguments: list[str], nice: int = 0, pass_fds: Sequence[int] = ()) -> None:
        argv = [sys.executable, "-m", *arguments]
        env = {**self.environment, "PGAPPNAME": f"specweb-{name}"}  # so that PostgreSQL says whose a connection is
        self._children[name] = spawn(argv, log=self._log(name), env=env, cwd=ROOT, nice=nice, pass_fds=pass_fds)

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _web_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False


def _listening(port: int, within_s: float = 0) -> socket.socket:
    """A loopback socket that listens. Raises :class:`ChildDied` if another program has the port, also after ``within_s``."""
    until = time.monotonic() + within_s
    while True:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", port))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            why = error.strerror
        if time.monotonic() > until:
            raise ChildDied(f"port {port} can't be had any more ({why}); start again, or choose another with PORT=")
        time.sleep(0.05)


def collect_static(home: Path, collect: Callable[[], None]) -> None:
    """Calls ``collect`` unless the static files were gathered from the same sources before."""
    sources = [*sorted((ROOT / "specweb" / "static").rglob("*")), ROOT / "uv.lock"]
    state = hashlib.sha256()
    for path in sources:
        if path.is_file():
            state.update(f"{path}\n".encode() + path.read_bytes())
    stamp = home / "static.stamp"
    if stamp.exists() and stamp.read_text() == state.hexdigest():
        return
    stamp.unlink(missing_ok=True)
    collect()
    stamp.write_text(state.hexdigest())


def _kept_secret(path: Path) -> str:
    """A secret that stays the same from start to start, readable by its owner only."""
    if not path.exists():
        _write_private(path, secrets.token_urlsafe(48))
    return path.read_text()


def _write_private(path: Path, text: str) -> None:
    path.touch(mode=0o600)
    path.write_text(text)


def _private_folder(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path
