"""The whole service in a folder of its own, with the small models and short limits, whose parts a test kills and mends.

The calling process reads and writes the service's database through Django, which must be set up before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeVar

import dj_database_url
import psutil
import yaml
from django.core.management import call_command
from django.db import InterfaceError, OperationalError, connections, models
from django.test.utils import override_settings
from django.utils import timezone
from speccore.jobstate import FINAL, JobState
from speccore.spec import parse_spec

from demo.prepare import MODELS, engine_path
from demo.service import Service
from specweb import queue
from specweb.accounts.models import Role, Team
from specweb.accounts.services import ensure_member
from specweb.experiments.models import Host, Job, Visibility
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.experiments.services.submission import submit

T = TypeVar("T")

SERVERS = ("postgres", "valkey")
PARTS = (*SERVERS, "web", "worker", "beat", "agent")
#: Limits that production counts in half minutes and days.
SETTINGS = {
    "SPECWEB_STALLED_AFTER_S": "5",
    "SPECWEB_POLL_IDLE_S": "0.5",
    "SPECWEB_POLL_RUNNING_S": "0.2",
    "SPECWEB_STATIC_FROM_SOURCE": "1",
}
#: With three blocks six starts of the engine, each of a second or less.
SPEC = """
name: Under attack
target: {model: target}
engine: {context: 512, start_timeout_s: 60, probe_timeout_s: 60, threads: 1}
arms:
  - {name: "off", mode: "off"}
  - {name: draft-3, mode: draft, draft_model: draft, draft_limit: 3}
points:
  - {workload: count, max_tokens: %(max_tokens)d, probes: %(probes)d}
