"""Agent protocol v1: each view decodes a message, calls a service, answers with a message."""

from __future__ import annotations

import math
import re
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.http import Http404
from django.utils import timezone
from rest_framework.exceptions import ParseError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from speccore.canonical import sha256_of
from speccore.errors import BlobTooLarge, NotAllowed, ProtocolTooOld, StaleLease
from speccore.inventory import Peer
from speccore.protocol import (
    PROTOCOL,
    AttemptReport,
    EnrolReply,
    EnrolRequest,
    InventoryRequest,
    JobPlan,
    PollRequest,
)

from specweb import queue
from specweb.experiments.models import Workload
from specweb.experiments.services.hosts import enrol, store_inventory
from specweb.experiments.services.jobs import is_newest
from specweb.experiments.services.polling import Pace, poll
from specweb.experiments.text import storable
from specweb.results.models import Blob
from specweb.results.partials import forget_parts, offset_of, part_of, receive_part
from specweb.results.services.blocks import take_stock
from specweb.results.services.reports import report_attempt
from specweb.results.store import held_blob, store_blob

from .auth import AgentToken, IsHost, lease_in
from .errors import BlobsMissing, LengthRequired

Message = TypeVar("Message", bound=Peer)

#: Levels of a message; the deepest that agents send has a dozen.
MAX_DEPTH = 64


class AgentView(APIView):
    """Base of every address but enrol: the agent's token is needed, ``request.auth`` is the host."""

    authentication_classes = [AgentToken]
    permission_classes = [IsHost]


class EnrolView(APIView):
    authentication_classes: list[type] = []
    permission_classes: list[type] = []

    def post(self, request: Request) -> Response:
        host, token = enrol(_decode(EnrolRequest, request), timezone.now())
        return _answer(EnrolReply(host_id=str(host.pk), host_name=host.name, agent_token=token), 201)


class PollView(AgentView):
    def post(self, request: Request) -> Response:
        message = _decode(PollRequest, request)
        pace = Pace(idle_s=settings.SPECWEB_POLL_IDLE_S, running_s=settings.SPECWEB_POLL_RUNNING_S)
        reply = poll(request.auth, message, timezone.now(), pace=pace, take_stock=take_stock)
        for job_id in filter(_is_uuid, dict.fromkeys(reply.acknowledged)):
            queue.send("compare_job", job_id)
        return _answer(reply)


class InventoryView(AgentView):
    def post(self, request: Request) -> Response:
        message = _decode(InventoryRequest, request)
        # Of what was sent, not of what was understood: an agent of another release hashes fields that this one doesn't know.
        digest = sha256_of(request.data["inventory"])
        row = store_inventory(request.auth, message.inventory, timezone.now(), digest=digest)
        queue.send("dispatch")
        return Response({"protocol": PROTOCOL, "inventory_hash": row.hash})


class WorkloadView(AgentView):
    def get(self, request: Request, content_hash: str) -> Response:
        lease = lease_in(request)
        if not is_newest(lease):
            raise StaleLease(f"lease {lease.n} of job {lease.job_id} was followed by another; nothing may begin under it")
        if content_hash not in JobPlan.model_validate(lease.job.plan).workloads.values():
            raise NotAllowed("the job of this lease doesn't use this workload", workload=content_hash)
        row = Workload.objects.of_team(request.auth.team).filter(content_hash=content_hash).first()
        if row is None:
            raise Http404
        return Response(row.content)


class BlobView(AgentView):
    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        lease_in(request)
        if not re.fullmatch(r"[0-9a-f]{64}", kwargs["sha256"]):
            raise Http404

    def head(self, request: Request, sha256: str) -> Response:
        if held_blob(sha256, request.auth.team):
            return Response(status=200)
        there = offset_of(sha256, request.auth)
        return Response(status=404, headers={"Upload-Offset": str(there)} if there else None)

    def put(self, request: Request, sha256: str) -> Response:
        encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("identity", "zstd"):
            raise NotAllowed(f"Content-Encoding {encoding!r} is none that is taken", remedy="Send identity or zstd.")
        length = request.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise LengthRequired
        limit = settings.SPECWEB_MAX_BLOB_BYTES
        if int(length) > limit:
            raise BlobTooLarge(f"the body has {int(length):,} bytes", max_bytes=limit)
        part = part_of(request.headers["Content-Range"], int(length)) if "Content-Range" in request.headers else None
        host, zstd = request.auth, encoding == "zstd"
        if known := held_blob(sha256, host.team):
            return _stored(known, 200)
        # The body is read below the framework's parsers, in pieces; WSGI bounds it by Content-Length.
        if part is None:
            blob = store_blob(sha256, request._request, host.team, zstd=zstd, max_bytes=limit)
            forget_parts(sha256, host)
            return _stored(blob, 201)
        kept = receive_part(sha256, request._request, host, part, zstd=zstd, max_bytes=limit)
        if isinstance(kept, int):
            return Response({"sha256": sha256, "offset": kept}, status=202, headers={"Upload-Offset": str(kept)})
        return _stored(kept, 201)


class ReportView(AgentView):
    def post(self, request: Request, attempt_id: UUID) -> Response:
        report = _decode(AttemptReport, request)
        if report.attempt_id != str(attempt_id):
            raise NotAllowed("the address names another attempt than the report", attempt=report.attempt_id)
        reply = report_attempt(request.auth, lease_in(request, report.job_id), report, timezone.now())
        if reply.missing:
            raise BlobsMissing(f"{len(reply.missing)} evidence files are not here yet", missing=reply.missing)
        return _answer(reply)


class NothingHere(APIView):
    """Any other address of the tree: refused in the one shape, not as a page."""

    authentication_classes: list[type] = []
    permission_classes: list[type] = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise Http404


def _decode(model: type[Message], request: Request) -> Message:
    if int(request.headers.get("Content-Length") or 0) > settings.DATA_UPLOAD_MAX_MEMORY_SIZE:
        raise RequestDataTooBig  # the framework's JSON parser reads without a limit
    try:
        data = request.data
        _check(data)
    except RecursionError:
        raise ParseError("the message is nested too deeply") from None
    data = storable(data)
    if isinstance(data, dict) and isinstance(data.get("protocol"), int) and data["protocol"] != PROTOCOL:
        raise ProtocolTooOld(f"protocol {data['protocol']} is not spoken here, {PROTOCOL} is", protocol=data["protocol"], served=PROTOCOL)
    return model.model_validate(data)


def _check(value: Any, depth: int = 0) -> None:
    """Refuses what no later step could hold: endless nesting, and numbers such as 1e999, which JSON's reader takes for infinite."""
    if depth > MAX_DEPTH:
        raise ParseError(f"the message is nested more than {MAX_DEPTH} levels deep")
    if isinstance(value, float) and not math.isfinite(value):
        raise ParseError("a number in the message is too large")
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check(part, depth + 1)


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _stored(blob: Blob, status: int) -> Response:
    return Response({"sha256": blob.sha256, "bytes": blob.bytes}, status=status)


def _answer(message: Peer, status: int = 200) -> Response:
    return Response(message.model_dump(mode="json"), status=status)
