"""The overview: what runs now, the latest answers, the hosts. Read, call, answer."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh

from specweb.accounts.roles import maintains_somewhere
from specweb.results import overview_queries

from . import best_card, live_views, overview_page
from .limits import limits
from .views import whole_number

N_EXPERIMENTS = 30
N_RUNNING = 20
MAX_SEARCH = 200


@require_safe
def overview(request: HttpRequest) -> HttpResponse:
    page, words, now = whole_number(request.GET.get("page", "")), request.GET.get("q", "").strip()[:MAX_SEARCH], timezone.now()
    found = overview_queries.experiments_shown(request.user, (page - 1) * N_EXPERIMENTS, N_EXPERIMENTS + 1, words)
    experiments = found[:N_EXPERIMENTS]
    axis = overview_page.axis_of(a for e in experiments for job in e.jobs.all() for a in job.answers)
    running = _running(request, now)
    text = _fragment(running)
    known = request.user.is_authenticated
    hosts = overview_queries.hosts_shown(request.user) if known else []
    context = {
        "cards": [overview_page.card(e, axis) for e in experiments],
        "one": axis.place(1.0),
        "hosts": [overview_page.host_line(h, running["runs"], now, limits()) for h in hosts],
        "best": best_card.card(request) if known else None,
        "page": page,
        "more": len(found) > N_EXPERIMENTS,
        "words": words,
        "newer": urlencode({"q": words, "page": page - 1}),
        "older": urlencode({"q": words, "page": page + 1}),
        "fragment": text,
        "fragment_tag": live_views.tag_of(text),
        # Who can do the next step is asked only where there is one to tell.
        "who_submits": overview_queries.colleagues_who_submit(request.user) if known and not experiments and not running["runs"] else [],
        "may_enrol": known and not hosts and maintains_somewhere(request.user),
    }
    return render(request, "dashboard/overview.html", context | running)


@require_safe
@cache_control(private=True, no_cache=True)
def running_now(request: HttpRequest) -> HttpResponse:
    """The part of the overview that changes while jobs run. When one begins or ends, the page is loaded anew."""
    running = _running(request, timezone.now())
    if request.GET.get("jobs", running["jobs"]) != running["jobs"]:
        return HttpResponseClientRefresh()
    text = _fragment(running)
    tag = live_views.tag_of(text)
    if live_views.unchanged(request, tag):
        return HttpResponseNotModified(headers={"ETag": tag})
    return HttpResponse(text, headers={"ETag": tag})


def _running(request: HttpRequest, now: datetime) -> dict[str, Any]:
    found = overview_queries.jobs_unended(request.user, N_RUNNING + 1)
    jobs = found[:N_RUNNING]
    trials = overview_queries.trials_of_jobs([j.pk for j in jobs])
    return {
        "runs": overview_page.run_lines(jobs, trials, limits(), now),
        "more_run": len(found) > N_RUNNING,
        "n_running": N_RUNNING,
        "jobs": overview_page.set_of(jobs),
    }


def _fragment(running: dict[str, Any]) -> str:
    return render_to_string("dashboard/_running.html", running)
