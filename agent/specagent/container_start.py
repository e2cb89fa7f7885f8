"""Starts an arm's engine in a container under the same keeper as a process, and ends it so that neither container nor network is left."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from speccore.engines import Bindings
from speccore.errors import BuildChanged, EngineExitedAtStart, HostError

from . import containers, processes
from .asking import Address
from .container_keeper import ENDED, FAILED, ORDER, STANDING
from .container_removal import agent_label, remove_attempt
from .container_stats import NAMED, ContainerMemory
from .docker_engine import ContainerEngineUnusable
from .launch import GRACE_S, SHORT_GRACE_S, Ended, Engine
from .prepared import PreparedJob, render, without_secrets

log = logging.getLogger(__name__)

_START_TIMEOUT_S = 60.0
#: What removal may take after the engine's own grace time.
_REMOVAL_S = 15.0
_TICK_S = 0.01
_KEEPER = "import sys; sys.path.insert(0, {root!r}); from specagent.container_keeper import main; sys.exit(main({folder!r}))"


@dataclass
class ContainerStart:
    """As a container, on a network of its own."""

    argv: list[str]
    env: dict[str, str]
    place: containers.Place
    engine: str
    image: str
    mounts: list[containers.Mount]
    shown: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        #: Filled in as it becomes known, up to how it ended.
        self.told: dict[str, Any] = {}
        self.shown = {**self.shown, "kind": "container", "container": self.told}

    def begin(self, folder: Path, log: Path, record: Path | None) -> tuple[ContainerRunning, Address]:
        """Raises :class:`EngineExitedAtStart` if it can't be started, :class:`ContainerEngineUnusable`, OSError if the disk is full."""
        attempt = record.stem if record else str(uuid.uuid4())
        name = f"specweb-{attempt}"
        labels = {containers.ATTEMPT: attempt, containers.AGENT: agent_label()}
        labels |= {containers.RECORDS: str(record.parent)} if record else {}
        made = containers.body(
            self.place,
            self.engine,
            self.argv,
            {**self.env, processes.MARKER: attempt},
            user=containers.user_for(self.place.user, self.mounts, (os.getuid(), os.getgid())),
            network=name,
            mounts=self.mounts,
            labels=labels,
        )
        self.told.update(containers.told(made, self.place, self.image))
        order = {
            "docker": self.place.docker,
            "attempt": attempt,
            "container": made,
            "network": containers.network_body(name, labels),
            "grace_s": GRACE_S,
            "short_grace_s": SHORT_GRACE_S,
        }
        running = ContainerRunning(order, log, record, self.told)
        return running, Address(running.address, containers.PORT)


