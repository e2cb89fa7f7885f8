"""What other tools report: the list, one report, its file, and what stands beside measured results. Read, call, answer."""

from __future__ import annotations

from urllib.parse import urlencode
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.loader import render_to_string
from django.utils.http import content_disposition_header
from django.views.decorators.cache import cache_control
from django.views.decorators.http import require_POST, require_safe
from speccore.importers import TABLE, TOOLS

from specweb.accounts.services import teams_submitted
from specweb.experiments.models import Visibility
from specweb.experiments.text import storable
from specweb.reported import queries, services
from specweb.reported.models import MARK, Report

from . import reported_page
from .live_views import tag_of, unchanged
from .views import missing, whole_number

N_REPORTS, N_BESIDE = 40, 8
FILTERS = ("tool", "team", "model", "hardware")


def tool_choices() -> list[tuple[str, str]]:
    return [*((slug, i.title) for slug, i in TOOLS.items()), (TABLE, "a table")]


@require_safe
def reported(request: HttpRequest) -> HttpResponse:
    """Reports that a person may read, the newest first."""
    given = {name: storable(request.GET.get(name, "")).strip()[:120] for name in FILTERS}
    teams = queries.teams_with_reports(request.user)
    before = _uuid(request.GET.get("before", ""))
    found = queries.reports_listed(request.user, queries.Asked(**given), before=before, n=N_REPORTS + 1)
    shown = found[:N_REPORTS]
    asked = {k: v for k, v in given.items() if v}
    context = {
        "reports": shown,
        "given": given,
        "asked": asked,
        "teams": teams,
        "tools": tool_choices(),
        "mark": MARK,
        "older": urlencode({**asked, "before": shown[-1].pk}) if len(found) > N_REPORTS else "",
        "is_first": before is None,
        "may_add": request.user.is_authenticated and teams_submitted(request.user).exists(),
    }
    return render(request, "dashboard/reported.html", context)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        return None


@require_safe
def report(request: HttpRequest, report_id: UUID) -> HttpResponse:
    """One imported file: whose it is, what it says, and what its numbers mean there."""
    row = queries.report_shown(request.user, report_id)
    if row is None:
        return missing(request)
    page, n = whole_number(request.GET.get("page", "")), reported_page.RUNS_A_PAGE
    runs = [reported_page.run_shown(r) for r in queries.runs_of(row, (page - 1) * n, n)]
    heads, common = reported_page.heads(runs, of_a_table=row.is_table), reported_page.in_common(runs)
    runs = reported_page.apart(runs, common)
    context = {
        "report": row,
        "mark": MARK,
        "runs": runs,
        "heads": heads,
        "common": common,
        "rows": [(run, run.cells(heads)) for run in runs] if heads else [],
        "page": page,
        "n_pages": -(-row.n_runs // n),
        "may_change": services.may_change(request.user, row),
        "visibilities": [v for v in Visibility if v != row.visibility and services.may_set(request.user, row, v)],
        "is_member": bool(request.user.pk) and request.user.role_in(row.team_id) is not None,
    }
    return render(request, "dashboard/report.html", context)


@require_safe
def report_file(request: HttpRequest, report_id: UUID) -> HttpResponse:
    """The file as it was imported."""
    row = queries.report_shown(request.user, report_id)
    if row is None:
        return missing(request)
    response = HttpResponse(services.raw_bytes(row), content_type="application/octet-stream")
    response["Content-Disposition"] = content_disposition_header(True, row.file_name) or "attachment"
    return response


@require_POST
@login_required
def report_visibility(request: HttpRequest, report_id: UUID) -> HttpResponse:
    row = _changeable(request, report_id)
    wanted = request.POST.get("visibility", "")
    if wanted not in Visibility.values or not services.may_set(request.user, row, Visibility(wanted)):
        raise PermissionDenied
    if services.change_visibility(row, Visibility(wanted)):
        messages.success(request, f"“{row.title}” is {wanted} now.")
    else:
        messages.info(request, f"“{row.title}” was {wanted} already.")
    return redirect("reported-one", row.pk)


@require_POST
@login_required
def report_delete(request: HttpRequest, report_id: UUID) -> HttpResponse:
    row = _changeable(request, report_id)
    services.delete_report(row)
    messages.success(request, f"“{row.title}” is removed, with its file and numbers.")
    return redirect("reported")


def _changeable(request: HttpRequest, report_id: UUID) -> Report:
    row = queries.report_shown(request.user, report_id)
    if row is None:
        raise Http404
    if not services.may_change(request.user, row):
        raise PermissionDenied
    return row


@require_POST
@login_required
def template_delete(request: HttpRequest, template_id: int) -> HttpResponse:
    row = queries.template_shown(request.user, template_id)
    if row is None:
        raise Http404
    if not services.may_remove_template(request.user, row):
        raise PermissionDenied
    services.delete_template(row)
    messages.success(request, f"The template “{row.name}” is removed; what was imported by it stays.")
    return redirect("reported-new")


@require_safe
@cache_control(private=True, no_cache=True)
def beside(request: HttpRequest) -> HttpResponse:
    """The part of a page that tells what other tools report of the same model or hardware. Asked after the page, by itself."""
    models = [storable(m)[:300] for m in request.GET.getlist("model")[:10]]
    hardware = storable(request.GET.get("hardware", ""))[:300]
    found = queries.beside(request.user, models=models, hardware=hardware, n=N_BESIDE)
    asked = {k: v for k, v in (("model", models[0] if models else ""), ("hardware", hardware)) if v}
    context = {
        "found": found,
        "mark": MARK,
        "rows": [reported_page.beside_row(r) for r in found.runs],
        "all": "?" + urlencode(asked) if asked else "",
        "about": " on ".join(asked.values()),
    }
    text = render_to_string("dashboard/_beside.html", context, request=None)
    tag = tag_of(text)
    response = HttpResponse(status=304) if unchanged(request, tag) else HttpResponse(text)
    response["ETag"] = tag
    return response
