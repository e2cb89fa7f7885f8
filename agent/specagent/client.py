"""HTTP to the server: agent protocol v1, each call with timeouts, retries where a repeat is harmless, errors as classes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
from pydantic import ValidationError
from speccore.errors import ErrorBody, HostRevoked, ServerError
from speccore.inventory import HostInventory
from speccore.protocol import (
    AttemptReport,
    EnrolReply,
    EnrolRequest,
    InventoryRequest,
    PollReply,
    PollRequest,
    Refusal,
    ReportReply,
    decode,
)
from speccore.workload import Workload

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


class Client:
    """The server as one host sees it. ``sleep`` can be replaced by tests."""

    def __init__(
        self, base_url: str, token: str = "", *, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        headers = {"User-Agent": f"specweb-agent/{__version__}"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        self._http = httpx.Client(base_url=base_url.rstrip("/") + "/agent/v1/", headers=headers, timeout=_TIMEOUT, transport=transport)
        self._sleep = sleep

    def close(self) -> None:
        self._http.close()

    def enrol(self, code: str, hostname: str) -> EnrolReply:
        message = EnrolRequest(code=code, hostname=hostname, agent_version=__version__)
        return self._message(EnrolReply, self._once("POST", "enrol", json=message.model_dump(mode="json")))

    def poll(self, request: PollRequest) -> PollReply:
        """Not repeated here: the next poll heals a lost one."""
        return self._message(PollReply, self._once("POST", "poll", json=request.model_dump(mode="json")))

    def send_inventory(self, inventory: HostInventory) -> None:
        message = InventoryRequest(inventory=inventory)
        self._retried(lambda: self._once("POST", "inventory", json=message.model_dump(mode="json")))

    def workload(self, content_hash: str, job_id: str, lease_token: str) -> Workload:
        answer = self._retried(lambda: self._once("GET", f"workloads/{content_hash}", headers=_lease(job_id, lease_token)))
        try:
            workload = Workload.model_validate_json(answer.content)
        except ValidationError as error:
            raise ServerError(f"the workload {content_hash[:12]} can't be read: {error.errors()[0]['msg']}") from error
        if workload.content_hash() != content_hash:
            raise ServerError(f"the server sent another workload than {content_hash[:12]}", remedy="Submit the experiment again.")
        return workload

    def blob_offset(self, sha256: str, job_id: str, lease_token: str) -> int | None:
        """How many bytes of the compressed file the server has of an upload that broke off; None: it has the file."""
        try:
            self._retried(lambda: self._once("HEAD", f"blobs/{sha256}", headers=_lease(job_id, lease_token)))
        except Refused as refused:
            if refused.status == 404:
                return refused.upload_offset
            raise
        return None

    def put_blob(self, sha256: str, path: Path, job_id: str, lease_token: str, offset: int = 0) -> None:
        """Sends a file that holds one zstd frame, from ``offset`` on; ``sha256`` is of its uncompressed bytes.

        A large file goes in parts, so that what arrived is kept when an upload breaks off. Raises :class:`Refused`.
        """
        url = f"blobs/{sha256}"
        headers = {**_lease(job_id, lease_token), "Content-Encoding": "zstd", "Content-Type": "application/octet-stream"}
        size = path.stat().st_size
        n_corrections = 0
        while offset < size and (offset or size > PART_BYTES):
            part = _part(path, offset)
            ranged = {**headers, "Content-Range": f"bytes {offset}-{offset + len(part) - 1}/{size}"}
            try:
                self._retried(partial(self._once, "PUT", url, headers=ranged, content=part))
                offset += len(part)
                if offset == size:
                    return
            except Refused as refused:
                there = refused.error.details.get("offset")
                n_corrections += 1
                if refused.error.code != "wrong_offset" or not isinstance(there, int):
                    raise
                if n_corrections > _TRIES:
                    raise ServerError(f"the upload of {sha256[:12]} finds another offset each time: {refused.message}") from refused
                offset = there  # the reply to a part was lost, or the server threw away what it had
        # small; or what the server has is longer, and so of another file that can't be gone on with
        self._retried(lambda: self._once("PUT", url, headers=headers, content=path.read_bytes()))

    def report(self, report: AttemptReport, lease_token: str) -> ReportReply:
        """A reply with ``missing`` asks for these blobs first."""
        path = f"attempts/{report.attempt_id}/report"
        headers = _lease(report.job_id, lease_token)
        try:
            answer = self._retried(lambda: self._once("POST", path, headers=headers, json=report.model_dump(mode="json")))
        except Refused as refused:
            missing = refused.error.details.get("missing")
            if refused.status == 409 and isinstance(missing, list):
                return ReportReply(stored=False, counted=False, missing=[str(m) for m in missing])
            raise
        return self._message(ReportReply, answer)

    def _retried(self, call: Callable[[], T]) -> T:
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

    def _once(
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

    def _message(self, model: type[T], answer: httpx.Response) -> T:
        try:
            message: T = decode(model, answer.json())  # type: ignore[arg-type]
        except (ValueError, ValidationError) as error:
            raise ServerError(f"{answer.request.url} answered what is no protocol v1: {answer.text[:200]!r}") from error
        return message


def _part(path: Path, offset: int) -> bytes:
    with path.open("rb") as f:
        f.seek(offset)
        return f.read(PART_BYTES)


def _lease(job_id: str, lease_token: str) -> dict[str, str]:
    return {"X-Job": job_id, "X-Lease-Token": lease_token}


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
