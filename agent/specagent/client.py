"""The server as one host sees it: agent protocol v1."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import httpx
from pydantic import ValidationError
from speccore.errors import ErrorBody, HostRevoked, ServerError
from speccore.inventory import HostInventory
from speccore.protocol import PROTOCOL, AttemptReport, EnrolReply, EnrolRequest, InventoryRequest, PollReply, PollRequest, ReportReply
from speccore.workload import Workload

from . import __version__
from .connection import Connection, Refused, Unreachable

__all__ = ["Client", "Refused", "Unreachable"]


@dataclass(frozen=True)
class Greeting:
    """A server that speaks the protocol. ``accepted``: it takes this host's token; else ``error`` is its word."""

    accepted: bool
    error: ErrorBody
    date: datetime | None
    protocol: int = PROTOCOL


class Client:
    """Calls of an agent. ``sleep`` can be replaced by tests."""

    def __init__(
        self, base_url: str, token: str = "", *, transport: httpx.BaseTransport | None = None, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._server = Connection(base_url.rstrip("/") + "/agent/v1", token, transport=transport, sleep=sleep)

    def close(self) -> None:
        self._server.close()

    def greet(self) -> Greeting:
        """Asks for a workload that is not there, which changes nothing. Raises :class:`Unreachable`, or :class:`ServerError` for
        what is no such server."""
        status, error, date = self._server.refusal(f"workloads/{'0' * 64}")
        return Greeting(status not in (401, 410) and error.code != HostRevoked.code, error, date)

    def enrol(self, code: str, hostname: str) -> EnrolReply:
        message = EnrolRequest(code=code, hostname=hostname, agent_version=__version__)
        return self._server.message(EnrolReply, self._server.once("POST", "enrol", json=message.model_dump(mode="json")))

    def poll(self, request: PollRequest) -> PollReply:
        """Not repeated here: the next poll heals a lost one."""
        return self._server.message(PollReply, self._server.once("POST", "poll", json=request.model_dump(mode="json")))

    def send_inventory(self, inventory: HostInventory) -> None:
        message = InventoryRequest(inventory=inventory)
        self._server.retried(lambda: self._server.once("POST", "inventory", json=message.model_dump(mode="json")))

    def workload(self, content_hash: str, job_id: str, lease_token: str) -> Workload:
        answer = self._server.retried(lambda: self._server.once("GET", f"workloads/{content_hash}", headers=_lease(job_id, lease_token)))
        try:
            workload = Workload.model_validate_json(answer.content)
        except ValidationError as error:
            raise ServerError(f"the workload {content_hash[:12]} can't be read: {error.errors()[0]['msg']}") from error
        if workload.content_hash() != content_hash:
            raise ServerError(f"the server sent another workload than {content_hash[:12]}", remedy="Submit the experiment again.")
        return workload

    def blob_offset(self, sha256: str, job_id: str, lease_token: str) -> int | None:
        """How many bytes of the compressed file the server has of an upload that broke off; None: it has the file."""
        return self._server.offset_of(f"blobs/{sha256}", _lease(job_id, lease_token))

    def put_blob(self, sha256: str, path: Path, job_id: str, lease_token: str, offset: int = 0) -> None:
        """Sends a file that holds one zstd frame; ``sha256`` is of its uncompressed bytes. See :meth:`Connection.put_file`."""
        self._server.put_file(f"blobs/{sha256}", path, _lease(job_id, lease_token), offset)

    def report(self, report: AttemptReport, lease_token: str) -> ReportReply:
        """A reply with ``missing`` asks for these blobs first."""
        path = f"attempts/{report.attempt_id}/report"
        headers = _lease(report.job_id, lease_token)
        try:
            answer = self._server.retried(lambda: self._server.once("POST", path, headers=headers, json=report.model_dump(mode="json")))
        except Refused as refused:
            missing = refused.error.details.get("missing")
            if refused.status == 409 and isinstance(missing, list):
                return ReportReply(stored=False, counted=False, missing=[str(m) for m in missing])
            raise
        return self._server.message(ReportReply, answer)


def _lease(job_id: str, lease_token: str) -> dict[str, str]:
    return {"X-Job": job_id, "X-Lease-Token": lease_token}
