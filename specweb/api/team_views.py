"""Teams, their members and invitations, and the audit log, by program. Read, call, answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts import audit_queries, invitations, teams
from specweb.accounts.models import AuditEntry, Invitation, Membership, Role, Team, User
from specweb.accounts.scopes import Scope
from specweb.accounts.services import AccountError, may_maintain, members_of, memberships_of, role_of, set_role, team_of
from specweb.experiments.text import storable

from . import people_query as query
from . import people_shapes as shapes
from .bodies import Sent, sent
from .describing import Answer, Query, describe
from .errors import BadRequest
from .paging import PAGE, page
from .people_auth import PeopleView

TAG = "Teams"


class TeamMade(Sent):
    name: str
    slug: str


class TeamRenamed(Sent):
    name: str


class RoleGiven(Sent):
    role: Role


class InvitationAsked(Sent):
    """With `email` it is for an account of that address, and mailed there where the service has mail."""

    role: Role
    email: str = ""
    days: int = Field(7, ge=1, le=90)
    uses: int = Field(1, ge=1, le=100)


class MemberLine(Answer):
    user: str
    role: str
    active: bool


class TeamHead(Answer):
    slug: str
    name: str
    your_role: str
    url: str


class TeamsAnswer(Answer):
    teams: list[TeamHead]


class TeamAnswer(TeamHead):
    members: list[MemberLine]


class InvitationLine(Answer):
    id: int
    role: str
    email: str
    made_by: str | None
    created_at: datetime
    expires_at: datetime
    uses: int
    n_used: int
    mailed: bool


class InvitationsAnswer(Answer):
    invitations: list[InvitationLine]


class InvitationAnswer(InvitationLine):
    """`link` is told this one time; null where it was mailed. `mail_error` says why it was not."""

    link: str | None
    mail_error: str | None


class InvitationGone(Answer):
    withdrawn: int


class MemberGone(Answer):
    user: str
    role: None


class AuditLine(Answer):
    id: int
    at: datetime
    actor: str
    via: str
    token: str
    action: str
    object_id: str
    name: str
    team: str
    before: str
    after: str
    reason: str
    request_id: str
    address: str


class AuditAnswer(Answer):
    entries: list[AuditLine]
    next: str | None


def _mine(request: Request, slug: str) -> Team:
    """A team that one is not in looks like one that isn't there."""
    found = team_of(request.user, storable(slug))
    if found is None:
        raise Http404
    return found


def _maintained(request: Request, slug: str) -> Team:
    found = _mine(request, slug)
    if not may_maintain(request.user, found):
        role = role_of(request.user, found)
        raise NotAllowed(f"your role in team {found.slug} is {role}", remedy="Ask a maintainer of the team.")
    return found


def _head(team: Team, role: str) -> dict[str, Any]:
    return {"slug": team.slug, "name": team.name, "your_role": role, "url": shapes.address("team", team.slug)}


def _member(m: Membership) -> dict[str, Any]:
    return {"user": m.user.get_username(), "role": m.role, "active": m.user.is_active}


def _invitation(i: Invitation) -> dict[str, Any]:
    names = ("role", "email", "created_at", "expires_at", "n_used", "mailed")
    by = i.made_by.get_username() if i.made_by else None
    return {"id": i.pk, "made_by": by, "uses": i.max_uses, **{n: getattr(i, n) for n in names}}


def _whole(request: Request, team: Team) -> dict[str, Any]:
    return _head(team, role_of(request.user, team) or "") | {"members": [_member(m) for m in members_of(team)]}


class TeamsView(PeopleView):
    @describe("Your teams", tag=TAG, answer=TeamsAnswer)
    def get(self, request: Request) -> Response:
        return Response({"teams": [_head(m.team, m.role) for m in memberships_of(request.user)]})

    @describe("Make a team", tag=TAG, answer=TeamAnswer, status=201, body=TeamMade, scope=Scope.MANAGE)
    def post(self, request: Request) -> Response:
        """You become its maintainer. The short name stays as it is."""
        if not teams.may_make_teams(request.user):
            raise NotAllowed("whoever runs the service makes the teams here", remedy="Ask them for a team.")
        asked = sent(request, TeamMade)
        try:
            made = teams.create_team(request.user, asked.name, asked.slug)
        except AccountError as error:
            raise BadRequest(str(error), "Send another name or slug.") from None
        return Response(_whole(request, made), status=201)


