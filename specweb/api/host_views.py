"""Hosts by program: one with what it does and what ails it, and what its team's maintainers do to it. Read, call, answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.http import Http404
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotAllowed, NotPossible
from speccore.measurement import Withheld

from specweb.accounts.models import Team
from specweb.accounts.scopes import Scope
from specweb.accounts.services import may_maintain, teams_maintained
from specweb.experiments.models import EnrolmentCode, Host
from specweb.experiments.services.hosts import (
    CODE_LIFE,
    create_enrolment_code,
    drain_host,
    enrolment_code_shown,
    open_enrolment_codes,
    revoke_host,
    undrain_host,
    withdraw_enrolment_code,
)
from specweb.experiments.services.silence import Limits, host_state
from specweb.results import host_queries
from specweb.results.services.noise_floor import ShownFloor, floors_of_host

from . import people_query as query
from . import people_shapes as shapes
from .answers import HostLine, NotHad
from .describing import TEAM, Answer, describe
from .errors import BadRequest
from .people_auth import PeopleView

N_JOBS, N_FAILURES = 20, 5


class HostJob(Answer):
    """A job that a host had, has, or that waits for it."""

    id: UUID
    experiment: UUID
    name: str
    state: str
    created_at: datetime
    ended_at: datetime | None


class Failure(Answer):
    """A start of the engine there that failed."""

    attempt: UUID
    job: UUID
    arm: str
    error: dict[str, Any]
    received_at: datetime


class Floor(Answer):
    """How small a difference the host can tell at this kind of load: a ratio minus 1."""

    engine_build: str
    load: str
    driver: str
    n_blocks: int
    floor: float | NotHad
    n_contrasts: int
    valid_until: datetime | None


class HostAnswer(HostLine):
    revoked_at: datetime | None
    jobs: list[HostJob]
    failures: list[Failure]
    noise_floors: list[Floor]


class CodeAnswer(Answer):
    """Shown in this one answer. On the machine: `specweb-agent enrol --server SERVER --code CODE`."""

    code: str
    expires_at: datetime
    team: str
    server: str


class CodeLine(Answer):
    id: int
    team: str
    created_at: datetime
    expires_at: datetime


class CodesAnswer(Answer):
    codes: list[CodeLine]


class HostView(PeopleView):
    @describe("A host with its jobs, failures and noise floors", tag="Hosts", answer=HostAnswer)
    def get(self, request: Request, host_id: UUID) -> Response:
        found = _shown(request, host_id)
        return Response(_line(found) | _doings(request, found))


class DrainView(PeopleView):
    @describe("Let a host finish its job and take no other", tag="Hosts", answer=HostLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, host_id: UUID) -> Response:
        return _changed(request, host_id, drain_host, "it takes no new jobs already")


class UndrainView(PeopleView):
    @describe("Let a host take jobs again", tag="Hosts", answer=HostLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, host_id: UUID) -> Response:
        return _changed(request, host_id, undrain_host, "it was not draining")


class RevokeView(PeopleView):
    @describe("Shut a host out for good", tag="Hosts", answer=HostLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, host_id: UUID) -> Response:
        """Its token is refused from now on, and the jobs that it holds fail."""
        return _changed(request, host_id, revoke_host, "it was revoked before")


class EnrolCodeView(PeopleView):
    @describe("Codes with which a machine could still become a host", tag="Hosts", answer=CodesAnswer, query=[TEAM])
    def get(self, request: Request) -> Response:
        """Of teams that you maintain, or of one; the codes themselves are shown only when they are made."""
        slug, teams = query.text(request, "team"), teams_maintained(request.user)
        found = open_enrolment_codes(teams.filter(slug=slug) if slug else teams, timezone.now())
        return Response({"codes": [_code(c) for c in found]})

    @describe("A code that lets one machine become a host", tag="Hosts", answer=CodeAnswer, status=201, query=[TEAM], scope=Scope.MANAGE)
    def post(self, request: Request) -> Response:
        """`team` is needed where you maintain several."""
        team, now = _maintained_team(request), timezone.now()
        code = create_enrolment_code(team, now)
        told = CodeAnswer(code=code, expires_at=now + CODE_LIFE, team=team.slug, server=settings.SPECWEB_BASE_URL)
        return Response(told.model_dump(mode="json"), status=201)


class EnrolCodeWithdrawView(PeopleView):
    @describe("Withdraw a code", tag="Hosts", answer=CodeLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, code_id: int) -> Response:
        """No machine enrols with it from now on."""
        code = enrolment_code_shown(request.user, code_id)
        if code is None:
            raise Http404
        if not may_maintain(request.user, code.team):
            raise NotAllowed(f"you don't maintain team {code.team.slug}", remedy="Ask a maintainer of the team.")
        told = _code(code)
        if not withdraw_enrolment_code(code):
            raise NotPossible("nothing to withdraw: a machine has used the code", remedy="Revoke the host that it became.")
        return Response(told)


def _code(c: EnrolmentCode) -> dict[str, Any]:
    return {"id": c.pk, "team": c.team.slug, "created_at": c.created_at, "expires_at": c.expires_at}


def _maintained_team(request: Request) -> Team:
    mine, slug = list(teams_maintained(request.user)), query.text(request, "team")
    if not slug and len(mine) == 1:
        return mine[0]
    found = next((t for t in mine if t.slug == slug), None)
    if found is not None:
        return found
    known = request.user.teams.filter(slug=slug).exists() if slug.isprintable() else False
    if known or not mine:
        raise NotAllowed("you don't maintain this team" if known else "you maintain no team", remedy="Ask a maintainer of the team.")
    names = ", ".join(t.slug for t in mine)
    words = f"you are in no team {slug[:60]!r}" if slug else f"you maintain several teams: {names}"
    raise BadRequest(words, f"Name one with ?team=: {names}.", parameter="team")


def _shown(request: Request, host_id: UUID) -> Host:
    found = host_queries.host_shown(request.user, host_id)
    if found is None:
        raise Http404
    return found


def _changed(request: Request, host_id: UUID, change: Callable[..., bool], undone: str) -> Response:
    found = _shown(request, host_id)
    if not may_maintain(request.user, found.team):
        raise NotAllowed(f"you don't maintain team {found.team.slug}", remedy="Ask a maintainer of the team.")
    if not change(found, now=timezone.now(), by=request.user.get_username()):
        raise NotPossible(f"nothing to change: {undone}", remedy="Look at its state.")
    return Response(_line(_shown(request, host_id)))


def _line(host: Host) -> dict[str, Any]:
    return shapes.host_line(host, host_state(host, timezone.now(), Limits.of(settings)))


def _doings(request: Request, host: Host) -> dict[str, Any]:
    jobs = [
        HostJob(
            id=j.pk, experiment=j.experiment_id, name=j.experiment.name, state=j.state, created_at=j.created_at, ended_at=j.ended_at
        ).model_dump(mode="json")
        for j in host_queries.jobs_of(request.user, host, N_JOBS)
    ]
    failures = [
        Failure(attempt=a.pk, job=a.trial.job_id, arm=a.trial.arm.name, error=a.error or {}, received_at=a.received_at).model_dump(
            mode="json"
        )
        for a in host_queries.failures_of(request.user, host, N_FAILURES)
    ]
    floors = [_floor(f).model_dump(mode="json") for f in floors_of_host(host, timezone.now())]
    return {"revoked_at": host.revoked_at, "jobs": jobs, "failures": failures, "noise_floors": floors}


def _floor(f: ShownFloor) -> Floor:
    known = not isinstance(f.found, Withheld)
    return Floor(
        engine_build=f.build,
        load=f.scope.point_class,
        driver=f.scope.driver,
        n_blocks=f.scope.n_blocks,
        floor=f.found.floor if known else NotHad(withheld=f.found.withheld),
        n_contrasts=len(f.found.contrasts) if known else len(f.jobs),
        valid_until=f.found.valid_until if known else None,
    )
