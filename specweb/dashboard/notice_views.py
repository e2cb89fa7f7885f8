"""Channels for notices and the log of what was sent. Read, call, answer."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe
from speccore.errors import NotPossible

from specweb.accounts.invitations import mail_works
from specweb.accounts.models import Role
from specweb.accounts.roles import roles_held
from specweb.accounts.services import may_maintain, team_of, teams_maintained
from specweb.experiments.text import storable
from specweb.watching import queries
from specweb.watching.models import Channel
from specweb.watching.notice_models import Event, Kind
from specweb.watching.services import channels as services


@login_required
@require_safe
def notices(request: HttpRequest) -> HttpResponse:
    return _page(request)


def _page(request: HttpRequest, status: int = 200, **more: Any) -> HttpResponse:
    held = roles_held(request.user)
    mine = [team for team, role in held.items() if role == Role.MAINTAINER]
    found = list(queries.channels(request.user))
    context = {
        "channels": [(c, c.team_id in mine) for c in found],
        "deliveries": queries.deliveries(found),
        "most": queries.MOST_DELIVERIES,
        "teams": list(teams_maintained(request.user)) if mine else [],
        "kinds": [(k.value, k.label) for k in Kind if k != Kind.EMAIL or mail_works()],
        "events": [(e.value, e.label) for e in Event],
        "has_mail": mail_works(),
        "fields": {"events": [Event.ALERT.value]},
        **more,
    }
    answer = render(request, "dashboard/notices.html", context, status=status)
    if "made" in more:
        answer["Cache-Control"] = "no-store"  # it holds a secret that is shown once
    return answer


@require_POST
def channel_new(request: HttpRequest) -> HttpResponse:
    """Answers with the page itself, the one time that the secret is shown."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("notices"))
    given = {name: request.POST.get(name, "") for name in ("team", "kind", "name", "target")}
    fields = {**given, "events": request.POST.getlist("events")}
    team = team_of(request.user, storable(given["team"]))
    if team is None:
        raise Http404
    if not may_maintain(request.user, team):
        raise PermissionDenied
    try:
        made = services.create_channel(
            team, request.user, kind=given["kind"], name=given["name"], target=given["target"], events=fields["events"]
        )
    except NotPossible as error:
        return _page(request, 409, fields=fields, error=f"{error.message}. {error.remedy_text}")
    if not made.secret:
        messages.success(request, f"{made.name} is a channel now. Send it a test.")
        return redirect("notices")
    return _page(request, made=made)


def _posted(act: Callable[[HttpRequest, Channel], str]) -> Callable[..., HttpResponse]:
    @wraps(act)
    def answer(request: HttpRequest, channel_id: UUID) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("notices"))
        found = queries.channels(request.user).filter(pk=channel_id).first()
        if found is None:
            raise Http404
        if not may_maintain(request.user, found.team):
            raise PermissionDenied
        try:
            messages.info(request, act(request, found))
        except NotPossible as error:
            messages.error(request, f"{error.message}. {error.remedy_text}")
        return redirect("notices")

    return require_POST(answer)


@_posted
def channel_test(request: HttpRequest, found: Channel) -> str:
    services.test_channel(found, request.user, timezone.now())  # type: ignore[arg-type]
    return f"A test is on its way to {found.name}; the log below says how it went."


@_posted
def channel_enable(request: HttpRequest, found: Channel) -> str:
    return f"{found.name} is told again." if services.enable_channel(found, request.user) else f"{found.name} was not disabled."  # type: ignore[arg-type]


@_posted
def channel_delete(request: HttpRequest, found: Channel) -> str:
    services.delete_channel(found, request.user)  # type: ignore[arg-type]
    return f"{found.name} is removed."
