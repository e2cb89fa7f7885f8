"""Each part killed in the middle of its work, on real parts: every job ends processed, each trial counted once, nothing is left."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard
from speccore.jobstate import JobState

from specweb.experiments.models import Job
from specweb.results.models import Analysis, Attempt, Blob, MeasurementSet, Probe
from tests.chaos import ledger
from tests.chaos.rig import Rig, fresh_home

#: What the design promises of an engine whose agent is gone.
GONE_WITHIN_S = 10
#: Long enough for the phases to be told apart, and with trials enough to hold one after the other.
SLOW = {"max_tokens": 160, "probes": 3}
LONG = {**SLOW, "blocks": 6}


@pytest.fixture(scope="module")
def rig(django_db_blocker: Any) -> Iterator[Rig]:
    with django_db_blocker.unblock(), fresh_home() as home:
        with Rig(home) as rig:
            yield rig
        assert [*rig.strays(), *rig.sockets_left()] == []


def ends_whole(rig: Rig, job: Job, within_s: float = 90) -> None:
    rig.until(lambda: rig.has_ended(job), within_s, "the job's end")
    job.refresh_from_db()
    assert (job.state, job.reason) == (JobState.PROCESSED.value, "")
    assert ledger.lost(job) == []
    assert ledger.doubled(job) == []
    assert ledger.unmeasured(job) == []
    assert ledger.damaged(job) == []
    assert rig.settled(lambda: ledger.leftovers(rig), GONE_WITHIN_S) == []


def n_attempts(job: Job) -> int:
    return Attempt.objects.filter(trial__job=job).count()


def kill_agent_and_see_the_engine_go(rig: Rig) -> None:
    rig.down.add("agent")
    rig.signal("agent")
    for what in ("engine", "keepers"):
        rig.thaw(what)
    rig.until(lambda: not rig.strays(), GONE_WITHIN_S, "no engine and no keeper without an agent")
    rig.down.discard("agent")


def test_the_agent_killed_in_each_phase_of_a_trial(rig: Rig) -> None:
    job = rig.submit(**LONG)
    for phase in ("starting", "warm-up", "probing", "stopping"):
        rig.catch(job, phase)
        kill_agent_and_see_the_engine_go(rig)
        assert rig.mend() == ["agent"]
        n = n_attempts(job)
        rig.until(lambda n=n: n_attempts(job) > n, 30, "an attempt after the restart")
    rig.freeze("web")
    rig.until(lambda: any((rig.home / "agent" / "spool" / "attempts").glob("*/report.json")), 30, "an attempt that waits for the server")
    kill_agent_and_see_the_engine_go(rig)
    rig.thaw("web")
    rig.mend()
    ends_whole(rig, job)


def test_the_agent_killed_before_it_hears_that_its_report_is_stored(rig: Rig) -> None:
    job = rig.submit()
    with rig.holding(Attempt, "web"):
        rig.freeze("agent")
    rig.until(lambda: n_attempts(job) == 1, 10, "the report stored")
    rig.signal("agent")
    rig.mend()
    ends_whole(rig, job)
    assert n_attempts(job) == 6


def test_an_agent_that_never_returns_leaves_no_engine_and_a_job_that_can_be_resumed(rig: Rig) -> None:
    job = rig.submit(**SLOW)
    rig.catch(job, "probing")
    began = time.monotonic()
    kill_agent_and_see_the_engine_go(rig)
    assert time.monotonic() - began < GONE_WITHIN_S
    rig.until(lambda: rig.state(job) is JobState.STALLED, 40, "the job stalled")
    rig.mend()
    ends_whole(rig, job)
    assert [m.dst for m in job.moves.all()][-4:] == ["stalled", "running", "completed", "processed"]


def test_the_engine_killed_in_each_phase_of_a_trial(rig: Rig) -> None:
    job = rig.submit(**LONG)
    for phase in ("starting", "warm-up", "probing", "stopping"):
        trial = rig.catch(job, phase)
        rig.signal("engine")
        rig.thaw("keepers")
        rig.thaw("engine")
        # A trial is given up after two attempts, so the next kill must not hit the same one.
        good = Attempt.objects.filter(trial__job=job, trial__plan_id=trial, accepted=True)
        rig.until(good.exists, 30, f"a good attempt at {trial}")
    ends_whole(rig, job)


def test_agent_and_keepers_killed_at_once(rig: Rig) -> None:
    job = rig.submit(**SLOW)
    rig.catch(job, "probing")
    rig.freeze("agent")  # none of them sees another go first
    rig.signal("keepers")
    rig.signal("agent")
    rig.thaw("engine")
    rig.mend()
    ends_whole(rig, job)


@pytest.mark.parametrize("table", [MeasurementSet, Analysis], ids=["mid-parse", "mid-compare"])
def test_the_worker_killed(rig: Rig, table: Any) -> None:
    job = rig.submit()
    with rig.holding(table, "worker"):
        rig.signal("worker")
    assert rig.mend() == ["worker"]
    ends_whole(rig, job)


@pytest.mark.parametrize("table", [MeasurementSet, Analysis], ids=["mid-parse", "mid-compare"])
def test_a_query_of_the_worker_cancelled(rig: Rig, table: Any) -> None:
    job = rig.submit()
    with rig.holding(table, "worker"):
        rig.cancel_query("worker", table)
    ends_whole(rig, job)


def test_the_timetable_killed_and_its_broker_emptied(rig: Rig) -> None:
    rig.signal("beat")
    rig.signal("valkey")
    job = rig.submit()  # nothing wakes a worker
    rig.mend()
    ends_whole(rig, job)


@pytest.mark.parametrize("table", [Blob, Attempt], ids=["mid-upload", "mid-report"])
def test_the_web_killed(rig: Rig, table: Any) -> None:
    job = rig.submit()
    with rig.holding(table, "web"):
        rig.signal("web")
        time.sleep(1)
    assert rig.mend() == ["web"]
    ends_whole(rig, job)


def test_the_broker_killed_with_all_messages_in_it(rig: Rig) -> None:
    rig.freeze("worker")
    job = rig.submit()
    rig.signal("valkey")
    rig.mend()
    rig.thaw("worker")
    rig.until(lambda: n_attempts(job) >= 2, 60, "two attempts")
    rig.freeze("worker")
    rig.until(lambda: rig.state(job) is JobState.COMPLETED, 60, "the agent's last word")
    rig.signal("valkey")
    rig.mend()
    rig.thaw("worker")
    ends_whole(rig, job)


@pytest.mark.parametrize(
    ("table", "part"), [(Attempt, "web"), (MeasurementSet, "worker"), (Analysis, "worker")], ids=["mid-report", "mid-parse", "mid-compare"]
)
def test_postgresql_killed(rig: Rig, table: Any, part: str) -> None:
    job = rig.submit()
    with rig.holding(table, part):
        rig.signal("postgres")
        time.sleep(1)
    assert rig.mend() == ["postgres"]
    ends_whole(rig, job)


def test_the_ledger_sees_what_is_wrong(rig: Rig) -> None:
    job = rig.submit()
    ends_whole(rig, job)
    attempts = Attempt.objects.filter(trial__job=job)
    first = attempts.earliest("received_at")

    attempts.filter(pk=first.pk).update(counted=False, accepted=False)
    assert [text for text in ledger.lost(job) if first.trial.plan_id in text]
    assert ledger.doubled(job) == ["the stored comparisons are not those of the accepted attempts"]
    attempts.filter(pk=first.pk).update(counted=True, accepted=True, state="received")
    assert [text for text in ledger.lost(job) if str(first.pk) in text]
    attempts.filter(pk=first.pk).update(state="parsed")

    probe = Probe.objects.filter(measurement=first.measurement_id, warmup=False).first()
    probe.pk, probe.i = None, 99
    probe.save()
    assert [text for text in ledger.doubled(job) if probe.probe in text]
    probe.delete()

    blob = first.evidence.first().blob
    path = rig.home / "evidence" / blob.path
    whole = path.read_bytes()
    path.write_bytes(zstandard.compress(b"other bytes"))
    assert ledger.damaged(job)
    path.write_bytes(whole)
    assert (ledger.lost(job), ledger.doubled(job), ledger.damaged(job)) == ([], [], [])

    (rig.home / "agent" / "spool" / "attempts" / "left").mkdir()
    stray = subprocess.Popen(["sleep", "60"], cwd=rig.home)
    assert ledger.leftovers(rig) == [f"{stray.pid} sleep 60", "agent/spool/attempts/left"]
    stray.kill()
    stray.wait()
    (rig.home / "agent" / "spool" / "attempts" / "left").rmdir()
    assert ledger.leftovers(rig) == []
