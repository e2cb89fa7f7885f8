"""Which jobs are compared together: those that add blocks to an answer, where they ran with the same as the earlier blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from speccore.jobstate import FINAL, JobState
from speccore.joining import Joined, Part, joined_plan, lasting_fields, own_blocks, what_differs
from speccore.measurement import JoinedPart
from speccore.plan import last_blocks
from speccore.protocol import JobPlan

from specweb.experiments.models import Job
from specweb.experiments.services.plans import family_of
from specweb.results.models import Attempt, Trial

#: A job in one of these brings no further number.
ENDED = FINAL | {JobState.COMPLETED}


@dataclass(frozen=True)
class Basis:
    """What one comparison rests on. ``home``: the job that it is stored with, the first of them."""

    home: Job
    plan: JobPlan
    blocks: dict[UUID, frozenset[int]]  # job → those of its blocks that count
    joined: Joined | None = None
    told: list[JoinedPart] = field(default_factory=list)


def basis_of(job: Job) -> Basis:
    """A job alone, or with all jobs of its answer that may stand in one comparison with it.

    One that ran with something else stands alone, and its ``told`` says what differs.
    """
    family = [j for j in family_of(job) if j.plan is not None]
    if len(family) < 2:
        return _alone(job)
    ended = [j for j in family if j.pk == job.pk or JobState(j.state) in ENDED]
    measured = {j.pk: _measured(j) for j in ended}
    ended = [j for j in ended if measured[j.pk]]
    if not ended or job.pk not in {j.pk for j in ended}:
        return _alone(job)
    home = ended[0]
    fields = {j.pk: _fields(j) for j in ended}
    differs = {j.pk: what_differs(fields[home.pk], fields[j.pk]) for j in ended}
    if differs[job.pk]:
        told = [JoinedPart(job=str(home.pk), blocks=sorted({a.trial.block for a in measured[home.pk]}), differs=differs[job.pk])]
        return Basis(job, JobPlan.model_validate(job.plan), {job.pk: _planned(job)}, told=told)
    joined = [j for j in ended if not differs[j.pk]]
    gave = {a.trial.arm_id for j in joined for a in measured[j.pk]}
    counted = own_blocks(
        [Part(_planned(j), Counter(a.trial.block for a in measured[j.pk]), _whole(j, measured[j.pk], gave)) for j in joined]
    )
    blocks = {j.pk: own for j, own in zip(joined, counted, strict=True)}
    told = [
        JoinedPart(
            job=str(j.pk), blocks=sorted({a.trial.block for a in measured[j.pk]} & blocks.get(j.pk, _planned(j))), differs=differs[j.pk]
        )
        for j in ended
    ]
    plan = joined_plan([(JobPlan.model_validate(j.plan), blocks[j.pk]) for j in joined])
    spec = home.experiment.parsed_spec
    parts = Joined(tuple(counted), spec.blocks, sequential=spec.sequential and home.extends_id is None)
    return Basis(home, plan, blocks, parts if len(joined) > 1 else None, told if len(ended) > 1 else [])


def _alone(job: Job) -> Basis:
    return Basis(job, JobPlan.model_validate(job.plan), {job.pk: _planned(job)})


def _planned(job: Job) -> frozenset[int]:
    return frozenset(t.block for t in JobPlan.model_validate(job.plan).trials)


def _whole(job: Job, measured: Collection[Attempt], gave: Collection[int]) -> set[int]:
    """Blocks in which no trial lacks its numbers, of the arms that ``gave`` any: one that never runs keeps no block open."""
    good = {a.trial_id for a in measured}
    last = last_blocks(job.experiment.parsed_spec, job.decided)
    trials = list(Trial.objects.filter(job=job, arm__in=gave).select_related("arm"))
    lacking = {t.block for t in trials if t.pk not in good and t.block <= last.get(t.arm.name, t.block)}
    return {t.block for t in trials} - lacking


def _measured(job: Job) -> list[Attempt]:
    found = Attempt.objects.filter(trial__job=job, accepted=True, measurement__isnull=False)
    return list(found.select_related("trial").order_by("trial__index"))


def _fields(job: Job) -> dict[str, str]:
    """Of its first trial: inside a job the integrity panel sees to it that all are alike."""
    first = Attempt.objects.filter(trial__job=job, accepted=True, measurement__isnull=False).select_related("measurement")
    found = first.order_by("trial__index")[:1]
    inventory = job.inventory.parsed if job.inventory else None
    return lasting_fields([a.measurement.parsed for a in found if a.measurement], inventory, job.draft_hashes)


def lacking_blocks(job: Job) -> tuple[list[Job], list[int]]:
    """The jobs of an answer, and the numbers of its blocks in which a trial is missing that should have run."""
    family = family_of(job)
    whole: set[int] = set()
    planned: set[int] = set()
    for each in family:
        if each.plan is None:
            continue
        trials = JobPlan.model_validate(each.plan).trials
        good = set(Attempt.objects.filter(trial__job=each, accepted=True).values_list("trial__plan_id", flat=True))
        planned |= {t.block for t in trials}
        last = last_blocks(each.experiment.parsed_spec, each.decided)
        left = {t.block for t in trials if t.id not in good and t.block <= last.get(t.arm, t.block)}
        whole |= {t.block for t in trials} - left
    return family, sorted(planned - whole)


def is_joined(parts: Collection[JoinedPart], job: Job) -> bool:
    """Whether a job's blocks are in the comparison of these parts."""
    return any(p.job == str(job.pk) and not p.differs for p in parts)
