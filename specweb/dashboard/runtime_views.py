"""Engine builds: of all hosts, and one by its identity. Read, call, answer."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from specweb.accounts.roles import maintains_somewhere
from specweb.experiments.text import storable
from specweb.results import host_queries, runtime_queries

from . import hosts_page, runtimes_page
from .limits import limits
from .views import missing

N_JOBS = 50


@require_safe
@login_required
def runtimes(request: HttpRequest) -> HttpResponse:
    """What each host of a person's teams can start."""
    found, now = [h for h in host_queries.hosts_listed(request.user) if h.revoked_at is None], timezone.now()
    seen, n_jobs = runtime_queries.builds_seen(found), runtime_queries.jobs_by_build(found)
    hosts = [runtimes_page.host_builds(h, hosts_page.state_of(h, now, limits()), seen, n_jobs) for h in found]
    context = {
        "hosts": hosts,
        "counts": runtimes_page.counted(hosts),
        "several_teams": len({h.team for h in hosts}) > 1,
        "may_add": maintains_somewhere(request.user),
        "unchecked": runtimes_page.UNCHECKED,
    }
    return render(request, "dashboard/runtimes.html", context)


@require_safe
def runtime(request: HttpRequest, manifest_hash: str) -> HttpResponse:
    """One build: where it is, what it is made of, and the jobs that it was chosen for."""
    build = runtime_queries.build_shown(request.user, storable(manifest_hash))
    if build is None:
        return missing(request)
    hosts = runtime_queries.hosts_of_build(request.user, build)
    info = next((r for h in hosts if (r := runtimes_page.offers(h, build.manifest_hash))), None)
    told = info or next((r for h in hosts if (r := runtime_queries.last_told(h, build.manifest_hash))), None)
    jobs = runtime_queries.jobs_of_build(request.user, hosts, build, N_JOBS)
    context = {
        "runtime": build,
        "build": runtimes_page.build_of(told) if told else None,
        "files": sorted(told.manifest.items()) if told else [],
        "there": info is not None,
        "places": runtimes_page.places(hosts, runtime_queries.builds_seen(hosts), build.manifest_hash),
        "jobs": [(job.host.name if job.host else "", hosts_page.job_line(job)) for job in jobs],
        "n_more": max(0, sum(jobs.n for (_, b), jobs in runtime_queries.jobs_by_build(hosts).items() if b == build.pk) - len(jobs)),
        "unchecked": runtimes_page.UNCHECKED,
    }
    return render(request, "dashboard/runtime.html", context)
