"""Writing the audit log: services call :func:`record` in the transaction of the change; who asked follows from the request."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone

from .audit_models import AuditEntry
from .models import ApiToken, Team, User

REQUEST_ID = "X-Request-Id"
_SANE = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_ACTION = re.compile(r"[a-z]+(-[a-z]+)*\.[a-z]+(-[a-z]+)*")
MOST_TEXT = 2_000


@dataclass
class _Asked:
    """The request that is being answered, and the token that it turned out to carry."""

    request: HttpRequest
    id: str
    token: ApiToken | None = None


_asked: ContextVar[_Asked | None] = ContextVar("asked", default=None)
Handler = Callable[[HttpRequest], HttpResponseBase]


def middleware(get_response: Handler) -> Handler:
    """Gives each request an id, which a proxy may bring along and the answer tells."""

    def answer(request: HttpRequest) -> HttpResponseBase:
        given = request.headers.get(REQUEST_ID, "")
        asked = _Asked(request, given if _SANE.fullmatch(given) else uuid.uuid4().hex)
        before = _asked.set(asked)
        try:
            response = get_response(request)
        finally:
            _asked.reset(before)
        response[REQUEST_ID] = asked.id
        return response

    return answer


def acts_by_token(token: ApiToken) -> None:
    """From now on, what this request changes was done with this token."""
    if asked := _asked.get():
        asked.token = token


def record(
    action: str,
    object_id: object = "",
    name: str = "",
    *,
    team: Team | None = None,
    by: User | str | None = None,
    before: object = "",
    after: object = "",
    reason: str = "",
) -> AuditEntry:
    """Writes one entry. ``action`` is kind.verb, such as ``host.drain``; ``before`` and ``after`` are words that a person reads.

    ``by`` is needed only where it isn't the person of the request: a user, or the name of one or of a host. Secrets and
    texts of prompts never come here.
    """
    if not _ACTION.fullmatch(action):
        raise ValueError(f"{action!r} is no action: write kind.verb")
    asked = _asked.get()
    actor_id, actor, via = _who(asked, by)
    return AuditEntry.objects.create(
        at=timezone.now(),
        actor_id=actor_id,
        actor=_text(actor, 150),
        via=via,
        token=_text(f"{asked.token.name} ({asked.token.prefix}…)", 100) if asked and asked.token else "",
        action=action,
        kind=action.partition(".")[0],
        object_id=_text(object_id, 64),
        name=_text(name, 200),
        team_id=team.pk if team else None,
        team=_text(team.name, 120) if team else "",
        before=_text(before),
        after=_text(after),
        reason=_text(reason),
        request_id=asked.id if asked else "",
        address=_address(asked.request) if asked else "",
    )


def _who(asked: _Asked | None, by: User | str | None) -> tuple[int | None, str, str]:
    person: Any = asked.token.user if asked and asked.token else getattr(asked.request, "user", None) if asked else None
    person = person if person is not None and person.pk else None
    via = "command" if asked is None else "token" if asked.token else "agent" if asked.request.path.startswith("/agent/") else "page"
    if isinstance(by, User):
        return by.pk, by.get_username(), via
    if person is not None and by in (None, "", person.get_username()):
        return person.pk, person.get_username(), via
    return None, by or "", via


def _address(request: HttpRequest) -> str:
    """The peer's, or where a proxy of ours stands in front the one that it names last."""
    if not settings.SPECWEB_AUDIT_ADDRESSES:
        return ""
    forwarded = request.headers.get("X-Forwarded-For", "") if settings.SECURE_PROXY_SSL_HEADER else ""
    return (forwarded.rpartition(",")[2].strip() or request.META.get("REMOTE_ADDR", ""))[:45]


def _text(value: object, most: int = MOST_TEXT) -> str:
    text = str(value).replace("\x00", "")
    return text if len(text) <= most else text[: most - 1] + "…"
