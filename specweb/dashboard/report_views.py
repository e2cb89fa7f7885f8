"""The Markdown report of an answered job. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import content_disposition_header
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe

from specweb.results import page_queries, report_text

from .llama_swap import slug
from .views import chosen_job, missing


@require_safe
@cache_control(private=True, no_cache=True)
def report(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """As a file; ``job`` names one of the experiment's jobs. There is none before an answer."""
    found = page_queries.experiment_shown(request.user, experiment_id)
    if found is None:
        return missing(request)
    job = chosen_job(found, request.GET.get("job", ""))
    told = report_text.report_of(
        found,
        job,
        permalink=f"{settings.SPECWEB_BASE_URL}{reverse('experiment', args=[found.pk])}?job={job.pk}",
        reproduce=f"{settings.SPECWEB_BASE_URL}{reverse('experiment-new')}?reproduce={job.pk}",
    )
    if told is None:
        raise Http404
    response = HttpResponse(told, content_type="text/markdown; charset=utf-8")
    response["Content-Disposition"] = content_disposition_header(True, f"{slug(found.name)}-report.md") or "attachment"
    return response
