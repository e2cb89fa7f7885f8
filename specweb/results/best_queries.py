"""The best arms that were found, by hardware, target and work: how many statements each function takes doesn't grow with the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Case, Count, F, Max, Q, Sum, Value, When

from specweb.experiments.models import Host, HostModel, Viewer
from specweb.experiments.text import storable

from .models import Listing, ListingTally

#: So many works are looked at for one page; beyond them the Compare page has the rest.
MOST_WORKS = 400
#: So many pairs of hardware and model are read for the names that can be chosen from.
MOST_NAMES = 2000
#: So many kinds of results are looked at to choose from.
MOST_KINDS = 5000
_KIND = ("hardware", "workload", "concurrency", "occupied_context", "target_hash")
_WORK = (*_KIND, "work_key")
_NEWEST_FIRST = [F("measured_at").desc(), F("pk").desc()]
_HEAVY = ("comparison__numbers", "comparison__arm__settings", "comparison__point__settings", "experiment__spec")


@dataclass(frozen=True)
class Best:
    """What is known of one work on some hardware.

    ``shown``: the recommended comparison whose interval's lower end is highest, or the newest that was judged where
    none is recommended. ``newer``: the newest judged answer to the same question there, if it is another and no keep.
    """

    shown: Listing
    n_results: int
    n_recommended: int
    newer: Listing | None

    @property
    def found(self) -> bool:
        return self.n_recommended > 0


def best_arms(user: Viewer, where: Q, each: int | None = None) -> list[Best]:
    """In the order of hardware and work, at most ``each`` for one hardware, those with a recommended arm first (3 statements).

    ``where`` is of columns that the tally has too, which says what there is; only what is shown is then looked for.
    """
    kinds = _kinds(user, where, each)
    if not kinds:
        return []
    best_first = [Case(When(recommended=True, then=F("lower_end"))).desc(nulls_last=True), F("judged").desc(), *_NEWEST_FIRST]
    groups = (
        Listing.objects.visible_to(user)
        .filter(reduce(or_, (Q(**dict(zip(_KIND, kind, strict=True))) for kind in kinds)))
        .order_by()
        .values(*_WORK)
        .annotate(
            n=Count("pk"),
            n_best=Count("pk", filter=Q(recommended=True)),
            runs=ArrayAgg("pk", order_by=best_first),
            questions=ArrayAgg("question_key", order_by=best_first),
            judged_runs=ArrayAgg("pk", order_by=_NEWEST_FIRST, filter=Q(judged=True), default=[]),
            judged_questions=ArrayAgg("question_key", order_by=_NEWEST_FIRST, filter=Q(judged=True), default=[]),
        )
        .order_by(*_WORK)[:MOST_WORKS]
    )
    kept = _of_each(list(groups), each)
    newest = [_newest(g) for g in kept]
    known = _listed([pk for g, last in zip(kept, newest, strict=True) for pk in (g["runs"][0], last) if pk])
    found = []
    for g, key in zip(kept, newest, strict=True):
        shown, last = known.get(g["runs"][0]), known.get(key) if key else None
        if shown is None:  # compared anew meanwhile
            continue
        turned = last is not None and last.pk != shown.pk and last.measured_at > shown.measured_at and last.comparison.verdict != "keep"
        found.append(Best(shown, g["n"], g["n_best"], last if turned and g["n_best"] else None))
    return found


def _kinds(user: Viewer, where: Q, each: int | None) -> list[tuple[Any, ...]]:
    """What of each work there is on which hardware, as far as it will be shown (1 statement)."""
    rows = ListingTally.objects.visible_to(user).filter(where).order_by(*_KIND).values(*_KIND)
    told = _of_each(list(rows.annotate(n_results=Sum("n"), n_recommended=Sum("n_best"))[:MOST_KINDS]), each, "n_recommended")
    return [tuple(kind[name] for name in _KIND) for kind in told[:MOST_WORKS]]


def _of_each(groups: list[dict[str, Any]], each: int | None, n_best: str = "n_best") -> list[dict[str, Any]]:
    if each is None:
        return groups
    kept, taken = [], dict.fromkeys((g["hardware"] for g in groups), 0)
    for g in sorted(groups, key=lambda g: g[n_best] == 0):  # stable: within each kind the order stays
        if taken[g["hardware"]] < each:
            taken[g["hardware"]] += 1
            kept.append(g)
    return sorted(kept, key=lambda g: str(g["hardware"]))


def _newest(group: Mapping[str, Any]) -> UUID | None:
    """The newest that was judged of the question that the best one answers."""
    judged = zip(group["judged_runs"], group["judged_questions"], strict=True)
    return next((run for run, question in judged if question == group["questions"][0]), None)


def _listed(keys: Sequence[UUID]) -> dict[UUID, Listing]:
    rows = Listing.objects.filter(pk__in=keys).select_related("comparison__arm", "comparison__point", "experiment").defer(*_HEAVY)
    return {row.pk: row for row in rows}


def targets_named(user: Viewer, name: str) -> set[str]:
    """Hashes of what is called so where it was measured, or on a host of the person's teams (2 statements)."""
    name = storable(name)
    measured = ListingTally.objects.visible_to(user).filter(target=name).order_by().values_list("target_hash", flat=True).distinct()
    offered = HostModel.objects.filter(host__in=Host.every.visible_to(user), alias=name).values_list("model__manifest_hash", flat=True)
    return set(measured) | set(offered)


