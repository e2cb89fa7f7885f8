"""The page of a team: who is in it, and the roles that its maintainers give and take. Read, call, answer."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from .invitations import invitations_of, mail_works
from .models import Role, Team, User
from .services import AccountError, may_maintain, members_of, set_role

#: In place of a role: the person leaves the team.
NO_ROLE = "none"


@require_safe
@login_required
def team(request: HttpRequest, slug: str) -> HttpResponse:
    return team_page(request, team_of_request(request, slug))


@require_POST
def change_member(request: HttpRequest, slug: str) -> HttpResponse:
    """Puts a person into the team, gives them another role, or takes them out."""
    if not request.user.is_authenticated:
        return sent_to_login(slug)
    found = team_of_request(request, slug)
    if not may_maintain(request.user, found):
        raise PermissionDenied
    name, wanted = request.POST.get("user", "").strip(), request.POST.get("role", "")
    person = User.objects.filter(username=name.replace("\x00", ""), is_active=True).first() if name else None
    if person is None:
        words = f"There is no account {name!r}. Whoever runs the service makes one: manage.py member {name or 'NAME'} {slug} viewer"
        return team_page(request, found, 400, user_name=name, error=words)
    if wanted not in (*Role.values, NO_ROLE):
        return team_page(request, found, 400, user_name=name, error=f"{wanted[:40]!r} is no role. Roles: {', '.join(Role.values)}.")
    role = None if wanted == NO_ROLE else Role(wanted)
    try:
        set_role(found, person, role)
    except AccountError as error:
        return team_page(request, found, 409, error=str(error))
    messages.success(request, f"{name} is {role} of {found.name} now." if role else f"{name} is no longer in {found.name}.")
    # Who has left can't see the page of the team any more.
    return redirect("team", slug) if role or person != request.user else redirect("account")


def sent_to_login(slug: str) -> HttpResponse:
    """After the login the page of the team is the way back: what a visitor sent takes POST only."""
    return redirect_to_login(reverse("team", args=[slug]))


def team_of_request(request: HttpRequest, slug: str) -> Team:
    """A team that one is not in looks like one that isn't there."""
    found = Team.objects.filter(slug=slug, memberships__user_id=request.user.pk).first()
    if found is None:
        raise Http404
    return found


def team_page(request: HttpRequest, found: Team, status: int = 200, **fields: object) -> HttpResponse:
    members = members_of(found)
    maintains = any(m.user_id == request.user.pk and m.role == Role.MAINTAINER for m in members)
    context = {
        "team": found,
        "members": members,
        "roles": list(Role),
        "no_role": NO_ROLE,
        "may_maintain": maintains,
        "invitations": invitations_of(found, timezone.now()) if maintains else [],
        "mail_works": mail_works(),
        "new_name": found.name,
        **fields,
    }
    return render(request, "accounts/team.html", context, status=status)
