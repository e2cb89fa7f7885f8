"""The difference of two trials, and before one is chosen, what a trial can be held against."""

from __future__ import annotations

import re
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from specweb.results import diff_queries, page_queries
from specweb.results.models import Attempt

from . import trial_diff
from .views import missing

_UUID = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.IGNORECASE)


@require_safe
def diff(request: HttpRequest, attempt_id: UUID) -> HttpResponse:
    """``with`` names the other trial by one of its attempts, or by the address of its page; ``all`` asks for what is equal too."""
    found = page_queries.attempt_shown(request.user, attempt_id, whole=True)
    if found is None:
        return missing(request)
    asked, everything = request.GET.get("with", "").strip()[:500], request.GET.get("all") == "1"
    named = _UUID.search(asked)
    other = page_queries.attempt_shown(request.user, UUID(named[0]), whole=True) if named else None
    if named and other is None:
        return missing(request)
    context = {
        "attempt": found,
        "other": other,
        "asked": asked,
        "everything": everything,
        "candidates": diff_queries.candidates(found),
        "same": other is not None and other.pk == found.pk,
    }
    if other is not None:
        if other.trial.job_id == found.trial.job_id:
            other.trial.job = found.trial.job  # what is read of it is read once
        sections = trial_diff.sections(*_sides(request, found, other), everything=everything)
        context |= {
            "sections": sections,
            "n_same": sum(s.n_same for s in sections),
            "n_differ": sum(r.differs for s in sections for r in s.rows),
        }
    return render(request, "dashboard/trial_diff.html", context)


def _sides(request: HttpRequest, *attempts: Attempt) -> list[trial_diff.Side]:
    experiments = {a.trial.job.experiment_id: a.trial.job.experiment for a in attempts}
    for_team = {pk: page_queries.reads_texts(request.user, experiment) for pk, experiment in experiments.items()}
    return [trial_diff.side(a, page_queries.evidence_of(a), for_team=for_team[a.trial.job.experiment_id]) for a in attempts]
