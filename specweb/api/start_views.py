"""What an experiment can start from, and whether one is sound: presets, and the check of a text. Also a person's tokens."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.presets import presets
from speccore.spec import SpecProblem

from specweb.accounts.models import ApiToken
from specweb.accounts.scopes import Scope
from specweb.accounts.services import revoke_token, tokens_of

from . import people_query as query
from . import people_shapes as shapes
from .describing import TEAM, Answer, describe
from .people_auth import PeopleView, submitting_team
from .people_body import EXPERIMENT, PARSERS, body_of


class PresetRole(Answer):
    """A place for a model; `like` are the parts of a name that fits without being named."""

    name: str
    words: str
    like: list[str]


class PresetLine(Answer):
    """`spec` is the experiment with the models that it was written for."""

    name: str
    title: str
    question: str
    needs: str
    of: str
    roles: list[PresetRole]
    spec: dict[str, Any]
    url: str


class PresetsAnswer(Answer):
    presets: list[PresetLine]


class PresetsView(PeopleView):
    @describe("Presets: experiments but for the models", tag="Experiments", answer=PresetsAnswer)
    def get(self, request: Request) -> Response:
        """`url` is the form with the preset and models of your hosts in their places."""
        found = []
        for p in presets().values():
            roles = [{"name": r.name, "words": r.words, "like": list(r.like)} for r in p.roles.values()]
            own = {"name": p.name, "title": str(p.data["name"]), "question": p.question, "needs": p.needs, "of": p.of, "roles": roles}
            found.append(own | {"spec": p.as_written(), "url": shapes.address("experiment-new", preset=p.name)})
        return Response({"presets": found})


class CheckAnswer(Answer):
    """`problems`: every fault at once, each with its field and what to do."""

    ok: bool
    problems: list[SpecProblem]
    spec_hash: str | None


class CheckView(PeopleView):
    parser_classes = PARSERS

    @describe("Whether an experiment is sound", tag="Experiments", answer=CheckAnswer, body=EXPERIMENT, query=[TEAM], scope=Scope.READ)
    def post(self, request: Request) -> Response:
        """As it is checked before it is stored; 200 either way. Nothing is stored."""
        team = submitting_team(request.user, query.text(request, "team"))
        checked = body_of(request).checked(team, request.user)
        told = {
            "ok": checked.spec is not None,
            "problems": [p.model_dump(mode="json") for p in checked.problems],
            "spec_hash": checked.spec.spec_hash() if checked.spec else None,
        }
        return Response(told)


class TokenLine(Answer):
    """`current`: the one that this request came with."""

    id: int
    name: str
    prefix: str
    scopes: list[str]
    created_at: datetime
    expires_at: datetime | None
    expired: bool
    last_used_at: datetime | None
    current: bool


class TokensAnswer(Answer):
    tokens: list[TokenLine]


class TokensView(PeopleView):
    @describe("Your tokens", tag="You", answer=TokensAnswer)
    def get(self, request: Request) -> Response:
        """Those that are not revoked. New ones are made on the account page only: a token can't make itself another."""
        return Response({"tokens": [_token(t, request) for t in tokens_of(request.user)]})


class TokenRevokeView(PeopleView):
    @describe("Revoke a token of yours", tag="You", answer=TokenLine, scope=Scope.MANAGE)
    def post(self, request: Request, token_id: int) -> Response:
        """It is refused from now on; so is this one, if it is the one that was named."""
        own = token_id < 2**63 and request.user.api_tokens.filter(pk=token_id).exists()
        found = revoke_token(request.user, token_id, timezone.now()) if own else None
        if found is None:
            raise Http404
        return Response(_token(found, request))


def _token(t: ApiToken, request: Request) -> dict[str, Any]:
    own = ("id", "name", "prefix", "scopes", "created_at", "expires_at", "last_used_at")
    return {name: getattr(t, name) for name in own} | {"expired": t.is_expired, "current": t.pk == request.auth.pk}
