"""Submitting and dispatching: what is refused at once, what waits with its reason, what is frozen."""

from __future__ import annotations

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from speccore.errors import FlagNotAllowed, NoHostCanRun, SpecError, UnknownModel
from speccore.spec import ExperimentSpec

from specweb.experiments.models import Arm, Experiment, Host, Job, Point, Workload
from specweb.experiments.services.hosts import create_host
from specweb.experiments.services.submission import seed_workload, submit
from specweb.results.models import Trial
from tests.worlds import Agent, World, dispatch, inventory, make_world, sha, spec, workload


def online(agent: Agent) -> None:
    agent.poll()
    assert agent.send_inventory().status_code == 200


@pytest.fixture
def ready(world: World) -> World:
    online(world.agent)
    return world


def sent(world: World, asked: ExperimentSpec | None = None) -> Experiment:
    return submit(asked or spec(), world.team, world.owner)


class TestRefusedAtOnce:
    def test_a_model_that_no_host_ever_had(self, ready: World) -> None:
        with pytest.raises(UnknownModel, match=r"'targett'.*near: target"):
            sent(ready, spec(target={"model": "targett"}))
        assert not Experiment.objects.exists()

    def test_a_flag_that_no_host_allows(self, ready: World) -> None:
        with pytest.raises(FlagNotAllowed, match="host box doesn't allow --yarn-orig-ctx"):
            sent(ready, spec(engine={"extra": {"--yarn-orig-ctx": 512}}))
        assert not Experiment.objects.exists()

    def test_a_model_that_only_another_teams_host_has(self, world: World) -> None:
        online(world.other_agent)
        with pytest.raises(UnknownModel):
            sent(world)

    def test_a_workload_that_is_not_there(self, ready: World) -> None:
        with pytest.raises(SpecError, match=r"'tyny'.*near: tiny"):
            sent(ready, spec(points=[{"workload": "tyny"}]))
        with pytest.raises(SpecError, match="tiny@9"):
            sent(ready, spec(points=[{"workload": "tiny@9"}]))

    def test_a_workload_of_another_team(self, ready: World) -> None:
        seed_workload(workload("private"), ready.other_team)
        with pytest.raises(SpecError, match="private"):
            sent(ready, spec(points=[{"workload": "private"}]))

    def test_a_plan_that_cannot_be_made(self, ready: World) -> None:
        with pytest.raises(SpecError, match="tiny"):
            sent(ready, spec(points=[{"workload": "tiny", "probes": 50}]))

    def test_hosts_that_the_team_does_not_have(self, ready: World) -> None:
        with pytest.raises(NoHostCanRun, match="'bax'; near: box"):
            sent(ready, spec(placement={"hosts": ["bax"]}))
        with pytest.raises(NoHostCanRun, match="their-box"):
            sent(ready, spec(placement={"hosts": ["their-box"]}))
        with pytest.raises(NoHostCanRun, match="gpu=h200"):
            sent(ready, spec(placement={"each": True, "labels": {"gpu": "h200"}}))

    def test_all_of_it_is_told_in_one_error(self, ready: World) -> None:
        with pytest.raises(
            SpecError, match=r"target\.model: .*; points\.0\.workload: |points\.0\.workload: .*; target\.model: "
        ) as refused:
            sent(ready, spec(target={"model": "nope"}, points=[{"workload": "nope"}]))
        assert {p["field"] for p in refused.value.details["problems"]} == {"target.model", "points.0.workload"}
        assert not Experiment.objects.exists()


class TestSentTwice:
    def test_the_second_returns_the_first(self, ready: World) -> None:
        key = uuid.uuid4()
        first = submit(spec(), ready.team, ready.owner, submission_key=key)
        again = submit(spec(blocks=5), ready.team, ready.owner, submission_key=key)
        assert again == first
        assert (Experiment.objects.count(), Job.objects.count()) == (1, 1)

    def test_also_when_what_it_names_is_gone_meanwhile(self, ready: World) -> None:
        key = uuid.uuid4()
        first = submit(spec(), ready.team, ready.owner, submission_key=key)
        assert submit(spec(target={"model": "gone"}), ready.team, ready.owner, submission_key=key) == first

    def test_keys_are_a_teams_own(self, ready: World) -> None:
        key = uuid.uuid4()
        online(ready.other_agent)
        ours = submit(spec(), ready.team, ready.owner, submission_key=key)
        theirs = submit(spec(), ready.other_team, ready.stranger, submission_key=key)
        assert ours != theirs
        assert submit(spec(), ready.team, ready.owner) != ours


