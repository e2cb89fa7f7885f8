"""The whole service on one machine: embedded servers, web, worker, timetable and an agent, started and stopped in order."""

from __future__ import annotations

import hashlib
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from demo.children import spawn, stop, tail
from demo.stack import Stack

ROOT = Path(__file__).resolve().parent.parent
WEB_READY_S = 60.0
#: The engine under test shares the cores, so everything of ours but the agent (which takes the times) stands back.
LOW_PRIORITY = 10


class ChildDied(RuntimeError):
    """A part of the service has ended by itself; the message names it and shows the end of its log."""


class Service:
    """State lives in ``home``; the web listens on loopback at ``port``. Servers of your own replace the embedded ones."""

    def __init__(self, home: Path, port: int, *, database_url: str = "", broker_url: str = "") -> None:
        self.home = home
        self.url = f"http://127.0.0.1:{port}"
        self.environment: dict[str, str] = {}
        self._port = port
        self._given = (database_url, broker_url)
        self._stack = Stack(home, postgres=not database_url, valkey=not broker_url)
        self._children: dict[str, subprocess.Popen[str]] = {}

    def start_servers(self) -> None:
        """PostgreSQL and Valkey. Afterwards ``environment`` holds what Django and its processes need."""
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
        }

    def start_web(self) -> None:
        """Web server, worker and timetable; returns when the web answers. Raises :class:`ChildDied`."""
        # The port is taken here and handed on: were it free until the web server starts, another service could answer for it.
        with _listening(self._port) as listener:
            web = ["gunicorn", "specweb.wsgi:application", "--bind", f"fd://{listener.fileno()}", "--worker-class", "gthread"]
            web += ["--workers", "1", "--threads", "4", "--no-control-socket", "--graceful-timeout", "5"]
            self._spawn("web", web, nice=LOW_PRIORITY, pass_fds=[listener.fileno()])
        celery = ["celery", "-A", "workers.app"]
        self._spawn("worker", [*celery, "worker", "--concurrency", "1", "--without-gossip", "--without-mingle"], nice=LOW_PRIORITY)
        schedule = str(self.home / "timetable")
        self._spawn("beat", [*celery, "beat", "--pidfile", "", "--schedule", schedule], nice=LOW_PRIORITY)
        until = time.monotonic() + WEB_READY_S
        while not self._web_answers():
            self.check()
            if time.monotonic() > until:
                raise ChildDied(f"web does not answer at {self.url}; last lines of {self._log('web')}:\n{tail(self._log('web'))}")
            time.sleep(0.1)

    def start_agent(self, config: Path) -> None:
        self._spawn("agent", ["specagent.cli", "poll", "--config", str(config)])

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

    def stop(self) -> None:
        """Stops everything, the agent (and with it the engine) first, the database last. Safe to call twice."""
        for name in ("agent", "beat", "worker", "web"):
            if child := self._children.pop(name, None):
                stop(child, grace_s=20)
        self._stack.stop()

    def _spawn(self, name: str, arguments: list[str], nice: int = 0, pass_fds: Sequence[int] = ()) -> None:
        log = self._log(name)
        if log.exists():
            log.replace(log.with_suffix(".log.1"))
        argv = [sys.executable, "-m", *arguments]
        self._children[name] = spawn(argv, log=log, env=self.environment, cwd=ROOT, nice=nice, pass_fds=pass_fds)

    def _log(self, name: str) -> Path:
        return self.home / "logs" / f"{name}.log"

    def _web_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as reply:
                return reply.status == 200
        except (urllib.error.URLError, OSError):
            return False


def _listening(port: int) -> socket.socket:
    """A loopback socket that listens. Raises :class:`ChildDied` if another program has taken the port meanwhile."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise ChildDied(f"port {port} can't be had any more ({error.strerror}); start again, or choose another with PORT=") from None
    return listener


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
        path.touch(mode=0o600)
        path.write_text(secrets.token_urlsafe(48))
    return path.read_text()


def _private_folder(path: Path) -> Path:
    path.mkdir(mode=0o700, exist_ok=True)
    return path
