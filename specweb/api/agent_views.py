"""Agent protocol v1: each view decodes a message, calls a service, answers with a message."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404
from django.urls import Resolver404, resolve
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from speccore.canonical import sha256_of
from speccore.errors import NotAllowed, StaleLease
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
from specweb.results.services.blocks import take_stock
from specweb.results.services.reports import report_attempt

from .auth import AgentToken, IsHost, lease_in
from .blobs import answer_head, receive, refuse_what_is_no_hash
from .errors import BlobsMissing, NotFound
from .messages import decoded


class AgentView(APIView):
    """Base of every address but enrol: the agent's token is needed, ``request.auth`` is the host."""

    authentication_classes = [AgentToken]
    permission_classes = [IsHost]


class EnrolView(APIView):
    authentication_classes: list[type] = []
    permission_classes: list[type] = []

    def post(self, request: Request) -> Response:
        host, token = enrol(decoded(EnrolRequest, request), timezone.now())
        return _answer(EnrolReply(host_id=str(host.pk), host_name=host.name, agent_token=token), 201)


class PollView(AgentView):
    def post(self, request: Request) -> Response:
        message = decoded(PollRequest, request)
        pace = Pace(idle_s=settings.SPECWEB_POLL_IDLE_S, running_s=settings.SPECWEB_POLL_RUNNING_S)
        reply = poll(request.auth, message, timezone.now(), pace=pace, take_stock=take_stock)
        for job_id in filter(_is_uuid, dict.fromkeys(reply.acknowledged)):
            queue.send("compare_job", job_id)
        return _answer(reply)


class InventoryView(AgentView):
    def post(self, request: Request) -> Response:
        message = decoded(InventoryRequest, request)
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
        refuse_what_is_no_hash(kwargs["sha256"])

    def head(self, request: Request, sha256: str) -> Response:
        return answer_head(sha256, request.auth)

    def put(self, request: Request, sha256: str) -> Response:
        return receive(request, sha256, request.auth)


class ReportView(AgentView):
    def post(self, request: Request, attempt_id: UUID) -> Response:
        report = decoded(AttemptReport, request)
        if report.attempt_id != str(attempt_id):
            raise NotAllowed("the address names another attempt than the report", attempt=report.attempt_id)
        reply = report_attempt(request.auth, lease_in(request, report.job_id), report, timezone.now())
        if reply.missing:
            raise BlobsMissing(f"{len(reply.missing)} evidence files are not here yet", missing=reply.missing)
        return _answer(reply)


class NothingHere(APIView):
    """Any other address of the tree: refused in the one shape, not as a page, with the address that was probably meant."""

    authentication_classes: list[type] = []
    permission_classes: list[type] = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        raise NotFound(_meant(request.path_info))


def _meant(path: str) -> str:
    """The address with a slash more or less, if there is one; else empty."""
    other = path.rstrip("/") if path.endswith("/") else f"{path}/"
    try:
        found = resolve(other)
    except Resolver404:
        return ""
    return "" if getattr(found.func, "cls", None) is NothingHere else other


def _is_uuid(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def _answer(message: Peer, status: int = 200) -> Response:
    return Response(message.model_dump(mode="json"), status=status)
