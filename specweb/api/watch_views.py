"""Watches, alerts and channels for notices, by program. Read, call, answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import django_filters as filters
from django.http import Http404
from django.utils import timezone
from pydantic import Field
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.errors import NotAllowed, NotPossible

from specweb.accounts.scopes import Scope
from specweb.accounts.services import may_maintain, may_submit, role_of, team_of
from specweb.experiments.models import Host
from specweb.experiments.text import storable
from specweb.results import page_queries
from specweb.watching import queries
from specweb.watching.models import Alert, Channel, Delivery, Repeat, Watch
from specweb.watching.notice_models import Event, Kind
from specweb.watching.services import channels as channel_services
from specweb.watching.services import watches as services

from . import people_shapes as shapes
from .bodies import Sent, sent
from .describing import Answer, describe
from .errors import BadRequest
from .paging import PAGE, Text, filtered, filters_of, page
from .people_auth import PeopleView

TAG, NOTICES = "Watches", "Notices"


class WatchAsked(Sent):
    """`host` or `labels`. `every_days`: repeated after so many days too. `smallest`: a smaller change raises no alert; 0.02 is 2 %."""

    experiment: UUID
    host: UUID | None = None
    labels: dict[str, str] = Field(default_factory=dict, max_length=services.MOST_LABELS)
    every_days: int | None = Field(None, ge=services.LEAST_DAYS, le=services.MOST_DAYS)
    smallest: float = Field(0.02, ge=services.LEAST_SMALLEST, le=services.MOST_SMALLEST)


class Acknowledged(Sent):
    note: str = Field("", max_length=services.MOST_NOTE)


class ChannelAsked(Sent):
    """`target` is an https:// address on the public Internet or, for `email`, a confirmed address of a member."""

    team: str
    kind: Literal["email", "webhook", "slack"]
    name: str = Field(min_length=1, max_length=channel_services.LONGEST_NAME)
    target: str = Field(min_length=1, max_length=500)
    events: list[Literal["alert", "finished", "lost"]] = Field(min_length=1, max_length=3)


class WatchLine(Answer):
    """`note` says in words why it rests or what it waits for."""

    id: UUID
    experiment: UUID
    name: str
    team: str
    host: UUID | None
    labels: dict[str, str]
    every_days: int | None
    smallest: float
    state: str
    note: str
    created_at: datetime
    created_by: str | None
    n_repeats: int
    n_open_alerts: int
    url: str


class WatchesAnswer(Answer):
    watches: list[WatchLine]
    next: str | None


class RepeatLine(Answer):
    experiment: UUID
    host: UUID
    runtime: str
    version: str
    cause: str
    created_at: datetime
    state: str


class WatchAnswer(WatchLine):
    """With its newest repeats."""

    repeats: list[RepeatLine]


class LevelShown(Answer):
    """A geometric mean of `n` runs, or the ratio of two, with its 95 % interval."""

    estimate: float
    low: float
    high: float
    n: int


class AlertLine(Answer):
    """Between `job_before` and `job_after` it changed for good. `change` is after ÷ before. `arm` is empty for the baseline's speed."""

    id: UUID
    watch: UUID
    host: UUID
    arm: str
    point: str
    metric: str
    better: bool
    shape: str
    before: LevelShown
    after: LevelShown
    change: LevelShown
    p: float
    build_before: str
    build_after: str
    job_before: UUID
    job_after: UUID
    before_jobs: list[UUID]
    after_jobs: list[UUID]
    created_at: datetime
    acknowledged_at: datetime | None
    acknowledged_by: str | None
    acknowledged_note: str


class AlertsAnswer(Answer):
    alerts: list[AlertLine]
    next: str | None


class ChannelLine(Answer):
    """Of an HTTP address only the host is told again: the rest is a secret of some services."""

    id: UUID
    team: str
    kind: str
    name: str
    target: str
    events: list[str]
    created_at: datetime
    disabled_at: datetime | None
    disabled_reason: str


class ChannelsAnswer(Answer):
    channels: list[ChannelLine]


class ChannelMade(ChannelLine):
    """`secret` is told this one time; null for mail."""

    secret: str | None


class DeliveryLine(Answer):
    """`status` is the last HTTP answer's."""

    id: UUID
    event: str
    subject: str
    state: str
    n_tries: int
    status: int | None
    error: str
    created_at: datetime
    next_try_at: datetime | None
    sent_at: datetime | None


class DeliveriesAnswer(Answer):
    deliveries: list[DeliveryLine]
    next: str | None


class WatchFilter(filters.FilterSet):
    team = Text("team__slug", label="The team, by its short name.")
    experiment = filters.UUIDFilter("experiment_id", label="Of this experiment.")
    state = filters.ChoiceFilter(choices=[(s, s) for s in ("active", "paused", "stopped")], label="In this state.")

    class Meta:
        model = Watch
        fields: list[str] = []


class AlertFilter(filters.FilterSet):
    watch = filters.UUIDFilter("watch_id", label="Of this watch.")
    open = filters.BooleanFilter("acknowledged_at", lookup_expr="isnull", label="Whether nobody has acknowledged it yet.")
    better = filters.BooleanFilter(label="Improvements, or what got worse.")

    class Meta:
        model = Alert
        fields: list[str] = []


