"""Taking an experiment: what it names is resolved and checked before anything is stored."""

from __future__ import annotations

from uuid import UUID

from django.db import IntegrityError, transaction
from speccore.errors import SpecError
from speccore.spec import ExperimentSpec
from speccore.workload import Workload as WorkloadContent

from specweb import queue
from specweb.accounts import audit
from specweb.accounts.models import Team, User
from specweb.experiments.models import Arm, Experiment, Job, Origin, Point, Visibility, Workload
from specweb.experiments.text import storable

from .checking import Resolved, error_of, resolve


def submit(
    spec: ExperimentSpec,
    team: Team,
    user: User | None,
    visibility: Visibility = Visibility.TEAM,
    *,
    submission_key: UUID | None = None,
) -> Experiment:
    """As :func:`submit_once`, for who need not know which call it was that stored it."""
    return submit_once(spec, team, user, visibility, submission_key=submission_key)[0]


def submit_once(
    spec: ExperimentSpec,
    team: Team,
    user: User | None,
    visibility: Visibility = Visibility.TEAM,
    *,
    submission_key: UUID | None = None,
) -> tuple[Experiment, bool]:
    """Stores an experiment with its jobs and wakes the dispatcher; the second value: whether this call stored it.

    A team's second call with the same ``submission_key`` stores nothing and returns the experiment of the first. Raises
    :class:`SpecError` (or a child) that tells all that :func:`checking.resolve` finds at fault.
    """
    if submission_key and (first := _submitted(team, submission_key)):
        return first, False
    found = resolve(spec, team, user)
    if found.problems:
        raise error_of(found.problems)
    try:
        with transaction.atomic():
            return _store(spec, team, user, visibility, submission_key, found), True
    except IntegrityError:
        # The same form was sent twice at once, and the other was first.
        if submission_key and (first := _submitted(team, submission_key)):
            return first, False
        raise


def _submitted(team: Team, key: UUID) -> Experiment | None:
    return Experiment.objects.filter(team=team, submission_key=key).first()


def _store(
    spec: ExperimentSpec, team: Team, user: User | None, visibility: Visibility, submission_key: UUID | None, found: Resolved
) -> Experiment:
    experiment = store_experiment(spec, team, user, visibility, found.workloads, submission_key=submission_key)
    for host in found.jobs:
        Job.objects.create(experiment=experiment, wanted_host=host, reason="waits to be dispatched")
    transaction.on_commit(lambda: queue.send("dispatch"))
    return experiment


def store_experiment(
    spec: ExperimentSpec,
    team: Team,
    user: User | None,
    visibility: Visibility,
    workloads: dict[str, Workload],
    *,
    submission_key: UUID | None,
    origin: Origin = Origin.SERVICE,
    pk: UUID | None = None,
) -> Experiment:
    """An experiment with its arms and points, still without a job. ``workloads`` are keyed as the points name them.

    ``pk`` is that of one which has its id from another server.
    """
    experiment = Experiment.objects.create(
        **({"pk": pk} if pk else {}),
        team=team,
        created_by=user,
        visibility=visibility,
        name=storable(spec.name),
        question=storable(spec.question),
        spec=storable(spec.model_dump(mode="json")),
        spec_hash=spec.spec_hash(),
        submission_key=submission_key,
        origin=origin,
    )
    Arm.objects.bulk_create(_arms(experiment, spec))
    Point.objects.bulk_create(_points(experiment, spec, workloads))
    verb = {Origin.SELF_RUN: "upload", Origin.IMPORTED: "import"}.get(origin, "submit")
    told = {"team": team, "by": user, "after": f"visible: {experiment.visibility}"}
    audit.record(f"experiment.{verb}", experiment.pk, experiment.name_to_maintainers, **told)
    return experiment


def seed_workload(content: WorkloadContent, team: Team | None = None, owner: User | None = None) -> Workload:
    """Stores a workload once: built in, the team's, or privately its owner's.

    A changed content under a known version is refused: published numbers name versions.
    """
    stored = {"title": content.title, "content_hash": content.content_hash(), "content": content.model_dump(mode="json")}
    row, created = Workload.objects.get_or_create(
        team=team,
        name=content.name,
        version=content.version,
        defaults={**stored, "owner": owner, "private": owner is not None},
    )
    if not created and row.content_hash != content.content_hash():
        raise SpecError(f"workload {content.ref} exists with other content", remedy="Raise its version.", field="version")
    return row


def _arms(experiment: Experiment, spec: ExperimentSpec) -> list[Arm]:
    return [
        Arm(
            experiment=experiment,
            position=i,
            name=a.name,
            mode=a.mode,
            draft_limit=a.draft_limit,
            is_baseline=a.is_baseline,
            settings=a.model_dump(mode="json", exclude_none=True),
        )
        for i, a in enumerate(spec.arms)
    ]


def _points(experiment: Experiment, spec: ExperimentSpec, workloads: dict[str, Workload]) -> list[Point]:
    return [
        Point(
            experiment=experiment,
            position=i,
            key=p.key,
            workload=workloads[p.workload],
            concurrency=p.concurrency,
            occupied_context=p.occupied_context,
            temperature=p.sampling.temperature,
            max_tokens=p.max_tokens,
            probes=p.probes,
            settings=p.model_dump(mode="json"),
        )
        for i, p in enumerate(spec.points)
    ]
