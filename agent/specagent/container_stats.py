"""A container's memory by the container engine's own statistics, where its processes can't be seen from here."""

from __future__ import annotations

import threading
from typing import Any

from .docker_engine import connected

NAMED = "the container engine's statistics, once a second: its processes can't be seen from here"


class ContainerMemory:
    """What the last statistics said, from the start until :meth:`stop`."""

    def __init__(self, address: str, container: str) -> None:
        self._address, self._container = address, container
        self._bytes: int | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="container-statistics", daemon=True)
        self._thread.start()

    def bytes(self) -> int | None:
        """None before the first and after the end."""
        return None if self._done.is_set() else self._bytes

    def stop(self) -> None:
        self._done.set()

    def _read(self) -> None:
        from docker.errors import APIError
        from speccore.errors import SpecWebError

        try:
            with connected(self._address) as client:
                for told in client.stats(self._container, stream=True, decode=True):
                    if self._done.is_set():
                        return
                    self._bytes = held(told.get("memory_stats") or {})
        except (APIError, SpecWebError, ValueError):
            self._bytes = None  # a figure that grows old is none


def held(memory: dict[str, Any]) -> int | None:
    """Bytes without what of the page cache the kernel can drop at once; None where they aren't told (all zero: it has ended)."""
    usage, details = memory.get("usage"), memory.get("stats") or {}
    if not isinstance(usage, int) or not usage:
        return None
    inactive = details.get("inactive_file", details.get("total_inactive_file", 0))  # by version 2 and 1 of control groups
    return usage - inactive if isinstance(inactive, int) and inactive <= usage else usage
