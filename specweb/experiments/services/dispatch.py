"""Finds a host for each waiting job, and freezes there what it will run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from django.db import transaction
from speccore.jobstate import JobState
from speccore.protocol import JobPlan
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Job, Model, Runtime

from .jobs import move_job
from .more import spec_to_place
from .placement import Fit, NoFit, Offer, able, fit, has_labels, hosts_of, labels_in_words
from .plans import family_of, plan_of, plan_of_added

BY = "dispatcher"


def dispatch_waiting(now: datetime, *, online_within: timedelta, on_queued: Callable[[Job, JobPlan], None]) -> list[Job]:
    """Queues every waiting job that a host can take now; the others keep the reason in words.

    ``on_queued(job, plan)`` runs in the transaction that queues the job.
    """
    queued = []
    waiting = (
        Job.objects.filter(state=JobState.WAITING.value, pause_requested_at=None)
        .select_related("experiment", "wanted_host", "extends__experiment", "extends__runtime", "extends__target")
        .order_by("id")
    )
    for job in waiting:
        spec = spec_to_place(job)
        offers = _offers(job, spec, now - online_within)
        best = next(iter(able(offers)), None)
        if best is None:
            _explain(job, spec, offers)
        elif _queue(job, spec, best, now, on_queued):
            queued.append(job)
    return queued


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


def _plan(job: Job) -> JobPlan:
    spec = job.experiment.parsed_spec
    if job.blocks is None:
        return plan_of(job.experiment, spec)
    return plan_of_added(job.experiment, spec, [j for j in family_of(job) if j.pk != job.pk and j.pk < job.pk], job.blocks)


def _queue(job: Job, spec: ExperimentSpec, offer: Offer, now: datetime, on_queued: Callable[[Job, JobPlan], None]) -> bool:
    assert isinstance(offer.answer, Fit)
    found, host = offer.answer, offer.host
    plan = _plan(job)
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
