"""A host's noise floor on the server: which contrasts are gathered, whom they judge, and what is said of it."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.measurement import AttemptMeasurement, Check, ComparisonResult, Interval, Withheld
from speccore.noise_floor import HostFloor

from specweb.experiments.models import Host, Job
from specweb.experiments.services.hosts import store_inventory
from specweb.results.models import Analysis, Comparison
from specweb.results.services.comparing import compare_job
from specweb.results.services.noise_floor import floors_of_host, gathered
from tests.core import made
from tests.web import sample
from tests.web.measured import job_of, scatter

pytestmark = pytest.mark.django_db
CONTROL = made.spec_of(
    {"name": "again", "mode": "off", "control": True}, target={"model": "demo-target"}, blocks=3, engine={"context": 2048}
)
DRAFT = {"name": "draft-4", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 4}
ASKED = made.spec_of(DRAFT, target={"model": "demo-target"}, blocks=3, engine={"context": 2048})


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def host(who: sample.People) -> Host:
    return sample.host_with_inventory(who.team)


def contrasts(who: sample.People, host: Host, n: int, *, bias: float = 0.04, **more: Any) -> list[Job]:
    """Runs of the baseline against itself whose control is off by the same in all of its blocks, now so, now so."""
    return [
        job_of(who, host, CONTROL, {"off": 1.0, "again": math.exp(bias * (-1) ** i)}, scatter(i, 0.002, 0.002), **more) for i in range(n)
    ]


def compared(job: Job) -> tuple[ComparisonResult, Check]:
    analysis = Analysis.objects.filter(job=job).last()
    assert analysis is not None
    return analysis.parsed.comparisons[0], next(c for c in analysis.parsed.checks if c.name == "A/A known")


def again(job: Job) -> tuple[ComparisonResult, Check]:
    assert compare_job(job.pk, datetime.now(UTC), again=True)
    return compared(job)


def test_servers_that_stand_are_no_contrast(who: sample.People, host: Host) -> None:
    """What two of them differ by is the same in every job: it would count as nothing."""
    jobs = contrasts(who, host, 2)
    standing, older = (Comparison.objects.current().get(job=job) for job in jobs)
    Comparison.objects.filter(pk=standing.pk).update(numbers=standing.numbers | {"not_restarted": True})
    Comparison.objects.filter(pk=older.pk).update(numbers={k: v for k, v in older.numbers.items() if k != "not_restarted"})
    assert [c.job for c in gathered(host.pk, datetime.now(UTC)).contrasts] == [str(jobs[1].pk)]


def test_a_job_is_judged_by_the_floor_of_earlier_contrasts_and_shows_what_it_rests_on(who: sample.People, host: Host) -> None:
    before, unknown = compared(job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.06}, made.wobble))
    assert (before.verdict.word, before.noise_floor, unknown.state) == ("keep", None, "failed")
    assert "needs 10 A/A contrasts, has 0" in unknown.sentence
    assert "preset noise-floor with 3 blocks" in unknown.sentence
    jobs = contrasts(who, host, 10)
    stored = Comparison.objects.current().filter(job__in=jobs)
    values = [[*c.parsed.block_values.values()] for c in stored]
    beyond = np.var([np.mean(v) for v in values], ddof=1) - np.mean([np.var(v, ddof=1) / 3 for v in values])
    after, known = compared(job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.06}, made.wobble))
    assert after.noise_floor == pytest.approx(math.exp(2 * math.sqrt(beyond)) - 1)
    assert 0.07 < (after.noise_floor or 0) < 0.1
    assert after.verdict.reason == "floor-limited"
    assert known.state == "passed"
    assert "(10 contrasts of the baseline with itself, valid until " in known.sentence
    assert set(known.evidence["floors"]["c1/ctx0"]["jobs"]) == {str(j.pk) for j in jobs}


def test_a_job_is_no_judge_of_itself(who: sample.People, host: Host) -> None:
    jobs = contrasts(who, host, 10)
    _, check = again(jobs[0])
    assert "needs 10 A/A contrasts, has 9" in check.sentence
    contrasts(who, host, 1)
    assert again(jobs[0])[1].state == "passed"


def test_off_with_what_speculation_implies_is_no_contrast(who: sample.People, host: Host) -> None:
    job, other = contrasts(who, host, 2)
    arm = job.experiment.arms.get(name="again")
    arm.settings["extra"] = {"--no-async-scheduling": True}
    arm.save()
    assert [c.job for c in gathered(host.pk, datetime.now(UTC)).contrasts] == [str(other.pk)]


def test_contrasts_that_come_later_count_when_a_job_is_compared_again(who: sample.People, host: Host) -> None:
    job = job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.06}, made.wobble)
    contrasts(who, host, 10)
    assert again(job)[0].verdict.reason == "floor-limited"


def test_old_contrasts_do_not_count_by_when_they_were_measured_and_not_by_when_they_came(who: sample.People, host: Host) -> None:
    now = datetime.now(UTC)
    contrasts(who, host, 1, at=now - timedelta(days=31))
    kept = contrasts(who, host, 1, at=now - timedelta(days=29))
    assert {c.job for c in gathered(host.pk, now).contrasts} == {str(kept[0].pk)}
    assert gathered(host.pk, now - timedelta(days=62)).contrasts == []


def test_another_driver_or_number_of_blocks_is_another_floor(who: sample.People, host: Host) -> None:
    contrasts(who, host, 2)
    assert host.inventory is not None
    offered = host.inventory.parsed
    driven = [d.model_copy(update={"driver": "570.1"}) for d in offered.devices]
    store_inventory(host, offered.model_copy(update={"devices": driven}), datetime.now(UTC))
    contrasts(who, host, 1)
    five = made.spec_of(DRAFT, target={"model": "demo-target"}, blocks=5, engine={"context": 2048})
    _, check = compared(job_of(who, host, five, {"off": 1.0, "draft-4": 1.06}, made.wobble))
    assert "has 0 (left out: 1 of another number of blocks than 5, 2 with another driver)" in check.sentence
    shown = floors_of_host(host, datetime.now(UTC))
    assert [(s.scope.driver, len(s.jobs)) for s in shown] == [("", 2), ("570.1", 1)]


def test_a_job_that_lost_a_block_is_held_to_the_floor_of_its_plan(who: sample.People, host: Host) -> None:
    four = CONTROL.model_copy(update={"blocks": 4})
    for i in range(10):
        job_of(who, host, four, {"off": 1.0, "again": math.exp(0.04 * (-1) ** i)}, scatter(i, 0.002, 0.002))
    asked, speeds = ASKED.model_copy(update={"blocks": 4}), {"off": 1.0, "draft-4": 1.06}
    found, check = compared(job_of(who, host, asked, speeds, made.wobble, without=["b4-off", "b4-draft-4"]))
    assert isinstance(found.speedup, Interval)
    assert found.speedup.n_blocks == 3
    assert (found.verdict.reason, check.state) == ("floor-limited", "passed")
    # Planned with three it has no floor: other plans' contrasts are no judges.
    found, check = compared(job_of(who, host, ASKED, speeds, made.wobble))
    assert (found.verdict.reason, check.state) == ("faster", "failed")


def test_a_contrast_that_failed_a_hard_check_is_counted_apart(who: sample.People, host: Host) -> None:
    def late(m: AttemptMeasurement) -> AttemptMeasurement:
        return m.model_copy(update={"n_late_events": m.n_events})

    contrasts(who, host, 1)
    job_of(who, host, CONTROL, {"off": 1.0, "again": 1.0}, made.wobble, change=late)
    _, check = compared(job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.06}, made.wobble))
    assert "has 1; 1 more failed a hard check" in check.sentence


def test_another_hosts_contrasts_say_nothing(who: sample.People, host: Host) -> None:
    contrasts(who, host, 1)
    other = sample.host_with_inventory(who.team, "other")
    assert gathered(other.pk, datetime.now(UTC)).contrasts == []


@pytest.mark.parametrize("n", [1, 10])
def test_two_statements_however_many_contrasts(who: sample.People, host: Host, n: int) -> None:
    contrasts(who, host, n)
    with CaptureQueriesContext(connection) as seen:
        (found,) = floors_of_host(host, datetime.now(UTC))
    assert len(seen) == 2
    assert len(found.jobs) == n
    assert isinstance(found.found, HostFloor if n == 10 else Withheld)


def test_the_hosts_page_shows_each_floor_and_how_to_get_one(who: sample.People, host: Host) -> None:
    client = Client()
    client.force_login(who.mate)
    page = client.get(reverse("host", args=[host.pk])).content.decode()
    assert "Run the preset <code>noise-floor</code> here" in page
    jobs = contrasts(who, host, 10)
    page = client.get(reverse("host", args=[host.pk])).content.decode()
    (found,) = floors_of_host(host, datetime.now(UTC))
    assert isinstance(found.found, HostFloor)
    assert f'<td class="num">{100 * found.found.floor:.1f}</td>' in page
    assert "one at a time, empty context" in page
    assert all(f"?job={job.pk}" in page for job in jobs)
    contrasts_left_out = "needs 10 A/A contrasts, has 1"
    assert contrasts_left_out not in page
    five = made.spec_of({"name": "again", "mode": "off", "control": True}, target={"model": "demo-target"}, blocks=5)
    job_of(who, host, five, {"off": 1.0, "again": 1.0}, made.wobble)
    assert contrasts_left_out in client.get(reverse("host", args=[host.pk])).content.decode()


def test_an_experiment_of_controls_alone_has_a_page_without_a_question_of_its_own(who: sample.People, host: Host) -> None:
    (job,) = contrasts(who, host, 1)
    client = Client()
    client.force_login(who.mate)
    page = client.get(reverse("experiment", args=[job.experiment_id]))
    assert page.status_code == 200
    assert "how far is demo-target from itself on CPU · Intel Xeon, 2 cores?" in page.content.decode()
