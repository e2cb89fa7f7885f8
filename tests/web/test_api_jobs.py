"""The people's API: who is let in, what is done to jobs, evidence, hosts and workloads, and that no refusal is ever a page."""

from __future__ import annotations

import hashlib
import uuid
from typing import Any

import pytest
from django.test import Client
from speccore.jobstate import JobState

from specweb.accounts.models import Membership, Role, User
from specweb.experiments.models import Host, Job, Visibility
from specweb.experiments.services.jobs import claim_next_job, move_job
from specweb.experiments.services.submission import seed_workload, submit
from tests.web import sample
from tests.web.people_api import Program, error
from tests.worlds import NOW, Agent, World, dispatch, spec, workload

pytestmark = pytest.mark.django_db

ACTIONS = ("cancel", "pause", "resume", "retry")


@pytest.fixture
def ready(world: World) -> World:
    world.agent.poll()
    world.agent.send_inventory()
    return world


@pytest.fixture
def job(ready: World) -> Job:
    return submit(spec(), ready.team, ready.owner).jobs.get()


def with_role(world: World, role: Role) -> User:
    user = User.objects.create(username=f"a-{role}")
    Membership.objects.create(user=user, team=world.team, role=role)
    return user


class TestWhoIsLetIn:
    @pytest.mark.parametrize(
        ("header", "said"),
        [
            (None, "the request carries no token"),
            ("", "the request carries no token"),
            ("Basic b3duZXI6eA==", "not of the form 'Bearer TOKEN'"),
            ("Bearer ", "not of the form 'Bearer TOKEN'"),
            ("Bearer nonsense", "unknown here; a person's token begins with swt_"),
            ("Bearer swt_nonsense", "the token is unknown here"),
            ("Bearer \xff\xfe", "unknown here"),
        ],
    )
    def test_nobody_without_a_token(self, world: World, header: str | None, said: str) -> None:
        answer = Client().get("/api/v1/me", headers={} if header is None else {"Authorization": header})
        refused = error(answer, 401)
        assert said in refused["message"]
        assert "/account/" in refused["remedy"]
        assert answer["WWW-Authenticate"] == "Bearer"

    def test_a_login_is_no_way_in(self, ready: World, job: Job) -> None:
        client = Client()
        client.force_login(ready.owner)
        for answer in (client.get("/api/v1/me"), client.post(f"/api/v1/jobs/{job.pk}/cancel")):
            assert error(answer, 401)
        job.refresh_from_db()
        assert job.state == "waiting"

    def test_nor_is_an_agents_token_and_a_persons_is_none_for_agents(self, world: World) -> None:
        assert "begins with swt_" in error(Program(token=world.token).get("me"), 401)["message"]
        assert Agent(Program(world.owner).token).poll().status_code == 401

    def test_a_token_in_the_address_does_not_count(self, world: World) -> None:
        assert error(Client().get(f"/api/v1/me?token={Program(world.owner).token}"), 401)


