"""The best arms that were found, by hardware, target and work: how many statements each function takes doesn't grow with the results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.postgres.aggregates import ArrayAgg
from django.db.models import Case, Count, F, Max, Q, When
from django.db.models.functions import Coalesce

from specweb.experiments.models import Host, HostModel, Viewer
from specweb.experiments.text import storable

from .models import Listing, ListingTally

#: So many works are looked at for one page; beyond them the Compare page has the rest.
MOST_WORKS = 400
#: So many pairs of hardware and model are read for the names that can be chosen from.
MOST_NAMES = 2000
_WORK = ("hardware", "workload", "concurrency", "occupied_context", "target_hash", "work_key")
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
    """In the order of hardware and work, at most ``each`` for one hardware, those with a recommended arm first (3 statements)."""
    lower_end = Case(When(comparison__recommended=True, then=Coalesce("comparison__ci_low", "comparison__speedup")))
    best_first = [lower_end.desc(nulls_last=True), F("judged").desc(), F("measured_at").desc(), F("pk").desc()]
    groups = (
        Listing.objects.visible_to(user)
        .filter(where)
        .order_by()
        .values(*_WORK)
        .annotate(n=Count("pk"), n_best=Count("pk", filter=Q(comparison__recommended=True)), runs=ArrayAgg("pk", order_by=best_first))
        .order_by(*_WORK)[:MOST_WORKS]
    )
    kept = _of_each(list(groups), each)
    known = _listed([g["runs"][0] for g in kept])
    newest = _newest(user, list(known.values()))
    found = []
    for g in kept:
        shown = known[g["runs"][0]]
        last = newest.get((shown.question_key, shown.hardware))
        turned = last is not None and last.pk != shown.pk and last.measured_at > shown.measured_at and last.comparison.verdict != "keep"
        found.append(Best(shown, g["n"], g["n_best"], last if turned and g["n_best"] else None))
    return found


def _of_each(groups: list[dict[str, Any]], each: int | None) -> list[dict[str, Any]]:
    if each is None:
        return groups
    kept, taken = [], dict.fromkeys((g["hardware"] for g in groups), 0)
    for g in sorted(groups, key=lambda g: g["n_best"] == 0):  # stable: within each kind the order stays
        if taken[g["hardware"]] < each:
            taken[g["hardware"]] += 1
            kept.append(g)
    return sorted(kept, key=lambda g: str(g["hardware"]))


def _listed(keys: Sequence[UUID]) -> dict[UUID, Listing]:
    rows = Listing.objects.filter(pk__in=keys).select_related("comparison__arm", "comparison__point", "experiment").defer(*_HEAVY)
    return {row.pk: row for row in rows}


def _newest(user: Viewer, shown: Sequence[Listing]) -> dict[tuple[str, str], Listing]:
    """(question, hardware) → the newest that was judged."""
    asked = Listing.objects.visible_to(user).filter(
        question_key__in={x.question_key for x in shown}, hardware__in={x.hardware for x in shown}, judged=True
    )
    rows = asked.order_by("question_key", "hardware", "-measured_at").distinct("question_key", "hardware")
    return {(x.question_key, x.hardware): x for x in rows.select_related("comparison").defer("comparison__numbers", "question")}


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
    """Each hardware that has results which the person may read (1 statement)."""
    rows = (
        Listing.objects.visible_to(user)
        .order_by()
        .values("hardware")
        .annotate(
            n_experiments=Count("experiment", distinct=True),
            n_results=Count("pk"),
            targets=ArrayAgg("target", distinct=True),
            last=Max("measured_at"),
        )[:MOST_NAMES]
    )
    return {
        r["hardware"]: Measured(r["hardware"], r["n_experiments"], r["n_results"], [t for t in r["targets"] if t], r["last"]) for r in rows
    }


def names_to_choose(user: Viewer) -> tuple[list[str], list[str]]:
    """Hardware and models that have results or are on the person's hosts (1 statement)."""
    measured = ListingTally.objects.visible_to(user).order_by().values_list("hardware", "target")
    hosts = Host.objects.visible_to(user).filter(revoked_at=None, inventory__isnull=False).order_by()
    pairs = measured.union(hosts.values_list("inventory__hardware", "model_aliases__alias"))[:MOST_NAMES]
    hardware, models = (sorted({n for n in names if n}, key=str.lower) for names in zip(*pairs, ("", ""), strict=True))
    return hardware, models
