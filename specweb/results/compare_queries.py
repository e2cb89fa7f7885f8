"""What the Compare page reads: four statements, however many comparisons there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Count, F, Q, Sum

from specweb.experiments.models import Viewer
from specweb.experiments.text import storable

from .models import Listing, ListingQuerySet, ListingTally

#: Filters of the page: its name in the query string → column.
FILTERS = {
    "target": "target",
    "engine": "engine",
    "work": "workload",
    "concurrency": "concurrency",
    "context": "occupied_context",
    "hardware": "hardware",
    "mode": "mode",
}
NUMBERS = {"concurrency", "context"}
#: So many combinations of what can be chosen are read; beyond them choices may lack.
MOST_COMBINATIONS = 5000
#: Columns that tell the rows of one question apart.
ROW = ("hardware", "build", "backend", "driver", "setup", "not_restarted", "self_run")
#: Of several runs of one row so many are named, the one that stands for them first.
RUNS_NAMED = 5
ORDER = ("workload", "concurrency", "occupied_context", "engine", "target_hash", "work_key", "mode", "draft_limit", "question_key", *ROW)


@dataclass(frozen=True)
class Choices:
    """Combinations of what results have, with how many have them: in the order of :data:`FILTERS`. ``weights``: name → hashes."""

    combinations: Mapping[tuple[str, ...], int]
    weights: Mapping[str, set[str]]

    @property
    def complete(self) -> bool:
        return len(self.combinations) < MOST_COMBINATIONS

    def of(self, name: str, chosen: Mapping[str, str]) -> dict[str, int]:
        """Value → how many results have it and what the other filters ask; all values, those with none too."""
        place = list(FILTERS).index(name)
        others = [(i, chosen[n]) for i, n in enumerate(FILTERS) if n in chosen and n != name]
        found: Counter[str] = Counter()
        for values, n in self.combinations.items():
            found[values[place]] += n if all(values[i] == wanted for i, wanted in others) else 0
        return dict(found)


def choices(user: Viewer) -> Choices:
    """What a person can choose from (1 statement)."""
    columns = list(FILTERS.values())
    tally = ListingTally.objects.visible_to(user).order_by().values_list("target_hash", *columns)
    rows = tally.annotate(total=Sum("n"))[:MOST_COMBINATIONS]
    combinations: Counter[tuple[str, ...]] = Counter()
    weights: dict[str, set[str]] = {}
    for target_hash, *values, n in rows:
        combinations[tuple(map(str, values))] += n
        weights.setdefault(values[0], set()).add(target_hash)
    return Choices(combinations, weights)


@dataclass(frozen=True)
class Row:
    """One hardware × arm: the run that stands for it, further ones on the same, and how many there are. The ratio is the first one's."""

    shown: Listing
    further: list[Listing]
    n_runs: int
    n_hosts: int


def rows(user: Viewer, choices: Choices, chosen: Mapping[str, str], start: int, n: int) -> list[Row]:
    """Rows in the order of their questions (3 statements).

    Runs of one question on the same hardware, build, driver and settings are one row, for which the newest stands whose
    verdict judges a ratio. They are never pooled.
    """
    found = narrowed(user, choices, chosen)
    return _rows_of(found, list(_grouped(found).order_by(*ORDER)[start : start + n]))


def rows_after(
    user: Viewer, choices: Choices, chosen: Mapping[str, str], after: Sequence[Any] | None, n: int
) -> tuple[list[Row], list[Any] | None]:
    """The ``n`` rows behind a place in the order, and the place of the last one if more follow (3 statements)."""
    found = narrowed(user, choices, chosen)
    groups = list(_grouped(found.filter(_behind(after)) if after is not None else found).order_by(*ORDER)[: n + 1])
    place = [groups[n - 1][name] for name in ORDER] if len(groups) > n else None
    return _rows_of(found, groups[:n]), place


def _behind(place: Sequence[Any]) -> Q:
    """What comes after a place in the order, where no draft limit comes last."""
    behind, equal = Q(), Q()
    for name, value in zip(ORDER, place, strict=True):
        later = Q(pk__in=[]) if value is None else Q(**{f"{name}__gt": value}) | (Q(**{name: None}) if name == "draft_limit" else Q())
        behind |= equal & later
        equal &= Q(**{name: value})
    return behind


def _rows_of(found: ListingQuerySet, groups: Sequence[Mapping[str, Any]]) -> list[Row]:
    wanted = [(g["question_key"], *(g[name] for name in ROW)) for g in groups]
    # Only of the rows of one page: to gather and order the runs of all would cost as much as there are results.
    runs = (
        found.filter(question_key__in={key for key, *_ in wanted})
        .order_by()
        .values_list("question_key", *ROW)
        .annotate(
            n_runs=Count("pk"),
            n_hosts=Count("host", distinct=True),
            runs=ArrayAgg("pk", order_by=[F("judged").desc(), F("measured_at").desc(), F("pk").desc()]),
        )
    )
    by_row = {tuple(key): (n_runs, n_hosts, pks[:RUNS_NAMED]) for *key, n_runs, n_hosts, pks in runs}
    there = [by_row[key] for key in wanted if key in by_row]
    known = _listed([pk for *_, pks in there for pk in pks])
    result = []
    for n_runs, n_hosts, pks in there:
        there_still = [known[pk] for pk in pks if pk in known]
        if not there_still:  # compared anew meanwhile
            continue
        first, *further = there_still
        result.append(Row(first, further, n_runs, n_hosts))
    return result


def n_rows(user: Viewer, choices: Choices, chosen: Mapping[str, str]) -> int:
    return int(_grouped(narrowed(user, choices, chosen)).count())


def narrowed(user: Viewer, choices: Choices, chosen: Mapping[str, str]) -> ListingQuerySet:
    """A target by its name: what has the same weights under another name too."""
    found = Listing.objects.visible_to(user)
    found = found.filter(**{FILTERS[name]: storable(value) for name, value in chosen.items() if name != "target"})
    if "target" in chosen:
        found = found.filter(target_hash__in=choices.weights.get(chosen["target"], set()))
    return found


def _grouped(found: ListingQuerySet) -> Any:
    return found.order_by().values(*ORDER).distinct()


def _listed(keys: Sequence[UUID]) -> dict[UUID, Listing]:
    rows = (
        Listing.objects.filter(pk__in=keys)
        .select_related("comparison__arm", "comparison__point", "experiment", "host")
        .defer("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")
    )
    return {row.pk: row for row in rows}
