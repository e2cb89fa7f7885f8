"""The plan of a job: its experiment's whole, or the blocks that it adds to what was planned before."""

from __future__ import annotations

from collections.abc import Sequence

from speccore.joining import spec_of_part
from speccore.plan import plan_again, plan_job, plan_more
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec
from speccore.workload import Workload

from specweb.experiments.models import Experiment, Job

from .checking import workloads_of


def plan_of(experiment: Experiment, spec: ExperimentSpec) -> JobPlan:
    """The plan with the workload versions that the points' names were resolved to when the experiment was submitted.

    That of the sampling test, which gives no numbers to a point, is resolved now; the plan names its content.
    """
    return plan_job(spec, contents_of(experiment, spec))


def contents_of(experiment: Experiment, spec: ExperimentSpec) -> dict[str, Workload]:
    points = experiment.points.select_related("workload")
    contents = {p.settings["workload"]: p.workload.parsed for p in points}
    if spec.sampling_test and spec.sampling_test.workload not in contents:
        contents |= {name: w.parsed for name, w in workloads_of(spec, experiment.team, archived=True)[0].items() if name not in contents}
    return contents


def family_of(job: Job) -> list[Job]:
    """The job that an answer began with and those that add blocks to it, in their order (1 statement)."""
    first = job.extends_id or job.pk
    jobs = Job.objects.select_related("experiment", "host", "inventory", "runtime", "target")
    return sorted(jobs.filter(pk=first) | jobs.filter(extends=first), key=lambda j: (j.extends_id is not None, j.pk))


def blocks_of(job: Job, spec: ExperimentSpec) -> list[int]:
    """The numbers of the blocks that a job runs."""
    return list(range(1, spec.blocks + 1)) if job.blocks is None else list(job.blocks)


def next_block(family: Sequence[Job], spec: ExperimentSpec) -> int:
    return 1 + max(block for job in family for block in blocks_of(job, spec))


def plan_of_added(experiment: Experiment, spec: ExperimentSpec, earlier: Sequence[Job], blocks: Sequence[int]) -> JobPlan:
    """The plan of ``blocks``, which go on from what the ``earlier`` jobs were to run, or are some of theirs once more.

    Raises :class:`SpecError` if they are too many for one job.
    """
    plans = [JobPlan.model_validate(job.plan) for job in earlier if job.plan]
    if set(blocks) <= {t.block for plan in plans for t in plan.trials}:
        return plan_again(plans, blocks)
    seen: set[int] = set()
    parts = []
    for job in earlier:
        if new := {block for block in blocks_of(job, spec) if block < min(blocks)} - seen:
            parts.append(len(new))
            seen |= new
    return plan_more(spec, contents_of(experiment, spec), parts, len(blocks))


def spec_of_job(job: Job) -> ExperimentSpec:
    """What the job's agent is asked."""
    spec = job.experiment.parsed_spec
    return spec if job.blocks is None else spec_of_part(spec, len(job.blocks))