blocks: %(blocks)d
warmup: {mode: fixed, requests: 1}
"""
_DATABASE_AWAY = (OperationalError, InterfaceError)


class NotInTime(AssertionError):
    """What was waited for did not come."""


class Rig:
    """``with Rig(folder) as rig``: everything runs and the agent has said what it offers; at the end nothing does."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.service = Service(home, _free_port(), settings=SETTINGS)
        self.down: set[str] = set()  # parts that mend() leaves as they are
        self.frozen: dict[str, list[psutil.Process]] = {}
        self._around = contextlib.ExitStack()

    def __enter__(self) -> Rig:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start(self) -> None:
        self.service.start_servers()
        self._around.enter_context(_django_at(self.service.environment))
        call_command("migrate", interactive=False, verbosity=0)
        call_command("bootstrap", stdout=open(os.devnull, "w"))  # noqa: SIM115
        self.service.start_web()
        config = self.home / "agent.yaml"
        config.write_text(yaml.safe_dump(self._agent_config()))
        team, _ = ensure_member("demo", "demo", "demo", Role.MAINTAINER)
        self.service.run_agent_command("enrol", "--config", str(config), "--code", create_enrolment_code(team, timezone.now()))
        self.service.start_agent(config)
        self.until(lambda: Host.objects.exclude(inventory=None).exists(), 60, "the agent's inventory")

    def _agent_config(self) -> dict[str, Any]:
        return {
            "state_dir": str(self.home / "agent"),
            "server": self.service.url,
            "runtimes": [{"engine": "llama-server", "path": str(engine_path())}],
            "models": [{"alias": name, "path": str(MODELS / f"{name}.gguf")} for name in ("target", "draft")],
        }

    def stop(self) -> None:
        for part in list(self.frozen):
            self.thaw(part)
        self._around.close()
        self.service.stop()

    # What is asked for

    def submit(self, *, max_tokens: int = 16, probes: int = 1, blocks: int = 3, seed: int = 1) -> Job:
        """Submits the small experiment and returns its job."""
        text = SPEC % {"max_tokens": max_tokens, "probes": probes, "blocks": blocks}
        spec, problems = parse_spec({**yaml.safe_load(text), "seed": seed})
        assert spec, problems
        return submit(spec, Team.objects.get(slug="demo"), None, Visibility.TEAM).jobs.get()

    def state(self, job: Job) -> JobState:
        return JobState(Job.objects.values_list("state", flat=True).get(pk=job.pk))

    def has_ended(self, job: Job) -> bool:
        return self.state(job) in FINAL

    def phase(self, job: Job) -> str:
        """What the agent said last that it does; '' if it doesn't work on the job."""
        progress = Job.objects.values_list("progress", flat=True).get(pk=job.pk)
        return progress["phase"] if progress else ""

    # Waiting

    def until(self, wanted: Callable[[], T], within_s: float, what: str, *, every_s: float = 0.05) -> T:
        """Waits for a truthy answer and returns it. While the database is away there is none."""
        end = time.monotonic() + within_s
        while True:
            try:
                if answer := wanted():
                    return answer
            except _DATABASE_AWAY:
                connections["default"].close()
            if time.monotonic() > end:
                raise NotInTime(f"not within {within_s:g} s: {what}{self._logs()}")
            time.sleep(every_s)

    def settled(self, found: Callable[[], list[str]], within_s: float) -> list[str]:
        """What is found still when nothing was found for so long; empty as soon as nothing is."""
        end = time.monotonic() + within_s
        while (now := found()) and time.monotonic() < end:
            time.sleep(0.2)
        return now

    def _logs(self) -> str:
        parts = []
        for log in sorted((self.home / "logs").glob("*.log")):
            parts.append(f"\n--- {log.name}\n" + "\n".join(log.read_text(errors="replace").splitlines()[-12:]))
        return "".join(parts)

    # The right moment

    def catch(self, job: Job, phase: str, within_s: float = 60) -> str:
        """Holds a trial in a phase, and returns which: by frozen keepers in "stopping", by a frozen engine elsewhere.

        The engine runs in small steps, and after each the agent says what it does now.
        """
        what = "keepers" if phase == "stopping" else "engine"

        def stepped() -> bool:
            if self.has_ended(job):
                raise AssertionError(f"the job ended before a trial could be held in {phase!r}")
            self.thaw(what)
            time.sleep(0.03)
            if not self.pids("engine"):
                return False
            self.freeze(what)
            if phase == "stopping":  # nobody ends the engine now
                self._fresh_phase(job, lambda now: now == phase)
                return True
            return self._fresh_phase(job, bool) == phase

        self.until(stepped, within_s, f"a trial in {phase!r}", every_s=0)
        trial: str = Job.objects.get(pk=job.pk).progress["trial"]
        return trial

    def _fresh_phase(self, job: Job, wanted: Callable[[str], bool]) -> str:
        """The phase as the agent says it from now on, once it is a wanted one."""
        since = (timezone.now() + timedelta(seconds=0.1)).isoformat()

        def said() -> str:
            progress = Job.objects.values_list("progress", flat=True).get(pk=job.pk) or {}
            return progress["phase"] if progress.get("at", "") > since and wanted(progress["phase"]) else ""

        return self.until(said, 20, "a word from the agent on what it does")

    @contextlib.contextmanager
    def holding(self, model: type[models.Model], part: str) -> Iterator[None]:
        """Within, a part is in the middle of a transaction that adds to a table: it waits for a lock that is given back at the end."""
        with connections["default"].copy().cursor() as cursor:
            held = cursor.db
            try:
                held.set_autocommit(False)
                cursor.execute(f"LOCK TABLE {model._meta.db_table} IN SHARE MODE")  # keys may be checked still
                self.until(lambda: self._adding(part, model), 60, f"{part} adding to {model.__name__}")
                yield
            finally:
                held.close()

    def cancel_query(self, part: str, model: type[models.Model]) -> None:
        """What a part adds to a table ends with an error, as by a time limit or an administrator; its connection stays."""
        with connections["default"].cursor() as cursor:
            for pid in self._adding(part, model):
                cursor.execute("SELECT pg_cancel_backend(%s)", [pid])

    def cut_connections(self) -> list[int]:
        """Ends what PostgreSQL does for the web and the workers, and their connections; returns its processes."""
        with connections["default"].cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'specweb-%' AND pg_terminate_backend(pid)")
            return [pid for (pid,) in cursor.fetchall()]

    def _adding(self, part: str, model: type[models.Model]) -> list[int]:
        """The database's processes in which a part waits to add to a table."""
        found = "SELECT pid FROM pg_stat_activity WHERE application_name = %s AND wait_event_type = 'Lock' AND query LIKE %s"
        with connections["default"].cursor() as cursor:
            cursor.execute(found, [f"specweb-{part}", f'INSERT INTO "{model._meta.db_table}"%'])
            return [pid for (pid,) in cursor.fetchall()]

    # Killing and mending

    def pids(self, what: str) -> list[int]:
        """The first process of a part; or, while a trial runs, of its engine or its keepers."""
        if what in PARTS:
            return [self.service.pid(what)]
        children = [p for p in _family(self.service.pid("agent")) if p.pid != self.service.pid("agent")]
        engines = [p for p in children if _runs_engine(p)]
        return [p.pid for p in (engines if what == "engine" else [p for p in children if p not in engines])]

    def signal(self, what: str, how: Literal["kill", "term"] = "kill") -> list[int]:
        """Ends a part (its first process), the engine, or the keepers; returns whom the signal reached."""
        gently = signal.SIGINT if what == "postgres" else signal.SIGTERM  # PostgreSQL takes TERM as "when all have gone"
        number = gently if how == "term" else signal.SIGKILL
        reached = []
        for pid in self.pids(what):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.append(pid)
        if what in PARTS:
            self.thaw(what)
            self._await_end(what)
        return reached

    def _await_end(self, part: str) -> None:
        end = time.monotonic() + 30
        while part not in self.service.dead():
            if time.monotonic() > end:
                raise RuntimeError(f"{part} does not end")
            time.sleep(0.01)

    def freeze(self, part: str) -> None:
        """Stops all processes of a part in their tracks, as on a machine that swaps or is suspended."""
        self.frozen[part] = [p for pid in self.pids(part) for p in _family(pid)] if part in PARTS else _processes(self.pids(part))
        for process in self.frozen[part]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self, part: str) -> None:
        for process in self.frozen.pop(part, []):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.resume()

    def mend(self) -> list[str]:
        """Starts again what has ended and shall not stay down."""
        return self.service.mend(but=self.down)

    # What runs

    def strays(self) -> list[str]:
        """Processes of this home that belong to no part: engines, keepers, children of parts that have ended."""
        own = {os.getpid(), *self._own_pids()}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid not in own and process.status() != psutil.STATUS_ZOMBIE and self._is_of_home(process):
                    found.append(f"{process.pid} {' '.join(process.cmdline())[:200]}")
        return found

    def sockets_left(self) -> list[str]:
        """The servers' socket folder, if it outlived them."""
        record = self.home / "sockets.path"
        return [record.read_text()] if record.exists() else []

    def _own_pids(self) -> Iterator[int]:
        for part in PARTS:
            with contextlib.suppress(KeyError):
                pid = self.service.pid(part)
                # The agent's children are engines and their keepers.
                yield from [pid] if part == "agent" else [p.pid for p in _family(pid)]

    def _is_of_home(self, process: psutil.Process) -> bool:
        home = str(self.home)
        return home in " ".join(process.cmdline()) or process.cwd().startswith(home) or any(home in v for v in process.environ().values())


