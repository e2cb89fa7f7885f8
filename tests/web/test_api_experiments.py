"""The people's API: experiments asked for and previewed; sent twice they are one; every fault in the one shape."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.accounts.models import Membership, Role, Team
from specweb.experiments.models import Experiment, Job
from tests.web import sample
from tests.web.people_api import Program, at, error
from tests.worlds import World, spec

pytestmark = pytest.mark.django_db

ASKED = {
    "name": "Does it pay?",
    "target": {"model": "target"},
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-4", "mode": "draft", "draft_model": "draft", "draft_limit": 4}],
    "points": [{"workload": "tiny", "max_tokens": 32, "probes": 2}],
    "warmup": {"mode": "fixed"},
}
YAML = """
name: Does it pay?
target: {model: target}
arms: [{name: "off", mode: "off"}, {name: draft-4, mode: draft, draft_model: draft, draft_limit: 4}]
points: [{workload: tiny, max_tokens: 32, probes: 2}]
warmup: {mode: fixed}
"""


@pytest.fixture
def ready(world: World) -> World:
    world.agent.poll()
    world.agent.send_inventory()
    return world


@pytest.fixture
def owner(ready: World) -> Program:
    return Program(ready.owner)


def key(text: str = "") -> dict[str, str]:
    return {"Idempotency-Key": text or str(uuid.uuid4())}


class TestSubmitting:
    def test_json(self, ready: World, owner: Program) -> None:
        answer = owner.post("experiments/", ASKED)
        assert answer.status_code == 201, answer.content
        told, stored = answer.json(), Experiment.objects.get()
        assert (told["id"], told["state"], told["team"], told["visibility"]) == (str(stored.pk), "waiting", "ours", "team")
        assert told["url"].endswith(f"/experiments/{stored.pk}/")
        assert [j["id"] for j in told["jobs"]] == [str(stored.jobs.get().pk)]
        assert (stored.created_by, stored.visibility, stored.spec_hash) == (ready.owner, "team", spec(blocks=5).spec_hash())
        assert answer["Location"] == told["api_url"]
        assert owner.get(answer["Location"]).json()["spec"] == stored.spec

    @pytest.mark.parametrize("kind", ["application/yaml", "text/yaml", "application/x-yaml; charset=utf-8"])
    def test_yaml_says_the_same(self, ready: World, owner: Program, kind: str) -> None:
        assert owner.post("experiments/", YAML, kind).status_code == 201
        assert Experiment.objects.get().spec_hash == spec(blocks=5).spec_hash()

    def test_a_file_of_a_form(self, ready: World, owner: Program) -> None:
        files = {"file": SimpleUploadedFile("experiment.yaml", YAML.encode())}
        answer = owner.client.post(at("experiments/"), files, headers=owner.headers(None))
        assert answer.status_code == 201, answer.content
        assert Experiment.objects.get().spec_hash == spec(blocks=5).spec_hash()

    def test_what_it_answers_as_yaml_can_be_sent_again(self, ready: World, owner: Program) -> None:
        first = owner.post("experiments/", ASKED).json()
        answer = owner.get(f"experiments/{first['id']}/spec.yaml", {"Accept": "application/yaml"})
        assert (answer.status_code, answer["Content-Type"]) == (200, "application/yaml; charset=utf-8")
        assert parse_spec(read_yaml(answer.content))[0] == Experiment.objects.get().parsed_spec
        assert owner.post("experiments/", answer.content, "application/yaml").status_code == 201

    def test_public_if_asked_for(self, ready: World, owner: Program) -> None:
        assert owner.post("experiments/?visibility=public", ASKED).json()["visibility"] == "public"
        assert error(owner.post("experiments/?visibility=secret", ASKED), 400)["remedy"] == "Known: private, team, public."

    def test_the_team_is_named_where_there_are_several(self, ready: World, owner: Program) -> None:
        second = Team.objects.create(slug="second", name="Second")
        Membership.objects.create(user=ready.owner, team=second, role=Role.SUBMITTER)
        refused = error(owner.post("experiments/", ASKED), 400)
        assert refused["message"] == "you may submit for several teams: ours, second"
        assert refused["remedy"] == "Name one with ?team=."
        assert owner.post("experiments/?team=ours", ASKED).status_code == 201
        # The second team has no host with these models.
        assert [p["field"] for p in error(owner.post("experiments/?team=second", ASKED), 422)["details"]["problems"]] == [
            "target.model",
            "arms.1.draft_model",
        ]

    def test_a_foreign_team_looks_like_none(self, ready: World, owner: Program) -> None:
        there, nowhere = (error(owner.post(f"experiments/?team={slug}", ASKED), 400) for slug in ("theirs", "nowhere"))
        assert there["message"].replace("theirs", "nowhere") == nowhere["message"]
        assert "Your teams: ours." in nowhere["remedy"]
        assert error(owner.post("experiments/?team=%00", ASKED), 400)


class TestTwice:
    def test_the_same_again_is_the_first(self, ready: World, owner: Program) -> None:
        sent = key()
        first, again = (owner.post("experiments/", ASKED, headers=sent) for _ in range(2))
        assert (first.status_code, again.status_code) == (201, 200)
        assert first.json() == again.json()
        assert owner.post("experiments/", YAML, "application/yaml", sent).json()["id"] == first.json()["id"]  # it says the same
        assert Experiment.objects.count() == 1

    def test_also_when_it_could_not_be_sent_anew(self, ready: World, owner: Program) -> None:
        sent = key()
        first = owner.post("experiments/?visibility=public", ASKED, headers=sent).json()
        ready.host.model_aliases.all().delete()
        assert owner.post("experiments/?visibility=public", ASKED, headers=sent).json()["id"] == first["id"]
        assert error(owner.post("experiments/?visibility=public", ASKED), 422)

    def test_also_when_others_may_read_it_by_now(self, ready: World, owner: Program) -> None:
        sent = key()
        first = owner.post("experiments/", ASKED, headers=sent).json()
        owner.call("put", f"experiments/{first['id']}/visibility", data='{"visibility": "public"}', content_type="application/json")
        again = owner.post("experiments/", ASKED, headers=sent)
        assert (again.status_code, again.json()["id"], again.json()["visibility"]) == (200, first["id"], "public")

    def test_another_under_the_same_key_is_refused(self, ready: World, owner: Program) -> None:
        sent = key()
        first = owner.post("experiments/", ASKED, headers=sent).json()
        for path, body in (("experiments/", ASKED | {"blocks": 7}), ("experiments/?visibility=public", ASKED), ("experiments/", {"x": 1})):
            refused = error(owner.post(path, body, headers=sent), 409)
            assert (refused["code"], refused["details"]) == ("key_reused", {"experiment": first["id"]})
        assert Experiment.objects.count() == 1

    def test_a_key_is_of_its_team(self, ready: World, owner: Program) -> None:
        ready.other_agent.poll()
        ready.other_agent.send_inventory()
        sent = key()
        mine, theirs = owner.post("experiments/", ASKED, headers=sent), Program(ready.stranger).post("experiments/", ASKED, headers=sent)
        assert (mine.status_code, theirs.status_code) == (201, 201)
        assert mine.json()["id"] != theirs.json()["id"]

    def test_no_key_no_memory(self, ready: World, owner: Program) -> None:
        assert len({owner.post("experiments/", ASKED).json()["id"] for _ in range(2)}) == 2

    def test_a_key_that_is_none(self, ready: World, owner: Program) -> None:
        refused = error(owner.post("experiments/", ASKED, headers=key("first")), 400)
        assert refused["message"] == "Idempotency-Key is 'first'"
        assert refused["remedy"].startswith("Give a UUID")


@pytest.mark.django_db(transaction=True)
def test_the_same_at_the_same_time_makes_one(ready: World) -> None:
    program, sent, answers = Program(ready.owner), key(), []
    gate = threading.Barrier(4)

    def send() -> None:
        gate.wait()
        answers.append(Program(token=program.token).post("experiments/", ASKED, headers=sent))
        connections.close_all()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {a.status_code for a in answers} <= {200, 201}
    assert len({a.json()["id"] for a in answers}) == 1
    assert (Experiment.objects.count(), Job.objects.count()) == (1, 1)


class TestFaults:
    def problems(self, answer: Any) -> dict[str, dict[str, str]]:
        refused = error(answer, 422)
        assert not Experiment.objects.exists()
        assert (refused["blame"], refused["retry"]) == ("spec", False)
        return {p["field"]: p for p in refused["details"]["problems"]}

    def test_every_one_at_once(self, ready: World, owner: Program) -> None:
        arms = [{"name": "off", "mode": "of"}, {"name": "x", "mode": "draft", "draft_model": "draft", "draft_limit": 0}]
        found = self.problems(owner.post("experiments/", ASKED | {"arms": arms, "blokcs": 3, "seed": "abc"}))
        assert {"arms.0.mode", "arms.1.draft_limit", "blokcs", "seed"} <= set(found)
        assert "'off'" in found["arms.0.mode"]["message"]
        assert found["arms.1.draft_limit"]["value"] == "0"
        assert "blocks" in found["blokcs"]["message"]

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            ({"arms": [{"name": "a", "mode": "ngram-simple"}, {"name": "b", "mode": "ngram-mod"}]}, "arms"),
            ({"arms": [{"name": "a", "mode": "off"}, {"name": "b", "mode": "off"}]}, "arms"),
            ({"points": [{"workload": "tyny"}]}, "points.0.workload"),
            ({"target": {"model": "tarqet"}}, "target.model"),
            ({"placement": {"hosts": ["box", "bax"]}}, "placement.hosts.1"),
            ({"engine": {"extra": {"--log-file": "/x"}}}, "engine.extra.--log-file"),
            ({"name": "x" * 300}, "name"),
            ({"margin": "NaN"}, "margin"),
        ],
    )
    def test_beside_its_field(self, ready: World, owner: Program, change: dict[str, Any], field: str) -> None:
        found = self.problems(owner.post("experiments/", ASKED | change))
        assert [f for f in found if f == field or f.startswith(f"{field}.")], found

    @pytest.mark.parametrize(
        ("kind", "body", "said"),
        [
            ("application/json", b'{"name": ', "no JSON: Expecting value (column 10)"),
            ("application/json", b'{"name": "x", "name": "y"}', "'name' is there twice"),
            ("application/json", b'{"margin": NaN}', "NaN is no number that JSON knows"),
            ("application/json", b'{"blocks": ' + b"9" * 200_000 + b"}", "a number of 200,000 digits"),
            ("application/json", b'{"name": "\xff"}', "not UTF-8"),
            ("application/json", b"[" * 100_000, "nested too deeply"),
            ("application/json", b'{"seed": ' + b"9" * 5000 + b"}", "digits"),
            ("application/json", b"[1, 2]", "a list"),
            ("application/json", b"null", "nothing"),
            ("application/yaml", b"a: [", "neither YAML nor JSON"),
            ("application/yaml", b"- 1", "a list"),
            ("application/yaml", b"!!python/object/apply:os.system [id]", "python"),
        ],
    )
    def test_a_body_that_is_no_experiment(self, ready: World, owner: Program, kind: str, body: bytes, said: str) -> None:
        found = self.problems(owner.post("experiments/", body, kind))
        assert list(found) == [""]
        assert said in found[""]["message"]

    def test_by_its_line(self, ready: World, owner: Program) -> None:
        for kind, body in (("application/yaml", "name: x\nseed: {a: 1,,}\n"), ("application/json", '{"name": "x",\n"seed": }')):
            assert self.problems(owner.post("experiments/", body, kind))[""]["line"] == 2
        assert (
            self.problems(owner.post("experiments/", YAML.replace("limit: 4", "limit: 0"), "text/yaml"))["arms.1.draft_limit"]["line"] == 4
        )

    def test_anchors_that_explode(self, ready: World, owner: Program) -> None:
        bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
            f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
        )
        assert self.problems(owner.post("experiments/", bomb, "application/yaml"))

    @pytest.mark.parametrize("kind", ["application/json", "application/yaml", "multipart/form-data"])
    def test_five_megabytes(self, ready: World, owner: Program, kind: str) -> None:
        text = YAML.encode() + b"# " + b"x" * 5_000_000
        if kind == "multipart/form-data":
            answer = owner.client.post(at("experiments/"), {"file": SimpleUploadedFile("e.yaml", text)}, headers=owner.headers(None))
        else:
            answer = owner.post("experiments/", text, kind)
        refused = error(answer, 413)
        assert refused["details"] == {"max_bytes": 262_144}
        assert "262,144 are read" in refused["message"]

    def test_a_file_a_little_too_large(self, ready: World, owner: Program) -> None:
        text = YAML.encode() + b"# " + b"x" * 262_144
        assert error(owner.post("experiments/", text, "application/yaml"), 413)

    def test_other_types_of_body(self, ready: World, owner: Program) -> None:
        for kind in ("application/x-www-form-urlencoded", "text/plain", "image/png"):
            refused = error(owner.post("experiments/", YAML, kind), 415)
            assert kind in refused["message"]
            assert "application/yaml" in refused["remedy"]

    def test_no_body(self, ready: World, owner: Program) -> None:
        assert error(owner.post("experiments/"), 400)["message"] == "the request has no body"

    def test_a_form_without_its_file(self, ready: World, owner: Program) -> None:
        two = {"file": SimpleUploadedFile("a", b"x"), "more": SimpleUploadedFile("b", b"x")}
        for fields in ({"spec": YAML}, two, {"other": SimpleUploadedFile("a", b"x")}):
            refused = error(owner.client.post(at("experiments/"), fields, headers=owner.headers(None)), 400)
            assert refused["details"] == {"field": "file"}
        torn = owner.post("experiments/", b"--x\r\nnonsense", "multipart/form-data; boundary=x")
        assert error(torn, 400)
        many = {f"f{i}": "" for i in range(1500)}
        assert error(owner.client.post(at("experiments/"), many, headers=owner.headers(None)), 400)["code"] == "bad_request"

    def test_markup_is_text(self, ready: World, owner: Program) -> None:
        name = "<script>alert(1)</script>"
        answer = owner.post("experiments/", ASKED | {"name": name})
        if answer.status_code == 201:
            assert owner.get(answer["Location"]).json()["name"] == name
        else:
            assert "name" in self.problems(answer)


class TestPreview:
    def test_stores_nothing(self, ready: World, owner: Program) -> None:
        answer = owner.post("experiments/preview", YAML, "application/yaml")
        assert answer.status_code == 200, answer.content
        assert {"n_trials", "n_requests", "n_untimed", "order", "hosts", "warnings", "minutes", "looks", "attached"} == set(answer.json())
        assert not Experiment.objects.exists()

    def test_tells_after_which_blocks_an_arm_may_end(self, ready: World, owner: Program) -> None:
        told = owner.post("experiments/preview", ASKED | {"blocks": 10, "sequential": True}).json()
        assert told["looks"] == "after blocks 3, 5, 7 and 10"

    def test_tells_what_would_run_and_where(self, ready: World, owner: Program) -> None:
        told = owner.post("experiments/preview", ASKED).json()
        assert told["looks"] == ""
        assert told["n_trials"] == 10
        assert [t["arm"] for t in told["order"][:2]] in (["off", "draft-4"], ["draft-4", "off"])
        box = next(h for h in told["hosts"] if h["name"] == "box")
        assert (box["fits"], box["chosen"], box["why_not"]) == (True, True, "")
        words = " ".join(part["text"] for part in box["commands"][1]["parts"])
        assert "/models/target.gguf" in words
        assert "/models/draft.gguf" in words
        assert [h["name"] for h in told["hosts"]] == ["box"]  # not the other team's
        assert 0 < told["minutes"]["low"] < told["minutes"]["high"]
        assert "guess" in told["minutes"]["basis"]

    def test_takes_its_minutes_from_earlier_trials(self, db: Any) -> None:
        people = sample.people()
        asked = sample.spec(blocks=3)
        sample.finished(people.team, people.owner, asked)
        told = Program(people.owner).post("experiments/preview", asked.model_dump(mode="json")).json()
        assert "earlier trials" in told["minutes"]["basis"]

    def test_refuses_what_submitting_refuses(self, ready: World, owner: Program) -> None:
        wrong = ASKED | {"arms": ASKED["arms"][:1]}
        previewed, sent = (error(owner.post(path, wrong), 422) for path in ("experiments/preview", "experiments/"))
        assert previewed == sent
