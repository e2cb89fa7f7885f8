"""What people want of jobs and hosts: cancel, pause, drain, retry, revoke; and agents that keep dying."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from speccore.errors import HostRevoked, NotPossible
from speccore.jobstate import FINAL, HELD, JobState
from speccore.protocol import JobOffer

from specweb.accounts.services import may_maintain, may_submit, role_of
from specweb.experiments.models import EnrolmentCode, Experiment, Host, Job, JobMove, Lease
from specweb.experiments.services.hosts import create_host, drain_host, host_of_token, revoke_host, store_inventory, undrain_host
from specweb.experiments.services.jobs import (
    MAX_FRUITLESS_LEASES,
    MAX_UNHEARD_LEASES,
    claim_next_job,
    move_job,
    request_cancel,
    request_pause,
    resume_job,
    retry_job,
)
from specweb.experiments.services.silence import Limits, expire_silent_jobs
from specweb.experiments.services.submission import submit
from tests.worlds import NOW, Agent, World, dispatch, inventory, make_world, report, spec

FILES = {"server.log": b"a log\n"}
LIMITS = Limits(stalled_after=timedelta(seconds=30), host_lost_after=timedelta(hours=24), waiting_for=timedelta(days=7))
WHO: dict[str, Any] = {"now": NOW, "by": "owner"}


@pytest.fixture
def offer(world: World) -> JobOffer:
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(), world.team, world.owner)
    dispatch()
    return world.agent.offer()


def running(offer: JobOffer) -> dict[str, Any]:
    return {"job_id": offer.job_id, "lease": offer.lease}


def a_job(world: World, state: JobState, **fields: Any) -> Job:
    experiment = Experiment.objects.create(team=world.team, name="x", spec=spec().model_dump(mode="json"), spec_hash="0")
    return Job.objects.create(experiment=experiment, state=state.value, **fields)


def second_host(world: World, name: str = "box-b") -> Agent:
    """Another host of the same team, online and able to run the same."""
    host, token = create_host(world.team, name)
    store_inventory(host, inventory(hostname=name), datetime.now(UTC))
    agent = Agent(token, inventory(hostname=name))
    agent.poll()
    return agent


class TestCancel:
    def test_the_agent_is_told_and_its_last_word_names_who_asked(self, world: World, offer: JobOffer) -> None:
        world.agent.poll(running=running(offer))
        assert request_cancel(Job.objects.get(), **WHO)
        assert not request_cancel(Job.objects.get(), now=NOW, by="somebody else")
        assert world.agent.poll(running=running(offer)).json()["cancel"] == [offer.job_id]
        world.agent.poll(finished=[{**running(offer), "outcome": "cancelled"}])
        job = Job.objects.get()
        assert (job.state, job.reason) == ("cancelled", "cancelled by owner")

    def test_an_agent_that_forgot_the_job_does_not_get_it_again(self, world: World, offer: JobOffer) -> None:
        request_cancel(Job.objects.get(), **WHO)
        assert world.agent.poll().json()["job"] is None
        assert (Job.objects.get().state, Job.objects.get().reason) == ("cancelled", "cancelled by owner")
        assert Lease.objects.get().released_at is not None

    def test_nobody_waits_for_a_host_that_is_silent(self, world: World, offer: JobOffer) -> None:
        request_cancel(Job.objects.get(), **WHO)
        seen = Host.objects.get(pk=world.host.pk).last_seen_at
        assert seen is not None
        expire_silent_jobs(seen + timedelta(seconds=31), LIMITS)
        assert Job.objects.get().state == "cancelled"
        assert world.agent.poll(running=running(offer)).json()["cancel"] == [offer.job_id]

    def test_a_stalled_job_is_cancelled_at_once_and_what_comes_later_is_not_counted(self, world: World, offer: JobOffer) -> None:
        move_job(Job.objects.get().pk, JobState.STALLED, now=NOW, by="test")
        assert request_cancel(Job.objects.get(), **WHO)
        assert Job.objects.get().state == "cancelled"
        late = world.agent.deliver(offer, offer.plan.trials[0].id, FILES).json()
        assert (late["stored"], late["counted"]) == (True, False)


class TestPause:
    def test_the_agent_is_told_until_the_job_goes_on(self, world: World, offer: JobOffer) -> None:
        assert request_pause(Job.objects.get(), **WHO)
        assert not request_pause(Job.objects.get(), **WHO)
        for _ in range(2):
            assert world.agent.poll(running=running(offer)).json()["pause"] == [offer.job_id]
        job = Job.objects.get()
        assert (job.is_paused, job.pause_requested_by) == (True, "owner")
        assert resume_job(job, **WHO)
        assert not resume_job(job, **WHO)
        assert world.agent.poll(running=running(offer)).json()["pause"] == []
        assert not Job.objects.get().is_paused

    def test_a_job_that_is_offered_again_rests_from_the_start(self, world: World, offer: JobOffer) -> None:
        request_pause(Job.objects.get(), **WHO)
        reply = world.agent.poll().json()
        assert reply["job"]["job_id"] == offer.job_id
        assert reply["pause"] == [offer.job_id]

    def test_a_job_that_nobody_holds_is_not_handed_out(self, world: World) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(), world.team, world.owner)
        request_pause(Job.objects.get(), **WHO)
        assert dispatch() == 0
        resume_job(Job.objects.get(), **WHO)
        assert dispatch() == 1
        request_pause(Job.objects.get(), **WHO)
        assert world.agent.poll().json()["job"] is None
        resume_job(Job.objects.get(), **WHO)
        assert world.agent.offer()

    @pytest.mark.parametrize("state", list(JobState))
    def test_only_what_is_not_done_can_rest(self, world: World, state: JobState) -> None:
        job = a_job(world, state)
        assert request_pause(job, **WHO) is (state not in FINAL and state is not JobState.COMPLETED)

    def test_a_job_that_rests_can_be_cancelled(self, world: World, offer: JobOffer) -> None:
        request_pause(Job.objects.get(), **WHO)
        request_cancel(Job.objects.get(), **WHO)
        assert world.agent.poll(running=running(offer)).json()["cancel"] == [offer.job_id]


class TestDrain:
    def test_a_host_finishes_its_job_and_gets_no_other(self, world: World, offer: JobOffer) -> None:
        submit(spec(name="the next"), world.team, world.owner)
        dispatch()
        assert set(Job.objects.values_list("state", flat=True)) == {"claimed", "queued"}
        assert drain_host(world.host, **WHO)
        assert not drain_host(world.host, **WHO)
        assert sorted(Job.objects.values_list("state", flat=True)) == ["claimed", "waiting"]
        reply = world.agent.poll(running=running(offer)).json()
        assert (reply["drain"], reply["cancel"]) == (True, [])
        reply = world.agent.poll(finished=[{**running(offer), "outcome": "completed"}]).json()
        assert (reply["acknowledged"], reply["job"], reply["drain"]) == ([offer.job_id], None, True)
        assert dispatch() == 0
        assert "takes no new jobs" in Job.objects.get(state="waiting").reason

    def test_a_host_that_lost_its_job_gets_it_back_nonetheless(self, world: World, offer: JobOffer) -> None:
        drain_host(world.host, **WHO)
        reply = world.agent.poll().json()
        assert (reply["job"]["job_id"], reply["drain"]) == (offer.job_id, False)  # told with its next poll
        assert world.agent.poll(running={"job_id": offer.job_id, "lease": 2}).json()["drain"] is True

    def test_what_was_queued_goes_to_another_host(self, world: World) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        submit(spec(), world.team, world.owner)
        dispatch()
        drain_host(world.host, **WHO)
        other = second_host(world)
        assert dispatch() == 1
        assert other.offer()

    def test_its_end(self, world: World, offer: JobOffer) -> None:
        drain_host(world.host, **WHO)
        host = Host.objects.get(pk=world.host.pk)
        assert undrain_host(host, **WHO)
        assert not undrain_host(host, **WHO)
        assert world.agent.poll(running=running(offer)).json()["drain"] is False

    def test_a_job_that_slipped_in_while_it_was_asked_for_goes_back(self, world: World) -> None:
        Host.objects.filter(pk=world.host.pk).update(last_seen_at=NOW, drain_requested_at=NOW)
        job = a_job(world, JobState.QUEUED, host=world.host)
        assert claim_next_job(world.host, NOW) is None
        expire_silent_jobs(NOW, LIMITS)
        job.refresh_from_db()
        assert (job.state, job.host) == ("waiting", None)


class TestRetry:
    @pytest.mark.parametrize("state", list(JobState))
    def test_only_what_failed_or_was_cancelled(self, world: World, state: JobState) -> None:
        job = a_job(world, state)
        if state in (JobState.FAILED, JobState.CANCELLED):
            retry = retry_job(job, **WHO)
            assert (retry.state, retry.retry_of, retry.experiment) == ("waiting", job, job.experiment)
        else:
            with pytest.raises(NotPossible, match=state.value):
                retry_job(job, **WHO)

    def test_once(self, world: World) -> None:
        job = a_job(world, JobState.FAILED)
        retry = retry_job(job, **WHO)
        with pytest.raises(NotPossible, match="retried already"):
            retry_job(job, **WHO)
        move_job(retry.pk, JobState.CANCELLED, now=NOW, by="test")
        assert retry_job(retry, **WHO).retry_of == retry

    def test_the_old_job_no_longer_decides_the_experiments_state(self, world: World) -> None:
        job = a_job(world, JobState.FAILED)
        assert job.experiment.state == "failed"
        retry = retry_job(job, **WHO)
        experiment = Experiment.objects.prefetch_related("jobs").get()
        assert experiment.state == "waiting"
        for state in (JobState.QUEUED, JobState.CLAIMED, JobState.COMPLETED, JobState.PROCESSED):
            move_job(retry.pk, state, now=NOW, by="test")
            assert Experiment.objects.get().state == state
        job.refresh_from_db()
        assert job.state == "failed"

    def test_may_run_on_the_same_host_with_its_own_trials(self, world: World, offer: JobOffer) -> None:
        world.agent.deliver(offer, offer.plan.trials[0].id, FILES)
        world.agent.poll(finished=[{**running(offer), "outcome": "failed"}])
        retry = retry_job(Job.objects.get(), **WHO)
        assert dispatch() == 1
        again = world.agent.offer()
        assert (again.job_id, again.done_trials, again.lease) == (str(retry.pk), [], 1)
        assert again.plan == offer.plan

    def test_a_host_that_was_revoked_cannot_be_asked_again(self, world: World) -> None:
        job = a_job(world, JobState.FAILED, wanted_host=world.host)
        revoke_host(world.host, **WHO)
        with pytest.raises(NotPossible, match="box"):
            retry_job(job, **WHO)
        assert Job.objects.count() == 1


class TestRevoke:
    def test_refused_at_once_and_what_it_sent_is_kept(self, world: World, offer: JobOffer) -> None:
        world.agent.deliver(offer, offer.plan.trials[0].id, FILES)
        assert revoke_host(world.host, **WHO)
        assert not revoke_host(Host.objects.get(pk=world.host.pk), **WHO)
        for reply in (world.agent.poll(running=running(offer)), world.agent.put(b"x", offer.lease_token)):
            assert (reply.status_code, reply.json()["error"]["code"]) == (401, "host_revoked")
            assert reply.headers["WWW-Authenticate"] == "Bearer"
        job = Job.objects.get()
        assert (job.state, job.error["code"]) == ("failed", "host_revoked")
        assert "owner" in job.reason
        assert job.trials.filter(attempts__accepted=True).count() == 1
        with pytest.raises(HostRevoked):
            host_of_token(world.token)

    def test_its_queued_jobs_go_elsewhere_unless_they_ask_for_it(self, world: World) -> None:
        free = a_job(world, JobState.QUEUED, host=world.host)
        bound = a_job(world, JobState.QUEUED, host=world.host, wanted_host=world.host)
        waits = a_job(world, JobState.WAITING, wanted_host=world.host)
        revoke_host(world.host, **WHO)
        found = dict(Job.objects.values_list("pk", "state"))
        assert [found[j.pk] for j in (free, bound, waits)] == ["waiting", "failed", "failed"]

    def test_a_host_that_is_shut_out_is_given_nothing(self, world: World) -> None:
        """Its token was still good when the call began."""
        job = a_job(world, JobState.QUEUED, host=world.host)
        Host.objects.filter(pk=world.host.pk).update(revoked_at=NOW)
        assert claim_next_job(world.host, NOW) is None
        assert not Lease.objects.exists()
        Job.objects.filter(pk=job.pk).update(host=None, wanted_host=world.host)
        move_job(job.pk, JobState.WAITING, now=NOW, by="test")
        Job.objects.update(created_at=NOW)
        expire_silent_jobs(NOW, LIMITS)
        assert Job.objects.get().error["code"] == "host_revoked"

    @pytest.mark.django_db(transaction=True)
    def test_at_the_moment_of_a_claim(self, servers: None) -> None:
        """Whichever is first, no job is left in the hands of a host that is shut out."""
        world = make_world()
        for round_ in range(20):
            host, _ = create_host(world.team, f"host-{round_}")
            a_job(world, JobState.QUEUED, host=host)
            gate = threading.Barrier(2)

            def at_once(do: Any, gate: threading.Barrier = gate) -> None:
                gate.wait()
                do()
                connection.close()

            doing = (lambda h=host: claim_next_job(h, NOW), lambda h=host: revoke_host(h, **WHO))
            threads = [threading.Thread(target=at_once, args=(do,)) for do in doing]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not Job.objects.filter(host=host, state__in=[s.value for s in HELD | {JobState.QUEUED}]).exists()
            assert not Lease.objects.filter(host=host, released_at=None).exists()


class TestAgentsThatKeepDying:
    def test_after_five_leases_without_an_attempt(self, world: World, offer: JobOffer) -> None:
        for n in range(1, MAX_FRUITLESS_LEASES + 1):
            if n > 1:
                assert world.agent.offer().lease == n
            world.agent.poll(running={"job_id": offer.job_id, "lease": n})
        assert world.agent.poll().json()["job"] is None
        job = Job.objects.get()
        assert (job.state, job.error["code"]) == ("failed", "agent_keeps_dying")
        assert f"{MAX_FRUITLESS_LEASES} times" in job.reason
        assert JobMove.objects.last().by == "box"  # type: ignore[union-attr]

    def test_an_attempt_of_any_outcome_begins_the_count_anew(self, world: World, offer: JobOffer) -> None:
        now = offer
        for trial in offer.plan.trials:
            for _ in range(MAX_FRUITLESS_LEASES - 1):
                world.agent.poll(running=running(now))
                now = world.agent.offer()
            world.agent.poll(running=running(now))
            world.agent.deliver(now, trial.id, FILES, outcome="cancelled")
        assert Job.objects.get().state == "running"

    def test_replies_that_were_lost_are_no_fault_of_the_agent_for_long(self, world: World, offer: JobOffer) -> None:
        for n in range(2, MAX_UNHEARD_LEASES + 1):
            assert world.agent.offer().lease == n
        assert world.agent.poll().json()["job"] is None
        assert Job.objects.get().error["code"] == "agent_keeps_dying"

    def test_the_next_job_is_handed_out_instead(self, world: World, offer: JobOffer) -> None:
        submit(spec(name="the next"), world.team, world.owner)
        dispatch()
        Lease.objects.update(taken_up_at=NOW)
        for n in range(2, MAX_FRUITLESS_LEASES + 1):
            Lease.objects.create(job_id=offer.job_id, n=n, host=world.host, token_hash=str(n), granted_at=NOW, taken_up_at=NOW)
        reply = world.agent.poll().json()
        assert reply["job"]["spec"]["name"] == "the next"


class TestProblem:
    BODY = {"code": "disk_full", "message": "no room", "blame": "host", "retry": True, "remedy": "Free space.", "details": {}}

    def test_is_kept_while_it_lasts(self, world: World) -> None:
        world.agent.poll(problem=self.BODY)
        host = Host.objects.get(pk=world.host.pk)
        assert host.problem == self.BODY
        since = host.problem_at
        world.agent.poll(problem=self.BODY)
        assert Host.objects.get(pk=world.host.pk).problem_at == since
        world.agent.poll()
        host = Host.objects.get(pk=world.host.pk)
        assert (host.problem, host.problem_at) == (None, None)

    def test_is_bounded(self, world: World) -> None:
        long = {**self.BODY, "message": "x" * 10_000, "code": "c" * 1000, "details": {"much": "y" * 10_000}}
        assert world.agent.poll(problem=long).status_code == 200
        kept = Host.objects.get(pk=world.host.pk).problem
        assert (len(kept["message"]), len(kept["code"]), kept["details"]) == (2000, 80, {})

    def test_progress_is_bounded(self, world: World, offer: JobOffer) -> None:
        tail = ["z" * 1000] * 200
        world.agent.poll(running={**running(offer), "note": "n" * 9000, "log_tail": tail, "phase": "paused"})
        told = Job.objects.get().progress
        assert (told["phase"], len(told["note"]), len(told["log_tail"]), len(told["log_tail"][0])) == ("paused", 2000, 50, 400)


class TestStrangers:
    """Another team's host, with its own token, at everything of ours."""

    def test_sees_and_changes_nothing(self, world: World, offer: JobOffer) -> None:
        world.other_agent.poll()
        world.other_agent.send_inventory()
        assert world.other_agent.poll().json()["job"] is None
        digest = offer.plan.workloads["tiny"]
        replies = [
            world.other_agent.poll(running=running(offer)),
            world.other_agent.put(b"x", offer.lease_token),
            world.other_agent.client.get(f"/agent/v1/workloads/{digest}", headers=world.other_agent.headers(offer.lease_token)),
            world.other_agent.report(report(offer, offer.plan.trials[0].id, {}), offer.lease_token),
            world.other_agent.poll(finished=[{**running(offer), "outcome": "completed"}]),
        ]
        assert {(r.status_code, r.json()["error"]["code"]) for r in replies} == {(403, "not_allowed")}
        assert Job.objects.get().state == "claimed"

    def test_a_stale_lease_begins_nothing(self, world: World, offer: JobOffer) -> None:
        world.agent.offer()
        url = f"/agent/v1/workloads/{offer.plan.workloads['tiny']}"
        reply = world.agent.client.get(url, headers=world.agent.headers(offer.lease_token))
        assert (reply.status_code, reply.json()["error"]["code"]) == (409, "stale_lease")

    def test_who_may_what(self, world: World) -> None:
        from django.contrib.auth.models import AnonymousUser

        from specweb.accounts.models import Membership, Role

        assert role_of(world.owner, world.team) == "maintainer"
        assert (may_submit(world.owner, world.team), may_maintain(world.owner, world.team)) == (True, True)
        assert (may_submit(world.teammate, world.team), may_maintain(world.teammate, world.team)) == (False, False)
        Membership.objects.filter(user=world.teammate).update(role=Role.SUBMITTER)
        assert (may_submit(world.teammate, world.team), may_maintain(world.teammate, world.team)) == (True, False)
        for nobody in (world.stranger, AnonymousUser()):
            assert (role_of(nobody, world.team), may_submit(nobody, world.team)) == (None, False)
        world.owner.is_active = False
        assert role_of(world.owner, world.team) is None


