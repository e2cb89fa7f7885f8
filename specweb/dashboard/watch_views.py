"""Watches and their alerts: the list, one with its history, and what people do to them. Read, call, answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST, require_safe
from speccore.errors import SpecWebError

from specweb.accounts.models import Role
from specweb.accounts.roles import may_submit_somewhere, roles_held
from specweb.accounts.services import may_submit
from specweb.experiments.models import Experiment, Host
from specweb.experiments.text import storable
from specweb.results import page_queries
from specweb.watching import queries
from specweb.watching.history import listings_of
from specweb.watching.models import Watch
from specweb.watching.services import watches as services

from . import watch_page
from .views import missing

_LONGEST = 240


def _online_within() -> timedelta:
    return timedelta(seconds=settings.SPECWEB_STALLED_AFTER_S)


@login_required
@require_safe
def watches(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    found = list(queries.watches(request.user)[: queries.MOST_WATCHES])
    open_alerts = list(queries.alerts(request.user).filter(acknowledged_at=None)[: queries.MOST_ALERTS])
    context = {
        "rows": [(w, watch_page.trouble_of(w, now, _online_within())) for w in found if w.state != "stopped"],
        "stopped": [w for w in found if w.state == "stopped"],
        "cards": [watch_page.card(a) for a in open_alerts],
        "steers": _steers(request, *(a.watch.team_id for a in open_alerts)),
        "asks": may_submit_somewhere(request.user),
    }
    return render(request, "dashboard/watches.html", context)


def _steers(request: HttpRequest, *teams: int) -> bool:
    held = roles_held(request.user)
    return any(held.get(team) in (Role.SUBMITTER, Role.MAINTAINER) for team in teams)


@require_safe
def watch(request: HttpRequest, watch_id: UUID) -> HttpResponse:
    """``host``, ``arm``, ``point``: whose history is drawn."""
    found = queries.watch_shown(request.user, watch_id) if request.user.is_authenticated else None
    if found is None:
        return missing(request)
    listed = listings_of(found).select_related("comparison__arm", "comparison__point", "experiment", "host")
    runs = list(listed.defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec"))
    alerts = list(queries.alerts(request.user).filter(watch=found)[: queries.MOST_ALERTS])
    asked = {name: request.GET.get(name, "")[:_LONGEST] for name in ("host", "arm", "point")}
    chosen = watch_page.chosen_of(runs, asked, alerts)
    history = watch_page.history_of(chosen)
    context = {
        "watch": found,
        "trouble": watch_page.trouble_of(found, timezone.now(), _online_within()),
        "open": [watch_page.card(a) for a in alerts if a.acknowledged_at is None],
        "seen": [watch_page.card(a) for a in alerts if a.acknowledged_at is not None],
        "repeats": [(r, next(iter(r.experiment.jobs.all()), None)) for r in queries.repeats_of(found)],
        "lines": watch_page.lines(runs, chosen),
        "history": history,
        "chart": history.chart if history else watch_page.no_history(),
        "steers": _steers(request, found.team_id),
    }
    return render(request, "dashboard/watch.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
def watch_new(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """Begins a watch on an experiment of one's team."""
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("watch-new", args=[experiment_id]))
    experiment = page_queries.experiment_shown(request.user, experiment_id)
    if experiment is None:
        raise Http404
    if not may_submit(request.user, experiment.team):
        raise PermissionDenied
    hosts = queries.hosts_to_watch(experiment.team_id)
    if request.method != "POST":
        return _form(request, experiment, hosts, {"host": _first_host(experiment), "smallest": "2"})
    try:
        made = services.watch(experiment, request.user, **_asked(request, hosts))
    except SpecWebError as error:
        return _form(request, experiment, hosts, request.POST.dict(), f"{error.message}. {error.remedy_text}", 409)
    except ValueError as error:
        return _form(request, experiment, hosts, request.POST.dict(), str(error), 400)
    messages.success(request, "It is watched now: each new build on the host is measured once.")
    return redirect("watch", made.pk)


