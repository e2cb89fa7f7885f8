"""A run that was made without the service, uploaded by the agent's own client: whole or not at all, once, and marked for what it is."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from django.test import Client
from specagent.connection import Connection, Refused, Unreachable
from specagent.push import Folder, push, read_folder
from specagent.spool import compress
from speccore.canonical import sha256_of
from speccore.jobstate import MOVES, JobState
from speccore.protocol import AttemptReport
from speccore.selfrun import RunInvalid, RunReply, document_hashes

from specweb.accounts.models import AuditEntry, Membership, Role, Team, User
from specweb.accounts.services import create_token
from specweb.experiments.models import Experiment, Host, HostModel, Job, JobMove, Lease, Model, Origin, Runtime, Workload
from specweb.experiments.services.jobs import retry_job
from specweb.experiments.services.submission import submit
from specweb.results.models import Analysis, Attempt, Blob, Comparison, EvidenceFile, Trial
from specweb.results.queries import left_to_parse
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from tests import evidence, worlds
from tests.runs import edit, make_run
from tests.worlds import World, make_world


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "run"


class Carrier(httpx.BaseTransport):
    """Carries the client's requests to the views, inside the test's transaction. After ``n_uploads`` the line is cut."""

    def __init__(self, n_uploads: int = 10_000) -> None:
        self.client = Client(raise_request_exception=False)
        self.n_left = n_uploads
        self.n_puts = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.n_puts += request.method == "PUT"
        if self.n_puts > self.n_left:
            raise httpx.WriteError("the line is cut", request=request)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in ("content-length", "host")}
        kind = request.headers.get("Content-Type", "application/octet-stream")
        answer = self.client.generic(request.method, request.url.raw_path.decode(), request.read(), kind, headers=headers)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content, request=request)


def connection(user: User | None, transport: httpx.BaseTransport | None = None, token: str = "") -> Connection:
    secret = token or (create_token(user, f"laptop {uuid4()}")[1] if user else "")
    return Connection("http://testserver/api/v1", secret, transport=transport or Carrier(), sleep=lambda s: None)


def pushed(path: Path, user: User, **options: Any) -> RunReply:
    server = connection(user)
    try:
        return push(read_folder(path, **options), server)
    finally:
        server.close()


def refused(path: Path, user: User | None, **options: Any) -> Refused:
    server = connection(user)
    with pytest.raises(Refused) as caught:
        push(read_folder(path, **options), server)
    server.close()
    return caught.value


def nothing_stored() -> bool:
    tables = (Experiment, Job, Lease, Trial, Attempt, EvidenceFile, Runtime, Model, JobMove)
    return not any(t.objects.exists() for t in tables) and not Host.every.filter(self_run=True).exists()


def measured(job: Job) -> Job:
    for attempt_id in left_to_parse(datetime.now(UTC).replace(year=2100)):
        parse_attempt(attempt_id)
    compare_job(job.pk, datetime.now(UTC))
    job.refresh_from_db()
    return job


class TestAWholeRun:
    def test_it_becomes_an_experiment_with_the_same_answer(self, world: World, run: Path) -> None:
        reply = pushed(run, world.owner)
        assert (reply.created, reply.n_attempts, reply.n_files) == (True, 6, 6 * 8)
        experiment = Experiment.objects.get(pk=reply.experiment)
        assert (experiment.origin, experiment.team, experiment.created_by, experiment.visibility) == (
            Origin.SELF_RUN,
            world.team,
            world.owner,
            "team",
        )
        assert reply.url.endswith(f"/experiments/{experiment.pk}/")
        job = measured(experiment.jobs.get())
        assert job.state == JobState.PROCESSED
        (comparison,) = Comparison.objects.current().filter(job=job)
        assert comparison.speedup == pytest.approx(evidence.SPEEDUP, rel=0.01)
        assert comparison.n_blocks == 3
        assert Attempt.objects.filter(accepted=True, counted=True).count() == 6
        assert {e.blob.sha256 for e in EvidenceFile.objects.select_related("blob")} == set(read_folder(run).files)
        assert all(e.private == (e.name == "texts.jsonl") for e in EvidenceFile.objects.all())

    def test_its_job_goes_the_way_of_all_jobs(self, world: World, run: Path) -> None:
        job = measured(Job.objects.get(pk=pushed(run, world.owner).job))
        moves = list(JobMove.objects.filter(job=job).values_list("src", "dst"))
        assert [dst for _, dst in moves] == ["queued", "claimed", "running", "completed", "processed"]
        assert all(JobState(dst) in MOVES[JobState(src)] for src, dst in moves)
        assert [src for src, _ in moves] == ["waiting", *(dst for _, dst in moves[:-1])]
        assert job.host is not None
        assert job.host.self_run
        assert job.inventory.parsed.hostname == "box"

    def test_sent_twice_it_is_there_once(self, world: World, run: Path) -> None:
        first, second = pushed(run, world.owner), pushed(run, world.owner)
        assert (first.created, second.created) == (True, False)
        assert second.model_copy(update={"created": True}) == first
        entry = AuditEntry.objects.get(action="experiment.upload")
        assert (entry.actor, entry.via, entry.object_id) == ("owner", "token", str(Experiment.objects.get().pk))
        assert (Experiment.objects.count(), Attempt.objects.count(), Host.every.filter(self_run=True).count()) == (1, 6, 1)

    def test_a_trial_that_was_tried_twice(self, world: World, tmp_path: Path) -> None:
        offer = make_run(tmp_path / "run", failing="b2-off")
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        tries = list(Attempt.objects.filter(trial__plan_id="b2-off").order_by("n").values_list("n", "outcome", "accepted"))
        assert tries == [(1, "failed", False), (2, "ok", True)]
        assert (job.state, str(job.pk)) == (JobState.PROCESSED, offer.job_id)

    def test_a_run_whose_time_was_up(self, world: World, tmp_path: Path) -> None:
        make_run(tmp_path / "run", spec=worlds.spec(blocks=5), n_trials=6, budget_s=100.0)
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        assert job.state == JobState.PROCESSED
        assert "3 of 5 blocks" in JobMove.objects.get(job=job, dst="completed").reason
        assert Comparison.objects.get().n_blocks == 3

    def test_a_run_that_stopped_early_is_whole_and_its_looks_are_taken_again(self, world: World, tmp_path: Path) -> None:
        spec = worlds.spec(blocks=5, sequential=True)
        make_run(tmp_path / "run", spec=spec, n_trials=6, decided={"draft-4": 3}, n_blocks=3)
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        assert (job.state, job.decided) == (JobState.PROCESSED, {"draft-4": 3})
        assert "3 of 5 blocks until every arm was decided" in JobMove.objects.get(job=job, dst="completed").reason
        check = next(c for c in Analysis.objects.get(job=job).parsed.checks if c.name == "early looks")
        assert (check.state, check.evidence["decided_after_block"]) == ("passed", {"draft-4": 3})

    def test_a_run_that_says_it_was_decided_before_its_numbers_decide_is_told(
        self, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = evidence._record
        uneven = lambda request, i, drafting, block: made(request, i, drafting, block + 300 * (drafting and block % 2))  # noqa: E731
        monkeypatch.setattr(evidence, "_record", uneven)  # the arm is 30 % slower in every other block
        make_run(tmp_path / "run", spec=worlds.spec(blocks=5, sequential=True), n_trials=6, decided={"draft-4": 3}, n_blocks=3)
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        check = next(c for c in Analysis.objects.get(job=job).parsed.checks if c.name == "early looks")
        assert (check.kind, check.state) == ("soft", "failed")
        assert check.sentence.startswith("draft-4 left after block 3, and its numbers do not decide it there")

    @pytest.mark.parametrize(("outcome", "state"), [("failed", JobState.FAILED), ("cancelled", JobState.CANCELLED)])
    def test_a_run_that_did_not_come_to_its_end_keeps_what_it_has(
        self, world: World, tmp_path: Path, outcome: str, state: JobState
    ) -> None:
        make_run(tmp_path / "run", n_trials=3, outcome=outcome)
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        assert job.state == state
        assert Analysis.objects.filter(job=job).exists()
        with pytest.raises(Exception, match="without this service"):
            retry_job(job, now=datetime.now(UTC), by="x")

    def test_two_runs_of_a_machine_have_one_host_that_takes_no_jobs(self, world: World, tmp_path: Path) -> None:
        for name in ("one", "two"):
            make_run(tmp_path / name)
            pushed(tmp_path / name, world.owner)
        (host,) = Host.every.filter(self_run=True)
        assert host.name == "box-self-run"
        assert set(Host.objects.filter(team=world.team)) == {world.host}
        assert not HostModel.objects.filter(host=host).exists()  # so that no experiment may wait for its models
        assert Experiment.objects.count() == 2

    def test_a_workload_of_ones_own_comes_with_it(self, world: World, tmp_path: Path) -> None:
        mine = worlds.workload("mine")
        points = [{"workload": "mine", "max_tokens": 32, "probes": 2}]
        make_run(tmp_path / "run", spec=worlds.spec(points=points), workloads={"mine": mine})
        pushed(tmp_path / "run", world.owner)
        assert Workload.objects.get(team=world.team).content_hash == mine.content_hash()
        make_run(tmp_path / "again", spec=worlds.spec(points=points), workloads={"mine": mine})
        pushed(tmp_path / "again", world.owner)
        assert Workload.objects.filter(team=world.team).count() == 1

    def test_for_everybody(self, world: World, run: Path) -> None:
        assert Experiment.objects.get(pk=pushed(run, world.owner, visibility="public").experiment).visibility == "public"


def drop(path: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        target = run / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()

    return change


def write(path: str, text: str) -> Callable[[Path], None]:
    return lambda run: (run / path).write_text(text)


def changed(path: str, change: Callable[[Any], None]) -> Callable[[Path], None]:
    return lambda run: edit(run / path, change)


def set_in(*keys: Any) -> Callable[[Any], None]:
    """``set_in("a", "b", 1)`` sets data["a"]["b"] = 1."""

    def change(data: Any) -> None:
        for key in keys[:-2]:
            data = data[key]
        data[keys[-2]] = keys[-1]

    return change


TAMPERED: dict[str, tuple[Callable[[Path], None], str]] = {
    "a file of evidence was changed": (write("attempts/b1-off.1/server.log", "faster"), "b1-off.1/server.log was changed"),
    "a file of evidence is gone": (drop("attempts/b1-off.1/records.jsonl"), "b1-off.1/records.jsonl is missing"),
    "an attempt is gone": (drop("attempts/b2-off.1"), "attempt 1 at trial b2-off is missing"),
    "a report was changed": (changed("attempts/b1-off.1/report.json", set_in("outcome", "failed")), "is not one that the run left"),
    "the job was changed": (changed("job.json", set_in("spec", "blocks", 2)), "job.json is not the one that the run left"),
    "the inventory was changed": (changed("inventory.json", set_in("cpu_model", "Better")), "inventory.json is not the one"),
    "the workloads were changed": (changed("workloads.json", set_in("tiny", "title", "x")), "workloads.json is not the one"),
    "the job is no JSON": (write("job.json", "{"), "job.json is no JSON"),
    "the index is no JSON": (write("run.json", "nonsense"), "run.json is no JSON"),
    "the index lacks what it must have": (changed("run.json", lambda d: d.pop("attempts")), "run.json can't be read: attempts"),
    "there is no index": (drop("run.json"), "no run that has ended"),
    "another protocol": (changed("run.json", set_in("protocol", 2)), "run.json is of protocol 2"),
    "a path that leads out": (changed("run.json", set_in("attempts", 0, "trial", "../../x")), "is no file name"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_what_is_not_as_it_was_measured_does_not_leave_the_machine(name: str, run: Path) -> None:
    change, said = TAMPERED[name]
    change(run)
    with pytest.raises(Exception, match=said) as caught:
        read_folder(run)
    assert type(caught.value).__name__ in ("RunInvalid", "SpecError")


class TestTheServerChecksForItself:
    """What a changed client could send: the message is built by hand."""

    def post(self, folder: Folder, user: User, change: Callable[[dict[str, Any]], None]) -> httpx.Response:
        server = connection(user)
        for sha256, path in folder.files.items():
            packed = path.parent / "packed"
            compress(path, packed)
            server.put_file(f"runs/blobs/{sha256}", packed, {})
            packed.unlink()
        message = folder.upload.model_dump(mode="json")
        change(message)
        answer = server._http.post("runs/", json=message)
        server.close()
        return answer

    @pytest.mark.parametrize(
        ("change", "status", "code"),
        [
            (set_in("job", "spec", "name", "Other"), 422, "run_invalid"),
            (set_in("job", {"spec": 1}), 422, "run_invalid"),
            (set_in("reports", []), 422, "run_invalid"),
            (lambda m: m["reports"].reverse(), 422, "run_invalid"),
            (set_in("reports", 0, "evidence", 0, "sha256", "0" * 64), 422, "run_invalid"),
            (set_in("run", "job_id", "00000000-0000-0000-0000-000000000000"), 422, "run_invalid"),
            (set_in("protocol", 2), 426, "protocol_not_supported"),
            (set_in("run", None), 400, "invalid_message"),
            (set_in("run", "attempts", 0, "sha256", "x"), 400, "invalid_message"),
            (set_in("visibility", "everybody"), 400, "invalid_message"),
        ],
    )
    def test_a_changed_message(self, world: World, run: Path, change: Callable[[Any], None], status: int, code: str) -> None:
        answer = self.post(read_folder(run), world.owner, change)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        assert answer.json()["error"]["message"]
        assert nothing_stored()

    def test_a_plan_of_ones_own(self, world: World, tmp_path: Path) -> None:
        """Hashes that fit are no proof: the plan must follow from the experiment."""
        make_run(tmp_path / "run")
        folder = read_folder(tmp_path / "run")

        def choose_prompts(message: dict[str, Any]) -> None:
            for trial in message["job"]["plan"]["trials"]:
                trial["probes"] = trial["probes"][:1] * 2
            message["run"]["documents"] = document_hashes(message["job"], message["inventory"], message["workloads"])

        answer = self.post(folder, world.owner, choose_prompts)
        assert "the plan is not the one that follows from the experiment" in answer.json()["error"]["message"]
        assert nothing_stored()

    def test_trials_that_were_left_out_with_a_time_that_was_not_given(self, world: World, tmp_path: Path) -> None:
        make_run(tmp_path / "run", n_trials=5, budget_s=1.0)  # the last block is half
        with pytest.raises(RunInvalid, match="without an attempt that decides them: b3-"):
            read_folder(tmp_path / "run")

    def test_bytes_with_another_hash(self, world: World, run: Path) -> None:
        server = connection(world.owner)
        answer = server._http.put("runs/blobs/" + "0" * 64, content=b"x")
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "hash_mismatch")
        assert not Blob.objects.exists()
        server.close()

    def test_a_file_of_another_team_is_not_had_by_its_hash(self, world: World, run: Path) -> None:
        pushed(run, world.owner)
        sha256 = next(iter(read_folder(run).files))
        for user, status in ((world.owner, 200), (world.stranger, 404)):
            server = connection(user)
            assert server._http.head(f"runs/blobs/{sha256}").status_code == status
            server.close()

    def test_evidence_of_another_attempt_is_no_number(self, world: World, tmp_path: Path) -> None:
        """Files that were measured, under another trial's name, with every hash made to fit."""
        offer = make_run(tmp_path / "run")
        source, target = (tmp_path / "run" / "attempts" / f"{t}.1" for t in ("b1-draft-4", "b2-draft-4"))
        for path in source.iterdir():
            if path.name != "report.json":
                shutil.copy(path, target / path.name)
        report = AttemptReport.model_validate_json((target / "report.json").read_text())
        new = report.model_copy(update={"evidence": AttemptReport.model_validate_json((source / "report.json").read_text()).evidence})
        (target / "report.json").write_text(new.model_dump_json())

        def fit(index: Any) -> None:
            next(a for a in index["attempts"] if a["trial"] == "b2-draft-4")["sha256"] = sha256_of(new.model_dump(mode="json"))

        edit(tmp_path / "run" / "run.json", fit)
        job = measured(Job.objects.get(pk=pushed(tmp_path / "run", world.owner).job))
        bad = Attempt.objects.get(trial__job=job, trial__plan_id="b2-draft-4")
        assert bad.measurement is None
        assert bad.parse_error["code"] == "evidence_of_another"
        assert offer.job_id == str(job.pk)


