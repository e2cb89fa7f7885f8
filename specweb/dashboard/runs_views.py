"""Runs of a question side by side. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from specweb.accounts.services import may_submit
from specweb.results import page_queries, runs_queries

from . import experiment_page, runs_page
from .views import chosen_job, missing


@require_safe
def runs(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """What the jobs of an experiment found, and what other experiments that asked the same did; ``job`` names the one to add to."""
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        return missing(request)
    job, jobs, base = chosen_job(found, request.GET.get("job", "")), list(found.jobs.all()), reverse("experiment", args=[found.pk])
    spec, titles = found.parsed_spec, page_queries.point_titles(found)
    versions = runs_queries.versions(found)
    family = [j.pk for j in jobs if (job.extends_id or job.pk) in (j.pk, j.extends_id)]
    more = runs_page.more(job, jobs, versions, spec, runs_queries.block_seconds(family))
    context = {
        "experiment": found,
        "job": job,
        "question": experiment_page.question_of(spec, page_queries.alias_of_target(job) or spec.target.model, ""),
        "jobs": runs_page.job_rows(found, jobs, runs_queries.parts_told(found), base),
        "sides": runs_page.sides(found, runs_queries.runs_listed(request.user, found), titles),
        "changes": runs_page.changes(versions, titles),
        "more": more,
        "may_add": may_submit(request.user, found.team) if request.user.is_authenticated else False,
    }
    return render(request, "dashboard/runs.html", context)
