"""Two agents race for one job, 1,000 times on a real PostgreSQL: each time one lease counts, and one attempt."""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from speccore.jobstate import JobState
from speccore.protocol import AttemptReport, JobOffer, PollRequest

from specweb.experiments.models import Host, Job, Lease
from specweb.experiments.services.hosts import create_host, drain_host, store_inventory, undrain_host
from specweb.experiments.services.jobs import lease_of, move_job
from specweb.experiments.services.polling import Pace, poll
from specweb.experiments.services.submission import submit
from specweb.results.models import Attempt, Trial
from specweb.results.services.blocks import take_stock
from specweb.results.services.reports import report_attempt
from tests.worlds import dispatch, inventory, make_world, spec

ROUNDS = 1000
PACE = Pace(idle_s=1, running_s=1)


def do_not_wait_for_the_disk() -> None:
    """Locks and visibility stay as they are; the 15,000 commits of this test need not survive a power cut."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = off")


@contextmanager
def racers() -> Iterator[Callable[..., list[Any]]]:
    """Runs functions at the same moment, each in a thread with a database connection of its own."""
    with ThreadPoolExecutor(3, initializer=do_not_wait_for_the_disk) as pool:

        def race(*runs: Callable[[], Any]) -> list[Any]:
            gate = threading.Barrier(len(runs))

            def run(do: Callable[[], Any]) -> Any:
                gate.wait(10)
                return do()

            return [future.result(30) for future in [pool.submit(run, do) for do in runs]]

        yield race
        gate = threading.Barrier(3)
        for future in [pool.submit(lambda: (gate.wait(10), connection.close())) for _ in range(3)]:
            future.result(30)


def asks(host: Host, after_s: float = 0.0) -> JobOffer | None:
    time.sleep(after_s)
    here = Host.objects.select_related("team", "inventory").get(pk=host.pk)  # as each call reads it
    assert here.inventory is not None
    reply = poll(here, PollRequest(inventory_hash=here.inventory.hash), datetime.now(UTC), pace=PACE, take_stock=take_stock)
    return reply.job


def reports(host: Host, offer: JobOffer, trial: str) -> bool:
    now = datetime.now(UTC)
    report = AttemptReport(
        attempt_id=str(uuid.uuid4()),
        job_id=offer.job_id,
        lease=offer.lease,
        trial=trial,
        n=1,
        outcome="ok",
        boot_id="boot-1",
        started_at=now,
        ended_at=now,
        evidence=[],
    )
    return report_attempt(host, lease_of(host, offer.lease_token), report, now).counted


@pytest.mark.django_db(transaction=True)
def test_one_lease_counts_each_time(servers: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("specweb.queue.send", lambda *args: True)  # nobody listens
    caplog.set_level(logging.WARNING, "specweb")
    do_not_wait_for_the_disk()
    world = make_world()
    one, (other, _) = world.host, create_host(world.team, "box-b")
    for host in (one, other):
        store_inventory(host, inventory(hostname=host.name), datetime.now(UTC))
        Host.objects.filter(pk=host.pk).update(last_seen_at=datetime.now(UTC))
    submit(spec(), world.team, None)
    assert dispatch() == 1
    template = Job.objects.get()
    trial = Trial.objects.filter(job=template).first()
    assert trial is not None
    move_job(template.pk, JobState.CANCELLED, now=datetime.now(UTC), by="test")
    fields = {f: getattr(template, f) for f in ("runtime", "target", "draft_hashes", "device_uuids", "commands", "plan", "inventory")}
    seen: Counter[str] = Counter()
    luck = random.Random(4)  # so that now the one is first, now the other
    with racers() as race:
        for n in range(ROUNDS):
            job = Job.objects.create(experiment=template.experiment, host=one, state=JobState.QUEUED.value, **fields)
            Trial.objects.create(job=job, plan_id=trial.plan_id, index=0, block=1, position=1, arm_id=trial.arm_id, points=[])
            if n % 4 == 0:
                seen["two hosts"] += 1
                offers = two_hosts(race, one, other, after_s=luck.uniform(0, 0.015))
            else:
                seen["one token twice"] += 1
                offers = [(one, o) for o in race(lambda: asks(one), lambda: asks(one, luck.uniform(0, 0.01))) if o]
            assert offers, f"round {n}: nobody got the job"
            assert {o.job_id for _, o in offers} == {str(job.pk)}
            job.refresh_from_db()
            (counting,) = Lease.objects.filter(job=job, released_at=None)
            assert counting.n == max(o.lease for _, o in offers) == Lease.objects.filter(job=job).count()
            assert (job.state, job.host_id) == ("claimed", counting.host_id)
            holders = offers if len(offers) > 1 else offers * 2  # the same agent tells it twice
            told = race(*(lambda h=h, o=o: reports(h, o, trial.plan_id) for h, o in holders))
            assert sorted(told) == [False, True], f"round {n}"
            assert Attempt.objects.filter(trial__job=job, accepted=True, lease=counting).count() == 1
            seen["more than one lease"] += len(offers) > 1
            seen["went to the other host"] += job.host_id == other.pk
            seen["stayed with the one host"] += n % 4 == 0 and job.host_id == one.pk
            move_job(job.pk, JobState.CANCELLED, now=datetime.now(UTC), by="test")
            Job.objects.filter(pk=job.pk).update(host=None)  # jobs of one experiment go to hosts of their own
    connection.close()
    assert seen["two hosts"] + seen["one token twice"] == ROUNDS
    assert all(seen[k] for k in ("more than one lease", "went to the other host", "stayed with the one host")), "nothing raced"
    print(dict(seen))


def two_hosts(race: Callable[..., list[Any]], one: Host, other: Host, after_s: float) -> list[tuple[Host, JobOffer]]:
    """Both ask while the job is taken from the one and given to the other, if no lease came first."""

    def moved() -> None:
        time.sleep(after_s)
        drain_host(one, now=datetime.now(UTC), by="test")
        dispatch()

    first, second, _ = race(lambda: asks(one), lambda: asks(other), moved)
    undrain_host(one, now=datetime.now(UTC), by="test")
    if first is None and second is None:
        second = asks(other)  # it was moved after the other had asked
    return [(h, o) for h, o in ((one, first), (other, second)) if o]
