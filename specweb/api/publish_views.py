"""Who may read an experiment, and its published versions, by program. Read, call, answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response

from specweb.accounts.scopes import Scope
from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.sharing import change_visibility, refuse_unless_shares
from specweb.results import page_queries, publication_queries
from specweb.results.models import Publication
from specweb.results.services import publishing

from . import people_shapes as shapes
from .bodies import Sent, sent
from .describing import Answer, describe
from .people_auth import PeopleView

TAG = "Publishing"


class VisibilityAsked(Sent):
    visibility: Visibility


class PublicationAsked(Sent):
    """`reason` is needed from the second version on: what was wrong with the one before."""

    reason: str = ""
    hosts: bool = False
    people: bool = False


class WithdrawalAsked(Sent):
    reason: str


class VisibilityAnswer(Answer):
    experiment: UUID
    visibility: str
    changed: bool


class PublicationLine(Answer):
    """`state`: newest, corrected (by `corrected_by`) or withdrawn, with the reason in `state_reason`."""

    version: int
    state: str
    state_reason: str
    corrected_by: int | None
    reason: str
    published_at: datetime
    published_by: str
    content_hash: str
    url: str


class PublicationsAnswer(Answer):
    publications: list[PublicationLine]


class PublicationAnswer(PublicationLine):
    """`content` is all that was published; null of a version that was withdrawn."""

    content: dict[str, Any] | None


def _shared(request: Request, experiment_id: UUID) -> Experiment:
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        raise Http404
    refuse_unless_shares(request.user, found)
    return found


def _lines(experiment_id: UUID) -> dict[int, dict[str, Any]]:
    versions = publication_queries.versions_of(experiment_id)
    states = publication_queries.states(versions)
    return {v.version: _line(v, states[v.version]) for v in versions}


def _line(row: Publication, state: publication_queries.Version) -> dict[str, Any]:
    told = {name: getattr(row, name) for name in ("version", "reason", "published_at", "published_by", "content_hash")}
    more = {"state": state.state, "state_reason": state.reason, "corrected_by": state.by}
    return told | more | {"url": shapes.address("publication", row.experiment_id, row.version)}


class VisibilityView(PeopleView):
    @describe(
        "Change who may read an experiment",
        tag=TAG,
        answer=VisibilityAnswer,
        body=VisibilityAsked,
        scope=Scope.MANAGE,
        refuses=[409],
    )
    def put(self, request: Request, experiment_id: UUID) -> Response:
        """`private`: who submitted it alone. What was published stays so."""
        found = _shared(request, experiment_id)
        to = sent(request, VisibilityAsked).visibility
        changed = change_visibility(found, to, request.user)
        return Response({"experiment": str(found.pk), "visibility": to.value, "changed": changed})


class PublicationsView(PeopleView):
    @describe("Published versions of an experiment, oldest first", tag=TAG, answer=PublicationsAnswer)
    def get(self, request: Request, experiment_id: UUID) -> Response:
        """Also of an experiment that you may not read: what is published is everybody's."""
        lines = _lines(experiment_id)
        if not lines and page_queries.experiment_shown(request.user, experiment_id) is None:
            raise Http404
        return Response({"publications": list(lines.values())})

    @describe(
        "Publish an experiment",
        tag=TAG,
        answer=PublicationAnswer,
        status=201,
        body=PublicationAsked,
        scope=Scope.MANAGE,
        refuses=[409, 422],
    )
    def post(self, request: Request, experiment_id: UUID) -> Response:
        """Keeps its numbers as they are now, for good, under an address of their own. `hosts` and `people`: with their names."""
        found = _shared(request, experiment_id)
        asked = sent(request, PublicationAsked)
        made = publishing.publish(found, request.user, now=timezone.now(), reason=asked.reason, hosts=asked.hosts, people=asked.people)
        told = _lines(found.pk)[made.version] | {"content": made.content}
        return Response(told, status=201, headers={"Location": told["url"]})


def _published(experiment_id: UUID, version: int) -> Publication:
    row = publication_queries.publication(experiment_id, version) if version < 2**31 else None
    if row is None:
        raise Http404
    return row


class PublicationView(PeopleView):
    @describe("A published version with its numbers", tag=TAG, answer=PublicationAnswer)
    def get(self, request: Request, experiment_id: UUID, version: int) -> Response:
        row = _published(experiment_id, version)
        return Response(_lines(experiment_id)[version] | {"content": None if row.withdrawn else row.content})


class WithdrawView(PeopleView):
    @describe("Withdraw a published version", tag=TAG, answer=PublicationLine, body=WithdrawalAsked, scope=Scope.MANAGE, refuses=[422])
    def post(self, request: Request, experiment_id: UUID, version: int) -> Response:
        """Its address then shows the reason. It can't be taken back: publish a new version."""
        found = _shared(request, experiment_id)
        row = _published(found.pk, version)
        publishing.withdraw(row, request.user, now=timezone.now(), reason=sent(request, WithdrawalAsked).reason)
        return Response(_lines(found.pk)[version])
