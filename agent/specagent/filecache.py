"""What was read from large files, remembered by (path, size, mtime, inode), so that they are hashed once."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CHUNK = 1 << 20
#: (file, bytes hashed, its bytes)
Progress = Callable[[Path, int, int], None]


class FileCache:
    """Facts about files by name of the fact, kept in one JSON file. A file that changed is read again."""

    def __init__(self, store: Path, progress: Progress | None = None) -> None:
        """``progress`` hears of each file that is hashed."""
        self._store, self._progress = store, progress
        self._facts: dict[str, Any] = {}
        self._dirty = False
        try:
            loaded = json.loads(store.read_text(encoding="utf-8"))
            self._facts = loaded if isinstance(loaded, dict) else {}
        except (OSError, ValueError):
            self._facts = {}  # a lost cache costs time, nothing else

    def get(self, path: Path, fact: str) -> Any:
        """The remembered value, or None if there is none or the file is another one by now."""
        entry = self._facts.get(str(path))
        if not entry or entry.get("key") != _key(path):
            return None
        return entry.get(fact)

    def put(self, path: Path, fact: str, value: Any) -> None:
        key = _key(path)
        entry = self._facts.get(str(path))
        if not entry or entry.get("key") != key:
            entry = self._facts[str(path)] = {"key": key}
        entry[fact] = value
        self._dirty = True

    def sha256(self, path: Path) -> str:
        """Hex SHA-256 of the file's bytes."""
        known = self.get(path, "sha256")
        if isinstance(known, str):
            return known
        key = _key(path)
        digest = file_sha256(path, self._progress)
        if _key(path) == key:  # a file that is being written is hashed again next time
            self.put(path, "sha256", digest)
        return digest

    def recall(self, name: str) -> Any:
        """What was remembered of something that is no file and never changes; None if nothing was."""
        return self._facts.get(f"~{name}")

    def remember(self, name: str, value: Any) -> None:
        self._facts[f"~{name}"] = value
        self._dirty = True

    def digest(self, path: Path) -> str:
        """The same, read anew and not remembered: for one of many files that are remembered together."""
        return file_sha256(path, self._progress)

    def save(self) -> None:
        """Keeps what is known; on a full disk it is simply not kept, which costs time and nothing else."""
        if not self._dirty:
            return
        part = self._store.with_suffix(f".{os.getpid()}.part")
        try:
            self._store.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_text(json.dumps(self._facts), encoding="utf-8")
            os.replace(part, self._store)
            self._dirty = False
        except OSError:
            with contextlib.suppress(OSError):
                part.unlink()


def file_sha256(path: Path, progress: Progress | None = None) -> str:
    if not stat.S_ISREG(path.stat().st_mode):  # of a pipe or a device the reading never ends
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as f:
        total = os.fstat(f.fileno()).st_size
        while chunk := f.read(_CHUNK):
            digest.update(chunk)
            if progress:
                done += len(chunk)
                progress(path, done, max(done, total))
    return digest.hexdigest()


def _key(path: Path) -> list[int]:
    st = path.stat()
    return [st.st_size, st.st_mtime_ns, st.st_ino]
