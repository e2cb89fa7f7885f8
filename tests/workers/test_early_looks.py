"""Early looks at a job that runs: after which block the service says that an arm is decided, who hears of it, and what pages show."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.test import Client
from speccore.protocol import JobOffer, TrialPlan

from specweb.experiments.models import Job
from specweb.experiments.services.submission import submit
from specweb.results.models import Analysis, Attempt
from specweb.results.services.comparing import compare_job
from specweb.results.services.looking import look_at_job
from specweb.results.services.parsing import parse_attempt
from tests.evidence import NOW, files_of
from tests.worlds import World, dispatch, make_world, spec
from workers.tasks import compare

pytestmark = pytest.mark.django_db


@pytest.fixture
def world(db: Any) -> World:
    return make_world()


def offered(world: World, **changes: Any) -> JobOffer:
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(**({"blocks": 5, "sequential": True} | changes)), world.team, world.owner)
    dispatch()
    return world.agent.offer()


def deliver(world: World, offer: JobOffer, trials: list[TrialPlan], *, parse: bool = True) -> None:
    for trial in trials:
        attempt_id = str(uuid.uuid4())
        assert world.agent.deliver(offer, trial.id, files_of(offer, trial, attempt_id), attempt_id=attempt_id).json()["counted"]
        if parse:
            assert parse_attempt(uuid.UUID(attempt_id))


def blocks(offer: JobOffer, *numbers: int) -> list[TrialPlan]:
    return [t for t in offer.plan.trials if t.block in numbers]


def running(offer: JobOffer) -> dict[str, Any]:
    return {"job_id": offer.job_id, "lease": offer.lease, "phase": "looking"}


def test_a_plain_arm_is_decided_when_its_block_is_parsed_and_the_agent_hears_of_it(world: World) -> None:
    offer = offered(world)
    deliver(world, offer, blocks(offer, 1, 2))
    assert not look_at_job(uuid.UUID(offer.job_id))
    assert world.agent.poll(running=running(offer)).json()["looked"] is None
    *rest, last = blocks(offer, 3)
    deliver(world, offer, rest)
    compare(offer.job_id)
    assert Job.objects.get().looked_after == 0
    deliver(world, offer, [last])
    compare(offer.job_id)
    told = world.agent.poll(running=running(offer)).json()["looked"]
    assert told == {"job_id": offer.job_id, "after_block": 3, "decided": {"draft-4": 3}}
    assert Job.objects.get().state == "running"
    assert not look_at_job(uuid.UUID(offer.job_id)), "nothing is new"


def test_evidence_that_is_not_parsed_yet_is_waited_for(world: World) -> None:
    offer = offered(world)
    deliver(world, offer, blocks(offer, 1, 2))
    deliver(world, offer, blocks(offer, 3), parse=False)
    assert not look_at_job(uuid.UUID(offer.job_id))
    for pk in Attempt.objects.filter(state="received").values_list("pk", flat=True):
        parse_attempt(pk)
    assert look_at_job(uuid.UUID(offer.job_id))
    assert Job.objects.get().decided == {"draft-4": 3}


def test_an_agent_that_comes_back_gets_no_trial_that_is_decided(world: World) -> None:
    offer = offered(world)
    deliver(world, offer, blocks(offer, 1, 2, 3))
    look_at_job(uuid.UUID(offer.job_id))
    again = world.agent.offer()
    assert (again.lease, again.looked_after, again.decided) == (offer.lease + 1, 3, {"draft-4": 3})
    assert sorted(again.done_trials) == sorted(t.id for t in offer.plan.trials)


def test_what_was_decided_stays_so(world: World) -> None:
    offer = offered(world)
    Job.objects.update(decided={"draft-4": 3}, looked_after=3)
    deliver(world, offer, blocks(offer, 1, 2, 3, 4))
    for slower in Attempt.objects.filter(trial__arm__name="draft-4").select_related("measurement"):
        slower.measurement.numbers["probes"] = []
        slower.measurement.save()
    assert look_at_job(uuid.UUID(offer.job_id))
    assert (Job.objects.get().decided, Job.objects.get().looked_after) == ({"draft-4": 3}, 4)


def test_a_job_that_does_not_stop_early_is_not_looked_at(world: World) -> None:
    offer = offered(world, sequential=False)
    deliver(world, offer, blocks(offer, 1, 2, 3))
    assert not look_at_job(uuid.UUID(offer.job_id))
    assert world.agent.poll(running=running(offer)).json()["looked"] is None


def test_a_look_that_fails_costs_the_job_nothing(world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    offer = offered(world)
    deliver(world, offer, blocks(offer, 1, 2, 3))
    Job.objects.update(plan={"seed": 1})
    assert look_at_job(uuid.UUID(offer.job_id)) is False
    assert "no early look at job" in caplog.text
    assert Job.objects.get().state == "claimed"


@pytest.fixture
def spared(world: World) -> Job:
    """A job that is over after three of five blocks."""
    offer = offered(world)
    deliver(world, offer, blocks(offer, 1, 2, 3))
    compare(offer.job_id)
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": offer.lease, "outcome": "completed"}])
    assert compare_job(uuid.UUID(offer.job_id), NOW)
    return Job.objects.get()


def test_the_comparison_shows_the_looks_interval_and_finds_no_gap(spared: Job) -> None:
    analysis = Analysis.objects.get(job=spared).parsed
    (c,) = analysis.comparisons
    assert c.look is not None
    assert (c.look.number, c.look.n_blocks, c.look.n_planned, c.look.decided) == (1, 3, 5, True)
    check = next(check for check in analysis.checks if check.name == "early looks")
    assert (check.state, check.evidence["left_after_block"]) == ("passed", {"draft-4": 3})


def test_the_page_counts_what_is_needed_and_says_why_the_rest_is_not(spared: Job, world: World, client: Client) -> None:
    client.force_login(world.owner)
    page = client.get(f"/experiments/{spared.experiment_id}/").content.decode()
    assert "6 trials in 3 of 5 blocks" in page
    assert "4 trials not needed: decided early" in page
    assert page.count("not needed: decided after block 3") == 4
    assert "decided early, at look 1 of 2 after 3 of 5 blocks" in page


def test_a_job_that_runs_waits_for_no_trial_that_is_not_needed(world: World, client: Client) -> None:
    arms = [
        {"name": "off", "mode": "off"},
        *({"name": f"draft-{n}", "mode": "draft", "draft_model": "draft", "draft_limit": n} for n in (4, 8)),
    ]
    offer = offered(world, arms=arms)
    deliver(world, offer, blocks(offer, 1, 2, 3))
    Job.objects.update(decided={"draft-4": 3}, looked_after=3)
    world.agent.poll(running=running(offer))
    client.force_login(world.owner)
    page = client.get(f"/jobs/{offer.job_id}/progress").content.decode()
    assert "9 of 13 trials done" in page
    assert "2 not needed: decided early" in page
    assert "waiting for the early look" in page
