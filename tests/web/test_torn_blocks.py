"""Blocks that were interrupted: voided when a lease is granted again or the agent says so, and only what is whole counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest.mock import patch

import pytest
from speccore.protocol import JobOffer, TrialPlan

from specweb.experiments.models import Job
from specweb.experiments.services.submission import submit
from specweb.results.models import Attempt
from specweb.results.services.blocks import MAX_BLOCK_RUNS
from tests.worlds import NOW, World, dispatch, inventory, spec

FILES = {"server.log": b"a log\n"}


@contextmanager
def at(moment: datetime) -> Iterator[None]:
    """The service's clock."""
    with patch("specweb.api.agent_views.timezone.now", return_value=moment):
        yield


@pytest.fixture
def offer(world: World) -> JobOffer:
    with at(NOW):
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(), world.team, world.owner)
        dispatch(NOW)
        return world.agent.offer()


def deliver(world: World, offer: JobOffer, trial: TrialPlan, ended_at: datetime = NOW, **changes: Any) -> dict[str, Any]:
    with at(ended_at):
        reply = world.agent.deliver(offer, trial.id, FILES, started_at=ended_at, ended_at=ended_at, **changes)
    assert reply.status_code == 200, reply.content
    answer: dict[str, Any] = reply.json()
    return answer


def renewed(world: World, when: datetime) -> JobOffer:
    with at(when):
        return world.agent.offer()


def of_block(offer: JobOffer, block: int) -> list[TrialPlan]:
    return [t for t in offer.plan.trials if t.block == block]


class TestAtTheNextLease:
    def test_a_block_goes_on_within_ten_minutes(self, world: World, offer: JobOffer) -> None:
        first = of_block(offer, 1)[0]
        deliver(world, offer, first)
        again = renewed(world, NOW + timedelta(minutes=10))
        assert (again.done_trials, again.block_runs) == ([first.id], {})

    def test_after_a_longer_gap_it_is_run_whole(self, world: World, offer: JobOffer) -> None:
        for trial in of_block(offer, 1):
            deliver(world, offer, trial)
        deliver(world, offer, of_block(offer, 2)[0])
        again = renewed(world, NOW + timedelta(minutes=11))
        assert again.done_trials == [t.id for t in of_block(offer, 1)]  # a finished block is kept
        assert again.block_runs == {2: 2}
        void = Attempt.objects.get(trial__block=2)
        assert (void.accepted, void.counted) == (False, False)
        assert void.void_reason == f"block 2 was run anew: 11 minutes passed after {void.trial.plan_id}, more than 10"
        assert set(Attempt.objects.filter(trial__block=1).values_list("accepted", "void_reason")) == {(True, "")}
        for trial in of_block(offer, 2):
            assert deliver(world, again, trial, NOW + timedelta(minutes=12), block_run=2)["counted"]
        assert Attempt.objects.filter(trial__block=2, accepted=True, block_run=2).count() == 2

    @pytest.mark.parametrize(("change", "said"), [({"boot_id": "boot-2"}, "started anew"), ({"n_cores": 8}, "inventory")])
    def test_on_a_machine_that_changed(self, world: World, offer: JobOffer, change: dict[str, Any], said: str) -> None:
        deliver(world, offer, of_block(offer, 1)[0])
        world.agent.inventory = inventory(**change)
        world.agent.poll()
        world.agent.send_inventory()
        again = renewed(world, NOW + timedelta(minutes=1))
        assert (again.done_trials, again.block_runs) == ([], {1: 2})
        assert said in Attempt.objects.get().void_reason

    def test_what_came_late_under_the_old_lease_is_kept_and_not_counted(self, world: World, offer: JobOffer) -> None:
        one, other = of_block(offer, 1)
        deliver(world, offer, one)
        renewed(world, NOW + timedelta(minutes=11))
        late = deliver(world, offer, other)
        assert (late["stored"], late["counted"]) == (True, False)
        assert Attempt.objects.filter(accepted=True).count() == 0

    def test_an_hour_in_the_spool_is_no_gap(self, world: World, offer: JobOffer) -> None:
        """Measured without the server, reported late, then the agent was started anew: the trial's own end counts."""
        one, other = of_block(offer, 1)
        deliver(world, offer, one)
        later = NOW + timedelta(hours=1)
        with at(later):
            world.agent.deliver(offer, other.id, FILES, ended_at=NOW + timedelta(seconds=9))
        assert renewed(world, later).done_trials == [one.id, other.id]

    def test_a_clock_ahead_of_ours_hides_no_gap(self, world: World, offer: JobOffer) -> None:
        with at(NOW):
            world.agent.deliver(offer, of_block(offer, 1)[0].id, FILES, ended_at=NOW + timedelta(days=1))
        assert renewed(world, NOW + timedelta(minutes=11)).block_runs == {1: 2}

    @pytest.mark.parametrize("wrong", [timedelta(hours=-1), timedelta(hours=1)])
    def test_a_clock_that_is_wrong_tears_nothing_and_hides_no_gap(self, world: World, offer: JobOffer, wrong: timedelta) -> None:
        first = of_block(offer, 1)[0]
        with at(NOW):
            world.agent.deliver(offer, first.id, FILES, started_at=NOW + wrong, ended_at=NOW + wrong)
        for minutes, runs in ((1, {}), (11, {"1": 2})):
            when = NOW + timedelta(minutes=minutes)
            with at(when):
                assert world.agent.poll(sent_at=(when + wrong).isoformat()).json()["job"]["block_runs"] == runs

    @pytest.mark.parametrize("sent_at", ["1970-01-01T00:00:00Z", "9998-12-31T00:00:00Z"])
    def test_a_clock_off_by_ages_is_borne(self, world: World, offer: JobOffer, sent_at: str) -> None:
        deliver(world, offer, of_block(offer, 1)[0])
        with at(NOW):
            assert world.agent.poll(sent_at=sent_at).status_code == 200

    def test_a_block_that_waits_only_for_an_arm_that_was_given_up_is_finished(self, world: World) -> None:
        with at(NOW):
            world.agent.poll()
            world.agent.send_inventory()
            submit(spec(blocks=4), world.team, world.owner)
            dispatch(NOW)
            offer = world.agent.offer()
        from speccore.errors import EngineOutOfMemory

        error = EngineOutOfMemory("no memory").body()
        for trial in offer.plan.trials:
            if trial.block <= 2 and trial.arm != "off":
                deliver(world, offer, trial, outcome="failed", error=error)
            elif trial.block <= 3 and trial.arm == "off":
                deliver(world, offer, trial)
        again = renewed(world, NOW + timedelta(hours=1))
        assert again.block_runs == {}
        assert len(again.done_trials) == 7  # all but the baseline of block 4

    def test_a_block_is_not_run_for_ever(self, world: World, offer: JobOffer) -> None:
        now, held = NOW, offer
        for run in range(1, MAX_BLOCK_RUNS + 1):
            assert deliver(world, held, of_block(offer, 1)[0], now, block_run=run)["counted"]
            now += timedelta(minutes=11)
            if run < MAX_BLOCK_RUNS:
                held = renewed(world, now)
                assert held.block_runs == {1: run + 1}
        with at(now):
            assert world.agent.poll().json()["job"] is None
        job = Job.objects.get()
        assert (job.state, job.error["code"]) == ("failed", "block_keeps_tearing")
        assert "block 1 was torn apart 5 times" in job.reason
        assert Attempt.objects.filter(accepted=True).count() == 1  # nothing of the grant that failed is left


