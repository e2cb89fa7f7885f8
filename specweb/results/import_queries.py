"""What an imported experiment's archive said, beside what was computed here from its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from speccore.jobstate import JobState

from specweb.experiments.models import Experiment

from .archive_reading import measurement_digest
from .models import Analysis, ArchiveImport, Attempt, AttemptState

#: So many differences are told, with how many there are.
MOST_TOLD = 100
#: Results of another processor may differ in the last digits.
TOLERANCE = 1e-9


@dataclass(frozen=True)
class Difference:
    """``what``: a field of a comparison, or what else differs; ``there`` and ``here`` in short."""

    job: UUID | None
    arm: str
    point: str
    what: str
    there: str
    here: str


@dataclass(frozen=True)
class Imported:
    """``pending``: not all is computed yet, so that no difference means nothing."""

    row: ArchiveImport
    pending: bool
    differences: list[Difference]
    n_differences: int

    @property
    def same(self) -> bool:
        return not self.pending and not self.differences

    @property
    def lacking(self) -> int:
        return len(self.row.lacking)


def imported(experiment: Experiment) -> Imported | None:
    """None for an experiment that was not imported (5 statements)."""
    row = ArchiveImport.objects.select_related("imported_by").filter(experiment=experiment).first()
    if row is None:
        return None
    unread = Attempt.objects.filter(trial__job__experiment=experiment, state=AttemptState.RECEIVED).exists()
    pending = unread or experiment.jobs.filter(state=JobState.COMPLETED.value).exists()
    found = [] if pending else [*_of_measurements(experiment, row), *_of_analyses(experiment, row)]
    return Imported(row, pending, found[:MOST_TOLD], len(found))


def _of_measurements(experiment: Experiment, row: ArchiveImport) -> Iterator[Difference]:
    told = row.told.get("measurements", {})
    rows = Attempt.objects.filter(trial__job__experiment=experiment).order_by("trial__job_id", "trial__index", "received_at")
    fields = ("pk", "trial__job_id", "trial__plan_id", "trial__arm__name", "measurement__parser_version", "measurement__numbers")
    for pk, job, trial, arm, version, numbers in rows.values_list(*fields).iterator(50):
        there, read = told.get(str(pk)), None if numbers is None else measurement_digest(numbers)
        if there is None and read is None:
            continue
        if there is None or read is None:
            words = ("no numbers", "numbers") if there is None else ("numbers", "no numbers")
            yield Difference(job, arm, "", f"what was read from trial {trial}", *words)
        elif there[0] == version and there[1] != read:
            yield Difference(job, arm, "", f"what was read from trial {trial}", f"hash {there[1][:12]}", f"hash {read[:12]}")


def _of_analyses(experiment: Experiment, row: ArchiveImport) -> Iterator[Difference]:
    told: dict[str, Any] = row.told.get("analyses", {})
    newest = Analysis.objects.filter(job__experiment=experiment).order_by("job_id", "-id").distinct("job_id")
    here = {str(a.job_id): a.numbers for a in newest}
    for job in sorted(told.keys() | here.keys()):
        one, other = told.get(job), here.get(job)
        if any(map(partial(_stands_elsewhere, job), (one, other))):
            continue  # what it was before later blocks were added is not shown, and computed only where it was measured
        if one is None or other is None:
            words = ("none", "there") if one is None else ("there", "none")
            yield Difference(UUID(job), "", "", "the comparison of a job", *words)
            continue
        a, b = _by_place(one), _by_place(other)
        for arm, point in a.keys() | b.keys():
            yield from _of_comparison(UUID(job), arm, point, a.get((arm, point)), b.get((arm, point)))
        yield from _of_checks(UUID(job), one.get("checks") or [], other.get("checks") or [])
        for name in ("answers", "fit", "sampling", "parts"):
            if not _same(one.get(name), other.get(name)):
                yield Difference(UUID(job), "", "", name, _short(one.get(name)), _short(other.get(name)))


def _stands_elsewhere(job: str, numbers: dict[str, Any] | None) -> bool:
    """Whether a job's blocks are in the comparison that an earlier job of its answer keeps."""
    joined = [str(p.get("job")) for p in (numbers or {}).get("parts") or [] if not p.get("differs")]
    return job in joined[1:]


def _of_checks(job: UUID, one: list[dict[str, Any]], other: list[dict[str, Any]]) -> Iterator[Difference]:
    a, b = ({str(c.get("name")): c for c in checks} for checks in (one, other))
    for name in sorted(a.keys() | b.keys()):
        if not _same(a.get(name), b.get(name)):
            words = (f"{c.get('state')}: {c.get('sentence')}"[:120] if c else "none" for c in (a.get(name), b.get(name)))
            yield Difference(job, "", "", f"check: {name}", *words)


def _by_place(numbers: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(str(c.get("arm")), str(c.get("point"))): c for c in numbers.get("comparisons", [])}


def _of_comparison(job: UUID, arm: str, point: str, one: dict[str, Any] | None, other: dict[str, Any] | None) -> Iterator[Difference]:
    if one is None or other is None:
        yield Difference(job, arm, point, "the comparison", "none" if one is None else "there", "none" if other is None else "there")
        return
    for name in sorted(one.keys() | other.keys()):
        if not _same(one.get(name), other.get(name)):
            yield Difference(job, arm, point, name, _short(one.get(name)), _short(other.get(name)))


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, float) and isinstance(b, int | float) and not isinstance(b, bool):
        return math.isclose(a, b, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(a == b)


def _short(value: Any) -> str:
    if isinstance(value, dict):
        value = next((value[k] for k in ("value", "estimate", "withheld", "word") if k in value), value)
    return str(value)[:120]
