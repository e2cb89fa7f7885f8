"""Charts of a view of Compare, the history of one configuration, and why two rows are not comparable: read, call, answer."""

from __future__ import annotations

from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from specweb.accounts.services import teams_submitted
from specweb.results import chart_queries, compare_queries
from specweb.results.models import Listing

from . import (
    compare_charts,
    compare_charts_lines,
    compare_charts_memory,
    compare_charts_worth,
    compare_filters,
    compare_history,
    compare_why,
)
from .views import missing

#: Beyond this no query value names anything.
_LONGEST = 400


def charts_of(view: compare_charts.View) -> list[compare_charts.Chart]:
    """All of a view; the one that reads memory asks the database (2 statements)."""
    rows = compare_charts_memory.rows_with_memory(view.rows)
    taken = chart_queries.memory([r.shown.comparison for r in rows]) if rows else {}
    return [
        compare_charts_worth.worth(view),
        compare_charts_lines.ratios(view, compare_charts_lines.DRAFTS),
        compare_charts_lines.ratios(view, compare_charts_lines.AT_ONCE),
        compare_charts_lines.ratios(view, compare_charts_lines.OCCUPIED),
        compare_charts_lines.speeds_by_context(view),
        compare_charts_memory.memory_chart(view, rows, taken),
    ]


@require_safe
def charts(request: HttpRequest) -> HttpResponse:
    """The same filters as the Compare page, and all rows of the view, not those of one page of its tables."""
    chosen = compare_filters.chosen_of(request.GET)
    choices = compare_queries.choices(request.user)
    troubles = compare_filters.troubles(choices, chosen)
    found = chart_queries.Rows([], more=False) if troubles else chart_queries.rows(request.user, choices, chosen)
    view = compare_charts.view_of(found.rows, chosen, _ask(request, found.rows[0].shown) if found.rows else "")
    context = {
        "charts": charts_of(view) if found.rows else [],
        "chosen": chosen,
        "here": compare_filters.address(chosen),
        "drops": compare_filters.drops(chosen),
        "troubles": troubles,
        "n_rows": len(found.rows),
        "more": found.more,
    }
    return render(request, "dashboard/compare_charts.html", context)


def _ask(request: HttpRequest, shown: Listing) -> str:
    """The form, filled in as that experiment was; empty for who may not ask."""
    if not request.user.is_authenticated or not teams_submitted(request.user).exists():
        return ""
    return f"{reverse('experiment-new')}?from={shown.experiment_id}"


@require_safe
def history(request: HttpRequest) -> HttpResponse:
    """``question``: a question key; ``hardware``; ``setup``: whatever it is, if it isn't given."""
    asked = {name: request.GET[name][:_LONGEST].replace("\x00", "") for name in ("question", "hardware", "setup") if name in request.GET}
    found, more = chart_queries.history(request.user, asked.get("question", ""), asked.get("hardware", ""), asked.get("setup"))
    if not found:
        return missing(request)
    shown = compare_history.history(found, more=more, ask=_ask(request, found[-1]))
    return render(request, "dashboard/compare_history.html", {"history": shown, "most": chart_queries.MOST_RUNS})


@require_safe
def why(request: HttpRequest) -> HttpResponse:
    """``row``, twice: comparisons, as the Compare page's boxes name them."""
    asked = request.GET.getlist("row")[:10]
    wanted = list(dict.fromkeys(found for text in asked if (found := _uuid(text))))
    rows = chart_queries.two_rows(request.user, wanted[:2]) if wanted else []
    if len(rows) < min(2, len(wanted)):
        return missing(request)
    context = {"answer": compare_why.answer(*rows) if len(rows) == 2 else None, "n_asked": len(wanted), "swapped": _swapped(wanted)}
    return render(request, "dashboard/compare_why.html", context)


def _swapped(wanted: list[UUID]) -> str:
    return f"?row={wanted[1]}&row={wanted[0]}" if len(wanted) > 1 else ""


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
