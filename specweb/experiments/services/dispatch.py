"""Finds a host for each waiting job, and freezes there what it will run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from speccore.jobstate import JobState
from speccore.plan import plan_job
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Experiment, Job, Model, Runtime

from .checking import workloads_of
from .jobs import move_job
from .placement import Fit, NoFit, Offer, able, fit, has_labels, hosts_of, labels_in_words

BY = "dispatcher"


def dispatch_waiting(now: datetime, *, online_within: timedelta, on_queued: Callable[[Job, JobPlan], None]) -> list[Job]:
    """Queues every waiting job that a host can take now; the others keep the reason in words.

    ``on_queued(job, plan)`` runs in the transaction that queues the job.
    """
    queued = []
    waiting = (
        Job.objects.filter(state=JobState.WAITING.value, pause_requested_at=None).select_related("experiment", "wanted_host").order_by("id")
    )
    for job in waiting:
        spec = job.experiment.parsed_spec
        offers = _offers(job, spec, now - online_within)
        best = next(iter(able(offers)), None)
        if best is None:
            _explain(job, spec, offers)
        elif _queue(job, spec, best, now, on_queued):
            queued.append(job)
    return queued


def plan_of(experiment: Experiment, spec: ExperimentSpec) -> JobPlan:
    """The plan with the workload versions that the points' names were resolved to when the experiment was submitted.

    That of the sampling test, which gives no numbers to a point, is resolved now; the plan names its content.
    """
    points = experiment.points.select_related("workload")
    contents = {p.settings["workload"]: p.workload.parsed for p in points}
    if spec.sampling_test and spec.sampling_test.workload not in contents:
        contents |= {name: w.parsed for name, w in workloads_of(spec, experiment.team, archived=True)[0].items() if name not in contents}
    return plan_job(spec, contents)


def _offers(job: Job, spec: ExperimentSpec, seen_since: datetime) -> list[Offer]:
    hosts = hosts_of(job.experiment.team_id)
    if job.wanted_host_id:
        hosts = hosts.filter(pk=job.wanted_host_id)
    else:
        # A job that was retried no longer takes a host's place: its retry may run there again.
        siblings = Job.objects.filter(experiment_id=job.experiment_id, retry=None).exclude(pk=job.pk).exclude(host=None)
        hosts = hosts.exclude(pk__in=siblings.values("host_id"))
    offers = []
    for host in hosts:
        if not job.wanted_host_id and not has_labels(host, spec.placement.labels):
            continue
        online = host.last_seen_at is not None and host.last_seen_at >= seen_since and not host.takes_no_jobs
        answer = fit(spec, host.inventory.parsed) if host.inventory else NoFit("has not said yet what it offers")
        offers.append(Offer(host, host.n_jobs, online, answer))
    return offers


def _explain(job: Job, spec: ExperimentSpec, offers: list[Offer]) -> None:
    if not offers:
        reason = f"no free host {labels_in_words(spec.placement.labels)}".rstrip() + " in this team"
    else:
        reason = "; ".join(_why_not(o) for o in offers)
    if reason != job.reason:
        # Words only; the state stays, so this is no move.
        Job.objects.filter(pk=job.pk, state=JobState.WAITING.value).update(reason=reason)


def _why_not(offer: Offer) -> str:
    if isinstance(offer.answer, NoFit):
        return f"{offer.host.name} {offer.answer.reason}"
    if offer.host.takes_no_jobs:
        return f"{offer.host.name} could run it and takes no new jobs (draining)"
    seen = f"last seen {offer.host.last_seen_at:%Y-%m-%d %H:%M:%S} UTC" if offer.host.last_seen_at else "never seen"
    return f"{offer.host.name} could run it and is offline ({seen})"


def _queue(job: Job, spec: ExperimentSpec, offer: Offer, now: datetime, on_queued: Callable[[Job, JobPlan], None]) -> bool:
    assert isinstance(offer.answer, Fit)
    found, host = offer.answer, offer.host
    plan = plan_of(job.experiment, spec)
    with transaction.atomic():
        moved = move_job(
            job.pk,
            JobState.QUEUED,
            now=now,
            by=BY,
            reason=f"queued on {host.name}",
            host=host,
            inventory=host.inventory,
            runtime=Runtime.objects.get(manifest_hash=found.runtime_hash),
            target=Model.objects.get(manifest_hash=found.target_hash),
            draft_hashes=found.draft_hashes,
            device_uuids=found.device_uuids,
            commands=found.commands,
            plan=plan.model_dump(mode="json"),
        )
        if moved:
            on_queued(job, plan)
    return moved
