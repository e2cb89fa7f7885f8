"""Numbers that last: read again they are the same, void attempts are not in them, and nobody waits while they are computed."""

from __future__ import annotations

import os
import threading
import time
import uuid
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone
from speccore.protocol import JobOffer

from specweb.experiments.models import Host, Job
from specweb.experiments.services.jobs import retry_job
from specweb.experiments.services.silence import Limits, expire_silent_jobs
from specweb.experiments.services.submission import submit
from specweb.results.models import Analysis, Attempt, Comparison, MeasurementSet, Probe
from specweb.results.queries import experiment_report, left_to_compare
from specweb.results.services import comparing
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from tests.evidence import SPEEDUP, files_of
from tests.worlds import World, dispatch, make_world, spec

LIMITS = Limits(stalled_after=timedelta(seconds=30), host_lost_after=timedelta(hours=24), waiting_for=timedelta(days=7))


def offered(world: World) -> JobOffer:
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(), world.team, world.owner)
    dispatch()
    return world.agent.offer()


def deliver(world: World, offer: JobOffer, trial: str, **changes: Any) -> None:
    attempt_id = str(uuid.uuid4())
    planned = next(t for t in offer.plan.trials if t.id == trial)
    now = timezone.now()
    times = {"started_at": now, "ended_at": now}
    reply = world.agent.deliver(offer, trial, files_of(offer, planned, attempt_id), attempt_id=attempt_id, **times | changes)
    assert reply.json()["stored"], reply.content
    parse_attempt(uuid.UUID(attempt_id))


def measured() -> tuple[World, JobOffer]:
    world = make_world()
    offer = offered(world)
    for trial in offer.plan.trials:
        deliver(world, offer, trial.id)
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": offer.lease, "outcome": "completed"}])
    return world, offer


@pytest.mark.django_db
def test_read_again_twice_the_numbers_are_equal_and_the_old_sets_stay() -> None:
    measured()
    job = Job.objects.get()
    compare_job(job.pk, timezone.now())

    def state() -> tuple[Any, Any, Any]:
        current = Attempt.objects.order_by("trial__index")
        sets = [a.measurement.numbers for a in current.select_related("measurement") if a.measurement]
        probes = Probe.objects.filter(measurement__in=current.values("measurement")).order_by("attempt__trial__index", "i")
        fields = [f.name for f in Probe._meta.fields if f.name not in ("id", "measurement")]
        comparisons = [(c.arm_id, c.point_id, c.numbers, c.speedup, c.verdict) for c in Comparison.objects.current()]
        return sets, list(probes.values_list(*fields)), comparisons

    first, kept = state(), list(MeasurementSet.objects.order_by("pk").values_list("pk", "numbers"))
    for again in (1, 2):
        call_command("reparse", str(job.experiment_id), stdout=StringIO())
        assert state() == first
        assert (MeasurementSet.objects.count(), Analysis.objects.count(), Comparison.objects.count()) == (
            6 + 6 * again,
            1 + again,
            1 + again,
        )
    assert list(MeasurementSet.objects.order_by("pk").values_list("pk", "numbers")[:6]) == kept
    old, newest = Analysis.objects.first(), Analysis.objects.last()
    assert old is not None
    assert newest is not None
    assert old.numbers == newest.numbers


@pytest.mark.django_db
def test_void_attempts_are_read_and_not_compared() -> None:
    world = make_world()
    offer = offered(world)
    of_block_1 = [t.id for t in offer.plan.trials if t.block == 1]
    deliver(world, offer, of_block_1[0])
    for run, trials in ((2, of_block_1), (1, [t.id for t in offer.plan.trials if t.block > 1])):
        for trial in trials:
            deliver(world, offer, trial, n=run, block_run=run)
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "completed"}])
    void = Attempt.objects.exclude(void_reason="").get()
    assert void.measurement is not None
    seen: list[Any] = []
    analyse = comparing.analyse_job

    def looked_at(*args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return analyse(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(comparing, "analyse_job", looked_at)
        assert compare_job(Job.objects.get().pk, timezone.now())
    ((_, _, measurements, failures, _),) = seen
    assert (len(measurements), failures) == (6, [])
    assert str(void.pk) not in {m.attempt_id for m in measurements}
    assert Comparison.objects.get().n_blocks == 3


@pytest.mark.django_db
def test_a_host_that_is_lost_keeps_its_finished_blocks() -> None:
    world = make_world()
    offer = offered(world)
    for trial in offer.plan.trials:
        if trial.block < 3:
            deliver(world, offer, trial.id)
    world.agent.poll(running={"job_id": offer.job_id, "lease": 1})
    seen = Host.objects.get(pk=world.host.pk).last_seen_at
    assert seen is not None
    told = []
    for after in (timedelta(seconds=29), timedelta(seconds=31), timedelta(hours=23), timedelta(hours=25)):
        expire_silent_jobs(seen + after, LIMITS)
        told.append(Job.objects.get().state)
    assert told == ["running", "stalled", "stalled", "failed"]
    job = Job.objects.get()
    assert job.error["code"] == "host_lost"
    assert left_to_compare() == [job.pk]
    assert compare_job(job.pk, timezone.now())
    assert Comparison.objects.get().n_blocks == 2


@pytest.mark.django_db
def test_what_changed_while_it_was_computed_is_in_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that the agent's last word overtook comes in the middle."""
    world = make_world()
    offer = offered(world)
    *others, last = offer.plan.trials
    for trial in others:
        deliver(world, offer, trial.id)
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "completed"}])
    analyse, n_calls = comparing.analyse_job, 0

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            deliver(world, offer, last.id)
        return analyse(*args, **kwargs)

    monkeypatch.setattr(comparing, "analyse_job", interrupted)
    assert compare_job(Job.objects.get().pk, timezone.now())
    assert (n_calls, Analysis.objects.count(), Comparison.objects.get().n_blocks) == (2, 1, 3)


