"""Comparisons and their numbers as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import django_filters as filters
from django.db.models import Count, F, QuerySet, Window
from django.db.models.functions import RowNumber
from speccore.measurement import ComparisonResult, Interval, Number, Withheld
from speccore.metrics import METRICS
from speccore.questions import arm_words

from specweb.experiments.models import Viewer
from specweb.results import compare_queries
from specweb.results.listing import FIGURES
from specweb.results.models import Comparison, Listing

from .comparison_filter import ComparedFilter
from .table import CHUNK, Table, address, columns, maybe, told
from .texts import Text

#: Fields of a comparison that are named otherwise than their metric.
METRIC_OF = {"tokens_per_s": "decode_tokens_per_s", "tokens": "completion_tokens"}
NUMBERS = tuple(n for n, f in ComparisonResult.model_fields.items() if set(get_args(f.annotation)) == {Number, Withheld})
RATIOS = tuple(n for n, f in ComparisonResult.model_fields.items() if set(get_args(f.annotation)) == {Interval, Withheld})
_RATIO_WORDS = {
    "speedup": ("speed-up", "baseline's seconds for equal work ÷ the arm's, over blocks, with its interval"),
    "total_time": ("ratio of total seconds", "baseline's total seconds for equal work ÷ the arm's, over blocks, with its interval"),
    "task_decode_ratio": (
        "ratio of decoding",
        "of whole tasks: baseline's seconds of decoding ÷ the arm's, over blocks, with its interval",
    ),
}


def _listings(user: Viewer) -> QuerySet[Listing]:
    return Listing.objects.visible_to(user).order_by(*compare_queries.ORDER, "-measured_at", "-pk")


def _comparison_lines(rows: QuerySet[Listing], user: Viewer) -> Iterator[Sequence[Any]]:
    row = {"partition_by": [F("question_key"), *(F(name) for name in compare_queries.ROW)]}
    first = [F("judged").desc(), F("measured_at").desc(), F("pk").desc()]
    found = (
        rows.annotate(place=Window(RowNumber(), **row, order_by=first), n_runs=Window(Count("pk"), **row))
        .select_related("comparison__arm", "comparison__point", "experiment__team", "host")
        .defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")
    )
    for x in found.iterator(CHUNK):
        yield _comparison(x)


def _comparison(x: Any) -> Sequence[Any]:
    c, e = x.comparison, x.experiment
    why = x.figures.get("speedup", {}).get("withheld") or (None if c.ci_low is not None else "not computed")
    figures = [part for name in FIGURES for part in maybe(x.figures.get(name))]
    checks = [x.integrity.get(name) for name in ("passed", "failed", "warnings", "unchecked", "worst")]
    names = (str(c.pk), str(e.pk), e.name, e.team.slug, e.visibility, str(c.job_id), x.host.name if x.host else None)
    ran = (x.hardware, x.driver, x.build, x.backend, x.setup, x.engine, x.target, x.target_hash)
    asked = (x.workload, x.title, x.concurrency, x.occupied_context, c.arm.name)
    arm = (arm_words(x.question, {str(x.question.get("arm.draft", "")): x.helper}), x.mode, x.draft_limit, x.helper, c.point.key)
    found = (c.speedup, c.ci_low, c.ci_high, why, c.n_blocks, c.verdict, c.reason, c.recommended, x.margin)
    marks = (x.self_run, x.not_restarted, x.question_key, x.place == 1, x.n_runs, x.measured_at)
    url = address(f"/jobs/{c.job_id}/numbers", arm=c.arm.name, point=c.point.key)
    return (*names, *ran, *asked, *arm, *found, *figures, *checks, *marks, url)


COMPARISONS = Table(
    "comparisons",
    "Each arm against its baseline, in the order of the Compare page; first_of_row marks the run that stands for its row there.",
    (
        *columns("id", "comparison experiment"),
        *columns("text", "experiment_name team visibility"),
        *columns("id", "job"),
        *columns("text", "host hardware driver build backend setup engine target"),
        *columns("id", "target_hash"),
        *columns("text", "work title"),
        *columns("integer", "concurrency context"),
        *columns("text", "arm arm_in_words mode"),
        *columns("integer", "draft_limit"),
        *columns("text", "helper point"),
        *columns("number", "speedup low high"),
        *columns("text", "speedup_withheld"),
        *columns("integer", "n_blocks"),
        *columns("text", "verdict reason"),
        *columns("yes or no", "recommended"),
        *columns("number", "margin"),
        *told(" ".join(FIGURES)),
        *columns("integer", "checks_passed checks_failed checks_warning not_checked"),
        *columns("text", "worst_check"),
        *columns("yes or no", "self_run not_restarted"),
        *columns("id", "question_key"),
        *columns("yes or no", "first_of_row"),
        *columns("integer", "n_runs_of_row"),
        *columns("time", "measured_at"),
        *columns("text", "url"),
    ),
    ComparedFilter,
    _listings,
    _comparison_lines,
)


class NumbersFilter(filters.FilterSet):
    experiment = filters.UUIDFilter("job__experiment_id", label="Of one experiment.")
    job = filters.UUIDFilter("job_id", label="Of one job.")
    arm = Text("arm__name", label="Of this arm.")
    point = Text("point__key", label="At this point.")
    team = Text("job__experiment__team__slug", label="Of this team's experiments.")

    class Meta:
        model = Comparison
        fields: list[str] = []


def _comparisons(user: Viewer) -> QuerySet[Comparison]:
    found = Comparison.objects.current().visible_to(user).select_related("arm", "point", "job__host")
    found = found.defer("arm__settings", "point__settings", "job__plan", "job__commands", "job__progress")
    return found.order_by("job_id", "point__position", "arm__position")


def _number_lines(rows: QuerySet[Comparison], user: Viewer) -> Iterator[Sequence[Any]]:
    for c in rows.iterator(CHUNK // 10):
        host = c.job.host.name if c.job.host else None
        before = (str(c.job.experiment_id), str(c.job_id), host, c.arm.name, c.point.key)
        url = address(f"/jobs/{c.job_id}/numbers", arm=c.arm.name, point=c.point.key)
        for name in RATIOS:
            yield (*before, *_ratio(name, c.numbers.get(name)), url)
        for name in NUMBERS:
            yield (*before, *_number(name, c.numbers.get(name)), url)


def _ratio(name: str, kept: Any) -> Sequence[Any]:
    words, definition = _RATIO_WORDS.get(name, (name, ""))
    if kept and "estimate" in kept:
        value, low, high, why = kept["estimate"], kept.get("low"), kept.get("high"), kept.get("withheld") or None
    else:
        (value, why), low, high = maybe(kept), None, None
    return name, "both", words, "×", value, low, high, why, definition, None, None, None, None


def _number(name: str, kept: Any) -> Sequence[Any]:
    side = next((s for s in ("arm", "baseline") if name.startswith(f"{s}_")), "arm")
    plain = name.removeprefix(f"{side}_")
    m, (value, why) = METRICS[METRIC_OF.get(plain, plain)], maybe(kept)
    source = kept["source"] if value is not None else {}
    place = (source.get("file"), source.get("line"), source.get("field"))
    return m.id, side, m.name, m.unit, value, None, None, why, m.definition, m.definition_id, *place


NUMBERS_TABLE = Table(
    "numbers",
    "Every number of each comparison: its value or the reason why it is withheld, and the file and line that it was read from.",
    (
        *columns("id", "experiment job"),
        *columns("text", "host arm point metric side name unit"),
        *columns("number", "value low high"),
        *columns("text", "withheld definition definition_id source_file"),
        *columns("integer", "source_line"),
        *columns("text", "source_field url"),
    ),
    NumbersFilter,
    _comparisons,
    _number_lines,
)
