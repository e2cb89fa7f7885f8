"""Models and hardware: what hosts offer or offered, what was measured with it, the best arms there. Read, call, answer."""

from __future__ import annotations

import math

from django.contrib.auth.decorators import login_required
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from specweb.accounts.roles import maintains_somewhere
from specweb.experiments.text import storable
from specweb.results import best_queries, model_queries, overview_queries

from . import best_page, can_run, hosts_page, model_page
from .limits import limits
from .views import missing, whole_number

N_MODELS, N_HARDWARE, N_JOBS, N_HOSTS = 50, 20, 20, 20
#: Works of one hardware that a page shows; Compare has all.
N_BEST = 6


@require_safe
@login_required
def models(request: HttpRequest) -> HttpResponse:
    """Every model that hosts of a person's teams have or had."""
    page = whole_number(request.GET.get("page", ""))
    found = model_queries.models_listed(request.user, (page - 1) * N_MODELS, N_MODELS + 1)
    shown = found[:N_MODELS]
    places = model_queries.places_of(request.user, shown)
    offered = model_queries.offered_now(list({p.host_id for rows in places.values() for p in rows}))
    counts = model_queries.n_experiments(request.user, shown)
    total = model_queries.n_models(request.user)
    context = {
        "models": [model_page.line(m, places[m.pk], offered, counts.get(m.pk, 0)) for m in shown],
        "page": page,
        "more": len(found) > N_MODELS,
        "total": total,
        "n_pages": math.ceil(total / N_MODELS),
        "may_add": not total and maintains_somewhere(request.user),
    }
    return render(request, "dashboard/models.html", context)


@require_safe
def model(request: HttpRequest, model_hash: str) -> HttpResponse:
    """One model: what its files say, where it is, the best arms found for it, the jobs that asked it."""
    found = model_queries.model_shown(request.user, storable(model_hash))
    if found is None:
        return missing(request)
    rows = model_queries.places_of(request.user, [found])[found.pk]
    offered = model_queries.offered_now(list({r.host_id for r in rows}))
    there = model_queries.hosts_with(request.user, found.manifest_hash, N_HOSTS)
    told = can_run.told_of(there, found.manifest_hash) or model_queries.last_told(request.user, found.manifest_hash)
    best = best_queries.best_arms(request.user, Q(target_hash=found.manifest_hash), N_BEST)
    line = model_page.line(found, rows, offered, found.n_asked)
    context = {
        "model": line,
        "facts": model_page.facts(found, told),
        "hashes": model_page.hashes(found, told),
        "files": sorted(told.manifest.items()) if told else [],
        "best": best_page.by_hardware(best),
        "jobs": [(j.host.name if j.host else "", hosts_page.job_line(j)) for j in model_queries.jobs_of_model(request.user, found, N_JOBS)],
        "several_teams": len({p.team for p in line.places}) > 1,
        "can_run": can_run.of_model(there, found.manifest_hash, timezone.now(), limits()),
        "lack_it": model_queries.hosts_without(request.user, [h.pk for h in there], N_HOSTS),
        "ask": best_page.question_href(model=line.aliases[0]),
        "compare": best_page.compare_href(target=line.aliases[0]),
    }
    return render(request, "dashboard/model.html", context)


@require_safe
@login_required
def hardware(request: HttpRequest) -> HttpResponse:
    """Classes of devices that a person's hosts have or results were measured on."""
    page = whole_number(request.GET.get("page", ""))
    hosts, measured = overview_queries.hosts_shown(request.user), best_queries.hardware_measured(request.user)
    names = model_page.hardware_names(measured, hosts)
    shown = names[(page - 1) * N_HARDWARE : page * N_HARDWARE]
    best = best_queries.best_arms(request.user, Q(hardware__in=shown), N_BEST)
    context = {
        "lines": model_page.hardware_lines(shown, hosts, measured, best_page.by_hardware(best), timezone.now(), limits()),
        "total": len(names),
        "page": page,
        "n_pages": math.ceil(len(names) / N_HARDWARE),
        "more": page * N_HARDWARE < len(names),
        "n_untold": sum(h.inventory is None for h in hosts),
        "may_add": not names and maintains_somewhere(request.user),
    }
    return render(request, "dashboard/hardware.html", context)
