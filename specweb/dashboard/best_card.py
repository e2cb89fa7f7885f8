"""What works on my card: the question on the overview, with its answer or what to start with. Read, call, answer."""

from __future__ import annotations

from typing import Any

from django.db.models import Q
from django.http import HttpRequest

from specweb.experiments.text import storable
from specweb.results import best_queries, overview_queries

from . import best_page

#: Works of one hardware that are shown, where it was chosen and where not, and at most in all; Compare has the rest.
N_OF_CHOSEN, N_OF_EACH, N_WORKS = 24, 6, 48


def card(request: HttpRequest) -> dict[str, Any]:
    """Its context: names to choose from, what was chosen, and the answer where something was."""
    asked = best_page.asked_of(request.GET)
    known = best_queries.names_to_choose(request.user)
    hardware, models = known.hardware, known.models
    context: dict[str, Any] = {
        "asked": asked,
        # What names nothing stays as it was asked.
        "hardware": [asked.hardware, *hardware] if asked.hardware and asked.hardware not in hardware else hardware,
        "models": [asked.model, *models] if asked.model and asked.model not in models else models,
        "unknown": [n for n, those in ((asked.hardware, hardware), (asked.model, models)) if n and n not in those],
        "anything": bool(hardware or models or asked),
    }
    return context | (_answer(request, asked, known) if asked else {})


def _answer(request: HttpRequest, asked: best_page.Asked, known: best_queries.Known) -> dict[str, Any]:
    hashes = known.hashes.get(storable(asked.model), set())
    where = Q(hardware=storable(asked.hardware)) if asked.hardware else Q()
    where &= Q(target_hash__in=hashes) if asked.model else Q()
    found = best_queries.best_arms(request.user, where, N_OF_CHOSEN if asked.hardware else N_OF_EACH)
    both = bool(asked.hardware and asked.model)
    if found:
        return {
            "groups": best_page.by_hardware(found[:N_WORKS]),
            "compare": best_page.compare_href(hardware=asked.hardware, target=asked.model),
            "not_measured": best_page.not_measured(found) if both else [],
            "start_anew": best_page.start_href(best_page.ALONE, asked.model) if both else "",
        }
    on_it, of_it = both and known.on_hardware(storable(asked.hardware)), both and known.of_targets(hashes)
    hosts = [(h.name, h.inventory.parsed) for h in overview_queries.hosts_offering(request.user) if h.inventory]
    return {
        "start": best_page.start_for(asked, hosts),
        "other_models": best_page.question_href(hardware=asked.hardware) if on_it else "",
        "other_hardware": best_page.question_href(model=asked.model) if of_it else "",
    }
