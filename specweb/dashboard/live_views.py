"""The parts of pages that htmx asks for again and again: the progress of a job, and what runs now. Unchanged, they answer 304."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotModified
from django.template.loader import render_to_string
from django.utils import timezone
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from django_htmx.http import HttpResponseClientRefresh, HttpResponseStopPolling
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Job
from specweb.results import page_queries
from specweb.results.models import Trial

from . import job_progress, speeds, trial_strip
from .limits import limits


def progress_context(
    job: Job, spec: ExperimentSpec, titles: Mapping[str, str], now: datetime, trials: Sequence[Trial], *, for_team: bool, answered: bool
) -> dict[str, Any]:
    """What the template of the progress shows: in the page and, the same again, in each answer to its polling."""
    progress = job_progress.progress_of(job, trials, limits(), now, for_team=for_team, answered=answered)
    running = job_progress.running_of(job)
    return {
        "job": job,
        "spec": spec,
        "progress": progress,
        "arm_keys": trial_strip.arm_keys(trials),
        "blocks": trial_strip.trial_blocks(job, trials, running.trial if running else "", page_queries.climates(trials)),
        "speeds": speeds.speeds_by_work(spec, page_queries.speeds_so_far(job), titles) if not job.is_final else [],
        "incomplete": job_progress.incomplete(progress, answered=answered),
    }


def fragment(context: Mapping[str, Any]) -> tuple[str, str]:
    """The progress as HTML, and its entity tag."""
    text = render_to_string("dashboard/_progress.html", dict(context))
    return text, tag_of(text)


def tag_of(text: str) -> str:
    return '"' + hashlib.sha256(text.encode()).hexdigest()[:24] + '"'


def unchanged(request: HttpRequest, tag: str) -> bool:
    return request.headers.get("If-None-Match") == tag


@require_safe
@cache_control(private=True, no_cache=True)
def progress(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The part of the experiment page that changes while a job runs. When the page around it must change too, it is loaded anew.

    ``page`` is the state for which the asking page was made.
    """
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        if not request.user.is_authenticated:
            return HttpResponse(status=401)  # whether it exists is not told
        raise Http404
    context = progress_context(
        job,
        job.experiment.parsed_spec,
        page_queries.titles_of_points(job.experiment_id),
        timezone.now(),
        page_queries.trials_shown(job),
        for_team=page_queries.is_member(request.user, job.experiment),
        answered=page_queries.has_analysis(job),
    )
    how_far: job_progress.Progress = context["progress"]
    if request.GET.get("page", how_far.page) != how_far.page:
        return HttpResponseClientRefresh()
    text, tag = fragment(context)
    if unchanged(request, tag):
        return HttpResponseNotModified(headers={"ETag": tag})
    answer = HttpResponse(text) if how_far.live else HttpResponseStopPolling(text)
    answer["ETag"] = tag
    return answer
