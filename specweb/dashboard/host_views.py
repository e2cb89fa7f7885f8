"""Hosts: the list, one host, and what a maintainer does to them. Read, call, answer."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from specweb.accounts.models import Role
from specweb.accounts.roles import maintains_somewhere, roles_held
from specweb.accounts.services import may_maintain, team_of, teams_maintained
from specweb.experiments.models import Host
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
from specweb.experiments.text import storable
from specweb.results import host_queries, runtime_queries
from specweb.results.services.noise_floor import floors_of_host

from . import can_run, hosts_page, runtimes_page
from .host_floors import floor_lines
from .limits import limits
from .views import missing

N_JOBS, N_FAILURES = 20, 5


@require_safe
@login_required
def hosts(request: HttpRequest) -> HttpResponse:
    found, now = host_queries.hosts_listed(request.user), timezone.now()
    jobs, failures = host_queries.jobs_at_work(request.user, found), host_queries.newest_failures(request.user, found)
    lines = [hosts_page.line(h, jobs.get(h.pk), failures.get(h.pk), now, limits()) for h in found]
    context = {
        "hosts": [line for line in lines if line.state != "revoked"],
        "revoked": [line for line in lines if line.state == "revoked"],
        "states": hosts_page.counted_states(lines),
        "may_add": maintains_somewhere(request.user),
        "several_teams": len({line.team for line in lines}) > 1,
    }
    return render(request, "dashboard/hosts.html", context)


@require_safe
def host(request: HttpRequest, host_id: UUID) -> HttpResponse:
    found = host_queries.host_shown(request.user, host_id)
    if found is None:
        return missing(request)
    now = timezone.now()
    job = host_queries.jobs_at_work(request.user, [found]).get(found.pk)
    state = hosts_page.state_of(found, now, limits())
    failures = [asked(request.user, found, N_FAILURES) for asked in (host_queries.failures_of, host_queries.failed_jobs_of)]
    rows, n_more = can_run.of_host(found.inventory.parsed) if found.inventory and state != "revoked" else ([], 0)
    context: dict[str, Any] = {
        "host": found,
        "state": state,
        "standing": hosts_page.standing(found, state, limits(), at_work=job is not None),
        "work": hosts_page.work_of(job),
        "problem": found.problem if not found.revoked_at else None,
        "troubles": hosts_page.troubles(found, *failures),
        "jobs": [hosts_page.job_line(j) for j in host_queries.jobs_of(request.user, found, N_JOBS)],
        "offer": hosts_page.offer(found.inventory.parsed) if found.inventory else None,
        "runtimes": runtimes_page.host_builds(found, state, runtime_queries.builds_seen([found]), runtime_queries.jobs_by_build([found])),
        "unchecked": runtimes_page.UNCHECKED,
        "model_heads": hosts_page.MODEL_HEADS,
        "can_run": rows,
        "n_more_can_run": n_more,
        "floors": floor_lines(floors_of_host(found, now)),
        "may_maintain": roles_held(request.user).get(found.team_id) == Role.MAINTAINER,
    }
    return render(request, "dashboard/host.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
@never_cache
def enrol(request: HttpRequest) -> HttpResponse:
    """A form, and the code once it is made: it is shown in this one answer and never again."""
    if request.method == "POST" and (slug := request.POST.get("team")) is not None:
        team = team_of(request.user, storable(slug))
        if team is None:
            raise Http404
        if not may_maintain(request.user, team):
            raise PermissionDenied
        now = timezone.now()
        code = create_enrolment_code(team, now)
        shown = {"code": code, "expires_at": now + CODE_LIFE, "team": team, "server": settings.SPECWEB_BASE_URL}
        return render(request, "dashboard/enrol.html", shown)
    teams = list(teams_maintained(request.user))
    if not teams:
        raise PermissionDenied
    return render(request, "dashboard/enrol.html", {"teams": teams, "codes": open_enrolment_codes(teams, timezone.now())})


@require_POST
def withdraw_code(request: HttpRequest, code_id: int) -> HttpResponse:
    """Of a code that is used up or too old nothing is left to withdraw."""
    code = enrolment_code_shown(request.user, code_id)
    if code is None:
        return missing(request)
    if not may_maintain(request.user, code.team):
        raise PermissionDenied
    if withdraw_enrolment_code(code):
        messages.success(request, f"Enrolment code {code.pk} of {code.team.name} is withdrawn: no machine can enrol with it.")
    else:
        messages.info(request, f"Enrolment code {code.pk} was used or withdrawn before.")
    return redirect("host-enrol")


@require_http_methods(["GET", "HEAD", "POST"])
def revoke(request: HttpRequest, host_id: UUID) -> HttpResponse:
    """What would be lost, and the button; the host is shut out at once."""
    found = _maintained(request, host_id)
    if isinstance(found, HttpResponse):
        return found
    if request.method != "POST":
        n_held, n_bound = host_queries.n_jobs_to_lose(found)
        return render(request, "dashboard/revoke.html", {"host": found, "n_held": n_held, "n_bound": n_bound})
    if revoke_host(found, now=timezone.now(), by=request.user.get_username()):
        messages.success(request, f"{found.name} is revoked: its token is refused from now on.")
    else:
        messages.info(request, f"{found.name} was revoked before.")
    return redirect("host", found.pk)


@require_POST
def drain(request: HttpRequest, host_id: UUID) -> HttpResponse:
    return _change(request, host_id, drain_host, "{} takes no new jobs; it finishes the one that it has.", "{} takes no new jobs already.")


@require_POST
def undrain(request: HttpRequest, host_id: UUID) -> HttpResponse:
    return _change(request, host_id, undrain_host, "{} takes jobs again.", "{} was not draining.")


def _change(request: HttpRequest, host_id: UUID, change: Callable[..., bool], done: str, undone: str) -> HttpResponse:
    found = _maintained(request, host_id)
    if isinstance(found, HttpResponse):
        return found
    now: datetime = timezone.now()
    changed = change(found, now=now, by=request.user.get_username())
    messages.success(request, (done if changed else undone).format(found.name))
    return redirect("host", found.pk)


def _maintained(request: HttpRequest, host_id: UUID) -> Host | HttpResponse:
    """The host, if the person maintains its team; else the answer: login, not found, or not allowed."""
    found = host_queries.host_shown(request.user, host_id)
    if found is None:
        return missing(request)
    if not may_maintain(request.user, found.team):
        raise PermissionDenied
    return found
