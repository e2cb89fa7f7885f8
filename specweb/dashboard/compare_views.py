"""The Compare page: read, call, answer."""

from __future__ import annotations

import math

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from specweb.results import compare_queries

from . import compare_chart, compare_filters, compare_page
from .views import whole_number

N_ROWS = 40


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    chosen, asked = compare_filters.chosen_of(request.GET), request.GET.get("page", "")
    page = whole_number(asked)
    choices = compare_queries.choices(request.user)
    troubles = compare_filters.troubles(choices, chosen)
    found = [] if troubles else compare_queries.rows(request.user, choices, chosen, (page - 1) * N_ROWS, N_ROWS + 1)
    rows = found[:N_ROWS]
    n_pages = 0
    if page > 1 and not rows and not troubles:
        n_pages = math.ceil(compare_queries.n_rows(request.user, choices, chosen) / N_ROWS)
    works = compare_page.works(rows)
    context = {
        "filters": compare_filters.filters(choices, chosen),
        "chosen": chosen,
        "anything": bool(choices.combinations),
        "troubles": troubles,
        "drops": compare_filters.drops(chosen),
        "works": works,
        "heads": compare_page.heads(),
        "speedup_definition": compare_page.definition("speedup"),
        "forest": compare_chart.forest_chart(rows, works, chosen),
        "n_hardware": len({r.shown.hardware for r in rows}),
        "n_questions": sum(len(w.questions) for w in works),
        "page": page,
        "odd_page": asked if asked and str(page) != asked else "",
        "n_pages": n_pages,
        "here": compare_filters.address(chosen),
        "last": compare_filters.address(chosen, n_pages),
        "newer": compare_filters.address(chosen, page - 1),
        "older": compare_filters.address(chosen, page + 1) if len(found) > N_ROWS else "",
    }
    return render(request, "dashboard/compare.html", context)