def _watch(w: Watch) -> dict[str, Any]:
    own = ("labels", "every_days", "smallest", "state", "note", "created_at", "n_repeats")
    return {name: getattr(w, name) for name in own} | {
        "id": str(w.pk),
        "experiment": str(w.experiment_id),
        "name": w.experiment.name,
        "team": w.team.slug,
        "host": str(w.host_id) if w.host_id else None,
        "created_by": w.created_by.get_username() if w.created_by else None,
        "n_open_alerts": w.n_open,  # type: ignore[attr-defined]
        "url": shapes.address("watch", w.pk),
    }


def _repeat(r: Repeat) -> dict[str, Any]:
    job = next(iter(r.experiment.jobs.all()), None)
    return {
        "experiment": str(r.experiment_id),
        "host": str(r.host_id),
        "runtime": r.runtime.manifest_hash,
        "version": r.runtime.version,
        "cause": r.cause,
        "created_at": r.created_at,
        "state": job.state if job else "waiting",
    }


def _alert(a: Alert) -> dict[str, Any]:
    own = ("arm", "point", "metric", "better", "shape", "created_at", "acknowledged_at", "acknowledged_note")
    told = ("before", "after", "change", "p", "build_before", "build_after", "before_jobs", "after_jobs")
    return (
        {name: getattr(a, name) for name in own}
        | {name: a.numbers[name] for name in told}
        | {
            "id": str(a.pk),
            "watch": str(a.watch_id),
            "host": str(a.host_id),
            "job_before": str(a.job_before_id),
            "job_after": str(a.job_after_id),
            "acknowledged_by": a.acknowledged_by.get_username() if a.acknowledged_by else None,
        }
    )


def _channel(c: Channel) -> dict[str, Any]:
    own = ("kind", "name", "events", "created_at", "disabled_at", "disabled_reason")
    return {name: getattr(c, name) for name in own} | {"id": str(c.pk), "team": c.team.slug, "target": c.shown_target}


def _delivery(d: Delivery) -> dict[str, Any]:
    own = ("event", "subject", "state", "n_tries", "status", "error", "created_at", "next_try_at", "sent_at")
    return {name: getattr(d, name) for name in own} | {"id": str(d.pk)}


class WatchesView(PeopleView):
    @describe("Watches of your teams", tag=TAG, answer=WatchesAnswer, query=[*filters_of(WatchFilter), *PAGE])
    def get(self, request: Request) -> Response:
        found, more = page(request, filtered(request, WatchFilter, queries.watches(request.user)), ("-id",))
        return Response({"watches": [_watch(w) for w in found], "next": more})

    @describe("Watch an experiment", tag=TAG, answer=WatchAnswer, status=201, body=WatchAsked, refuses=[404, 409])
    def post(self, request: Request) -> Response:
        """Each new build of its engine on the host is measured once, and so many days later again where `every_days` says so."""
        asked = sent(request, WatchAsked)
        experiment = page_queries.experiment_shown(request.user, asked.experiment)
        if experiment is None:
            raise BadRequest(f"experiment is {asked.experiment}", "Name an experiment that you can read.", field="experiment")
        _refuse_reader(request, experiment.team)
        host = Host.objects.visible_to(request.user).filter(pk=asked.host, team=experiment.team_id).first() if asked.host else None
        if asked.host and host is None:
            raise BadRequest(f"host is {asked.host}", "Name a host of the experiment's team.", field="host")
        labels = storable(asked.labels)
        made = services.watch(experiment, request.user, host=host, labels=labels, every_days=asked.every_days, smallest=asked.smallest)
        return Response(_whole(request, made.pk), status=201)


def _refuse_reader(request: Request, team: Any) -> None:
    if not may_submit(request.user, team):
        role = role_of(request.user, team)
        words = f"your role in team {team.slug} is {role}, which may read only" if role else "the experiment is another team's"
        raise NotAllowed(words, remedy="Ask a maintainer of the team for the role submitter.")


def _whole(request: Request, watch_id: UUID) -> dict[str, Any]:
    found = _found(request, watch_id)
    return _watch(found) | {"repeats": [_repeat(r) for r in queries.repeats_of(found)]}


def _found(request: Request, watch_id: UUID) -> Watch:
    found = queries.watch_shown(request.user, watch_id)
    if found is None:
        raise Http404
    return found


class WatchView(PeopleView):
    @describe("A watch and its newest repeats", tag=TAG, answer=WatchAnswer)
    def get(self, request: Request, watch_id: UUID) -> Response:
        return Response(_whole(request, watch_id))


class WatchPauseView(PeopleView):
    @describe("Let a watch rest", tag=TAG, answer=WatchAnswer, refuses=[409])
    def post(self, request: Request, watch_id: UUID) -> Response:
        found = _found(request, watch_id)
        _refuse_reader(request, found.team)
        if not services.pause(found, request.user):
            raise NotPossible(f"the watch is {found.state}", remedy="Only an active one can be paused.")
        return Response(_whole(request, watch_id))


