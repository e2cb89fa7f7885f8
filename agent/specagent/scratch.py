"""What an engine leaves beside its log: a folder of its own for short-lived files, and shared memory that only a killed one leaves."""

from __future__ import annotations

import contextlib
import getpass
import os
import re
import shutil
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

_SHARED = Path("/dev/shm")  # noqa: S108  not a temporary file of ours: where the system keeps shared memory
#: Names that Python's multiprocessing draws; shared memory of drivers and of other programs has others and is left alone.
_PYTHONS_OWN = re.compile(r"^(psm_[0-9a-f]+|sem\.mp-[a-z0-9_]+)$")
#: Engines put sockets there, whose paths may have 107 characters.
_LONGEST_BASE = 40
_LOOK_S = 0.05


def folder_of(attempt: str) -> Path:
    base = tempfile.gettempdir()
    return Path(base if len(base) <= _LONGEST_BASE else "/tmp") / f"specweb-{attempt}"  # noqa: S108  the name is drawn


def kept(env: Mapping[str, str]) -> dict[str, str]:
    """With what engines compile for this machine kept where it would be without a folder of their own: else each start compiled it anew."""
    return {"TORCHINDUCTOR_CACHE_DIR": f"{tempfile.gettempdir()}/torchinductor_{_user()}", **env}


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        return str(os.getuid())


def shared_by(pids: Iterable[int]) -> set[Path]:
    """Shared memory of Python's own kind that these processes have in use (Linux)."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
            for line in f:
                path = Path(line.split(maxsplit=5)[-1].strip())
                if path.parent == _SHARED and _PYTHONS_OWN.match(path.name):
                    found.add(path)
    return found


@contextlib.contextmanager
def watched(pids: Callable[[], Iterable[int]]) -> Iterator[set[Path]]:
    """All that these processes have in use while the block runs."""
    found: set[Path] = set()
    over = threading.Event()

    def look() -> None:
        while True:
            found.update(shared_by(pids()))
            if over.wait(_LOOK_S):
                return

    thread = threading.Thread(target=look, name="shared memory", daemon=True)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


def remove(scratch: Path, shared: Iterable[Path] = ()) -> None:
    """Safe to call twice."""
    shutil.rmtree(scratch, ignore_errors=True)
    for path in shared:
        with contextlib.suppress(OSError):
            path.unlink()


def sweep(attempt: str) -> None:
    """Of an attempt whose agent is gone."""
    with contextlib.suppress(ValueError):
        remove(folder_of(str(uuid.UUID(attempt))))