@pytest.mark.django_db(transaction=True)
def test_sent_twice_at_the_same_moment_makes_one() -> None:
    world = make_world()
    online(world.agent)
    for _ in range(10):
        key, gate, made = uuid.uuid4(), threading.Barrier(4), []

        def send(key: uuid.UUID = key, gate: threading.Barrier = gate, made: list[Any] = made) -> None:
            try:
                gate.wait(10)
                made.append(submit(spec(), world.team, world.owner, submission_key=key).pk)
            finally:
                connection.close()

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert len(made) == 4
        assert len(set(made)) == 1
    assert (Experiment.objects.count(), Job.objects.count(), Arm.objects.count()) == (10, 10, 20)


class TestStored:
    def test_arms_points_and_jobs(self, ready: World) -> None:
        experiment = sent(ready)
        assert list(Arm.objects.values_list("name", "is_baseline", "draft_limit")) == [("off", True, None), ("draft-4", False, 4)]
        assert Point.objects.get().workload.content_hash == workload().content_hash()
        assert [j.state for j in experiment.jobs.all()] == ["waiting"]
        assert experiment.spec_hash == spec().spec_hash()

    def test_the_newest_version_is_fixed_at_submission(self, ready: World) -> None:
        experiment = sent(ready)
        seed_workload(workload(version=2))
        dispatch()
        job = experiment.jobs.get()
        assert job.plan["workloads"] == {"tiny": workload(version=1).content_hash()}
        assert sent(ready).points.get().workload.version == 2
        assert sent(ready, spec(points=[{"workload": "tiny@1"}])).points.get().workload.version == 1

    def test_a_teams_own_workload_wins_over_the_built_in(self, ready: World) -> None:
        own = seed_workload(workload().model_copy(update={"title": "Ours"}), ready.team)
        assert sent(ready).points.get().workload == own

    def test_workloads_are_immutable(self, ready: World) -> None:
        assert seed_workload(workload()) == Workload.objects.get()
        with pytest.raises(SpecError, match="tiny@1"):
            seed_workload(workload().model_copy(update={"title": "Changed"}))

    @pytest.mark.parametrize(
        ("placement", "n"), [({"count": 2}, 2), ({"hosts": ["box"]}, 1), ({"each": True}, 2), ({"each": True, "labels": {"gpu": "yes"}}, 1)]
    )
    def test_one_job_for_each_host(self, ready: World, placement: dict[str, Any], n: int) -> None:
        create_host(ready.team, "second")
        Host.objects.filter(name="second").update(labels={"gpu": "yes"})
        assert sent(ready, spec(placement=placement)).jobs.count() == n


