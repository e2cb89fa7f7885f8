"""A trial with its attempts, its evidence as text with addressable lines, and the raw bytes; always through the attempt, never by hash."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, BinaryIO
from uuid import UUID

import zstandard
from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from specweb.results import page_queries
from specweb.results.evidence_search import MOST_CHARS
from specweb.results.models import Attempt, EvidenceFile
from specweb.results.store import CHUNK, open_blob

from . import attempt_page, log_page, trial_charts, trial_page
from .views import missing, whole_number

FILES_PER_PAGE = 500


@require_safe
def attempt(request: HttpRequest, attempt_id: UUID) -> HttpResponse:
    """A trial, by one of its attempts."""
    found = page_queries.attempt_shown(request.user, attempt_id, whole=True)
    if found is None:
        return missing(request)
    experiment = found.trial.job.experiment
    spec, files, is_member = experiment.parsed_spec, page_queries.evidence_of(found), page_queries.reads_texts(request.user, experiment)
    works = attempt_page.works(spec, page_queries.titles_of_points(experiment.pk))
    context = attempt_page.context(found, files, page_queries.attempts_at(found.trial), works)
    context |= trial_page.context(found, spec, files, for_team=is_member)
    context |= trial_charts.context(found, files, works, request.GET.get("probe", ""), for_team=is_member)
    context |= {
        "experiment": experiment,
        "job": found.trial.job,
        "is_member": is_member,
        "neighbours": page_queries.neighbours(found.trial),
    }
    return render(request, "dashboard/trial.html", context)


@require_safe
def evidence_list(request: HttpRequest, job_id: UUID) -> HttpResponse:
    """The evidence files of a job, of one name or all, in the order of trials."""
    job = page_queries.job_shown(request.user, job_id)
    if job is None:
        return missing(request)
    name, page = request.GET.get("name", ""), whole_number(request.GET.get("page", ""))
    files = page_queries.evidence_listed(job, name, (page - 1) * FILES_PER_PAGE, FILES_PER_PAGE + 1)
    context = {
        "job": job,
        "experiment": job.experiment,
        "name": name,
        "names": [t.name for t in page_queries.evidence_totals(job)],
        "files": files[:FILES_PER_PAGE],
        "page": page,
        "more": len(files) > FILES_PER_PAGE,
        "is_member": page_queries.reads_texts(request.user, job.experiment),
    }
    return render(request, "dashboard/evidence_list.html", context)


def _file(request: HttpRequest, attempt_id: UUID, name: str) -> tuple[Attempt, EvidenceFile] | None:
    """An attempt's file, if the person may read it. Prompts and answers are for the team's members."""
    found = page_queries.attempt_shown(request.user, attempt_id)
    file = page_queries.evidence_file(found, name) if found else None
    if found is None or file is None:
        return None
    if file.private and not page_queries.reads_texts(request.user, found.trial.job.experiment):
        return None
    return found, file


@require_safe
@cache_control(private=True, no_cache=True)
def evidence(request: HttpRequest, attempt_id: UUID, name: str) -> HttpResponse:
    """A range of the file's lines. ``line`` marks one and decides the page; ``field`` names what was read from it; ``q`` is looked for."""
    pair = _file(request, attempt_id, name)
    if pair is None:
        return missing(request)
    found, file = pair
    asked = log_page.Asked(
        line=whole_number(request.GET.get("line", ""), 0),
        page=whole_number(request.GET.get("page", ""), 0),
        field=request.GET.get("field", "")[:200],
        text=request.GET.get("q", "").replace("\0", "")[:MOST_CHARS],
        since=whole_number(request.GET.get("since", ""), 0),
    )
    context: dict[str, Any] = {
        "attempt": found,
        "trial": found.trial,
        "job": found.trial.job,
        "experiment": found.trial.job.experiment,
        "file": file,
        "marked": asked.line,
        "field": asked.field,
        "q": asked.text,
        "raw_href": reverse("raw", args=[found.id, file.name]),
    }
    try:
        context |= log_page.context(file, asked)
    except (OSError, zstandard.ZstdError):
        return render(request, "dashboard/evidence.html", context | {"gone": True}, status=404)
    return render(request, "dashboard/evidence.html", context)


@require_safe
@cache_control(private=True, no_cache=True)
def raw(request: HttpRequest, attempt_id: UUID, name: str) -> HttpResponse | StreamingHttpResponse:
    """The stored bytes, uncompressed, as a download: a browser never renders them."""
    pair = _file(request, attempt_id, name)
    if pair is None:
        return missing(request)
    found, file = pair
    try:
        stream = open_blob(file.blob)
    except OSError:
        raise Http404 from None
    filename = f"{found.trial.plan_id}-{found.n}-{file.name}".replace("/", "_")
    # Not a FileResponse: a WSGI server would send the compressed file behind the stream.
    response = StreamingHttpResponse(pieces(stream), content_type="application/octet-stream")
    response["Content-Disposition"] = content_disposition_header(True, filename) or "attachment"
    response["Content-Length"] = str(file.blob.bytes)
    response["X-Content-SHA256"] = file.blob.sha256
    return response


def pieces(stream: BinaryIO) -> Iterator[bytes]:
    with stream:
        while piece := stream.read(CHUNK):
            yield piece
