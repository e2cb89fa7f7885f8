"""Whether an engine is ready: healthy, with its model loaded, and itself the one that listens on its port."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import socket
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from speccore.errors import EngineLoadedOther, EngineNotHealthy, PortUnavailable

from .launch import Engine, Stopped, log_tail, read_log

LOOPBACK = "127.0.0.1"
_INTERVAL_S = 0.05
_TICK_S = 0.25
_LISTEN = "0A"


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        port: int = s.getsockname()[1]
        return port


def fetch(port: int, path: str, timeout_s: float = 5.0, stop: threading.Event | None = None) -> tuple[int, str]:
    """One GET to the engine: status and text. Raises OSError, ``http.client.HTTPException``, or :class:`Stopped` soon after ``stop``."""
    deadline = time.monotonic() + timeout_s
    received = b""
    with socket.create_connection((LOOPBACK, port), timeout=timeout_s) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\nConnection: close\r\n\r\n".encode())
        sock.settimeout(_TICK_S)
        while True:
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                if stop and stop.is_set():
                    raise Stopped from None
                if time.monotonic() > deadline:
                    raise TimeoutError(f"no answer within {timeout_s:g} s") from None
                continue
            if not data:
                break
            received += data
    response = http.client.HTTPResponse(_Received(received))  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read().decode("utf-8", "replace")


class _Received:
    """Bytes in the place of a socket, for the standard library's parser."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def wait_ready(engine: Engine, dialect: ModuleType, port: int, log: Path, timeout_s: float, stop: threading.Event) -> dict[str, Any]:
    """Until /health and /props both answer 200, by the engine itself; returns /props.

    An engine may call itself healthy before its model is loaded, so /health alone is not believed. Raises what the log says
    if the engine exits, :class:`PortUnavailable` if somebody else answers, :class:`EngineNotHealthy` at the deadline,
    :class:`EngineLoadedOther` for a /props that can't be read.
    """
    deadline = time.monotonic() + timeout_s
    last = "it answers nothing"
    while True:
        if stop.is_set():
            raise Stopped
        ended = engine.ended()
        if ended is not None:
            failure: Exception = dialect.start_failure(read_log(log), ended.exit_code, kernel_oom=engine.kernel_oom())
            raise failure
        try:
            status, text = fetch(port, "/health", timeout_s=2.0, stop=stop)
            last = f"/health answers {status}"
            if status == 200:
                status, text = fetch(port, "/props", timeout_s=2.0, stop=stop)
                last = f"/health answers 200, /props answers {status}"
                if status != 503:  # 503: the model is still being loaded
                    check_listener(engine, port)
                    if not _has_gone(engine):
                        return _props(status, text)
                    continue
        except (OSError, http.client.HTTPException) as error:
            last = f"no answer: {error}"
        if time.monotonic() > deadline:
            raise EngineNotHealthy(
                f"the engine did not become healthy within {timeout_s:g} s ({last})", start_timeout_s=timeout_s, log_tail=log_tail(log)
            )
        stop.wait(_INTERVAL_S)


def _has_gone(engine: Engine) -> bool:
    """Its end is told a moment later than it happens."""
    gone = os.path.isdir("/proc") and not os.path.isdir(f"/proc/{engine.pid}")
    return engine.ended(timeout_s=2.0 if gone else 0.0) is not None


def _props(status: int, text: str) -> dict[str, Any]:
    try:
        props = json.loads(text) if status == 200 else None
    except ValueError as error:
        raise EngineLoadedOther(f"/props can't be read: {error}") from error
    if not isinstance(props, dict):
        raise EngineLoadedOther(f"/props answers {status}: {text[:200]}")
    return props


def check_listener(engine: Engine, port: int) -> None:
    """Raises :class:`PortUnavailable` if a process that is not the engine's takes connections on the port.

    Where the engine's sockets can't be seen (no /proc, another user's process) nothing is claimed.
    """
    own = _sockets(engine.pid)
    foreign = _listening_inodes(port) - set(own or ())
    if own is None or not foreign:
        return
    foreign -= {inode for pid in engine.pids() for inode in _sockets(pid) or ()}
    if foreign:
        pids = _owners(foreign)
        who = f"process {', '.join(map(str, pids))}" if pids else "a process of another user"
        raise PortUnavailable(f"port {port}, which was promised to the engine, is answered by {who}", port=port, pids=pids)


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
