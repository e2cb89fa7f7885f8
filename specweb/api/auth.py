"""Who speaks: an agent by its token, and its right to a job by the lease token."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from rest_framework.authentication import BaseAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from specweb.experiments.models import Host, Lease
from specweb.experiments.services.hosts import host_of_token
from specweb.experiments.services.jobs import lease_of

LEASE_HEADER = "X-Lease-Token"


class AgentToken(BaseAuthentication):
    """``Authorization: Bearer <agent token>``; the host becomes ``request.auth``."""

    def authenticate(self, request: Request) -> tuple[None, Host]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        host = host_of_token(token.strip()) if scheme.lower() == "bearer" and token.strip() else None
        if host is None:
            raise AuthenticationFailed("no valid agent token")
        return None, host

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class IsHost(BasePermission):
    def has_permission(self, request: Request, view: Any) -> bool:
        return isinstance(request.auth, Host)


def lease_in(request: Request, job_id: UUID | str | None = None) -> Lease:
    """The lease that the request carries; it must be of ``job_id``, or else of the job that ``X-Job`` names, where one does.

    Raises :class:`speccore.errors.NotAllowed`.
    """
    return lease_of(request.auth, request.headers.get(LEASE_HEADER, ""), job_id or request.headers.get("X-Job"))