@pytest.mark.django_db
def test_what_keeps_changing_is_left_to_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    measured()
    job = Job.objects.get()
    analyse = comparing.analyse_job

    def disturbed(*args: Any, **kwargs: Any) -> Any:
        first = Attempt.objects.order_by("pk").first()
        assert first is not None
        parse_attempt(first.pk, again=True)
        return analyse(*args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(comparing, "analyse_job", disturbed)
        assert not compare_job(job.pk, timezone.now())
    assert (Job.objects.get().state, left_to_compare()) == ("completed", [job.pk])
    assert compare_job(job.pk, timezone.now())


@pytest.mark.django_db(transaction=True)
def test_polls_and_reports_do_not_wait_for_a_comparison(servers: None, evidence_folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world, offer = measured()
    job = Job.objects.get()
    analyse, began, go_on = comparing.analyse_job, threading.Event(), threading.Event()

    def slow(*args: Any, **kwargs: Any) -> Any:
        began.set()
        assert go_on.wait(30)
        return analyse(*args, **kwargs)

    monkeypatch.setattr(comparing, "analyse_job", slow)
    results: list[bool] = []

    def compare() -> None:
        try:
            results.append(compare_job(job.pk, timezone.now()))
        finally:
            connection.close()

    thread = threading.Thread(target=compare)
    thread.start()
    try:
        assert began.wait(30)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = '2s'")  # who waits for a lock fails
        since = time.monotonic()
        finished = [{"job_id": offer.job_id, "lease": 1, "outcome": "completed"}]
        assert world.agent.poll(finished=finished).json()["acknowledged"] == [offer.job_id]
        assert world.agent.deliver(offer, offer.plan.trials[0].id, {"server.log": b"again"}).json()["stored"]
        assert time.monotonic() - since < 2
    finally:
        go_on.set()
        thread.join(30)
        with connection.cursor() as cursor:
            cursor.execute("SET lock_timeout = 0")
    for pk in Attempt.objects.filter(state="received").values_list("pk", flat=True):
        parse_attempt(pk)
    assert results in ([True], [False])  # the report in between may leave it to the next try
    assert results == [True] or compare_job(job.pk, timezone.now())
    assert Job.objects.get().state == "processed"
    assert Comparison.objects.get().speedup == pytest.approx(SPEEDUP, rel=1e-3)


@pytest.mark.django_db
def test_a_retry_that_was_measured_takes_the_place_of_what_failed() -> None:
    world = make_world()
    offer = offered(world)
    for trial in offer.plan.trials:
        if trial.block < 3:
            deliver(world, offer, trial.id)
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "failed"}])
    failed = Job.objects.get()
    assert compare_job(failed.pk, timezone.now())

    def told() -> tuple[int, list[int]]:
        report = experiment_report(failed.experiment, "")
        return report["n_trials"], [c["n_blocks"] for c in report["comparisons"]]

    assert told() == (6, [2])
    retry = retry_job(failed, now=timezone.now(), by="owner")
    dispatch()
    assert told() == (6, [2])
    again = world.agent.offer()
    for trial in again.plan.trials:
        deliver(world, again, trial.id)
    world.agent.poll(finished=[{"job_id": again.job_id, "lease": 1, "outcome": "completed"}])
    assert compare_job(retry.pk, timezone.now())
    assert told() == (6, [3])


@pytest.mark.django_db
def test_the_sweep_removes_uploads_that_were_forgotten(evidence_folder: Any) -> None:
    from workers import tasks

    path = evidence_folder / "incoming" / "a-host" / "x.partial"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x")
    tasks.sweep()
    assert path.exists()
    os.utime(path, (1, 1))
    tasks.sweep()
    assert not path.exists()
