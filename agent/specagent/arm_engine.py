"""An arm's engine outside of a trial: started as a trial would start it, and gone when the block ends."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import ready
from .launch import Engine
from .prepared import PreparedJob, check_loaded, launch_command


@dataclass(frozen=True)
class Standing:
    """An engine that is healthy and has loaded what was asked for."""

    port: int
    engine: Engine
    log: Path
    props: dict[str, Any]


@contextlib.contextmanager
def standing(job: PreparedJob, arm: str, work: Path, stop: threading.Event, more: Sequence[str] = ()) -> Iterator[Standing]:
    """Its log is left under ``work``. ``more``: words after those of its command. Raises why it did not start, as :func:`ready.wait_ready` does."""
    name = str(uuid.uuid4())
    folder = work / name
    folder.mkdir(parents=True)
    port = ready.free_port()
    rendered, environment = launch_command(job, arm, port)
    records = job.host.engine_records
    if records:
        records.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = folder / "server.log"
    engine = Engine([*rendered.argv, *more], environment, folder, log, record=records / f"{name}.json" if records else None)
    try:
        props = ready.wait_ready(engine, job.dialect, port, log, job.offer.spec.engine.start_timeout_s, stop)
        check_loaded(job, props)
        yield Standing(port, engine, log, props)
    finally:
        engine.stop(hurry=stop)
