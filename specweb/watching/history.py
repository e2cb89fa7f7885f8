"""The runs of a watch as series of numbers: what its alerts are looked for in. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F, Q
from django.db.models.fields.json import KeyTextTransform, KeyTransform
from speccore.changes import Run

from specweb.results.models import Listing

from .models import Metric, Watch

#: Verdicts of runs that measured nothing.
NO_RUN = ("invalid", "not engaged")


@dataclass(frozen=True)
class Key:
    """Of one series. ``arm`` is empty for the baseline's speed, which all arms of a point share."""

    host: UUID
    arm: str
    point: str
    metric: Metric


@dataclass(frozen=True)
class Row:
    """One comparison of one run."""

    job: UUID
    host: UUID
    arm: str
    point: str
    build: str
    runtime_hash: str
    measured_at: datetime
    counts: bool
    speedup: float | None
    low: float | None
    high: float | None
    acceptance: float | None
    baseline: float | None


def listings_of(watch: Watch) -> Any:
    """Current comparisons of a watch's runs, oldest first. Of an answer to which blocks were added the newest alone stands."""
    mine = Q(experiment_id=watch.experiment_id) | Q(experiment__repeat__watch=watch)
    replaced = Q(comparison__job__extensions__state="processed")
    return Listing.objects.filter(mine, comparison__superseded_by=None).exclude(replaced).order_by("measured_at", "pk")


def rows_of(watch: Watch) -> list[Row]:
    """All that the series are made of (1 statement), without the numbers' long JSON."""
    found = listings_of(watch).values(
        "host_id",
        "build",
        "runtime_hash",
        "measured_at",
        "integrity",
        job=F("comparison__job_id"),
        arm=F("comparison__arm__name"),
        point=F("comparison__point__key"),
        verdict=F("comparison__verdict"),
        speedup=F("comparison__speedup"),
        low=F("comparison__ci_low"),
        high=F("comparison__ci_high"),
        acceptance=_number("acceptance_rate"),
        baseline=_number("baseline_tokens_per_s"),
    )
    return [
        Row(
            job=r["job"],
            host=r["host_id"],
            arm=r["arm"],
            point=r["point"],
            build=r["build"],
            runtime_hash=r["runtime_hash"],
            measured_at=r["measured_at"],
            counts=r["verdict"] not in NO_RUN and not r["integrity"].get("failed"),
            speedup=r["speedup"],
            low=r["low"],
            high=r["high"],
            acceptance=float(r["acceptance"]) if r["acceptance"] is not None else None,
            baseline=float(r["baseline"]) if r["baseline"] is not None else None,
        )
        for r in found
        if r["host_id"] is not None
    ]


def _number(name: str) -> KeyTextTransform:
    """A number of a comparison, read by the database out of its JSON."""
    return KeyTextTransform("value", KeyTransform(name, "comparison__numbers"))


def series_of(rows: Sequence[Row]) -> dict[Key, list[Run]]:
    """A run of each job in the order of time. The baseline's speed is that of the point's first arm that has one."""
    found: dict[Key, list[Run]] = defaultdict(list)
    with_baseline: set[tuple[UUID, str]] = set()
    for r in rows:
        about = {"build": r.build, "key": str(r.job), "counts": r.counts}
        found[Key(r.host, r.arm, r.point, Metric.RATIO)].append(Run(r.speedup, r.low, r.high, **about))
        found[Key(r.host, r.arm, r.point, Metric.ACCEPTANCE)].append(Run(r.acceptance, **about))
        if r.counts and r.baseline is not None and (r.job, r.point) not in with_baseline:
            with_baseline.add((r.job, r.point))
            found[Key(r.host, "", r.point, Metric.BASELINE)].append(Run(r.baseline, **about))
    return dict(found)
