"""Whether an engine is ready: healthy, with its model loaded, and itself the one that answers."""

from __future__ import annotations

import http.client
import io
import socket
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from speccore.errors import EngineLoadedOther, EngineNotHealthy
from speccore.plain import read_json

from .asking import Address
from .launch import Stopped, log_tail, read_log

if TYPE_CHECKING:
    from .starting import Running

LOOPBACK = "127.0.0.1"
_INTERVAL_S = 0.05
_TICK_S = 0.25
#: Of one answer. Counters and settings have some hundred kilobytes, a chat template with its tokens a few million.
_MOST_BYTES = 32 << 20


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        port: int = s.getsockname()[1]
        return port


def fetch(at: Address, path: str, timeout_s: float = 5.0, stop: threading.Event | None = None) -> tuple[int, str]:
    """One GET to the engine: status and text. Raises OSError, ``http.client.HTTPException``, or :class:`Stopped` soon after ``stop``."""
    deadline = time.monotonic() + timeout_s
    received = bytearray()
    with socket.create_connection(at, timeout=timeout_s) as sock:
        sock.sendall(f"GET {path} HTTP/1.1\r\nHost: {at.host}:{at.port}\r\nConnection: close\r\n\r\n".encode())
        sock.settimeout(_TICK_S)
        while True:
            try:
                data = sock.recv(1 << 16)
            except TimeoutError:
                if stop and stop.is_set():
                    raise Stopped from None
            else:
                if not data:
                    break
                received += data
            if time.monotonic() > deadline:  # also of one that sends a byte now and then
                raise TimeoutError(f"no answer within {timeout_s:g} s{', only a part of one' if received else ''}")
            if len(received) > _MOST_BYTES:
                raise OSError(f"an answer of more than {_MOST_BYTES >> 20} MiB")
    response = http.client.HTTPResponse(_Received(bytes(received)))  # type: ignore[arg-type]
    response.begin()
    return response.status, response.read().decode("utf-8", "replace")


class _Received:
    """Bytes in the place of a socket, for the standard library's parser."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def wait_ready(engine: Running, dialect: ModuleType, at: Address, log: Path, timeout_s: float, stop: threading.Event) -> dict[str, Any]:
    """Until /health and the engine's ``LOADED_PATHS`` answer 200, by the engine itself; returns what they say is loaded.

    An engine may call itself healthy before its model is loaded, so /health alone is not believed. Raises what the log says
    if the engine exits, :class:`PortUnavailable` if somebody else answers, :class:`EngineNotHealthy` at the deadline,
    :class:`EngineLoadedOther` for an answer that can't be read.
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
            status, _ = fetch(at, "/health", timeout_s=2.0, stop=stop)
            last = f"/health answers {status}"
            if status == 200:
                said = {path: fetch(at, path, timeout_s=2.0, stop=stop) for path in dialect.LOADED_PATHS}
                last = ", ".join(["/health answers 200", *(f"{path} answers {status}" for path, (status, _) in said.items())])
                if all(status != 503 for status, _ in said.values()):  # 503: the model is still being loaded
                    engine.check_listener(at)
                    if not engine.has_gone():
                        props: dict[str, Any] = dialect.loaded({path: _read(path, *answer) for path, answer in said.items()})
                        return props
                    continue
        except (OSError, http.client.HTTPException) as error:
            last = f"no answer: {error}"
        if time.monotonic() > deadline:
            raise EngineNotHealthy(
                f"the engine did not become healthy within {timeout_s:g} s ({last})", start_timeout_s=timeout_s, log_tail=log_tail(log)
            )
        stop.wait(_INTERVAL_S)


def _read(path: str, status: int, text: str) -> dict[str, Any]:
    try:
        said = read_json(text) if status == 200 else None
    except ValueError as error:
        raise EngineLoadedOther(f"{path} can't be read: {error}") from error
    if not isinstance(said, dict):
        raise EngineLoadedOther(f"{path} answers {status}: {text[:200]}")
    return said