class TestWho:
    def test_without_a_token_or_with_a_wrong_one(self, world: World, run: Path) -> None:
        assert refused(run, None).status == 401
        server = connection(None, token="swp_nonsense")
        with pytest.raises(Refused) as caught:
            push(read_folder(run), server)
        server.close()
        assert (caught.value.status, "account page" in caught.value.remedy_text) == (401, True)
        assert nothing_stored()

    def test_an_agents_token_is_none_of_a_persons(self, world: World, run: Path) -> None:
        server = connection(None, token=world.token)
        with pytest.raises(Refused) as caught:
            push(read_folder(run), server)
        server.close()
        assert caught.value.status == 401

    def test_who_may_only_read(self, world: World, run: Path) -> None:
        answer = refused(run, world.teammate)
        assert (answer.status, answer.error.code) == (403, "not_allowed")
        assert "submitter" in answer.remedy_text
        assert nothing_stored()
        assert not Blob.objects.exists()

    def test_a_team_that_one_is_not_in(self, world: World, run: Path) -> None:
        answer = refused(run, world.stranger, team="ours")
        assert (answer.status, "no team 'ours'" in answer.message) == (400, True)
        assert nothing_stored()

    def test_in_several_teams_one_must_be_named(self, world: World, run: Path) -> None:
        Membership.objects.create(user=world.owner, team=world.other_team, role=Role.SUBMITTER)
        assert "several teams: ours, theirs" in refused(run, world.owner).message
        assert Experiment.objects.get(pk=pushed(run, world.owner, team="theirs").experiment).team == world.other_team

    def test_a_run_that_another_team_uploaded(self, world: World, run: Path) -> None:
        pushed(run, world.owner)
        answer = refused(run, world.stranger)
        assert (answer.status, answer.error.code) == (403, "not_allowed")
        assert Experiment.objects.count() == 1

    def test_a_job_of_the_service_is_no_run_to_take_over(self, world: World, run: Path) -> None:
        world.agent.poll()
        world.agent.send_inventory()
        experiment = submit(worlds.spec(), world.team, world.owner)
        taken = str(experiment.jobs.get().pk)
        Job.objects.filter(pk=taken).update(id=read_folder(run).run.offer.job_id)
        assert refused(run, world.owner).error.code == "not_allowed"