class TestAtTheAgentsWord:
    def test_a_higher_run_voids_those_before(self, world: World, offer: JobOffer) -> None:
        one, other = of_block(offer, 1)
        deliver(world, offer, one)
        deliver(world, offer, of_block(offer, 2)[0])
        assert deliver(world, offer, other, block_run=2)["counted"]
        assert Job.objects.get().block_runs == {"1": 2}
        void = Attempt.objects.get(trial__plan_id=one.id)
        assert (void.accepted, void.counted) == (False, False)
        assert void.void_reason.startswith("block 1 was run anew: the agent saw")
        assert Attempt.objects.get(trial__block=2).accepted  # other blocks stand
        assert deliver(world, offer, one, n=2, block_run=2)["counted"]
        assert renewed(world, NOW).block_runs == {1: 2}

    def test_a_report_of_an_earlier_run_comes_too_late(self, world: World, offer: JobOffer) -> None:
        one, other = of_block(offer, 1)
        deliver(world, offer, one, block_run=2)
        late = deliver(world, offer, other)
        assert (late["stored"], late["counted"]) == (True, False)
        assert Attempt.objects.get(trial__plan_id=other.id).void_reason == "block 1 was run anew before this came"
        assert other.id not in renewed(world, NOW).done_trials

    def test_an_old_lease_voids_nothing(self, world: World, offer: JobOffer) -> None:
        one, other = of_block(offer, 1)
        deliver(world, offer, one)
        renewed(world, NOW)
        assert not deliver(world, offer, other, block_run=2)["counted"]
        assert Job.objects.get().block_runs == {}
        assert Attempt.objects.get(trial__plan_id=one.id).accepted

    def test_failures_of_an_earlier_run_leave_all_tries(self, world: World, offer: JobOffer) -> None:
        from speccore.errors import EngineDied

        one, _ = of_block(offer, 1)
        error = EngineDied("gone").body()
        for n in (1, 2):
            deliver(world, offer, one, n=n, outcome="failed", error=error)
        assert one.id in renewed(world, NOW).done_trials
        again = renewed(world, NOW + timedelta(minutes=11))
        assert one.id not in again.done_trials

    def test_an_agent_that_knows_no_runs_is_not_kept_from_its_end(self, world: World, offer: JobOffer) -> None:
        from tests.worlds import report

        one, other = of_block(offer, 1)
        deliver(world, offer, one)
        again = renewed(world, NOW + timedelta(minutes=11))
        assert again.block_runs == {1: 2}
        files = {"server.log": b"another\n"}
        with at(NOW + timedelta(minutes=12)):
            assert world.agent.put(files["server.log"], again.lease_token).status_code == 201
            for lease, trial, counted in ((again, one, True), (again, other, True), (offer, one, False)):
                message = report(lease, trial.id, files).model_dump(mode="json")
                del message["block_run"]
                reply = world.agent.post(f"attempts/{message['attempt_id']}/report", message, lease.lease_token)
                assert reply.json()["counted"] is counted, trial.id
        assert set(Attempt.objects.filter(trial__block=1, accepted=True).values_list("block_run", flat=True)) == {2}

    @pytest.mark.parametrize("run", [0, -1, 10**6])
    def test_a_run_that_cannot_be(self, world: World, offer: JobOffer, run: int) -> None:
        from tests.worlds import report

        message = report(offer, offer.plan.trials[0].id, {}).model_dump(mode="json") | {"block_run": run}
        reply = world.agent.post(f"attempts/{message['attempt_id']}/report", message, offer.lease_token)
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "invalid_message")
