"""What pages and programs read of watches, alerts and channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db.models import Count, Max, Prefetch, Q, QuerySet

from specweb.accounts.models import Team
from specweb.experiments.models import Host, Job, Viewer

from .models import Alert, Channel, Delivery, Repeat, Watch, WatchState

MOST_WATCHES, MOST_ALERTS, MOST_REPEATS, MOST_DELIVERIES = 200, 100, 50, 50


def watches(user: Viewer) -> QuerySet[Watch]:
    """With ``n_open`` alerts that nobody has seen, ``n_repeats`` and the time of the last (1 statement)."""
    found = Watch.objects.visible_to(user).select_related("experiment", "team", "host", "created_by")
    return found.annotate(
        n_open=Count("alerts", filter=Q(alerts__acknowledged_at=None), distinct=True),
        n_repeats=Count("repeats", distinct=True),
        repeated_at=Max("repeats__created_at"),
    )


def watch_shown(user: Viewer, watch_id: UUID) -> Watch | None:
    return watches(user).select_related("host__inventory").filter(pk=watch_id).first()


def alerts(user: Viewer) -> QuerySet[Alert]:
    return Alert.objects.visible_to(user).select_related(
        "watch__experiment", "watch__team", "host", "job_before", "job_after", "acknowledged_by"
    )


def repeats_of(watch: Watch) -> list[Repeat]:
    """The newest, each with its job (2 statements)."""
    jobs = Prefetch("experiment__jobs", Job.objects.defer("plan", "commands").order_by("id"))
    found = Repeat.objects.filter(watch=watch).select_related("experiment", "host", "runtime").defer("experiment__spec")
    return list(found.prefetch_related(jobs).order_by("-id")[:MOST_REPEATS])


def watched_states(experiment_id: UUID) -> list[Watch]:
    """Of an experiment that do not belong to the past (1 statement)."""
    return list(Watch.objects.filter(experiment_id=experiment_id).exclude(state=WatchState.STOPPED).select_related("host"))


def hosts_to_watch(team_id: int) -> list[Host]:
    return list(Host.objects.filter(team_id=team_id, revoked_at=None).defer("inventory").order_by("name"))


def channels(user: Viewer) -> QuerySet[Channel]:
    return Channel.objects.visible_to(user).select_related("team", "created_by")


def may_get_mail(team: Team, address: str) -> bool:
    """Whether a team's notices may go there: to a confirmed address of somebody who is in it, or into a domain that is allowed."""
    if address.rpartition("@")[2].lower() in settings.SPECWEB_NOTICE_MAIL_DOMAINS:
        return True
    return team.members.filter(email__iexact=address, is_active=True).exclude(email_confirmed_at=None).exists()


def deliveries(found: Iterable[Channel]) -> list[Delivery]:
    """The newest of all these channels, without their bodies (1 statement)."""
    rows: QuerySet[Any] = Delivery.objects.filter(channel__in=[c.pk for c in found]).select_related("channel").defer("body")
    return list(rows.order_by("-pk")[:MOST_DELIVERIES])