def measured_apart(user: Viewer, hardware: str, targets: set[str]) -> tuple[bool, bool]:
    """Whether the hardware has results of any model, and whether these targets have some on any hardware (2 statements)."""
    visible = ListingTally.objects.visible_to(user)
    return visible.filter(hardware=storable(hardware)).exists(), visible.filter(target_hash__in=targets).exists()


@dataclass(frozen=True)
class Measured:
    """What was measured on one hardware."""

    hardware: str
    n_experiments: int
    n_results: int
    targets: list[str]
    last_at: datetime


def hardware_measured(user: Viewer) -> dict[str, Measured]:
    """Each hardware that has results which the person may read (2 statements)."""
    kinds = ListingTally.objects.visible_to(user).order_by().values("hardware")
    counted = kinds.annotate(n_results=Sum("n"), targets=ArrayAgg("target", distinct=True))[:MOST_NAMES]
    asked = Listing.objects.visible_to(user).order_by().values_list("hardware")
    runs = {name: told for name, *told in asked.annotate(n=Count("experiment", distinct=True), last=Max("measured_at"))}
    return {
        (name := r["hardware"]): Measured(name, runs[name][0], r["n_results"], [t for t in r["targets"] if t], runs[name][1])
        for r in counted
        if r["hardware"] in runs
    }


@dataclass(frozen=True)
class Known:
    """Names of hardware and models to choose from, and what of them was measured. ``hashes``: name of a model → weights so called."""

    hardware: list[str]
    models: list[str]
    hashes: Mapping[str, set[str]]
    measured: frozenset[tuple[str, str]]  # (hardware, hash of a target)

    def on_hardware(self, name: str) -> bool:
        """Whether it has results of any model."""
        return any(hardware == name for hardware, _ in self.measured)

    def of_targets(self, hashes: set[str]) -> bool:
        """Whether they have results on any hardware."""
        return any(target in hashes for _, target in self.measured)


def names_to_choose(user: Viewer) -> Known:
    """Hardware and models that have results or are on the person's hosts (1 statement)."""
    kind = {name: Value(name) for name in ("measured", "offered", "had")}
    tally = ListingTally.objects.visible_to(user).order_by().values_list("hardware", "target", "target_hash", kind["measured"])
    hosts = (
        Host.every.visible_to(user)
        .order_by()
        .values_list(
            "inventory__hardware",
            "model_aliases__alias",
            "model_aliases__model__manifest_hash",
            Case(When(revoked_at=None, self_run=False, inventory__isnull=False, then=kind["offered"]), default=kind["had"]),
        )
    )
    rows = list(tally.union(hosts)[:MOST_NAMES])
    there = [row for row in rows if row[3] != "had"]
    hardware, models = (sorted({row[i] for row in there if row[i]}, key=str.lower) for i in (0, 1))
    hashes: dict[str, set[str]] = {}
    for _, name, manifest_hash, _ in rows:
        if name and manifest_hash:
            hashes.setdefault(name, set()).add(manifest_hash)
    return Known(hardware, models, hashes, frozenset((row[0], row[2]) for row in rows if row[3] == "measured"))