class TestDispatch:
    def test_freezes_all_that_will_run(self, ready: World) -> None:
        experiment = sent(ready)
        assert dispatch() == 1
        job = experiment.jobs.get()
        assert (job.state, job.host, job.inventory.hash) == ("queued", ready.host, ready.agent.inventory.content_hash())
        assert (job.runtime.manifest_hash, job.target.manifest_hash) == (sha("runtime"), sha("target"))
        assert job.draft_hashes == {"draft-4": sha("draft")}
        assert job.device_uuids == ["cpu-1"]
        assert "draft-simple" in job.commands["draft-4"]
        assert job.commands["draft-4"][0] == "{executable}"
        trials = Trial.objects.filter(job=job)
        assert [t.plan_id for t in trials] == [t["id"] for t in job.plan["trials"]]
        assert {t.arm.name for t in trials} == {"off", "draft-4"}

    def test_once(self, ready: World) -> None:
        sent(ready)
        assert (dispatch(), dispatch()) == (1, 0)

    def test_models_by_hash(self, ready: World) -> None:
        sent(ready, spec(target={"model": sha("target")}))
        assert dispatch() == 1

    def waits(self, experiment: Experiment) -> str:
        assert dispatch() == 0
        job = experiment.jobs.get()
        assert job.state == "waiting"
        return str(job.reason)

    def test_offline(self, ready: World) -> None:
        experiment = sent(ready)
        seen = Host.objects.get(pk=ready.host.pk).last_seen_at
        assert seen is not None
        assert dispatch(seen + timedelta(minutes=1)) == 0
        assert "box could run it and is offline (last seen" in experiment.jobs.get().reason
        ready.agent.poll()
        assert dispatch() == 1

    def test_a_model_that_is_gone(self, ready: World) -> None:
        experiment = sent(ready)
        ready.agent.inventory = inventory(models=ready.agent.inventory.models[:1])
        online(ready.agent)
        assert self.waits(experiment) == "box has no model 'draft'"

    def test_no_build_that_is_asked_for(self, ready: World) -> None:
        experiment = sent(ready, spec(runtime={"engine": "llama-server", "backend": "cuda"}))
        assert self.waits(experiment) == "box has no engine build that is llama-server with backend cuda"

    def test_a_build_whose_help_lacks_what_an_arm_needs(self, ready: World) -> None:
        capabilities = ready.agent.inventory.runtimes[0].capabilities
        plain = capabilities.model_copy(update={"dialect": "none", "spec_types": []})
        ready.agent.inventory = inventory(runtimes=[ready.agent.inventory.runtimes[0].model_copy(update={"capabilities": plain})])
        online(ready.agent)
        assert self.waits(sent(ready)).startswith("box can't run it: arm 'draft-4': ")

    def test_a_flag_that_the_owner_does_not_allow(self, ready: World) -> None:
        ready.agent.inventory = inventory(allowed_flags=["--numa"])
        online(ready.agent)
        experiment = sent(ready, spec(engine={"extra": {"--numa": "isolate"}}))
        ready.agent.inventory = inventory(allowed_flags=[])  # between submission and dispatch its owner took the flag back
        online(ready.agent)
        assert "this host doesn't allow --numa" in self.waits(experiment)

    def test_draining(self, ready: World) -> None:
        experiment = sent(ready)
        ready.agent.poll(draining=True)
        assert "draining" in self.waits(experiment)

    def test_two_jobs_of_an_experiment_never_share_a_host(self, ready: World) -> None:
        experiment = sent(ready, spec(placement={"count": 2}))
        assert dispatch() == 1
        _, token = create_host(ready.team, "second")
        online(Agent(token))
        assert dispatch() == 1
        assert {j.host.name for j in experiment.jobs.all() if j.host} == {"box", "second"}

    def test_the_idler_host_is_taken(self, ready: World) -> None:
        _, token = create_host(ready.team, "a-second")
        online(Agent(token))
        for _ in range(4):
            sent(ready)
        dispatch()
        hosts = [j.host.name for j in Job.objects.all() if j.host]
        assert sorted(hosts) == ["a-second", "a-second", "box", "box"]

    def test_labels(self, ready: World) -> None:
        ready.agent.inventory = inventory(labels={"room": "attic"})
        online(ready.agent)
        experiment = sent(ready, spec(placement={"labels": {"room": "attic"}}))
        ready.agent.inventory = inventory()
        online(ready.agent)
        assert self.waits(experiment) == "no free host with room=attic in this team"
        ready.agent.inventory = inventory(labels={"room": "attic"})
        online(ready.agent)
        assert dispatch() == 1


def test_the_state_of_an_experiment_is_that_of_its_liveliest_job(ready: World) -> None:
    experiment = sent(ready, spec(placement={"count": 2}))
    assert experiment.state == "waiting"
    dispatch()
    experiment = Experiment.objects.prefetch_related("jobs").get()
    assert sorted(j.state for j in experiment.jobs.all()) == ["queued", "waiting"]
    assert experiment.state == "queued"


def test_who_sees_an_experiment(ready: World) -> None:
    from django.contrib.auth.models import AnonymousUser

    experiment = sent(ready)
    sees = {u: Experiment.objects.visible_to(u).exists() for u in (ready.owner, ready.teammate, ready.stranger)}
    assert sees == {ready.owner: True, ready.teammate: True, ready.stranger: False}
    assert not Experiment.objects.visible_to(AnonymousUser()).exists()
    Experiment.objects.filter(pk=experiment.pk).update(visibility="public")
    assert Experiment.objects.visible_to(AnonymousUser()).get() == experiment
    assert Job.objects.visible_to(ready.stranger).exists()
    assert not Host.objects.visible_to(ready.stranger).filter(pk=ready.host.pk).exists()