class TestWorkloads:
    def test_a_built_in_name_with_other_content(self, world: World, tmp_path: Path) -> None:
        make_run(tmp_path / "run", workloads={"tiny": worlds.workload().model_copy(update={"title": "Other"})})
        answer = refused(tmp_path / "run", world.owner)
        assert "'tiny@1' of the run is not the one that this service has" in answer.message
        assert nothing_stored()
        assert not Workload.objects.filter(team=world.team).exists()


def test_pages_say_that_it_is_self_run(world: World, run: Path) -> None:
    job = measured(Job.objects.get(pk=pushed(run, world.owner).job))
    client = Client()
    client.force_login(world.owner)
    overview, page = client.get("/"), client.get(f"/experiments/{job.experiment_id}/")
    assert overview.status_code == page.status_code == 200
    assert '<span class="pill">self-run</span>' in overview.content.decode()
    assert "nobody here saw the run" in page.content.decode()
    assert "box-self-run" in page.content.decode()
    assert f"/hosts/{job.host_id}" not in page.content.decode()  # no page of a host that never polls
    assert "box-self-run" not in client.get("/hosts/").content.decode()
    attempt = Attempt.objects.filter(trial__job=job).first()
    assert attempt is not None
    assert client.get(f"/attempts/{attempt.pk}/").status_code == 200
    assert client.get(f"/jobs/{job.pk}/evidence").status_code == 200