class TestCommands:
    def run(self, *words: str) -> str:
        out = StringIO()
        call_command(*words, stdout=out, stderr=out)
        return out.getvalue()

    def refused(self, *words: str) -> tuple[int, str]:
        with pytest.raises(CommandError) as caught:
            self.run(*words)
        return caught.value.returncode, str(caught.value)

    def test_pause_resume_cancel_retry(self, world: World, offer: JobOffer) -> None:
        experiment = str(Experiment.objects.get().pk)
        assert "rests" in self.run("pause", experiment)
        assert Job.objects.get().is_paused
        assert "goes on" in self.run("resume", offer.job_id)
        assert self.refused("retry", offer.job_id)[0] == 3
        assert "cancelled" in self.run("cancel", experiment)
        world.agent.poll()
        assert self.refused("cancel", offer.job_id)[0] == 3
        new = self.run("retry", experiment).strip()
        assert str(Job.objects.get(retry_of=offer.job_id).pk) == new
        assert "cancelled" in self.run("cancel", experiment)  # the retry only
        assert Job.objects.filter(state="cancelled").count() == 2
        assert self.refused("cancel", "nonsense")[0] == self.refused("cancel", str(world.host.pk))[0] == 2

    def test_hosts(self, world: World) -> None:
        assert "no other" in self.run("drain", "box")
        assert self.refused("drain", "box") == (3, "box drains already")
        assert "again" in self.run("drain", "box", "--end")
        assert self.refused("drain", "nobody") == (2, "there is no host 'nobody'; hosts: box, their-box")
        assert "revoked" in self.run("revoke_host", "box")
        assert world.agent.poll().status_code == 401
        assert self.refused("revoke_host", "box")[0] == 3
        Host.objects.filter(name="box").update(drain_requested_at=NOW)
        for words in (["drain", "box"], ["drain", "box", "--end"]):
            code, said = self.refused(*words)
            assert (code, "was revoked on" in said) == (3, True)
        assert not undrain_host(Host.objects.get(name="box"), now=NOW, by="x")

    def test_a_name_that_two_teams_use(self, world: World) -> None:
        mine, _ = create_host(world.team, "twin")
        create_host(world.other_team, "twin")
        code, said = self.refused("drain", "twin")
        assert (code, "--team" in said) == (2, True)
        self.run("drain", "twin", "--team", "ours")
        assert Host.objects.exclude(drain_requested_at=None).get() == mine

    def test_an_enrolment_code(self, world: World) -> None:
        assert self.refused("enrolment_code")[0] == 2  # two teams: name one
        code, *told = self.run("enrolment_code", "--team", "ours").split()
        assert "enrol --server http" in " ".join(told)
        assert EnrolmentCode.objects.get().team == world.team
        reply = Agent("").post("enrol", {"code": code, "hostname": "new", "agent_version": "0"})
        assert reply.status_code == 201
