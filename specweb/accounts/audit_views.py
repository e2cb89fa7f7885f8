"""The page of the audit log, and the same as CSV. Read, call, answer."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from .audit_queries import PAGE, Filters, OddFilter, as_rows, entries
from .services import teams_maintained


@require_safe
@login_required
def audit(request: HttpRequest) -> HttpResponse:
    """What was changed in the teams that a person maintains, and by themselves; a page of it, from ``before`` on."""
    asked, fault = Filters.of(request.GET), ""
    given = request.GET.get("before", "")
    before = int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None
    try:
        rows = entries(request.user, asked)
    except OddFilter as error:
        rows, fault = entries(request.user, Filters()).none(), str(error)
    found = list((rows.filter(pk__lt=before) if before else rows)[: PAGE + 1])
    more = urlencode({**asked.asked, "before": found[PAGE - 1].pk}) if len(found) > PAGE else ""
    context = {
        "entries": found[:PAGE],
        "asked": asked,
        "query": urlencode(asked.asked),
        "more": more,
        "fault": fault,
        "first": before is None,
        "maintained": list(teams_maintained(request.user)),
    }
    return render(request, "accounts/audit.html", context, status=400 if fault else 200)


@require_safe
@login_required
def audit_csv(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """All that the filters find, however much that is: it is streamed."""
    try:
        rows = entries(request.user, Filters.of(request.GET))
    except OddFilter as error:
        return HttpResponse(f"{error}\n", content_type="text/plain; charset=utf-8", status=400)
    answer = StreamingHttpResponse(as_rows(rows.iterator(chunk_size=2_000)), content_type="text/csv; charset=utf-8")
    answer["Content-Disposition"] = 'attachment; filename="audit.csv"'
    return answer
