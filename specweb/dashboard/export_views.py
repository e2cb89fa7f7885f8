"""Tables and whole experiments as files, and where an imported experiment came from. Read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, StreamingHttpResponse
from django.shortcuts import render
from django.utils.http import content_disposition_header
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_safe
from speccore.errors import SpecWebError

from specweb.exports.answering import streamed
from specweb.exports.files import FORMS
from specweb.exports.tables import TABLES
from specweb.results import page_queries
from specweb.results.archive_writing import archive_of, file_name
from specweb.results.import_queries import imported

from .views import missing

#: Tables of what may be public; the others are about a person's teams.
_FOR_VISITORS = {"comparisons", "experiments", "attempts", "probes", "numbers", "evidence", "reported"}


@require_safe
def table_file(request: HttpRequest, table: str) -> HttpResponse | StreamingHttpResponse:
    """All rows that the filters find, however many. Filters that a table doesn't have say nothing, as on its page."""
    found, form = TABLES.get(table), request.GET.get("format", "csv")
    if found is None:
        raise Http404
    if table not in _FOR_VISITORS and not request.user.is_authenticated:
        return missing(request)
    if form not in FORMS:
        return _refused(f"format: {form[:60]!r} is none that there is. Known: {', '.join(FORMS)}.", 400)
    asked = found.filters(request.GET, found.base(request.user), request=request)
    if not asked.form.is_valid():
        name, faults = next(iter(asked.form.errors.items()))
        return _refused(f"{name}: {request.GET.get(name, '')[:60]!r}: {faults[0]}", 400)
    narrowed = {name: value for name in found.filters.base_filters if (value := request.GET.get(name, ""))}
    try:
        return streamed(found, form, asked.qs, request.user, narrowed)
    except SpecWebError as error:
        return _refused(f"{error.message}. {error.remedy_text}", 501)


def _refused(words: str, status: int) -> HttpResponse:
    return HttpResponse(f"{words}\n", content_type="text/plain; charset=utf-8", status=status)


@require_safe
def archive(request: HttpRequest, experiment_id: UUID) -> HttpResponse | StreamingHttpResponse:
    found = page_queries.experiment_with_its_team(request.user, experiment_id)
    if found is None:
        return missing(request)
    try:
        answer = StreamingHttpResponse(archive_of(found, request.user), content_type="application/zip")
    except SpecWebError as error:
        return _refused(f"{error.message}. {error.remedy_text}", 503)
    answer["Content-Disposition"] = content_disposition_header(True, file_name(found)) or "attachment"
    answer["Cache-Control"] = "private, no-store"
    return answer


@require_safe
@cache_control(private=True, no_cache=True)
def import_of(request: HttpRequest, experiment_id: UUID) -> HttpResponse:
    """What the archive of an imported experiment said, where that is not what was computed here."""
    found = page_queries.experiment_with_its_team(request.user, experiment_id)
    if found is None:
        return missing(request)
    told = imported(found)
    if told is None:
        raise Http404
    return render(request, "dashboard/import_of.html", {"experiment": found, "told": told})
