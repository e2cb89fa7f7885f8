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
from .asking import Address
from .prepared import PreparedJob, check_loaded
from .starting import Running, record_of, start_of


@dataclass(frozen=True)
class Standing:
    """An engine that is healthy and has loaded what was asked for."""

    at: Address
    engine: Running
    log: Path
    props: dict[str, Any]


@contextlib.contextmanager
def standing(job: PreparedJob, arm: str, work: Path, stop: threading.Event, more: Sequence[str] = ()) -> Iterator[Standing]:
    """Its log is left under ``work``. ``more``: words after those of its command. Raises why it did not start, as :func:`ready.wait_ready` does."""
    name = str(uuid.uuid4())
    folder = work / name
    folder.mkdir(parents=True)
    log = folder / "server.log"
    engine, at = start_of(job, arm, more).begin(folder, log, record_of(job, name))
    try:
        props = ready.wait_ready(engine, job.dialect, at, log, job.offer.spec.engine.start_timeout_s, stop)
        check_loaded(job, props)
        yield Standing(at, engine, log, props)
    finally:
        engine.stop(hurry=stop)
