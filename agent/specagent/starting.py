"""How an arm's engine is started on this host, whichever way its build runs."""

from __future__ import annotations

import shutil
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from speccore import engines

from . import attached, container_start, ready, scratch
from .asking import Address
from .launch import Ended, Engine
from .prepared import PreparedJob, launch_command, render, without_secrets


class Running(Protocol):
    """An engine that was started. ``pid``: the process that has all of it below it; 0 where none can be seen."""

    pid: int

    def ended(self, timeout_s: float = 0) -> Ended | None:
        """None while it runs. Waits up to ``timeout_s`` for its end."""
        ...

    def has_gone(self) -> bool:
        """Whether it has ended, asked at a moment when that may not be told yet."""
        ...

    def kernel_oom(self) -> bool:
        """Whether something was killed for want of memory since it was started."""
        ...

    def stop(self, hurry: threading.Event | None = None) -> Ended:
        """Ends it with all that is left of it. Safe to call twice."""
        ...

    def check_listener(self, at: Address) -> None:
        """Raises :class:`PortUnavailable` if somebody else takes connections there."""
        ...


class Start(Protocol):
    """A start that is known in every detail and has not happened yet. ``env`` is the whole environment, ``shown`` what evidence tells of it."""

    argv: list[str]
    env: dict[str, str]
    shown: dict[str, Any]  # further fields of :class:`speccore.records.Launch`

    def begin(self, folder: Path, log: Path, record: Path | None) -> tuple[Running, Address]:
        """Starts it. Raises what :class:`Engine` raises."""
        ...


class TidyEngine(Engine):
    """An engine with ``TMPDIR`` set to a folder that goes with it. vLLM, for one, leaves a file there at each start."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path, log: Path, *, record: Path | None = None) -> None:
        self._scratch = scratch.folder_of(record.stem if record else str(uuid.uuid4()))
        self._scratch.mkdir(mode=0o700)
        try:
            super().__init__(argv, {**scratch.kept(env), "TMPDIR": str(self._scratch)}, cwd, log, record=record)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise

    def stop(self, hurry: threading.Event | None = None) -> Ended:
        with scratch.watched(self.pids) as shared:  # until the end: an engine that is only starting may still make some
            ended = super().stop(hurry)
        if not ended.left:
            scratch.remove(self._scratch, shared)
        return ended


@dataclass
class ProcessStart:
    """As a process of this host, on a port of its own."""

    argv: list[str]
    env: dict[str, str]
    at: Address
    shown: dict[str, Any] = field(default_factory=dict)

    def begin(self, folder: Path, log: Path, record: Path | None) -> tuple[Running, Address]:
        return TidyEngine(self.argv, self.env, folder, log, record=record), self.at


def start_of(job: PreparedJob, arm: str, more: Sequence[str] = ()) -> Start:
    """``more``: words after those of the arm's command. Raises the refusals of the arm as one error."""
    if job.runtime.info.kind == "attached":
        symbolic = engines.Bindings(executable="", target="", port=0)
        return attached.start_of(job, arm, render(job, arm, symbolic).argv, more)
    if job.runtime.info.kind == "container":
        return container_start.start_of(job, arm, more)
    at = Address(ready.LOOPBACK, ready.free_port())
    rendered, environment = launch_command(job, arm, at)
    own = {k: v for k, v in environment.items() if k in job.runtime.env or k in rendered.env}
    return ProcessStart([*rendered.argv, *more], environment, at, {"env": without_secrets(own), "host": at.host, "port": at.port})


def record_of(job: PreparedJob, attempt: str) -> Path | None:
    """Where a running engine stands on record, so that a later start of the agent can end it."""
    folder = job.host.engine_records
    if folder is None:
        return None
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder / f"{attempt}.json"
