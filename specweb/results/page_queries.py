"""What the pages read: each function one or a few statements, however many trials there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Avg, Count, F, OuterRef, Prefetch, Subquery, Sum
from speccore.inventory import HostInventory as Inventory
from speccore.measurement import AttemptMeasurement, JobAnalysis
from speccore.records import LAUNCH, Launch

from specweb.accounts.roles import roles_held
from specweb.experiments.models import Experiment, HostModel, Job, Point, Viewer
from specweb.experiments.text import storable

from . import memory_queries, narrowed, trial_evidence
from .models import Analysis, Attempt, EvidenceFile, Probe, Trial


def experiment_with_its_team(user: Viewer, experiment_id: UUID) -> Experiment | None:
    """An experiment alone, if a person may read it (1 statement)."""
    return Experiment.objects.visible_to(user).select_related("team", "created_by").filter(pk=experiment_id).first()


def experiment_shown(user: Viewer, experiment_id: UUID) -> Experiment | None:
    """An experiment with its jobs and points, if a person may read it (3 statements)."""
    alias = HostModel.objects.filter(host=OuterRef("host"), model=OuterRef("target")).order_by("pk").values("alias")[:1]
    jobs = (
        Job.objects.read_by(user)
        .annotate(alias_told=Subquery(alias))
        .select_related("host", "wanted_host", "runtime", "target", "inventory")
        .defer("plan", "inventory__content")
    )
    points = Point.objects.select_related("workload").defer("workload__content")
    return (
        Experiment.objects.visible_to(user)
        .select_related("team", "imported")
        .defer("imported__told", "imported__facts", "imported__lacking")
        .prefetch_related(Prefetch("jobs", jobs), Prefetch("points", points))
        .filter(pk=experiment_id)
        .first()
    )


def job_shown(user: Viewer, job_id: UUID) -> Job | None:
    return (
        Job.objects.visible_to(user)
        .select_related("experiment", "experiment__team", "host", "wanted_host")
        .defer("plan", "commands")
        .filter(pk=job_id)
        .first()
    )


def point_titles(experiment: Experiment) -> dict[str, str]:
    """Point key → title of its workload."""
    return {p.key: p.workload.title for p in experiment.points.all()}


def titles_of_points(experiment_id: UUID) -> dict[str, str]:
    """Point key → title of its workload, without the rest of the experiment (1 statement)."""
    return dict(Point.objects.filter(experiment=experiment_id).values_list("key", "workload__title"))


def has_analysis(job: Job) -> bool:
    return Analysis.objects.filter(job=job).exists()


def newest_analysis(job: Job, of: tuple[str, str] | None = None) -> JobAnalysis | None:
    """What stands of a job: where its blocks were added to an answer, the answer; ``of`` one arm and point alone (1 statement)."""
    if job.extends_id is None:
        return _read(Analysis.objects.filter(job=job).order_by("-id").first(), of)
    rows = Analysis.objects.filter(job__in=[job.pk, job.extends_id]).order_by("job_id", "-id").distinct("job_id")
    newest = {a.job_id: _read(a, of) for a in rows}
    whole = newest.get(job.extends_id)
    return whole if whole and any(p.job == str(job.pk) and not p.differs for p in whole.parts) else newest.get(job.pk)


def analysis_numbered(job: Job, number: int, of: tuple[str, str] | None = None) -> JobAnalysis | None:
    """One of all that a job ever had; ``of`` one arm and point alone (1 statement)."""
    return _read(Analysis.objects.filter(job=job, pk=number).first(), of)


def _read(found: Analysis | None, of: tuple[str, str] | None) -> JobAnalysis | None:
    if found is None:
        return None
    return narrowed.analysis_of(found.numbers, *of) if of else found.parsed


def alias_of_target(job: Job) -> str:
    """The name that the job's host has for the target (1 statement, none where it was read with the experiment)."""
    if job.host_id is None or job.target_id is None:
        return ""
    if "alias_told" in job.__dict__:
        return job.__dict__["alias_told"] or ""
    return HostModel.objects.filter(host_id=job.host_id, model_id=job.target_id).values_list("alias", flat=True).first() or ""


