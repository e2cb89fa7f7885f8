"""The server's side of agent protocol v1 behind an httpx transport, with faults to order: the network is what is replaced."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable
from typing import Any

import httpx
import zstandard
from speccore.protocol import AttemptReport, Finished, InventoryRequest, JobOffer, Looked, PollReply, PollRequest
from speccore.workload import Workload

Fault = Callable[[httpx.Request], httpx.Response | None]


def refusal(status: int, code: str, message: str = "no", **details: Any) -> httpx.Response:
    body = {"code": code, "message": message, "blame": "server", "retry": False, "remedy": "", "details": details}
    return httpx.Response(status, json={"error": body})


class FakeServer:
    """Keeps what it got. ``faults`` see each request first and may answer it, or raise as a broken network does."""

    def __init__(self, workloads: dict[str, Workload] | None = None, token: str = "agent-token") -> None:
        self.workloads = {w.content_hash(): w for w in (workloads or {}).values()}
        self.token = token
        self.offers: list[JobOffer] = []
        self.cancel: list[str] = []
        self.pause: list[str] = []
        self.drain = False
        self.looked: Callable[[], Looked | None] = lambda: None
        self.partials: dict[str, bytes] = {}
        self.inventories: list[InventoryRequest] = []
        self.polls: list[PollRequest] = []
        self.finished: list[Finished] = []
        self.blobs: dict[str, bytes] = {}
        self.reports: dict[str, AttemptReport] = {}
        self.requests: list[tuple[str, str]] = []
        self.faults: list[Fault] = []
        self.acknowledges = True
        self._lock = threading.Lock()

    @property
    def transport(self) -> httpx.BaseTransport:
        return httpx.MockTransport(self._handle)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            path = request.url.path.removeprefix("/agent/v1/")
            self.requests.append((request.method, path))
            request.read()
            for fault in list(self.faults):
                answer = fault(request)
                if answer is not None:
                    return answer
            if path != "enrol" and request.headers.get("Authorization") != f"Bearer {self.token}":
                return refusal(401, "not_authenticated", "unknown token")
            first, *rest = path.split("/")
            return getattr(self, f"_{first}")(request, *rest)

    def _enrol(self, request: httpx.Request) -> httpx.Response:
        if json.loads(request.content)["code"] != "good-code":
            return refusal(403, "not_allowed", "the code is not known or was used")
        return httpx.Response(200, json={"protocol": 1, "host_id": "h1", "host_name": "box", "agent_token": self.token})

    def _poll(self, request: httpx.Request) -> httpx.Response:
        poll = PollRequest.model_validate_json(request.content)
        self.polls.append(poll)
        known = [i.inventory.content_hash() for i in self.inventories]
        send_inventory = poll.inventory_hash not in known
        acknowledged = []
        for finished in poll.finished if self.acknowledges else []:
            self.finished.append(finished)
            acknowledged.append(finished.job_id)
            self.offers = [o for o in self.offers if o.job_id != finished.job_id]
        offer = None
        if self.offers and not poll.running and not send_inventory and not poll.draining:
            offer = self.offers[0]
        cancel = [poll.running.job_id] if poll.running and poll.running.job_id in self.cancel else []
        if self.drain:
            offer = None
        reply = PollReply(
            job=offer,
            cancel=cancel,
            pause=self.pause,
            drain=self.drain,
            looked=self.looked(),
            acknowledged=acknowledged,
            send_inventory=send_inventory,
            poll_after_s=0.1,
        )
        return httpx.Response(200, content=reply.model_dump_json(), headers={"Content-Type": "application/json"})

    def _inventory(self, request: httpx.Request) -> httpx.Response:
        self.inventories.append(InventoryRequest.model_validate_json(request.content))
        return httpx.Response(200, json={})

    def _workloads(self, request: httpx.Request, content_hash: str) -> httpx.Response:
        if content_hash not in self.workloads:
            return refusal(404, "not_found")
        return httpx.Response(200, json=self.workloads[content_hash].model_dump(mode="json"))

    def _blobs(self, request: httpx.Request, sha256: str) -> httpx.Response:
        if not request.headers.get("X-Lease-Token") or not request.headers.get("X-Job"):
            return refusal(403, "not_allowed", "no lease")
        if request.method == "HEAD":
            if sha256 in self.blobs:
                return httpx.Response(200)
            return httpx.Response(404, headers={"Upload-Offset": str(len(self.partials.get(sha256, b"")))})
        if int(request.headers.get("Content-Length", -1)) != len(request.content):
            return refusal(411, "length_required")  # a body in chunks is not taken
        data = request.content
        if wanted := request.headers.get("Content-Range"):
            first, last, total = map(int, re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", wanted).groups())  # type: ignore[union-attr]
            there = self.partials.get(sha256, b"")
            if first != len(there) or last - first + 1 != len(data):
                return refusal(409, "wrong_offset", offset=len(there))
            data = there + data
            if len(data) < total:
                self.partials[sha256] = data
                return httpx.Response(202, headers={"Upload-Offset": str(len(data))})
            self.partials.pop(sha256, None)
        if request.headers.get("Content-Encoding") == "zstd":
            try:
                data = zstandard.ZstdDecompressor().stream_reader(data).read()
            except zstandard.ZstdError:
                return refusal(422, "hash_mismatch", "the body is no zstd")
        if hashlib.sha256(data).hexdigest() != sha256:
            return refusal(422, "hash_mismatch", "the bytes have another hash")
        existed = sha256 in self.blobs
        self.blobs[sha256] = data
        return httpx.Response(200 if existed else 201)

    def _attempts(self, request: httpx.Request, attempt_id: str, _report: str) -> httpx.Response:
        report = AttemptReport.model_validate_json(request.content)
        missing = [ref.sha256 for ref in report.evidence if ref.sha256 not in self.blobs]
        if missing:
            return refusal(409, "blobs_missing", missing=missing)
        self.reports[attempt_id] = report
        return httpx.Response(200, json={"protocol": 1, "stored": True, "counted": True, "missing": []})
