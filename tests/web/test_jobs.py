"""Jobs: every move and refusal, one winner among many claims, what silence does."""

from __future__ import annotations

import threading
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection
from speccore.jobstate import FINAL, HELD, JobState, may_move

from specweb.experiments.models import Experiment, Host, Job, JobMove, Lease
from specweb.experiments.services.jobs import claim_next_job, is_newest, lease_of, move_job, request_cancel
from specweb.experiments.services.silence import Limits, expire_silent_jobs
from specweb.experiments.services.submission import submit
from tests.worlds import NOW, World, dispatch, make_world, spec

LIMITS = Limits(stalled_after=timedelta(seconds=30), host_lost_after=timedelta(hours=24), waiting_for=timedelta(days=7))


def a_job(world: World, state: JobState, **fields: Any) -> Job:
    experiment = Experiment.objects.create(team=world.team, name="x", spec=spec().model_dump(mode="json"), spec_hash="0")
    return Job.objects.create(experiment=experiment, state=state.value, **fields)


@pytest.mark.parametrize(("src", "dst"), list(product(JobState, JobState)))
def test_every_move(world: World, src: JobState, dst: JobState) -> None:
    job = a_job(world, src)
    assert move_job(job.pk, dst, now=NOW, by="test", reason="because") is may_move(src, dst)
    job.refresh_from_db()
    moves = list(JobMove.objects.values_list("src", "dst", "at", "by", "reason"))
    if may_move(src, dst):
        assert (job.state, job.reason) == (dst.value, "because")
        assert moves == [(src.value, dst.value, NOW, "test", "because")]
    else:
        assert (job.state, moves) == (src.value, [])


def test_only_the_writer_assigns_a_state() -> None:
    """No line but move_job's writes Job.state; a scan, since nothing else could tell."""
    import re
    from pathlib import Path

    writes = re.compile(r"\bjob\.state\s*=[^=]|Job\.objects[^\n]*\.update\([^\n]*\bstate=")
    found = [
        f"{path}:{n}"
        for root in ("specweb", "workers")
        for path in Path(root).rglob("*.py")
        for n, line in enumerate(path.read_text().splitlines(), 1)
        if writes.search(line)
    ]
    assert found == []


def test_a_move_from_other_sources_than_asked(world: World) -> None:
    job = a_job(world, JobState.CLAIMED)
    assert not move_job(job.pk, JobState.RUNNING, now=NOW, by="test", sources=(JobState.STALLED,))
    assert move_job(job.pk, JobState.RUNNING, now=NOW, by="test", sources=(JobState.STALLED, JobState.CLAIMED))


@pytest.mark.parametrize("dst", sorted(set(JobState) - HELD))
def test_leaving_the_hands_of_an_agent_releases_its_lease(world: World, dst: JobState) -> None:
    job = a_job(world, JobState.QUEUED, host=world.host)
    claimed = claim_next_job(world.host, NOW)
    assert claimed is not None
    left = move_job(job.pk, dst, now=NOW, by="test")
    assert (Lease.objects.get().released_at is not None) is left


@pytest.mark.django_db(transaction=True)
def test_claims_at_the_same_moment_leave_one_lease_that_counts(servers: None) -> None:
    world = make_world()
    job = a_job(world, JobState.QUEUED, host=world.host)
    gate, taken, broken = threading.Barrier(6), [], []

    def claim() -> None:
        try:
            gate.wait()
            taken.append(claim_next_job(world.host, NOW))
        except Exception as error:
            broken.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=claim) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broken == []
    assert JobMove.objects.filter(job=job, dst="claimed").count() == 1
    leases = [claim[1] for claim in taken if claim]
    assert sorted(lease.n for lease in leases) == list(range(1, len(leases) + 1))
    assert [is_newest(lease) for lease in sorted(leases, key=lambda found: found.n)][-1]
    assert Lease.objects.filter(released_at=None).count() == 1


