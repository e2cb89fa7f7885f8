"""Runs the replay server and a client as processes, and takes the CPU time of everything that the client started."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .scenarios import FIRST_MS, Scenario

ROOT = Path(__file__).parents[2]
_PR_SET_CHILD_SUBREAPER = 36


class ClientFailed(Exception):
    """The client ended with an error, ran too long or left no result; the text says which."""


@dataclass
class Serving:
    port: int
    answers: list[dict[str, Any]] = field(default_factory=list)  # filled when the server has ended


@contextmanager
def replay(scenario: Scenario, folder: Path, pieces: Path | None) -> Iterator[Serving]:
    """The server for one run; its stamps are there after the block. It keeps to the last core."""
    stamps = folder / "stamps.json"
    argv = [sys.executable, "-m", "tests.replay.rate", "--stamps", str(stamps), "--first-ms", str(FIRST_MS)]
    argv += ["--rate", str(scenario.rate), "--tokens-per-event", str(scenario.tokens_per_event)]
    argv += ["--stop-after", str(scenario.stop_after)] if scenario.stop_after else []
    argv += ["--pieces", str(pieces)] if pieces else []
    cores = sorted(os.sched_getaffinity(0))
    argv += ["--core", str(cores[-1])] if len(cores) > 1 else []
    with subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            serving = Serving(json.loads(process.stdout.readline())["port"])
            yield serving
            process.stdin.close()
            process.wait(30)
        finally:
            process.kill()
    said = json.loads(stamps.read_text())
    # what a client asks for to get ready has another length
    serving.answers += [a for a in said if a["asked_tokens"] == scenario.n_tokens]


@dataclass(frozen=True)
class Usage:
    cpu_s: float
    wall_s: float


def run(argv: Sequence[str | Path], log: Path, *, env: Mapping[str, str], timeout_s: float) -> Usage:
    """The command with all its descendants, also those that it left behind. Raises ClientFailed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    with log.open("wb") as out, _orphans_come_here():
        process = subprocess.Popen(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=dict(env), cwd=ROOT, start_new_session=True
        )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also when this bench is interrupted
            wall_s = time.monotonic() - began
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _reap(process.pid)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if code != 0:
        last = " / ".join(log.read_text("utf-8", "replace").strip().splitlines()[-4:])[-400:]
        raise ClientFailed(f"{'no end' if code is None else f'exit {code}'} after {wall_s:.0f} s: {last}")
    return Usage(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s)


@contextmanager
def _orphans_come_here() -> Iterator[None]:
    """What a client leaves behind is ours to wait for, and so its CPU time is counted."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _reap(group: int) -> None:
    """Orphans of the client's group count with it; other children (the server) are not touched."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-group, 0)[0]:
            pass
