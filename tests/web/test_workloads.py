"""Own workloads: uploaded, read by whom, shared, versioned, used, archived; and what of a private one reaches nobody else."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from speccore.prompt_file import MAX_BYTES
from speccore.workloads import builtin

from specweb.accounts.models import ApiToken, Membership, Role, Team, User
from specweb.accounts.services import create_token
from specweb.experiments import offers
from specweb.experiments.models import Experiment, Workload
from specweb.experiments.services.checking import check
from specweb.experiments.services.dispatch import plan_of
from specweb.experiments.services.submission import seed_workload, submit
from specweb.experiments.services.workloads import delete_workload
from specweb.results.models import EvidenceFile, Probe
from tests.web import sample

pytestmark = pytest.mark.django_db

SECRET = "zqsecret"


def lines(n: int = 20, word: str = SECRET) -> bytes:
    """Prompts of which every fourth is warm-up."""
    return "\n".join(json.dumps({"prompt": f"{i} {word} goes on", "warmup": i % 4 == 3}) for i in range(n)).encode()


@dataclass
class People:
    team: Team
    ada: User  # owns what is uploaded
    bob: User  # submits for the same team
    mia: User  # maintains it
    eve: User  # is of another team

    def page(self, who: User) -> Client:
        client = Client()
        client.force_login(who)
        return client

    def program(self, who: User) -> Client:
        return Client(headers={"Authorization": f"Bearer {create_token(who, f'test {ApiToken.objects.count()}')[1]}"})

    def upload(self, data: bytes | None = None, **more: str) -> Workload:
        file = SimpleUploadedFile("prompts.jsonl", lines() if data is None else data)
        answer = self.page(self.ada).post("/workloads/new", {"team": "lab", "name": "mine", "file": file, **more})
        assert answer.status_code == 302, answer.content.decode()
        return Workload.objects.get(pk=answer["Location"].strip("/").split("/")[-1])


@pytest.fixture
def lab(db: Any) -> People:
    team, other = Team.objects.create(slug="lab", name="The lab"), Team.objects.create(slug="theirs", name="Theirs")
    people = {}
    for name, role in (("ada", Role.SUBMITTER), ("bob", Role.SUBMITTER), ("mia", Role.MAINTAINER)):
        people[name] = User.objects.create(username=name)
        Membership.objects.create(user=people[name], team=team, role=role)
    eve = User.objects.create(username="eve")
    Membership.objects.create(user=eve, team=other, role=Role.MAINTAINER)
    seed_workload(builtin()["count"])
    return People(team, eve=eve, **people)


def asked(workload: str = "mine", **more: Any) -> dict[str, Any]:
    points = [{"workload": workload, "max_tokens": 32, "probes": 2}]
    return sample.spec(points=points, warmup={"mode": "fixed"}, blocks=3).model_dump(mode="json") | more


def test_a_private_one_is_read_by_its_owner_alone(lab: People) -> None:
    own = lab.upload()
    assert own.private
    for who, status, reads in ((lab.ada, 200, True), (lab.bob, 404, False), (lab.mia, 200, False), (lab.eve, 404, False)):
        page = lab.page(who).get(f"/workloads/{own.pk}/")
        assert (page.status_code, SECRET in page.content.decode()) == (status, reads), who
        assert (lab.page(who).get(f"/workloads/{own.pk}/file").status_code == 200) is reads, who
        told = [w["ref"] for w in lab.program(who).get("/api/v1/workloads/").json()["workloads"]]
        assert ("mine@1" in told) is (status == 200), who
        assert ("mine@1" in lab.page(who).get("/workloads/").content.decode()) is (status == 200), who
        assert ("mine" in [o.name for o in offers.workloads_of(lab.team, who)]) is reads, who


def test_who_left_the_team_reads_their_own_no_more(lab: People) -> None:
    own = lab.upload()
    lab.ada.memberships.all().delete()
    assert lab.page(lab.ada).get(f"/workloads/{own.pk}/").status_code == 404
    assert lab.page(lab.mia).post(f"/workloads/{own.pk}/share").status_code == 302


@pytest.mark.parametrize(("who", "status"), [("ada", 302), ("mia", 302), ("bob", 404), ("eve", 404)])
def test_its_owner_or_a_maintainer_shares_it(lab: People, who: str, status: int) -> None:
    own = lab.upload()
    assert lab.page(getattr(lab, who)).post(f"/workloads/{own.pk}/share").status_code == status
    own.refresh_from_db()
    assert own.private is (status != 302)
    assert (lab.page(lab.bob).get(f"/workloads/{own.pk}/").status_code == 200) is (status == 302)
    assert lab.page(lab.eve).get(f"/workloads/{own.pk}/").status_code == 404
    assert lab.page(lab.bob).post(f"/workloads/{own.pk}/archive").status_code == (403 if status == 302 else 404)


def test_the_same_again_is_the_same_version_and_another_is_the_next(lab: People) -> None:
    first = lab.upload()
    assert lab.upload() == first
    second = lab.upload(lines(24))
    assert (str(second), second.private, first.content_hash != second.content_hash) == ("mine@2", True, True)
    hashes = [w.parsed.content_hash() == w.content_hash for w in Workload.objects.all()]
    assert hashes == [True] * 3
    assert "mine@1" in lab.page(lab.ada).get(f"/workloads/{second.pk}/").content.decode()


def test_a_name_of_somebody_else_or_built_in_is_no_free_name(lab: People) -> None:
    lab.upload()
    for who, name in ((lab.bob, "mine"), (lab.ada, "count")):
        answer = lab.page(who).post("/workloads/new", {"team": "lab", "name": name, "text": lines().decode()})
        assert answer.status_code == 400
        assert "take another name" in answer.content.decode()
    Workload.objects.filter(name="mine").update(private=False)
    answer = lab.program(lab.bob).post("/api/v1/workloads/?name=mine", lines(24), content_type="application/jsonl")
    assert (answer.status_code, answer.json()["ref"], answer.json()["private"]) == (201, "mine@2", True)
    assert offers.workloads_of(lab.team, lab.ada)[1].version == 1  # the next version is bob's alone


def test_the_page_tells_every_fault_and_keeps_what_was_typed(lab: People) -> None:
    text = '{"prompt": "<b>one</b>"}\n{"promt": "two"}\n{"prompt": "<b>one</b>"}'
    answer = lab.page(lab.ada).post("/workloads/new", {"team": "lab", "name": "Mine!", "title": "My title", "text": text})
    page = answer.content.decode()
    assert answer.status_code == 400
    for words in ("3 things to correct", "did you mean", "asks the same as line 1", "My title", "&lt;b&gt;one"):
        assert words in page
    assert "<b>one" not in page
    assert not Workload.objects.exclude(team=None).exists()


class TestByProgram:
    def post(self, lab: People, body: Any = None, query: str = "?name=mine", **more: Any) -> Any:
        data = lines() if body is None else body
        return lab.program(lab.ada).post(f"/api/v1/workloads/{query}", data, **{"content_type": "application/jsonl", **more})

    def test_an_upload_is_answered_with_what_it_became(self, lab: People) -> None:
        answer = self.post(lab, query="?name=mine&share=yes&title=My+own&team=lab")
        told = answer.json()
        assert (answer.status_code, told["ref"], told["private"], told["n_items"], told["title"]) == (201, "mine@1", False, 15, "My own")
        assert told["warnings"] == [w for w in told["warnings"] if "settled" in w]
        again = self.post(lab, query="?name=mine&title=My+own")
        assert (again.status_code, again.json()["content_hash"]) == (200, told["content_hash"])

    def test_a_form_with_a_file(self, lab: People) -> None:
        file = SimpleUploadedFile("prompts.jsonl", lines())
        answer = lab.program(lab.ada).post("/api/v1/workloads/?name=mine", {"file": file})
        assert answer.status_code == 201

    def test_faults_come_all_at_once(self, lab: People) -> None:
        answer = self.post(lab, b'{"prompt": NaN}\n{"prompt": "a", "max_tokens": 0}', query="?name=")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["details"]["n_problems"]) == (422, "spec_invalid", 3)
        assert [(p["line"], p["field"]) for p in error["details"]["problems"]] == [(None, "name"), (1, ""), (2, "max_tokens")]

    @pytest.mark.parametrize(
        ("body", "content_type", "status"),
        [(b"", "application/jsonl", 400), (lines(), "application/json", 415), (b"x" * (MAX_BYTES + 1), "application/jsonl", 413)],
    )
    def test_what_is_no_upload(self, lab: People, body: bytes, content_type: str, status: int) -> None:
        answer = self.post(lab, body, content_type=content_type)
        assert (answer.status_code, answer.json()["error"]["remedy"] != "") == (status, True)

    def test_others_may_not(self, lab: People) -> None:
        lab.bob.memberships.update(role=Role.VIEWER)
        answers = [lab.program(who).post("/api/v1/workloads/?name=m&team=lab", lines(), "application/jsonl") for who in (lab.bob, lab.eve)]
        assert [a.status_code for a in answers] == [403, 400]
        assert not Workload.objects.exclude(team=None).exists()


class TestInAnExperiment:
    def test_only_its_owner_may_ask_with_a_private_one(self, lab: People) -> None:
        sample.host_with_inventory(lab.team)
        lab.upload()
        assert check(asked(), lab.team, lab.ada).problems == []
        for who in (lab.bob, lab.mia, None):
            assert [p.field for p in check(asked(), lab.team, who).problems] == ["points.0.workload"]
        Workload.objects.filter(name="mine").update(private=False)
        assert check(asked("mine@1"), lab.team, lab.bob).problems == []

    def test_its_prompts_are_drawn_for_no_test_whose_answers_the_team_reads(self, lab: People) -> None:
        sample.host_with_inventory(lab.team)
        lab.upload()
        tested = asked("count", sampling_test={"workload": "mine"})
        loud = asked() | {"engine": asked()["engine"] | {"log_verbosity": 5}}
        found = [[p.field for p in check(data, lab.team, lab.ada).problems] for data in (tested, loud)]
        assert found == [["sampling_test.workload"], ["engine.log_verbosity"]]

    def test_an_archived_one_is_offered_no_more_and_stays_where_it_is_named(self, lab: People) -> None:
        sample.host_with_inventory(lab.team)
        own = lab.upload()
        spec = sample.spec(**asked())
        experiment = submit(spec, lab.team, lab.ada)
        page = lab.page(lab.ada)
        assert "Delete…" not in page.get(f"/workloads/{own.pk}/").content.decode()
        page.post(f"/workloads/{own.pk}/delete")
        page.post(f"/workloads/{own.pk}/archive")
        assert [p.field for p in check(asked(), lab.team, lab.ada).problems] == ["points.0.workload"]
        assert plan_of(experiment, spec).workloads == {"mine": own.content_hash}
        page.post(f"/workloads/{own.pk}/restore")
        assert check(asked(), lab.team, lab.ada).problems == []

    def test_one_that_nobody_asks_with_can_be_deleted(self, lab: People) -> None:
        own = lab.upload()
        assert lab.page(lab.bob).post(f"/workloads/{own.pk}/delete").status_code == 404
        assert lab.page(lab.ada).post(f"/workloads/{own.pk}/delete")["Location"] == "/workloads/"
        assert lab.page(lab.ada).get(f"/workloads/{own.pk}/").status_code == 404
        assert not delete_workload(Workload.objects.get(name="count"))

    def test_one_that_only_a_sampling_test_names_stays(self, lab: People) -> None:
        sample.host_with_inventory(lab.team)
        own = lab.upload(share="on")
        submit(sample.spec(**asked("count", sampling_test={"workload": "mine"})), lab.team, lab.bob)
        assert not delete_workload(own)


class TestItsTexts:
    @pytest.fixture
    def run(self, lab: People) -> sample.Run:
        own = lab.upload(lines(40))
        return sample.finished(lab.team, lab.ada, sample.spec(**asked(own.name)))

    def answers(self, lab: People, run: sample.Run, who: User) -> list[int]:
        attempt = run.attempts[0].pk
        pages = [lab.page(who).get(f"/attempts/{attempt}/{kind}/texts.jsonl").status_code for kind in ("evidence", "raw")]
        return [*pages, lab.program(who).get(f"/api/v1/attempts/{attempt}/evidence/texts.jsonl").status_code]

    def test_prompts_and_answers_are_for_who_reads_the_workload(self, lab: People, run: sample.Run) -> None:
        assert EvidenceFile.objects.filter(name="texts.jsonl", private=True).exists()
        Experiment.objects.update(visibility="public")
        assert [self.answers(lab, run, who) for who in (lab.ada, lab.bob, lab.mia, lab.eve)] == [[200] * 3, [404] * 3, [404] * 3, [404] * 3]
        for who in (lab.bob, lab.mia, lab.eve):
            for path in (f"/experiments/{run.experiment.pk}/", f"/attempts/{run.attempts[0].pk}/", f"/jobs/{run.job.pk}/evidence"):
                page = lab.page(who).get(path)
                assert page.status_code == 200
                assert SECRET not in page.content.decode(), path
                assert "/evidence/texts.jsonl" not in page.content.decode(), path
            files = lab.program(who).get(f"/api/v1/jobs/{run.job.pk}/evidence").json()["evidence"]
            assert {f["url"] for f in files if f["file"] == "texts.jsonl"} == {None}
        Workload.objects.filter(name="mine").update(private=False)
        assert [self.answers(lab, run, who)[0] for who in (lab.ada, lab.bob, lab.mia, lab.eve)] == [200, 200, 200, 404]

    def test_the_page_tells_what_a_host_counted_and_who_asks(self, lab: People, run: sample.Run) -> None:
        own = Workload.objects.get(name="mine")
        before = lab.page(lab.ada).get(f"/workloads/{own.pk}/").content.decode()
        probe = Probe.objects.filter(warmup=False).first()
        assert probe is not None
        Probe.objects.filter(item=probe.item).update(prompt_tokens=777)
        page = lab.page(lab.ada).get(f"/workloads/{own.pk}/").content.decode()
        assert "777 tokens" in page
        assert "777 tokens" not in before
        assert run.experiment.name in page
        assert "about " in page  # of those that no host has counted
        assert run.experiment.name not in lab.page(lab.mia).get("/workloads/999999/").content.decode()


def test_a_page_beyond_the_last_and_odd_names(lab: People) -> None:
    own = lab.upload(lines(130), title="مرحبا 🦙 " + "x" * 100, share="on")
    page = lab.page(lab.ada)
    assert "page 2 of 2" in page.get(f"/workloads/{own.pk}/?page=2").content.decode()
    assert "There is no page 9" in page.get(f"/workloads/{own.pk}/?page=9").content.decode()
    assert page.get("/workloads/99999999999999999999/").status_code == 404
    assert page.get(f"/workloads/{own.pk}/file").content.decode().count("\n") == 130