def test_an_upload_that_broke_off_is_gone_on_with(world: World, run: Path) -> None:
    cut = connection(world.owner, Carrier(10))
    with pytest.raises(Unreachable):
        push(read_folder(run), cut)
    assert nothing_stored()
    assert Blob.objects.count() == 10
    rest = Carrier(1000)
    server = connection(world.owner, rest)
    assert push(read_folder(run), server).created
    assert rest.n_puts == len(read_folder(run).files) - 10
    for opened in (cut, server):
        opened.close()


@pytest.mark.django_db(transaction=True)
def test_the_same_run_pushed_by_two_at_once(servers: None, live_server: Any, tmp_path: Path) -> None:
    world = make_world()
    make_run(tmp_path / "run")
    tokens = [create_token(world.owner, name)[1] for name in ("one", "two")]
    replies: list[Any] = []
    barrier = threading.Barrier(2)

    def send(token: str) -> None:
        server = Connection(f"{live_server.url}/api/v1", token)
        folder = read_folder(tmp_path / "run")
        barrier.wait()
        try:
            replies.append(push(folder, server))
        except Exception as error:
            replies.append(error)
        server.close()

    threads = [threading.Thread(target=send, args=(t,)) for t in tokens]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.created for r in replies) == [False, True], replies
    assert (Experiment.objects.count(), Job.objects.count(), Attempt.objects.count()) == (1, 1, 6)


def test_teams_of_users_without_a_membership(world: World, run: Path) -> None:
    nobody = User.objects.create(username="nobody")
    assert "may not submit for any team" in refused(run, nobody).message
    assert Team.objects.count() == 2
    assert json.loads((run / "run.json").read_text())["outcome"] == "completed"