def _first_host(experiment: Experiment) -> str:
    return next((str(j.host_id) for j in experiment.jobs.all() if j.host_id), "")


def _asked(request: HttpRequest, hosts: list[Host]) -> dict[str, Any]:
    """The form's fields as values. ``ValueError`` names the field that can't be read."""
    given = {name: storable(request.POST.get(name, "").strip()) for name in ("host", "labels", "every_days", "smallest")}
    host = next((h for h in hosts if str(h.pk) == given["host"]), None)
    if given["host"] and host is None:
        raise ValueError(f"Host: {given['host'][:40]!r} is none of the team's. Choose one of the list.")
    labels = {}
    for part in filter(None, (p.strip() for p in given["labels"].split(","))) if host is None else ():
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"Labels: {part[:40]!r} is no label. Write name=value, with commas between several.")
        labels[name.strip()] = value.strip()
    days = given["every_days"]
    if days and not (days.isascii() and days.isdigit() and len(days) < 6):
        raise ValueError(f"Days: {days[:20]!r} is no whole number. Leave it empty to measure new builds alone.")
    try:
        smallest = float(given["smallest"] or "2") / 100
    except ValueError:
        raise ValueError(f"Smallest change: {given['smallest'][:20]!r} is no number. 2 means 2 %.") from None
    return {"host": host, "labels": labels, "every_days": int(days) if days else None, "smallest": smallest}


def _form(
    request: HttpRequest, experiment: Experiment, hosts: list[Host], fields: dict[str, Any], error: str = "", status: int = 200
) -> HttpResponse:
    context = {
        "experiment": experiment,
        "hosts": hosts,
        "fields": fields,
        "error": error,
        "watched": queries.watched_states(experiment.pk),
        "pinned": experiment.parsed_spec.runtime.model_dump(exclude={"engine", "backend", "attached"}, exclude_none=True),
    }
    return render(request, "dashboard/watch_new.html", context, status=status)


def _posted(act: Callable[[HttpRequest, Watch], str]) -> Callable[..., HttpResponse]:
    """A button of a watch. Others find nothing, who may only read is refused."""

    @wraps(act)
    def answer(request: HttpRequest, watch_id: UUID) -> HttpResponse:
        if not request.user.is_authenticated:
            return redirect_to_login(reverse("watch", args=[watch_id]))
        found = queries.watch_shown(request.user, watch_id)
        if found is None:
            raise Http404
        if not may_submit(request.user, found.team):
            raise PermissionDenied
        messages.info(request, act(request, found))
        return redirect("watch", found.pk)

    return require_POST(answer)


@_posted
def pause(request: HttpRequest, found: Watch) -> str:
    return "It rests until it is resumed." if services.pause(found, request.user) else "It was not active."  # type: ignore[arg-type]


@_posted
def resume(request: HttpRequest, found: Watch) -> str:
    return "It goes on." if services.resume(found, request.user) else "It was not paused."  # type: ignore[arg-type]


@_posted
def stop(request: HttpRequest, found: Watch) -> str:
    return "It has ended; its runs and alerts stay." if services.stop(found, request.user) else "It had ended before."  # type: ignore[arg-type]


@require_POST
def acknowledge(request: HttpRequest, alert_id: UUID) -> HttpResponse:
    if not request.user.is_authenticated:
        return redirect_to_login(reverse("watches"))
    found = queries.alerts(request.user).filter(pk=alert_id).first()
    if found is None:
        raise Http404
    if not may_submit(request.user, found.watch.team):
        raise PermissionDenied
    try:
        done = services.acknowledge(found, request.user, timezone.now(), request.POST.get("note", ""))
    except SpecWebError as error:
        messages.error(request, f"{error.message}. {error.remedy_text}")
    else:
        messages.info(request, "The alert is acknowledged." if done else "Somebody had acknowledged it before.")
    return redirect("watch", found.watch_id)