def frozen_inventory(job: Job) -> Inventory | None:
    """What the host was when the job was given to it."""
    return job.inventory.parsed if job.inventory else None


def trials_shown(job: Job) -> list[Trial]:
    """All trials of a job in order, with their attempts and what :func:`climates` and ``memory_of_trials`` need of these (2 statements)."""
    attempts = memory_queries.with_facts(Attempt.objects.select_related("lease").order_by("received_at").defer("parse_error"))
    trials = Trial.objects.filter(job=job).select_related("arm").defer("points")
    return list(trials.prefetch_related(Prefetch("attempts", attempts)))


@dataclass(frozen=True)
class TrialSpeed:
    """How fast an accepted trial decoded at one point: the mean over its probes."""

    number: int  # the trial's, from 1
    arm: str
    mode: str
    point: str  # key
    tokens_per_s: float


def speeds_so_far(job: Job) -> list[TrialSpeed]:
    """A job's accepted and parsed trials in order, a row for each of their points (1 statement)."""
    rows = (
        Probe.objects.filter(attempt__trial__job=job, attempt__accepted=True, attempt__measurement=F("measurement"), warmup=False, ok=True)
        .exclude(decode_tokens_per_s=None)
        .order_by("attempt__trial__index", "point__position")
        .values_list("attempt__trial__index", "attempt__trial__arm__name", "attempt__trial__arm__mode", "point__key")
        .annotate(speed=Avg("decode_tokens_per_s"))
    )
    return [TrialSpeed(index + 1, arm, mode, point, speed) for index, arm, mode, point, speed in rows]


@dataclass(frozen=True)
class Climate:
    """What the devices did while an attempt was probed, where it was sampled."""

    clock_mhz: tuple[float, float] | None  # lowest, highest
    temperature_c: float | None  # highest


def climates(trials: Sequence[Any]) -> dict[UUID, Climate]:
    """Attempt → clock and temperature, of the attempts that have either, of trials as :func:`trials_shown` reads them."""
    found = {}
    for attempt in (a for t in trials for a in t.attempts.all() if a.facts_told):
        clock, temperature = (attempt.facts_told.get(name) for name in ("clock_mhz", "temperature_c"))
        if clock or temperature is not None:
            found[attempt.pk] = Climate(tuple(clock) if clock else None, temperature)
    return found


@dataclass(frozen=True)
class EvidenceTotal:
    name: str
    kind: str
    private: bool
    n: int
    bytes: int


def evidence_totals(job: Job) -> list[EvidenceTotal]:
    """For each file name: how many attempts left one, and their size (1 statement)."""
    rows = (
        EvidenceFile.objects.filter(attempt__trial__job=job)
        .order_by("name")
        .values_list("name", "kind", "private")
        .annotate(n=Count("id"), bytes=Sum("blob__bytes"))
    )
    return [EvidenceTotal(*row) for row in rows]


def evidence_listed(job: Job, name: str, start: int, n: int) -> list[EvidenceFile]:
    """Evidence files of a job in the order of its trials, of one name if given (1 statement)."""
    files = EvidenceFile.objects.filter(attempt__trial__job=job).select_related("blob", "attempt", "attempt__trial", "attempt__trial__arm")
    if name:
        files = files.filter(name=storable(name))
    return list(files.order_by("attempt__trial__index", "attempt__n", "name")[start : start + n])


def attempt_shown(user: Viewer, attempt_id: UUID, *, whole: bool = False) -> Attempt | None:
    """An attempt with its trial, job, experiment and current measurement (1 statement); ``whole``: with spec and commands too."""
    attempts = (
        Attempt.objects.visible_to(user)
        .select_related("trial", "trial__arm", "trial__job", "trial__job__experiment", "trial__job__host", "lease", "measurement")
        .defer("trial__job__plan")
    )
    if not whole:
        attempts = attempts.defer("trial__job__plan", "trial__job__commands", "trial__job__experiment__spec")
    return attempts.filter(pk=attempt_id).first()


