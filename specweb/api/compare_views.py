"""Finished ratios by program: as the Compare page has them, one row for each hardware × arm, and each comparison by itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from speccore.questions import arm_words

from specweb.exports.comparison_filter import ABOUT, ComparisonFilter
from specweb.results import compare_queries
from specweb.results.models import Listing

from . import people_query as query
from . import people_shapes as shapes
from .answers import Figure
from .describing import Answer, Query, describe
from .paging import N_MOST, N_SHOWN, PAGE, filtered, filters_of, next_place, no_cursor, page, place_in
from .people_auth import PeopleView

NUMBER = {"type": "integer", "minimum": 0, "maximum": 999_999_999}
FILTERS = [Query(n, ABOUT[n], NUMBER if n in compare_queries.NUMBERS else {"type": "string"}) for n in compare_queries.FILTERS]


class Run(Answer):
    """One job that answered a question on some hardware."""

    comparison: UUID
    job: UUID
    experiment: UUID
    experiment_name: str
    host: str | None
    speedup: float | None
    low: float | None
    high: float | None
    withheld: str | None
    n_blocks: int
    verdict: str
    reason: str
    measured_at: datetime
    url: str


class ListingLine(Run):
    """A comparison as lists have it: its question in `question_key` (results with equal ones answer the same), its hardware, its numbers."""

    question_key: str
    work_key: str
    target: str
    target_hash: str
    engine: str
    work: str
    title: str
    concurrency: int
    context: int
    mode: str
    draft_limit: int | None
    helper: str
    arm: str
    arm_in_words: str
    point: str
    hardware: str
    build: str
    backend: str
    driver: str
    setup: str
    self_run: bool
    not_restarted: bool
    recommended: bool
    margin: float
    integrity: dict[str, Any]
    figures: dict[str, Figure]


class CompareRow(ListingLine):
    """The run that stands for a row, with how many there are; `further` names the next ones. They are never pooled."""

    n_runs: int
    n_hosts: int
    further: list[Run]


class CompareAnswer(Answer):
    rows: list[CompareRow]
    next: str | None


class ComparisonsAnswer(Answer):
    comparisons: list[ListingLine]
    next: str | None


class ChoicesAnswer(Answer):
    """Filter → value → how many results have it and what the other filters ask."""

    choices: dict[str, dict[str, int]]
    complete: bool


def _chosen(request: Request) -> dict[str, str]:
    for name in compare_queries.NUMBERS:
        query.whole_number(request, name, 0, 0, NUMBER["maximum"])  # type: ignore[call-overload]
    given = {name: query.text(request, name)[:200] for name in compare_queries.FILTERS}
    chosen = {name: value for name, value in given.items() if value}
    return chosen | {name: str(int(chosen[name])) for name in compare_queries.NUMBERS if name in chosen}


class CompareView(PeopleView):
    @describe("Finished ratios across hardware", tag="Compare", answer=CompareAnswer, query=[*FILTERS, *PAGE])
    def get(self, request: Request) -> Response:
        """As the Compare page: runs of one question on the same hardware, build, driver and settings are one row, for which
        the newest stands whose verdict judges a ratio. In the order of the page: by work, then by arm and hardware."""
        n, chosen, after = query.whole_number(request, "limit", N_SHOWN, 1, N_MOST), _chosen(request), _place(request)
        choices = compare_queries.choices(request.user)
        found, place = compare_queries.rows_after(request.user, choices, chosen, after, n)
        return Response({"rows": [_row(r) for r in found], "next": next_place(request, place) if place else None})


def _place(request: Request) -> list[Any] | None:
    place = place_in(request)
    if place is None:
        return None
    if not isinstance(place, list) or len(place) != len(compare_queries.ORDER):
        raise no_cursor(request)
    for name, value in zip(compare_queries.ORDER, place, strict=True):
        kind = type(Listing._meta.get_field(name).to_python(0)) if name != "draft_limit" else int
        if not (isinstance(value, kind) or (name == "draft_limit" and value is None)) or "\0" in str(value):
            raise no_cursor(request)
        if isinstance(value, int) and not 0 <= value < 2**31:
            raise no_cursor(request)
    return place


class CompareChoicesView(PeopleView):
    @describe("What results can be narrowed to", tag="Compare", answer=ChoicesAnswer, query=FILTERS)
    def get(self, request: Request) -> Response:
        """`complete` false: there are more combinations than are read, and values may lack."""
        chosen, choices = _chosen(request), compare_queries.choices(request.user)
        told = {name: choices.of(name, chosen) for name in compare_queries.FILTERS}
        return Response({"choices": told, "complete": choices.complete})


class ComparisonsView(PeopleView):
    @describe("Comparisons, the newest first", tag="Compare", answer=ComparisonsAnswer, query=[*filters_of(ComparisonFilter), *PAGE])
    def get(self, request: Request) -> Response:
        """Each by itself, with what lists show of it; `jobs/ID/numbers` has every number with its source."""
        found, more = page(request, filtered(request, ComparisonFilter, _listings(request)))
        return Response({"comparisons": [_line(x) for x in found], "next": more})


def _listings(request: Request) -> QuerySet[Listing]:
    rows = Listing.objects.visible_to(request.user).select_related("comparison__arm", "comparison__point", "experiment", "host")
    return rows.defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")


def _row(row: compare_queries.Row) -> dict[str, Any]:
    return _line(row.shown) | {"n_runs": row.n_runs, "n_hosts": row.n_hosts, "further": [_run(r) for r in row.further]}


def _run(x: Listing) -> dict[str, Any]:
    c, experiment = x.comparison, x.experiment

    return {
        "comparison": str(c.pk),
        "job": str(c.job_id),
        "experiment": str(experiment.pk),
        "experiment_name": experiment.name,
        "host": x.host.name if x.host else None,
        "speedup": c.speedup,
        "low": c.ci_low,
        "high": c.ci_high,
        "withheld": x.figures.get("speedup", {}).get("withheld") or (None if c.ci_low is not None else "not computed"),
        "n_blocks": c.n_blocks,
        "verdict": c.verdict,
        "reason": c.reason,
        "measured_at": x.measured_at,
        "url": shapes.address("numbers", c.job_id, arm=c.arm.name, point=c.point.key),
    }


_OWN = ("question_key", "work_key", "target", "target_hash", "engine", "title", "concurrency", "mode", "draft_limit", "helper", "hardware")
_SETUP = ("build", "backend", "driver", "setup", "self_run", "not_restarted", "margin", "integrity")


def _line(x: Listing) -> dict[str, Any]:
    c = x.comparison
    return (
        _run(x)
        | {name: getattr(x, name) for name in (*_OWN, *_SETUP)}
        | {
            "work": x.workload,
            "context": x.occupied_context,
            "arm": c.arm.name,
            "arm_in_words": arm_words(x.question, {str(x.question.get("arm.draft", "")): x.helper}),
            "point": c.point.key,
            "recommended": c.recommended,
            "figures": {name: _figure(kept) for name, kept in x.figures.items() if name != "speedup"},
        }
    )


def _figure(kept: Mapping[str, Any]) -> Any:
    return kept["value"] if "value" in kept else {"withheld": kept.get("withheld") or "not computed"}