class WatchResumeView(PeopleView):
    @describe("Let a watch go on", tag=TAG, answer=WatchAnswer, refuses=[409])
    def post(self, request: Request, watch_id: UUID) -> Response:
        found = _found(request, watch_id)
        _refuse_reader(request, found.team)
        if not services.resume(found, request.user):
            raise NotPossible(f"the watch is {found.state}", remedy="Only a paused one can be resumed.")
        return Response(_whole(request, watch_id))


class WatchStopView(PeopleView):
    @describe("End a watch", tag=TAG, answer=WatchAnswer, refuses=[409])
    def post(self, request: Request, watch_id: UUID) -> Response:
        """Its runs and alerts stay."""
        found = _found(request, watch_id)
        _refuse_reader(request, found.team)
        if not services.stop(found, request.user):
            raise NotPossible("the watch has ended before", remedy="Begin another one.")
        return Response(_whole(request, watch_id))


class AlertsView(PeopleView):
    @describe("Alerts of your teams' watches", tag=TAG, answer=AlertsAnswer, query=[*filters_of(AlertFilter), *PAGE])
    def get(self, request: Request) -> Response:
        """The newest first."""
        found, more = page(request, filtered(request, AlertFilter, queries.alerts(request.user)), ("-id",))
        return Response({"alerts": [_alert(a) for a in found], "next": more})


class AlertAcknowledgeView(PeopleView):
    @describe("Say that an alert was seen", tag=TAG, answer=AlertLine, body=Acknowledged, refuses=[409])
    def post(self, request: Request, alert_id: UUID) -> Response:
        found = queries.alerts(request.user).filter(pk=alert_id).first()
        if found is None:
            raise Http404
        _refuse_reader(request, found.watch.team)
        note = sent(request, Acknowledged).note
        if not services.acknowledge(found, request.user, timezone.now(), note):
            raise NotPossible("somebody has acknowledged it before", remedy="Nothing is left to do.")
        return Response(_alert(found))


class ChannelsView(PeopleView):
    @describe("Channels for notices of your teams", tag=NOTICES, answer=ChannelsAnswer, scope=Scope.MANAGE)
    def get(self, request: Request) -> Response:
        return Response({"channels": [_channel(c) for c in queries.channels(request.user)]})

    @describe("Add a channel", tag=NOTICES, answer=ChannelMade, status=201, body=ChannelAsked, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request) -> Response:
        """Of a team that you maintain. The secret that signs what it gets is told in this answer alone."""
        asked = sent(request, ChannelAsked)
        team = team_of(request.user, storable(asked.team))
        if team is None:
            raise BadRequest(f"team is {asked.team[:60]!r}", "Name a team of yours, by its short name.", field="team")
        made = channel_services.create_channel(
            team, request.user, kind=Kind(asked.kind), name=asked.name, target=asked.target, events=[Event(e) for e in asked.events]
        )
        return Response(_channel(made) | {"secret": made.secret or None}, status=201)


def _maintained(request: Request, channel_id: UUID) -> Channel:
    found = queries.channels(request.user).filter(pk=channel_id).first()
    if found is None:
        raise Http404
    if not may_maintain(request.user, found.team):
        raise NotAllowed(f"your role in team {found.team.slug} is not maintainer", remedy="Ask a maintainer of the team.")
    return found


class ChannelView(PeopleView):
    @describe("Remove a channel", tag=NOTICES, status=204, scope=Scope.MANAGE)
    def delete(self, request: Request, channel_id: UUID) -> Response:
        """Its log goes with it."""
        channel_services.delete_channel(_maintained(request, channel_id), request.user)
        return Response(status=204)


class ChannelTestView(PeopleView):
    @describe("Send a test", tag=NOTICES, answer=DeliveryLine, status=202, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, channel_id: UUID) -> Response:
        """The channel's deliveries tell how it went."""
        made = channel_services.test_channel(_maintained(request, channel_id), request.user, timezone.now())
        return Response(_delivery(made), status=202)


class ChannelEnableView(PeopleView):
    @describe("Try again with a disabled channel", tag=NOTICES, answer=ChannelLine, scope=Scope.MANAGE, refuses=[409])
    def post(self, request: Request, channel_id: UUID) -> Response:
        found = _maintained(request, channel_id)
        if not channel_services.enable_channel(found, request.user):
            raise NotPossible("the channel is not disabled", remedy="Nothing is left to do.")
        return Response(_channel(found))


class DeliveriesView(PeopleView):
    @describe("What a channel was sent", tag=NOTICES, answer=DeliveriesAnswer, query=PAGE, scope=Scope.MANAGE)
    def get(self, request: Request, channel_id: UUID) -> Response:
        """The newest first."""
        found = queries.channels(request.user).filter(pk=channel_id).first()
        if found is None:
            raise Http404
        rows, more = page(request, Delivery.objects.filter(channel=found).defer("body"), ("-id",))
        return Response({"deliveries": [_delivery(d) for d in rows], "next": more})
