"""The page of presets: read, call, answer."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from specweb.accounts.services import teams_submitted
from specweb.experiments import offers

from . import presets_page
from .form_session import not_allowed


@require_safe
@login_required
def presets(request: HttpRequest) -> HttpResponse:
    teams = list(teams_submitted(request.user))
    if not teams:
        return not_allowed(request)
    team = next((t for t in teams if t.slug == request.GET.get("team")), teams[0])
    hosts = [(h.name, h.inventory.parsed) for h in offers.hosts_of(team) if h.inventory]
    return render(request, "dashboard/presets.html", {"team": team, "groups": presets_page.groups(hosts), "n_hosts": len(hosts)})
