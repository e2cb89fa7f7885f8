"""Making, renaming and leaving teams; invitations, and what becomes of who opens one. Read, call, answer."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import UserCreationForm
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from .invitations import InvitationRefused, accept, invitation_of, invite, sign_up, withdraw
from .models import Role, Team, User
from .services import AccountError, may_maintain, set_role
from .team_views import sent_to_login, team_of_request, team_page
from .teams import create_team, may_make_teams, rename_team

BACKEND = "django.contrib.auth.backends.ModelBackend"


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def team_new(request: HttpRequest) -> HttpResponse:
    if not may_make_teams(request.user):
        raise PermissionDenied
    fields = {"name": request.POST.get("name", ""), "slug": request.POST.get("slug", "")}
    if request.method != "POST":
        return render(request, "accounts/team_new.html", fields)
    try:
        made = create_team(request.user, **fields)
    except AccountError as error:
        return render(request, "accounts/team_new.html", {**fields, "error": str(error)}, status=400)
    messages.success(request, f"The team {made.name} is made, and you are its maintainer.")
    return redirect("team", made.slug)


def _maintained(request: HttpRequest, slug: str) -> Team:
    """Raises 404 for a team that one is not in, and :class:`PermissionDenied` for one that one doesn't maintain."""
    found = team_of_request(request, slug)
    if not may_maintain(request.user, found):
        raise PermissionDenied
    return found


@require_POST
def rename(request: HttpRequest, slug: str) -> HttpResponse:
    if not request.user.is_authenticated:
        return sent_to_login(slug)
    found = _maintained(request, slug)
    name = request.POST.get("name", "")
    try:
        rename_team(found, name)
    except AccountError as error:
        return team_page(request, found, 400, new_name=name, name_error=str(error))
    messages.success(request, f"The team is called {found.name} now.")
    return redirect("team", slug)


@require_POST
def leave(request: HttpRequest, slug: str) -> HttpResponse:
    if not request.user.is_authenticated:
        return sent_to_login(slug)
    found = team_of_request(request, slug)
    try:
        set_role(found, request.user, None)
    except AccountError as error:
        return team_page(request, found, 409, error=str(error))
    messages.success(request, f"You have left {found.name}.")
    return redirect("account")


@require_POST
@never_cache
def make_invitation(request: HttpRequest, slug: str) -> HttpResponse:
    """The link is shown in this one answer and never again; where it went by mail, not at all."""
    if not request.user.is_authenticated:
        return sent_to_login(slug)
    found = _maintained(request, slug)
    asked = {name: request.POST.get(name, "").strip() for name in ("role", "email", "days", "uses")}
    try:
        numbers = {name: _whole(name, asked[name] or default) for name, default in (("days", "7"), ("uses", "1"))}
        made = invite(found, request.user, role=asked["role"], email=asked["email"], now=timezone.now(), **numbers)
    except AccountError as error:
        return team_page(request, found, 400, invite=asked, invite_error=str(error))
    return render(request, "accounts/invitation_made.html", {"team": found, "made": made})


def _whole(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) < 6):
        raise AccountError(f"{name}: {value[:20]!r} is no whole number.")
    return int(value)


@require_POST
def withdraw_invitation(request: HttpRequest, slug: str, invitation_id: int) -> HttpResponse:
    if not request.user.is_authenticated:
        return sent_to_login(slug)
    found = _maintained(request, slug)
    if withdraw(found, invitation_id, timezone.now()):
        messages.success(request, "The invitation is withdrawn: its link is refused from now on.")
    else:
        messages.info(request, "There is no such open invitation.")
    return redirect("team", slug)


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def join(request: HttpRequest, secret: str) -> HttpResponse:
    """What an invitation is to; a button takes in who is logged in, a form makes an account for who has none."""
    now = timezone.now()
    try:
        invitation = invitation_of(secret, now)
        if request.method != "POST":
            return _join_page(request, secret, invitation)
        if request.user.is_authenticated:
            joined = accept(secret, request.user, now)
            messages.success(request, f"You are {joined.role} of {joined.team.name} now.")
            return redirect("team", joined.team.slug)
        return _sign_up(request, secret, invitation)
    except InvitationRefused as error:
        return render(request, "accounts/join.html", {"refused": str(error)}, status=404 if request.method != "POST" else 409)


def _join_page(request: HttpRequest, secret: str, invitation: Any, status: int = 200, form: Any = None) -> HttpResponse:
    context = {
        "invitation": invitation,
        "role": Role(invitation.role),
        "form": form or AccountForm(label_suffix=""),
        "login_url": f"{settings.LOGIN_URL}?next={reverse('join', args=[secret])}",
        "here": reverse("join", args=[secret]),
    }
    return render(request, "accounts/join.html", context, status=status)


class AccountForm(UserCreationForm):
    """A name, which may not be another's in other letter cases, and a password, twice."""

    class Meta:
        model = User
        fields = ("username",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["username"].widget.attrs.pop("autofocus", None)
        self.fields["username"].help_text = "Up to 150 letters, digits and @ . + - _; others see it."


def _sign_up(request: HttpRequest, secret: str, invitation: Any) -> HttpResponse:
    form = AccountForm(request.POST, label_suffix="")
    user = _made(form, secret) if form.is_valid() else None
    if user is None:
        return _join_page(request, secret, invitation, 400, form)
    login(request, user, backend=BACKEND)
    messages.success(request, f"Your account {user.get_username()} is made, and you are in {invitation.team.name}.")
    return redirect("team", invitation.team.slug)


def _made(form: AccountForm, secret: str = "") -> User | None:
    try:
        return sign_up(form.cleaned_data["username"], form.cleaned_data["password1"], "", timezone.now(), secret=secret)
    except IntegrityError:
        form.add_error("username", "Somebody else has just taken this name.")
        return None


@require_http_methods(["GET", "HEAD", "POST"])
@never_cache
def open_sign_up(request: HttpRequest) -> HttpResponse:
    """An account for everybody who wants one, where the service is set up so."""
    if not settings.SPECWEB_OPEN_SIGNUP:
        raise Http404
    if request.user.is_authenticated:
        return redirect("account")
    form = AccountForm(request.POST or None, label_suffix="")
    user = _made(form) if request.method == "POST" and form.is_valid() else None
    if user is None:
        return render(request, "accounts/sign_up.html", {"form": form}, status=400 if request.method == "POST" else 200)
    login(request, user, backend=BACKEND)
    messages.success(request, f"Your account {user.get_username()} is made.")
    return redirect("account")
