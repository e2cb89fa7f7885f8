"""Whether the disk has room for the next attempt, and waiting until it has: a full disk loses nothing and ends no job."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from speccore.errors import DiskFull, ErrorBody, HostError

from .launch import Stopped, disk_error, is_no_room

log = logging.getLogger(__name__)
T = TypeVar("T")

LEAST_FREE_BYTES = 64 << 20
_LOOK_S = 1.0
_MIB = 1 << 20


def shortage(folder: Path, needed: int = LEAST_FREE_BYTES) -> DiskFull | None:
    """What is missing, in words; None if ``needed`` bytes are free where ``folder`` lies."""
    free = shutil.disk_usage(folder).free
    if free >= needed:
        return None
    text = f"{folder} has {free / _MIB:.0f} MiB free, and the next attempt needs {needed / _MIB:.0f} MiB"
    return DiskFull(text, folder=str(folder), free_bytes=free, needed_bytes=needed)


class Room:
    """The room for one job's attempts. ``say`` gets the shortage whenever it is looked at, and None when it is over.

    ``deliver`` sends what waits for the server, which frees room.
    """

    def __init__(self, folder: Path, stop: threading.Event, say: Callable[[ErrorBody | None], None], deliver: Callable[[], None]) -> None:
        self._folder, self._stop, self._say, self._deliver = folder, stop, say, deliver
        self._needed = LEAST_FREE_BYTES

    def attempt_took(self, n_bytes: int) -> None:
        """The next one may take as much, compressed and not, beside it."""
        self._needed = max(LEAST_FREE_BYTES, 2 * n_bytes)

    def wait(self) -> None:
        """Until an attempt has room. Raises :class:`Stopped`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lack = shortage(self._folder, self._needed)
        if lack is not None:
            self.wait_after(lack)

    def retried(self, write: Callable[[], T]) -> T:
        """The result of ``write``, called again each time that it found the disk full. Raises :class:`Stopped`."""
        while True:
            try:
                return write()
            except OSError as error:
                if not is_no_room(error):
                    raise
                failed = disk_error(error, "the results can't be written")
            self.wait_after(failed)

    def wait_after(self, failed: HostError) -> None:
        """Until there is room again after a write that lacked it. Raises :class:`Stopped`.

        At least one look's time, since a quota may be used up where the disk has room.
        """
        log.warning("waiting for room: %s", failed.message)
        began = time.monotonic()
        lack: HostError | None = failed
        while lack is not None:
            self._say(lack.body())
            self._deliver()
            if self._stop.wait(_LOOK_S):
                self._say(None)
                raise Stopped
            lack = shortage(self._folder, self._needed)
        self._say(None)
        log.warning("there is room again after %.0f s; going on", time.monotonic() - began)