def test_the_oldest_of_two_queued_jobs_comes_first(world: World) -> None:
    later = a_job(world, JobState.QUEUED, host=world.host, queued_at=NOW)
    first = a_job(world, JobState.QUEUED, host=world.host, queued_at=NOW - timedelta(minutes=1))
    claimed = claim_next_job(world.host, NOW)
    assert claimed is not None
    assert claimed[0] == first
    assert Job.objects.get(pk=later.pk).state == "queued"


def test_a_lease_token_opens_its_own_job_only(world: World) -> None:
    from speccore.errors import NotAllowed

    a_job(world, JobState.QUEUED, host=world.host)
    claimed = claim_next_job(world.host, NOW)
    assert claimed is not None
    job, lease, secret = claimed
    assert lease_of(world.host, secret, job.pk) == lease
    assert secret not in str(Lease.objects.values().get())
    for host, token, of in ((world.other_host, secret, job.pk), (world.host, "", job.pk), (world.host, secret, lease.pk)):
        with pytest.raises(NotAllowed):
            lease_of(host, token, of)  # type: ignore[arg-type]


class TestCancel:
    @pytest.mark.parametrize("state", list(JobState))
    def test_at_once_or_at_the_next_poll(self, world: World, state: JobState) -> None:
        job = a_job(world, state)
        assert request_cancel(job, now=NOW, by="owner") is (state not in FINAL and state is not JobState.COMPLETED)
        job.refresh_from_db()
        if state in (JobState.WAITING, JobState.QUEUED, JobState.STALLED):
            assert (job.state, job.reason) == ("cancelled", "cancelled by owner")
        else:
            assert (job.state, job.cancel_requested_at) == (state.value, NOW if state in HELD else None)


class TestSilence:
    def test_stalled_after_30_s_and_back(self, world: World) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(), world.team, None)
        dispatch()
        offer = world.agent.offer()
        running = {"job_id": offer.job_id, "lease": 1}
        world.agent.poll(running=running)
        seen = Host.objects.get(pk=world.host.pk).last_seen_at
        assert seen is not None
        expire_silent_jobs(seen + timedelta(seconds=29), LIMITS)
        assert Job.objects.get().state == "running"
        expire_silent_jobs(seen + timedelta(seconds=31), LIMITS)
        assert Job.objects.get().state == "stalled"
        assert "silent" in Job.objects.get().reason
        assert world.agent.poll(running=running).json()["cancel"] == []
        assert Job.objects.get().state == "running"

    def test_lost_after_24_hours(self, world: World) -> None:
        Host.objects.filter(pk=world.host.pk).update(last_seen_at=NOW)
        job = a_job(world, JobState.STALLED, host=world.host)
        assert expire_silent_jobs(NOW + timedelta(hours=23), LIMITS) == []
        assert expire_silent_jobs(NOW + timedelta(hours=25), LIMITS) == [job]
        job.refresh_from_db()
        assert (job.state, job.error["code"]) == ("failed", "host_lost")

    def test_a_queued_job_of_a_silent_host_may_go_elsewhere(self, world: World) -> None:
        Host.objects.filter(pk=world.host.pk).update(last_seen_at=NOW)
        job = a_job(world, JobState.QUEUED, host=world.host)
        expire_silent_jobs(NOW + timedelta(seconds=31), LIMITS)
        job.refresh_from_db()
        assert (job.state, job.host) == ("waiting", None)

    def test_a_job_waits_for_7_days(self, world: World) -> None:
        job = a_job(world, JobState.WAITING, reason="box has no model 'x'")
        Job.objects.update(created_at=NOW)
        assert expire_silent_jobs(NOW + timedelta(days=6), LIMITS) == []
        assert expire_silent_jobs(NOW + timedelta(days=8), LIMITS) == [job]
        job.refresh_from_db()
        assert job.error["code"] == "no_host_can_run"
        assert "box has no model 'x'" in job.reason
