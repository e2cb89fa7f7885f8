"""What a host can't resolve: gathers the contrasts of its baselines with themselves from stored comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from uuid import UUID

from django.db.models import OuterRef, Q, Subquery
from django.db.models.functions import Least
from speccore.jobstate import JobState
from speccore.measurement import Withheld
from speccore.noise_floor import VALID_FOR, Contrast, HostFloor, KnownFloor, Scope, contrast, host_floor, of_job, point_class
from speccore.person import STORED
from speccore.spec import ExperimentSpec, Point

from specweb.experiments.models import Host, Job
from specweb.results.models import Attempt, Comparison


@dataclass(frozen=True)
class Gathered:
    """``invalid``: (job, scope) of contrasts that don't count, since a hard check of them failed."""

    contrasts: list[Contrast]
    invalid: list[tuple[str, Scope]]
    builds: dict[str, str]  # manifest hash: the engine build in words
    experiments: dict[str, UUID]  # job: what it is of


@dataclass(frozen=True)
class ShownFloor:
    """A floor of a host, or how far it is from one, with what it holds for."""

    scope: Scope
    build: str
    found: HostFloor | Withheld
    jobs: list[tuple[UUID, str]]  # (experiment, job) of each contrast that counts, oldest first


def gathered(host_id: UUID, moment: datetime) -> Gathered:
    """The contrasts that a host's processed jobs measured within 30 days of a moment, before it or after (2 statements).

    A job was measured when its last attempt ended, by the agent's clock but no later than it was reported: a self-run may be
    uploaded long after.
    """
    # None was measured after it was reported. Asked for first: where to begin can't be told from settings that are JSON.
    jobs = Job.objects.filter(host=host_id, state=JobState.PROCESSED.value).values_list("pk", flat=True)
    jobs = jobs.filter(Q(completed_at__isnull=True) | Q(completed_at__gte=moment - VALID_FOR)).order_by()
    last = Attempt.objects.filter(trial__job=OuterRef("job"), accepted=True).order_by("-ended_at").values("ended_at")[:1]
    rows = (
        Comparison.objects.current()
        .filter(job__in=list(jobs), arm__settings__control=True)
        # One with flags of its own is no second baseline.
        .filter(Q(arm__settings__extra__isnull=True) | Q(arm__settings__extra={}))
        # Two servers that stand differ by the same from job to job, which no contrast of theirs would show.
        .filter(Q(numbers__not_restarted__isnull=True) | Q(numbers__not_restarted=False))
        .annotate(at=Least(Subquery(last), "job__completed_at"))
        .filter(at__gte=moment - VALID_FOR, at__lte=moment + VALID_FOR)
        .order_by("at", "job_id")
        .values_list(
            "job_id",
            "job__experiment_id",
            "at",
            "verdict",
            "point__settings",
            "numbers__block_values",
            "job__runtime__manifest_hash",
            "job__runtime__engine",
            "job__runtime__version",
            "job__inventory__content__devices",
            "job__experiment__spec__blocks",
        )
    )
    by_job: dict[tuple[UUID, str], list[dict[int, float]]] = {}
    moments: dict[UUID, datetime] = {}
    scopes: dict[tuple[UUID, str], Scope] = {}
    spoiled: set[tuple[UUID, str]] = set()
    builds: dict[str, str] = {}
    experiments: dict[str, UUID] = {}
    for job_id, experiment_id, at, verdict, settings, every, runtime, engine, version, devices, planned in rows:
        # Blocks that somebody added later would move a contrast out of the class of its plan, as its numbers please them.
        values = {int(block): value for block, value in (every or {}).items() if not planned or int(block) <= planned}
        key = job_id, point_class(Point.model_validate(settings, context=STORED))
        moments[job_id] = at
        experiments[str(job_id)] = experiment_id
        if runtime:
            builds[runtime] = f"{engine} {version}"
        scopes[key] = Scope(str(host_id), _driver(devices or []), runtime or "", key[1], len(values))
        by_job.setdefault(key, []).append(values)
        if verdict == "invalid":
            spoiled.add(key)
    contrasts = []
    for key, values_of_class in by_job.items():
        whole = set.intersection(*map(set, values_of_class))
        found = contrast(str(key[0]), moments[key[0]], replace(scopes[key], n_blocks=len(whole)), values_of_class)
        if isinstance(found, Contrast) and key not in spoiled:
            contrasts.append(found)
    return Gathered(contrasts, [(str(key[0]), scopes[key]) for key in sorted(spoiled, key=str)], builds, experiments)


def _driver(devices: Iterable[dict[str, str]]) -> str:
    """As :meth:`HostInventory.driver`."""
    return ", ".join(sorted({d["driver"] for d in devices if d.get("driver")}))


def floors_of_job(job: Job, spec: ExperimentSpec, n_blocks: int, measured_at: datetime | None) -> dict[str, KnownFloor]:
    """What is known of the floor at each class of the job's points, from other jobs of its host (2 statements).

    A job's own control arm is left out: a bias that it shares with the arms would raise the bar for itself, and a lucky one
    lower it.
    """
    if job.host_id is None or job.inventory is None or measured_at is None or not n_blocks:
        return {}
    there = gathered(job.host_id, measured_at)
    others = [c for c in there.contrasts if c.job != str(job.pk)]
    invalid = [scope for other, scope in there.invalid if other != str(job.pk)]
    runtime = job.runtime.manifest_hash if job.runtime else ""
    scope = Scope(str(job.host_id), _driver(job.inventory.content.get("devices", [])), runtime, "", n_blocks)

    def found(of: str, n: int) -> HostFloor | Withheld:
        return _floor(others, invalid, replace(scope, point_class=of, n_blocks=n), measured_at)

    classes = dict.fromkeys(map(point_class, spec.points))
    return {c: of_job(partial(found, c), n_blocks, spec.blocks) for c in classes}


def _floor(contrasts: Sequence[Contrast], invalid: Sequence[Scope], scope: Scope, moment: datetime) -> HostFloor | Withheld:
    found = host_floor(contrasts, scope, moment)
    n_invalid = sum(s == scope for s in invalid)
    if isinstance(found, Withheld) and n_invalid:
        return found.model_copy(update={"withheld": f"{found.withheld}; {n_invalid} more failed a hard check"})
    return found


def floors_of_host(host: Host, now: datetime) -> list[ShownFloor]:
    """All that is known today of what a host can't resolve, the best known first (2 statements)."""
    found = gathered(host.pk, now)
    invalid = [scope for _, scope in found.invalid]
    scopes = dict.fromkeys([*(c.scope for c in found.contrasts), *invalid])
    shown = []
    for scope in scopes:
        here = [c for c in found.contrasts if c.scope == scope]  # of other scopes the page has other rows
        jobs = [(found.experiments[c.job], c.job) for c in here]
        shown.append(ShownFloor(scope, found.builds.get(scope.runtime, ""), _floor(here, invalid, scope, now), jobs))
    return sorted(shown, key=lambda s: (-len(s.jobs), s.scope.point_class, s.scope.n_blocks))