class TestRefusals:
    """Each in the one shape, as JSON, whatever the caller would rather have."""

    @pytest.mark.parametrize("path", ["", "nonsense", "experiments", "experiments/1", "jobs/x/cancel", "hosts/box", "../v1/"])
    def test_addresses_that_are_none(self, world: World, path: str) -> None:
        for program in (Program(), Program(world.owner)):
            assert error(program.get(path, {"Accept": "text/html"}), 404)["code"] == "not_found"

    def test_methods_that_are_none(self, ready: World, job: Job) -> None:
        program = Program(ready.owner)
        for method, path in (
            ("PUT", "experiments/"),
            ("DELETE", f"experiments/{job.experiment_id}"),
            ("GET", f"jobs/{job.pk}/cancel"),
            ("POST", "hosts/"),
        ):
            answer = program.call(method, path)
            assert error(answer, 405)["code"] == "method_not_allowed"
            assert method not in answer["Allow"]

    def test_forms_of_answer_that_are_none(self, ready: World, job: Job) -> None:
        program = Program(ready.owner)
        assert error(program.get("experiments/", {"Accept": "text/html"}), 406)["code"] == "not_acceptable"
        assert error(program.get(f"experiments/{job.experiment_id}/spec.yaml", {"Accept": "text/html"}), 406)
        assert error(program.get(f"experiments/{uuid.uuid4()}/spec.yaml", {"Accept": "application/yaml"}), 404)

    def test_a_fault_of_the_service_itself(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        program = Program(world.owner)
        monkeypatch.setattr("specweb.api.people_views.memberships_of", lambda user: 1 / 0)
        refused = error(program.get("me"), 500)
        assert refused["code"] == "server_error"
        assert "division" not in str(refused)


class TestJobs:
    def test_cancel_pause_resume_retry(self, ready: World, job: Job) -> None:
        program = Program(ready.owner)
        said = lambda action, status=200: _answer(program.post(f"jobs/{job.pk}/{action}"), status)  # noqa: E731
        assert said("pause")["paused"] is True
        assert said("resume")["paused"] is False
        assert (said("cancel")["state"], Job.objects.get().reason) == ("cancelled", "cancelled by owner")
        new = said("retry", 201)
        assert (new["state"], new["retry_of"], new["experiment"]) == ("waiting", str(job.pk), str(job.experiment_id))

    def test_one_that_is_held_is_told_with_the_next_poll(self, ready: World, job: Job) -> None:
        dispatch()
        offer = ready.agent.offer()
        told = _answer(Program(ready.owner).post(f"jobs/{job.pk}/cancel"), 200)
        assert (told["state"], told["cancelling"]) == ("claimed", True)
        reply = ready.agent.poll(running={"job_id": offer.job_id, "lease": offer.lease}).json()
        assert reply["cancel"] == [str(job.pk)]

    def test_what_changes_nothing_says_so(self, ready: World, job: Job) -> None:
        program = Program(ready.owner)
        said = lambda action: error(program.post(f"jobs/{job.pk}/{action}"), 409)  # noqa: E731
        assert said("resume")["message"] == "nothing to resume: the job was not paused"
        assert said("retry")["code"] == "not_possible"
        program.post(f"jobs/{job.pk}/cancel")
        assert "has ended" in said("cancel")["message"]
        assert "is done" in said("pause")["message"]
        program.post(f"jobs/{job.pk}/retry")
        assert "retried already" in said("retry")["message"]

    def test_who_may(self, ready: World, job: Job) -> None:
        for role, expected in ((Role.VIEWER, 403), (Role.SUBMITTER, 200), (Role.MAINTAINER, 200)):
            program = Program(with_role(ready, role))
            for action in ("pause", "resume"):
                assert program.post(f"jobs/{job.pk}/{action}").status_code == expected, (role, action)
        refused = error(Program(ready.teammate).post(f"jobs/{job.pk}/cancel"), 403)
        assert refused["message"] == "your role in team ours is viewer, which may read only"
        assert refused["remedy"] == "Ask a maintainer of the team for the role submitter."
        job.refresh_from_db()
        assert job.state == "waiting"

    def test_a_strangers_job_is_not_there_and_a_public_one_is_not_theirs(self, ready: World, job: Job) -> None:
        stranger = Program(ready.stranger)
        for action in ACTIONS:
            assert error(stranger.post(f"jobs/{job.pk}/{action}"), 404) == error(stranger.post(f"jobs/{uuid.uuid4()}/{action}"), 404)
        job.experiment.visibility = Visibility.PUBLIC
        job.experiment.save()
        for action in ACTIONS:
            assert error(stranger.post(f"jobs/{job.pk}/{action}"), 403)["message"] == "you are not in team ours"
        job.refresh_from_db()
        assert (job.state, job.is_paused) == ("waiting", False)

    def test_a_viewer_submits_and_previews_nothing(self, ready: World) -> None:
        viewer = Program(ready.teammate)
        for path in ("experiments/", "experiments/preview", "experiments/?team=ours"):
            refused = error(viewer.post(path, spec().model_dump(mode="json")), 403)
            assert refused["remedy"].startswith("Ask a maintainer")
        assert not Job.objects.exists()


def _answer(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.content
    told: dict[str, Any] = answer.json()
    return told


class TestEvidence:
    @pytest.fixture
    def run(self, db: Any) -> sample.Run:
        self.people = sample.people()
        host = sample.host_with_inventory(self.people.team)
        run = sample.claimed(sample.submitted(self.people.team, self.people.owner, sample.spec(), Visibility.PUBLIC), host)
        sample.play(run, n_trials=2)
        return run

    def all_of(self, program: Program, run: sample.Run, limit: int) -> list[dict[str, Any]]:
        path, found = f"jobs/{run.job.pk}/evidence?limit={limit}", []
        while path:
            told = program.get(path).json()
            assert len(told["evidence"]) <= limit
            found, path = found + told["evidence"], told["next"]
        return found

    def test_every_file_once_with_its_bytes(self, run: sample.Run) -> None:
        program = Program(self.people.owner)
        files = self.all_of(program, run, 3)
        assert [f["attempt"] for f in files] == [str(a.pk) for a in run.attempts for _ in a.evidence.all()]
        assert files == self.all_of(program, run, 500)
        for file in files:
            answer = program.get(file["url"])
            content = b"".join(answer.streaming_content)
            assert (hashlib.sha256(content).hexdigest(), len(content)) == (file["sha256"], file["bytes"])
            assert answer["X-Content-SHA256"] == file["sha256"]
            assert answer["Content-Type"] == "application/octet-stream"

    def test_prompts_and_answers_are_for_the_team(self, run: sample.Run) -> None:
        stranger = Program(self.people.stranger)
        for file in self.all_of(stranger, run, 500):
            assert (file["url"] is None) is file["private"]
            answer = stranger.get(f"attempts/{file['attempt']}/evidence/{file['file']}")
            assert answer.status_code == (404 if file["private"] else 200)
        assert any(f["private"] for f in self.all_of(stranger, run, 500))

    def test_nothing_of_another_team(self, run: sample.Run) -> None:
        run.experiment.visibility = Visibility.TEAM
        run.experiment.save()
        stranger = Program(self.people.stranger)
        assert error(stranger.get(f"jobs/{run.job.pk}/evidence"), 404)
        assert error(stranger.get(f"attempts/{run.attempts[0].pk}/evidence/server.log"), 404)
        assert error(stranger.get(f"attempts/{run.attempts[0].pk}/evidence/%00"), 404)


class TestHosts:
    def test_what_ones_teams_offer(self, ready: World) -> None:
        told = Program(ready.teammate).get("hosts/").json()["hosts"]
        assert [h["name"] for h in told] == ["box"]
        box = told[0]
        assert (box["state"], box["team"], box["draining"], box["hardware"]) == ("online", "ours", False, "CPU · Some CPU, 4 cores")
        assert [m["alias"] for m in box["models"]] == ["target", "draft"]
        assert box["runtimes"][0]["backend"] == "cpu"
        assert "token" not in str(told)

    def test_states(self, ready: World) -> None:
        program = Program(ready.owner)
        state = lambda: program.get("hosts/?team=ours").json()["hosts"][0]["state"]  # noqa: E731
        Host.objects.filter(pk=ready.host.pk).update(last_seen_at=None)
        assert state() == "never seen"
        Host.objects.filter(pk=ready.host.pk).update(last_seen_at=NOW.replace(year=2020))
        assert state() == "lost"
        Host.objects.filter(pk=ready.host.pk).update(revoked_at=NOW)
        assert program.get("hosts/").json() == {"hosts": []}

    def test_a_host_that_has_told_nothing_yet(self, world: World) -> None:
        box = Program(world.owner).get("hosts/").json()["hosts"][0]
        assert (box["models"], box["runtimes"], box["hardware"]) == ([], [], None)


def test_workloads_are_the_built_in_ones_and_those_of_ones_teams(world: World) -> None:
    seed_workload(workload("secret"), world.other_team)
    seed_workload(workload("own", 2), world.team)
    told = Program(world.owner).get("workloads/").json()["workloads"]
    assert [(w["ref"], w["team"], w["n_items"]) for w in told] == [("own@2", "ours", 16), ("tiny@1", None, 16)]


def test_a_host_that_works_stays_with_its_job(ready: World, job: Job) -> None:
    """The reason and host of a job that is held stand in its answer."""
    dispatch()
    claim_next_job(ready.host, NOW)
    move_job(job.pk, JobState.RUNNING, now=NOW, by="test")
    told = Program(ready.owner).get(f"experiments/{job.experiment_id}").json()["jobs"][0]
    assert (told["state"], told["host"], told["error"], told["n_trials"], told["n_trials_done"]) == ("running", "box", None, 6, 0)
