"""HTTP to the server: timeouts, retries where a repeat is harmless, files in parts, errors as classes."""

from __future__ import annotations

import contextlib
import logging
import random
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError
from speccore.errors import ErrorBody, HostRevoked, ServerError, SpecError
from speccore.protocol import Refusal, decode

from . import __version__

log = logging.getLogger(__name__)
T = TypeVar("T")

#: A larger file is sent in parts of this size.
PART_BYTES = 8 << 20

_TRIES = 3
_FIRST_WAIT_S = 0.5
_TIMEOUT = httpx.Timeout(30.0, connect=10.0)


class Unreachable(ServerError):
    code = "server_unreachable"
    remedy = "The agent tries again by itself; look at the network and at the server's address."


class Refused(ServerError):
    """The server answered with an error. ``error`` is its own word, ``status`` the HTTP status."""

    code = "server_refused"
    retry = False

    def __init__(self, status: int, error: ErrorBody, *, upload_offset: int = 0) -> None:
        super().__init__(error.message, remedy=error.remedy, status=status, server_code=error.code)
        self.status = status
        self.error = error
        self.upload_offset = upload_offset

    def body(self) -> ErrorBody:
        return self.error

    @property
    def is_final_for_agent(self) -> bool:
        """The token itself is refused: nothing that this agent does can succeed."""
        return self.status == 401 or self.error.code == "protocol_not_supported"


class Connection:
    """A server's address tree with a token. ``sleep`` can be replaced by tests. Raises :class:`SpecError` for what is no token."""

    def __init__(
        self, base_url: str, token: str = "", *, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        headers = {"User-Agent": f"specweb-agent/{__version__}"}
        if token:
            if not token.isascii() or not token.isprintable():
                raise SpecError("the token holds characters that no token has", remedy="Copy it again, whole and by itself.")
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(base_url=base_url.rstrip("/") + "/", headers=headers, timeout=_TIMEOUT, transport=transport)
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def offset_of(self, url: str, headers: Mapping[str, str] | None = None) -> int | None:
        """How many bytes of a compressed file the server has of an upload that broke off; None: it has the file."""
        try:
            self.retried(lambda: self.once("HEAD", url, headers=headers))
        except Refused as refused:
            if refused.status == 404:
                return refused.upload_offset
            raise
        return None

    def put_file(self, url: str, path: Path, headers: Mapping[str, str], offset: int = 0) -> None:
        """Sends a file that holds one zstd frame, from ``offset`` on. A large one goes in parts, so that what arrived is kept
        when an upload breaks off. Raises :class:`Refused`."""
        headers = {**headers, "Content-Encoding": "zstd", "Content-Type": "application/octet-stream"}
        size = path.stat().st_size
        n_corrections = 0
        while offset < size and (offset or size > PART_BYTES):
            part = _part(path, offset)
            ranged = {**headers, "Content-Range": f"bytes {offset}-{offset + len(part) - 1}/{size}"}
            try:
                self.retried(partial(self.once, "PUT", url, headers=ranged, content=part))
                offset += len(part)
                if offset == size:
                    return
            except Refused as refused:
                there = refused.error.details.get("offset")
                n_corrections += 1
                if refused.error.code != "wrong_offset" or not isinstance(there, int):
                    raise
                if n_corrections > _TRIES:
                    raise ServerError(f"the upload to {url[:80]} finds another offset each time: {refused.message}") from refused
                offset = there  # the reply to a part was lost, or the server threw away what it had
        # small; or what the server has is longer, and so of another file that can't be gone on with
        self.retried(lambda: self.once("PUT", url, headers=headers, content=path.read_bytes()))

    def retried(self, call: Callable[[], T]) -> T:
        """Repeats a harmless call on network errors, bodies that were cut short, and 5xx, with growing waits."""
        wait = _FIRST_WAIT_S
        for left in range(_TRIES - 1, -1, -1):
            try:
                return call()
            except ServerError as error:
                passing = isinstance(error, Unreachable) or (
                    isinstance(error, Refused) and (error.status >= 500 or error.error.code == "bad_range")  # a body that was cut short
                )
                if not passing or not left:
                    raise
                log.info("%s; trying again", error.message)
            self._sleep(wait * random.uniform(0.5, 1.5))  # noqa: S311  spread, not secrecy
            wait *= 3
        raise AssertionError("unreachable")

    def once(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        json: Any = None,
        content: bytes | None = None,
    ) -> httpx.Response:
        try:
            answer = self._http.request(method, path, headers=headers, json=json, content=content)
        except httpx.HTTPError as error:
            raise Unreachable(f"{method} {self._http.base_url}{path}: {error or type(error).__name__}") from error
        if not answer.is_success:
            offset = answer.headers.get("Upload-Offset", "")
            raise Refused(answer.status_code, _error_of(answer), upload_offset=int(offset) if offset.isdecimal() else 0)
        return answer

    def refusal(self, path: str) -> tuple[int, ErrorBody, datetime | None]:
        """Status and error of an answer that is sure to be a refusal in the protocol's own shape, and the server's time.
        Raises :class:`ServerError` if it has another shape."""
        try:
            answer = self._http.get(path)
            refusal: Refusal = decode(Refusal, answer.json())
        except httpx.HTTPError as error:
            raise Unreachable(f"GET {self._http.base_url}{path[:20]}: {error or type(error).__name__}") from error
        except (ValueError, ValidationError):
            raise ServerError(f"{self._http.base_url} answers HTTP {answer.status_code} with what is no protocol v1") from None
        date = answer.headers.get("Date", "")
        with contextlib.suppress(ValueError, TypeError):
            return answer.status_code, refusal.error, parsedate_to_datetime(date)
        return answer.status_code, refusal.error, None

    def message(self, model: type[T], answer: httpx.Response) -> T:
        try:
            message: T = decode(model, answer.json())  # type: ignore[arg-type]
        except (ValueError, ValidationError) as error:
            raise ServerError(f"{answer.request.url} answered what is no protocol v1: {answer.text[:200]!r}") from error
        return message


def _part(path: Path, offset: int) -> bytes:
    with path.open("rb") as f:
        f.seek(offset)
        return f.read(PART_BYTES)


def _error_of(answer: httpx.Response) -> ErrorBody:
    """The server's own error, or what stands for it where a proxy answered."""
    try:
        refusal: Refusal = decode(Refusal, answer.json())
        return refusal.error
    except (ValueError, ValidationError):
        text = f"{answer.request.method} {answer.request.url} answered HTTP {answer.status_code}"
        if answer.status_code == 401 and answer.request.method == "HEAD":  # an answer that can bring no words
            text, remedy = "the server refuses this host's token", HostRevoked.remedy
            return ErrorBody(code="not_authenticated", message=text, blame="host", retry=False, remedy=remedy)
        return ErrorBody(code=f"http_{answer.status_code}", message=text, blame="server", retry=answer.status_code >= 500)
