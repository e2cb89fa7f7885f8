"""What people do to jobs: cancel, pause, resume, try again. Each answers with the experiment's page and a message."""

from __future__ import annotations

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST
from speccore.errors import NotPossible, SpecError
from speccore.jobstate import HELD

from specweb.accounts.services import may_submit
from specweb.experiments.models import Job
from specweb.experiments.services.jobs import request_cancel, request_pause, resume_job, retry_job
from specweb.experiments.services.more import add_blocks
from specweb.results import page_queries
from specweb.results.services.continuing import run_the_rest


@require_POST
def cancel(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    done = request_cancel(job, now=timezone.now(), by=_name(request))
    job.refresh_from_db(fields=["state", "host"])
    if not done:
        return _answer(request, job, "Nothing to cancel: the job has ended, or is being cancelled already.")
    told = job.host and job.state in HELD
    return _answer(
        request, job, f"{job.host} is told with its next poll; it stops the engine at once." if told else "The job is cancelled."
    )


@require_POST
def pause(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    if not request_pause(job, now=timezone.now(), by=_name(request)):
        return _answer(request, job, "Nothing to pause: the job rests already, or is done.")
    return _answer(request, job, "The job rests after the trial that runs." if job.state in HELD else "The job rests before it begins.")


@require_POST
def resume(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    done = resume_job(job, now=timezone.now(), by=_name(request))
    return _answer(request, job, "The job goes on." if done else "The job was not paused.")


@require_POST
def retry(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    try:
        new = retry_job(job, now=timezone.now(), by=_name(request))
    except NotPossible as error:
        return _answer(request, job, f"Not tried again: {error.message}. {error.remedy_text}", messages.ERROR)
    return _answer(request, new, "This is the new try; the old one stays as history.")


@require_POST
def more(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    given = request.POST.get("blocks", "").strip()
    number = int(given) if given.isascii() and given.isdigit() and len(given) < 10 else 0
    try:
        new = add_blocks(job, number, by=_name(request))
    except (NotPossible, SpecError) as error:
        said = f"No blocks added: {given[:20]!r} is no number of blocks" if not number else f"No blocks added: {error.message}"
        return _answer(request, job, f"{said}. {error.remedy_text}", messages.ERROR)
    return _answer(request, new, "These blocks are added to the answer when they are measured.")


@require_POST
def rest(request: HttpRequest, job_id: UUID) -> HttpResponse:
    job = _controlled(request, job_id)
    if isinstance(job, HttpResponse):
        return job
    try:
        new = run_the_rest(job, by=_name(request))
    except (NotPossible, SpecError) as error:
        return _answer(request, job, f"Nothing to run: {error.message}. {error.remedy_text}", messages.ERROR)
    return _answer(request, new, "This job runs the blocks that were missing; what was measured before stays.")


def _controlled(request: HttpRequest, job_id: UUID) -> Job | HttpResponse:
    """The job, if the person may submit for its team; else the answer: login, not found, or not allowed."""
    job = page_queries.job_shown(request.user, job_id)
    if not request.user.is_authenticated:
        # The address takes POST only, so the way back from the login form is the page with the button.
        return redirect_to_login(_page(job) if job else reverse("overview"))
    if job is None:
        raise Http404
    if not may_submit(request.user, job.experiment.team):
        raise PermissionDenied
    return job


def _page(job: Job) -> str:
    return f"{reverse('experiment', args=[job.experiment_id])}?job={job.pk}"


def _answer(request: HttpRequest, job: Job, message: str, level: int = messages.SUCCESS) -> HttpResponse:
    messages.add_message(request, level, message)
    return redirect(_page(job))


def _name(request: HttpRequest) -> str:
    return request.user.get_username()
