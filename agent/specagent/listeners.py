"""Who takes connections on a port that an engine was promised, as /proc tells it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection
from pathlib import Path

from speccore.errors import PortUnavailable

_LISTEN = "0A"


def check_listener(pid: int, pids: Callable[[], Collection[int]], port: int) -> None:
    """Raises :class:`PortUnavailable` if a process that is neither ``pid`` nor of ``pids`` takes connections on the port.

    Where the engine's sockets can't be seen (no /proc, another user's process) nothing is claimed.
    """
    own = _sockets(pid)
    foreign = _listening_inodes(port) - set(own or ())
    if own is None or not foreign:
        return
    foreign -= {inode for pid in pids() for inode in _sockets(pid) or ()}
    if foreign:
        owners = _owners(foreign)
        who = f"process {', '.join(map(str, owners))}" if owners else "a process of another user"
        raise PortUnavailable(f"port {port}, which was promised to the engine, is answered by {who}", port=port, pids=owners)


def _listening_inodes(port: int) -> set[str]:
    """Sockets that take connections to loopback on this port: those bound to it, else those bound to every address."""
    by_address: dict[str, set[str]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text(encoding="ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, hex_port = fields[1].rpartition(":")
            if fields[3] == _LISTEN and int(hex_port, 16) == port:
                by_address.setdefault(address, set()).add(fields[9])
    for address in ("0100007F", "7F000001", "0" * 8, "0" * 32):  # most specific first; both byte orders
        if address in by_address:
            return by_address[address]
    return set()


def _owners(inodes: set[str]) -> list[int]:
    pids = [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
    return sorted(pid for pid in pids if inodes & set(_sockets(pid) or ()))


def _sockets(pid: int) -> list[str] | None:
    """Inodes of the sockets that a process has open; None where that can't be seen."""
    found = []
    try:
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):  # closed meanwhile
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    except OSError:
        return None
    return found