@dataclass(frozen=True)
class Neighbours:
    n_trials: int
    before: UUID | None  # the attempt that stands for the trial before
    after: UUID | None


def neighbours(trial: Trial) -> Neighbours:
    """What runs before and after a trial in its job, where it left an attempt (2 statements)."""
    found = Attempt.objects.filter(trial__job=trial.job_id, trial__index__in=(trial.index - 1, trial.index + 1)).order_by(
        "accepted", "received_at"
    )
    ids = dict(found.values_list("trial__index", "id"))  # of several the accepted one, else the newest, is the last
    return Neighbours(Trial.objects.filter(job=trial.job_id).count(), ids.get(trial.index - 1), ids.get(trial.index + 1))


def attempts_at(trial: Trial) -> list[Attempt]:
    """All attempts at a trial in the order in which they came, with their leases (1 statement)."""
    return list(Attempt.objects.filter(trial=trial).select_related("lease").order_by("received_at"))


def evidence_of(attempt: Attempt) -> list[EvidenceFile]:
    return list(EvidenceFile.objects.filter(attempt=attempt).select_related("blob"))


def evidence_file(attempt: Attempt, name: str) -> EvidenceFile | None:
    return EvidenceFile.objects.filter(attempt=attempt, name=storable(name)).select_related("blob").first()


def measurements_of(
    job: Job, arms: Sequence[str], analysis: JobAnalysis | None = None, point: str = ""
) -> list[tuple[Attempt, AttemptMeasurement]]:
    """The accepted, parsed attempts of some arms in the order of trials; with ``analysis`` those of all jobs in it; with ``point``
    no probes but the timed ones there (1 statement)."""
    parts = {p.job: set(p.blocks) for p in analysis.parts if not p.differs} if analysis else {}
    attempts = (
        Attempt.objects.filter(trial__job__in=[job.pk, *parts], trial__arm__name__in=arms, accepted=True, measurement__isnull=False)
        .select_related("trial", "measurement")
        .order_by("trial__block", "trial__index")
    )
    counted = [a for a in attempts if not parts or a.trial.block in parts.get(str(a.trial.job_id), ())]
    read = [(a, a.measurement) for a in counted if a.measurement is not None]
    return [(a, narrowed.measurement_at(m.numbers, point) if point else m.parsed) for a, m in read]


def engine_environment(job: Job) -> dict[str, str]:
    """What was set for the engine in the newest accepted attempt of a job, equal in all arms (1 statement, 1 small file)."""
    files = EvidenceFile.objects.filter(attempt__trial__job=job, attempt__accepted=True, name=LAUNCH).select_related("blob")
    launch = trial_evidence.document(list(files.order_by("-attempt__received_at")[:1]), LAUNCH, Launch)
    return launch.env if launch else {}


def is_member(user: Viewer, experiment: Experiment) -> bool:
    """Whether a person belongs to the experiment's team, and so may read prompts and answers."""
    return experiment.team_id in roles_held(user)


def reads_texts(user: Viewer, experiment: Experiment) -> bool:
    """Whether a person may read an experiment's prompts and answers: members of its team, but of a private workload only its owner
    and who asked with it (1 statement, none where the points were read with the experiment)."""
    if not is_member(user, experiment):
        return False
    if experiment.created_by_id == user.pk:
        return True
    if "points" in getattr(experiment, "_prefetched_objects_cache", {}):
        return not any(p.workload.private and p.workload.owner_id != user.pk for p in experiment.points.all())
    return not Point.objects.filter(experiment=experiment, workload__private=True).exclude(workload__owner_id=user.pk).exists()