class TeamView(PeopleView):
    @describe("A team and who is in it", tag=TAG, answer=TeamAnswer)
    def get(self, request: Request, slug: str) -> Response:
        return Response(_whole(request, _mine(request, slug)))

    @describe("Rename a team", tag=TAG, answer=TeamAnswer, body=TeamRenamed, scope=Scope.MANAGE)
    def patch(self, request: Request, slug: str) -> Response:
        team = _maintained(request, slug)
        try:
            teams.rename_team(team, sent(request, TeamRenamed).name)
        except AccountError as error:
            raise BadRequest(str(error), "Send another name.", field="name") from None
        return Response(_whole(request, team))


class MemberView(PeopleView):
    @describe("Give somebody a role", tag=TAG, answer=MemberLine, body=RoleGiven, scope=Scope.MANAGE, refuses=[409])
    def put(self, request: Request, slug: str, user: str) -> Response:
        """They join the team if they are not in it."""
        team = _maintained(request, slug)
        role = sent(request, RoleGiven).role
        person = User.objects.filter(username=storable(user), is_active=True).first()
        if person is None:
            raise BadRequest(f"there is no account {user[:60]!r}", "Invite them: POST teams/SLUG/invitations.", field="user")
        _set(team, person, role)
        return Response(_member(Membership.objects.select_related("user").get(team=team, user=person)))

    @describe("Take somebody out of a team", tag=TAG, answer=MemberGone, scope=Scope.MANAGE, refuses=[409])
    def delete(self, request: Request, slug: str, user: str) -> Response:
        """Everybody may take out themselves, maintainers others too; the last maintainer stays."""
        itself = user == request.user.get_username()
        team = _mine(request, slug) if itself else _maintained(request, slug)
        person = team.members.filter(username=storable(user)).first()
        if person is None:
            raise Http404
        _set(team, person, None)
        return Response({"user": person.get_username(), "role": None})


def _set(team: Team, person: User, role: Role | None) -> None:
    try:
        set_role(team, person, role)
    except AccountError as error:
        raise NotPossible(str(error), remedy="Make somebody else a maintainer first.") from None


class InvitationsView(PeopleView):
    @describe("Open invitations", tag=TAG, answer=InvitationsAnswer, scope=Scope.MANAGE)
    def get(self, request: Request, slug: str) -> Response:
        found = invitations.invitations_of(_maintained(request, slug), timezone.now())
        return Response({"invitations": [_invitation(i) for i in found]})

    @describe("Invite people", tag=TAG, answer=InvitationAnswer, status=201, body=InvitationAsked, scope=Scope.MANAGE)
    def post(self, request: Request, slug: str) -> Response:
        team = _maintained(request, slug)
        asked = sent(request, InvitationAsked)
        try:
            made = invitations.invite(
                team, request.user, role=asked.role, email=asked.email, days=asked.days, uses=asked.uses, now=timezone.now()
            )
        except AccountError as error:
            raise BadRequest(str(error), "Mend the field that is named.") from None
        told = _invitation(made.invitation) | {"link": made.url or None, "mail_error": made.mail_error or None}
        return Response(told, status=201)


class InvitationView(PeopleView):
    @describe("Withdraw an invitation", tag=TAG, answer=InvitationGone, scope=Scope.MANAGE)
    def delete(self, request: Request, slug: str, invitation_id: int) -> Response:
        if not invitations.withdraw(_maintained(request, slug), invitation_id, timezone.now()):
            raise Http404
        return Response({"withdrawn": invitation_id})


_DAY = {"type": "string", "format": "date"}
_FILTERS = [
    Query("team", "The team, by the name that it had."),
    Query("actor", "Who did it, by user name or the name of a host."),
    Query("action", "An action such as `host.drain`, or a kind of thing such as `host`."),
    Query("object", "The id of the thing."),
    Query("since", "From this day on, UTC.", _DAY),
    Query("until", "Up to this day and with it, UTC.", _DAY),
]


class AuditView(PeopleView):
    @describe("What was changed", tag="Audit", answer=AuditAnswer, query=[*_FILTERS, *PAGE], scope=Scope.MANAGE)
    def get(self, request: Request) -> Response:
        """In the teams that you maintain, and by you; the newest first. An entry is never changed or removed."""
        asked = audit_queries.Filters.of({q.name: query.text(request, q.name) for q in _FILTERS})
        try:
            rows = audit_queries.entries(request.user, asked)
        except audit_queries.OddFilter as error:
            raise BadRequest(str(error), "Give a day.", parameter=str(error).partition(":")[0]) from None
        found, more = page(request, rows, ("-id",))
        return Response({"entries": [_entry(e) for e in found], "next": more})


def _entry(e: AuditEntry) -> dict[str, Any]:
    return {name: getattr(e, name) for name in audit_queries.COLUMNS}
