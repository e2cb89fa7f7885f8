"""Who speaks, of people: a token made on the account page, and what its owner may do in a team."""

from __future__ import annotations

from typing import Any

from django.utils import timezone
from rest_framework.authentication import BaseAuthentication
from rest_framework.permissions import BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView
from speccore.errors import NotAllowed, ServerError

from specweb.accounts.models import ApiToken, Team, User
from specweb.accounts.rates import Standing
from specweb.accounts.services import PEOPLES_KIND, TokenRefused, may_submit, role_of, teams_submitted, token_of

from .errors import BadRequest
from .pace import TooManyRequests, count_stranger, count_token, tell
from .people_query import only


class NotAuthenticated(ServerError):
    code = "not_authenticated"
    retry = False
    remedy = "Make a token on your account page (/account/) and send it with each request: Authorization: Bearer TOKEN."


class PersonToken(BaseAuthentication):
    """``Authorization: Bearer <token>``; the token becomes ``request.auth``. A session's cookie is no way in here, so no other site can ask in a person's name."""

    def authenticate(self, request: Request) -> tuple[User, ApiToken]:
        given = request.headers.get("Authorization", "")
        scheme, _, secret = given.partition(" ")
        if not given:
            raise NotAuthenticated("the request carries no token")
        if scheme.lower() != "bearer" or not secret.strip():
            raise NotAuthenticated("the Authorization header is not of the form 'Bearer TOKEN'")
        try:
            token = token_of(secret.strip(), timezone.now())
        except TokenRefused as error:
            raise NotAuthenticated(str(error)) from None
        if token is None:
            hint = "" if secret.strip().startswith(f"{PEOPLES_KIND}_") else f"; a person's token begins with {PEOPLES_KIND}_"
            raise NotAuthenticated(f"the token is unknown here{hint}")
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return "Bearer"


class Paced(APIView):
    """Base of all: counts who asks, and tells in the headers how that stands."""

    standing: Standing | None = None

    def held(self, standing: Standing | None, of: str) -> None:
        """Raises :class:`TooManyRequests` for who has asked too often."""
        self.standing = standing
        if standing is not None and standing.over:
            raise TooManyRequests(standing, of)

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        answer = super().finalize_response(request, response, *args, **kwargs)
        tell(self.standing, answer.headers)
        return answer


class OpenView(Paced):
    """Base of what everybody may ask, token or not."""

    authentication_classes: list[type[BaseAuthentication]] = []
    permission_classes: list[type[BasePermission]] = []

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self.held(count_stranger(request), "to one address without a token")
        super().initial(request, *args, **kwargs)


class PeopleView(Paced):
    """Base of every address for people's programs: the token is needed, ``request.user`` is its owner."""

    authentication_classes = [PersonToken]
    permission_classes = [IsAuthenticated]
    counted_as = "requests"

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Beside the token itself: its scope, and that the address knows each parameter; both as the method describes them."""
        try:
            super().initial(request, *args, **kwargs)
        except NotAuthenticated:
            self.held(count_stranger(request), "to one address without a valid token")
            raise
        self.held(count_token(request.auth, self.counted_as), "to one token")
        method = getattr(self, (request.method or "").lower(), None)
        if method is None or not hasattr(method, "scope"):
            return  # it is refused as a method that is not allowed
        refuse_small_scope(request.auth, method.scope)
        only(request, *method.parameters)


class ScopeTooSmall(ServerError):
    code = "scope_too_small"
    retry = False


def refuse_small_scope(token: ApiToken | None, needed: str) -> None:
    """Raises :class:`ScopeTooSmall` for a token that was made for less."""
    scopes = token.scopes if token else []
    if needed not in scopes:
        words = (
            f"the token {token.name if token else ''!r} is for {' and '.join(scopes) or 'nothing'} only, and this needs the scope {needed}"
        )
        raise ScopeTooSmall(words, remedy="Make a token with this scope on your account page (/account/).", needed=needed, scopes=scopes)


def submitting_team(user: User, slug: str) -> Team:
    """The team that a person submits for: the named one, or the only one there is.

    A team that one is not in looks like one that isn't there. Raises :class:`BadRequest` or :class:`NotAllowed`.
    """
    mine = list(teams_submitted(user))
    if not slug:
        if len(mine) == 1:
            return mine[0]
        if not mine:
            raise NotAllowed("you may not submit for any team", remedy="Ask a maintainer of your team for the role submitter.")
        raise BadRequest(f"you may submit for several teams: {', '.join(t.slug for t in mine)}", "Name one with ?team=.", parameter="team")
    team = next((t for t in mine if t.slug == slug), None)
    if team is not None:
        return team
    known = user.teams.filter(slug=slug).first() if slug.isprintable() else None
    if known is not None:
        refuse_unless_submitter(user, known)
    names = ", ".join(t.slug for t in mine) or "none that you may submit for"
    raise BadRequest(f"you are in no team {slug[:60]!r}", f"Your teams: {names}.", parameter="team")


def refuse_unless_submitter(user: User, team: Team) -> None:
    """Raises :class:`NotAllowed`, in words, unless the person may submit for the team."""
    if may_submit(user, team):
        return
    role = role_of(user, team)
    what = f"your role in team {team.slug} is {role}, which may read only" if role else f"you are not in team {team.slug}"
    raise NotAllowed(what, remedy="Ask a maintainer of the team for the role submitter.")
