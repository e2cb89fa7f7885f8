"""The engine's log on disk: taken from a pipe so that neither a chatty engine fills the disk nor a full disk holds an engine up."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections import deque

from .processes import write_all

#: A log is kept whole up to the sum; of a longer one the beginning and the end are kept, with the gap marked.
HEAD_BYTES = 48 << 20
TAIL_BYTES = 16 << 20

_F_SETPIPE_SZ = 1031
_PIPE_BYTES = 1 << 20
_BUSY_BYTES = _PIPE_BYTES // 16


class EngineLog:
    """Takes what the engine writes and keeps at most head and tail of it. A full disk never holds the engine up: ``errno`` tells."""

    def __init__(self, path: str, pipe: int, head_bytes: int = HEAD_BYTES, tail_bytes: int = TAIL_BYTES) -> None:
        self.errno = 0
        self.pipe = pipe
        self._head_left, self._tail_bytes = head_bytes, tail_bytes
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        self._tail: deque[bytes] = deque()
        self._n_tail = self._n_dropped = 0
        self._head_is_full = self._at_end = False
        self._chunk = 65536
        os.set_blocking(pipe, False)
        with contextlib.suppress(OSError):  # beyond what this user may have, or not Linux
            self._chunk = fcntl.fcntl(pipe, _F_SETPIPE_SZ, _PIPE_BYTES)
        self.is_busy = self._chunk < _PIPE_BYTES  # whether it must be looked at as soon as something comes

    def drain(self) -> None:
        """Takes what is there now."""
        n = 0
        while n < 16 * self._chunk:
            try:
                data = os.read(self.pipe, self._chunk)
            except BlockingIOError:
                break
            if not data:
                self._at_end = True
                break
            n += len(data)
            self._take(data)
        self.is_busy = not self._at_end and (n >= _BUSY_BYTES or self._chunk < _PIPE_BYTES)

    def close(self) -> None:
        self.drain()
        if self._n_dropped:
            tail = b"".join(self._tail)
            whole = tail[tail.find(b"\n") + 1 :]
            n = self._n_dropped + len(tail) - len(whole)
            self._write(f"[specweb-agent: {n} bytes of this log are left out here; its beginning and its end are kept]\n".encode() + whole)
        else:
            self._write(b"".join(self._tail))
        os.close(self._file)

    def _take(self, data: bytes) -> None:
        if not self._head_is_full:
            if len(data) <= self._head_left:
                self._head_left -= len(data)
                self._write(data)
                return
            at = data.rfind(b"\n", 0, self._head_left) + 1 or self._head_left
            self._write(data[:at])
            data = data[at:]
            self._head_is_full = True
        self._tail.append(data)
        self._n_tail += len(data)
        while self._n_tail - len(self._tail[0]) >= self._tail_bytes:
            self._n_dropped += len(self._tail[0])
            self._n_tail -= len(self._tail.popleft())

    def _write(self, data: bytes) -> None:
        if self.errno:
            return
        try:
            write_all(self._file, data)
        except OSError as error:
            self.errno = error.errno or errno.EIO