class ContainerRunning:
    """A running container. ``pid``: its first process as this machine sees it; 0 where it can't be seen."""

    def __init__(self, order: dict[str, Any], log: Path, record: Path | None, told: dict[str, Any]) -> None:
        self._order, self._told = order, told
        self._ended: Ended | None = None
        self._stopped = self._is_removed = False
        self._memory: ContainerMemory | None = None
        self.pid, self.address = 0, ""
        self._folder = _private_folder(record)
        try:
            (self._folder / ORDER).write_text(json.dumps(order), encoding="utf-8")
            code = _KEEPER.format(root=str(Path(__file__).resolve().parents[1]), folder=str(self._folder))
            env = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR")}
            container = {"docker": order["docker"], "folder": str(self._folder)}
            # the keeper's grace covers that of the process in between, which has the container to end first
            grace_s = GRACE_S + _REMOVAL_S
            self._engine = Engine(
                [sys.executable, "-I", "-c", code], env, self._folder, log, record=record, container=container, grace_s=grace_s
            )
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        try:
            self._stand()
        except BaseException:
            self.stop()
            raise

    def ended(self, timeout_s: float = 0) -> Ended | None:
        if self._ended is None and (ended := self._engine.ended(timeout_s)) is not None:
            how = _read(self._folder / ENDED) or {}
            self._told |= {"exit_code": how.get("exit_code"), "oom_killed": how.get("oom_killed")}
            self._ended = replace(ended, exit_code=how.get("exit_code"), stopped_by="agent" if self._stopped else ended.stopped_by)
        return self._ended

    def has_gone(self) -> bool:
        """Its end is told when the container is removed, a moment later than it happens."""
        gone = self.pid and os.path.isdir("/proc") and not os.path.isdir(f"/proc/{self.pid}")
        return self.ended(timeout_s=_REMOVAL_S if gone else 0.0) is not None

    def kernel_oom(self) -> bool:
        """By the container's own limit, or of the whole machine."""
        return bool(self._told.get("oom_killed")) or self._engine.kernel_oom()

    def memory_bytes(self) -> int | None:
        """By the container engine's word, where the engine's processes can't be seen."""
        return self._memory.bytes() if self._memory else None

    def check_listener(self, at: Address) -> None:
        """Nobody but the container has an address on its network."""

    def stop(self, hurry: threading.Event | None = None) -> Ended:
        if self._memory:
            self._memory.stop()
        if self.ended() is None:
            self._stopped = True
            self._signal(signal.SIGTERM)
            deadline = time.monotonic() + GRACE_S + _REMOVAL_S
            hurried = False
            while self.ended(timeout_s=0.05) is None and time.monotonic() < deadline:
                if hurry and hurry.is_set() and not hurried:
                    hurried = True
                    self._signal(signal.SIGUSR1)
        if self.ended() is not None:
            left = self._remove()
            ended = self._engine.stop(hurry)
        else:  # the process in between hangs
            ended = self._engine.stop(hurry)
            left = self._remove()
        ended = self._ended or replace(ended, stopped_by="agent")
        self._ended = replace(ended, left=[*ended.left, *left])
        if self._is_removed:
            shutil.rmtree(self._folder, ignore_errors=True)
        return self._ended

    def _stand(self) -> None:
        """Waits until the container runs. Raises what its process says of it."""
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not (standing := _read(self._folder / STANDING)):
            if failed := _read(self._folder / FAILED):
                if failed["what"] == "unusable":
                    raise ContainerEngineUnusable(failed["why"])
                if "No such image" in failed["why"]:
                    raise BuildChanged(f"the image of the engine build is gone: {failed['why']}")
                raise EngineExitedAtStart(f"the container can't be started: {failed['why']}")
            if self._engine.ended() is not None:
                raise EngineExitedAtStart("the container can't be started: the process that was to start it has ended")
            if time.monotonic() > deadline:
                raise HostError(f"the container engine did not start the container within {_START_TIMEOUT_S:g} s")
            time.sleep(_TICK_S)
        self.address = standing["address"]
        self.pid = seen_pid(standing["pid"], standing["id"])
        self._told |= {"id": standing["id"], "address": standing["address"]}
        if not self.address and self._engine.ended(timeout_s=_REMOVAL_S) is None:  # one that ended at once never had one
            raise HostError("the container runs and has no address on its network", remedy="See `docker network inspect` while it runs.")
        if self.address and not self.pid:
            self._memory = ContainerMemory(self._order["docker"], standing["id"])
            self._told["memory_from"] = NAMED
        self._told["network"] = {**self._told["network"], "host_services": standing["host_services"]}

    def _signal(self, number: int) -> None:
        self._engine.signal(number)

    def _remove(self) -> list[int]:
        """If the process in between did not: it was itself ended, or failed. Returns the pids that are left."""
        if self._is_removed or (_read(self._folder / ENDED) or {}).get("removed"):
            self._is_removed = True
            return []
        try:
            remove_attempt(self._order["docker"], self._order["attempt"])
        except Exception as error:  # whatever the engine or the SDK do: the next start of the agent tries again
            log.error("container of attempt %s: %s", self._order["attempt"], error)
            self._engine.keeps_record = True
            return [self.pid] if self.pid else []
        self._is_removed = True
        return []


def start_of(job: PreparedJob, arm: str, more: Sequence[str] = ()) -> ContainerStart:
    """Raises the refusals of the arm as one error."""
    place = job.runtime.container
    assert place
    draft = job.drafts.get(arm)
    bindings = Bindings(
        executable=job.runtime.info.executable,
        target=containers.path_inside(job.target, containers.TARGET),
        draft=containers.path_inside(draft, containers.DRAFT) if draft else "",
        host=containers.ANY_ADDRESS,
        port=containers.PORT,
    )
    rendered = render(job, arm, bindings)
    mounts = containers.mounts_of(job.target, containers.TARGET)
    mounts += containers.mounts_of(draft, containers.DRAFT) if draft else []
    env = containers.environment(job.runtime.env, rendered.env)
    info = job.runtime.info
    shown = {"env": without_secrets(env), "cwd": containers.SCRATCH, "host": bindings.host, "port": containers.PORT}
    return ContainerStart([*rendered.argv, *more], env, place, info.engine, info.image, mounts, shown)


def seen_pid(pid: int, container: str) -> int:
    """The container's first process, if it is the one of that number here: an agent with numbers of its own sees another or none."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    except OSError:
        return 0
    return pid if container in groups else 0


def _private_folder(record: Path | None) -> Path:
    """Beside the record, which names it, so that it goes with it."""
    if record is None:
        return Path(tempfile.mkdtemp(prefix="specweb-container-"))
    folder = record.with_suffix(".container")
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def _read(path: Path) -> dict[str, Any] | None:
    try:
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return read