def _family(pid: int) -> list[psutil.Process]:
    try:
        first = psutil.Process(pid)
        return [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _processes(pids: list[int]) -> list[psutil.Process]:
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(pid))
    return found


def _runs_engine(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.name().startswith("llama-server")
    return False


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@contextlib.contextmanager
def fresh_home() -> Iterator[Path]:
    """A folder which the servers' user can enter."""
    home = Path(tempfile.mkdtemp(prefix="specweb-chaos-"))
    home.chmod(0o755)
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def _django_at(environment: Mapping[str, str]) -> Iterator[None]:
    """Points this process's Django to the service's database, broker and evidence for a while."""
    entry = connections.settings["default"]
    before = dict(entry)
    connections["default"].close()
    entry.update(dj_database_url.parse(environment["DATABASE_URL"]))
    changed = override_settings(
        BROKER_URL=environment["BROKER_URL"],
        SPECWEB_BASE_URL=environment["SPECWEB_BASE_URL"],
        SPECWEB_EVIDENCE_DIR=Path(environment["SPECWEB_EVIDENCE_DIR"]),
    )
    queue._producer.cache_clear()  # it keeps the broker's address
    try:
        with changed:
            yield
    finally:
        connections["default"].close()
        entry.clear()
        entry.update(before)
        queue._producer.cache_clear()


def as_json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"
