"""The people's API: experiments asked for, listed, read; every fault in the one shape."""

from __future__ import annotations

import threading
import uuid
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.accounts.models import Membership, Role, Team
from specweb.experiments.models import Experiment, Job, Visibility
from specweb.experiments.services.submission import submit
from tests.web import sample
from tests.web.people_api import Program, at, error
from tests.worlds import World, dispatch, spec

pytestmark = pytest.mark.django_db

ASKED = {
    "name": "Does it pay?",
    "target": {"model": "target"},
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-4", "mode": "draft", "draft_model": "draft", "draft_limit": 4}],
    "points": [{"workload": "tiny", "max_tokens": 32, "probes": 2}],
}
YAML = """
name: Does it pay?
target: {model: target}
arms: [{name: "off", mode: "off"}, {name: draft-4, mode: draft, draft_model: draft, draft_limit: 4}]
points: [{workload: tiny, max_tokens: 32, probes: 2}]
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
        assert error(owner.post("experiments/?visibility=secret", ASKED), 400)["remedy"] == "Known: team, public."

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
        assert {"n_trials", "n_requests", "order", "hosts", "warnings", "minutes"} == set(answer.json())
        assert not Experiment.objects.exists()

    def test_tells_what_would_run_and_where(self, ready: World, owner: Program) -> None:
        told = owner.post("experiments/preview", ASKED).json()
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


def experiments(world: World, n: int, **changes: Any) -> list[Experiment]:
    return [submit(spec(name=f"number {i}", **changes), world.team, world.owner) for i in range(n)]


class TestListing:
    def test_newest_first_in_pages(self, ready: World, owner: Program) -> None:
        made = [str(e.pk) for e in experiments(ready, 5)][::-1]
        seen, path, n_pages = [], "experiments/?limit=2", 0
        while path:
            told = owner.get(path).json()
            assert len(told["experiments"]) <= 2
            seen += [e["id"] for e in told["experiments"]]
            path, n_pages = told["next"], n_pages + 1
        assert (seen, n_pages) == (made, 3)

    def test_filters_stay_from_page_to_page(self, ready: World, owner: Program) -> None:
        experiments(ready, 3)
        submit(spec(name="another"), ready.team, ready.owner)
        first = owner.get("experiments/?q=NUMBER&limit=2").json()
        second = owner.get(first["next"]).json()
        assert [e["name"] for e in first["experiments"] + second["experiments"]] == ["number 2", "number 1", "number 0"]
        assert second["next"] is None

    def test_by_team(self, ready: World, owner: Program) -> None:
        experiments(ready, 1)
        public = submit(spec(name="theirs"), ready.team, None, Visibility.PUBLIC)
        Experiment.objects.filter(pk=public.pk).update(team=ready.other_team)
        names = lambda q: [e["name"] for e in owner.get(f"experiments/{q}").json()["experiments"]]  # noqa: E731
        assert names("") == ["theirs", "number 0"]
        assert names("?team=theirs") == ["theirs"]
        assert names("?team=ours") == ["number 0"]
        assert names("?team=nobody") == []

    def test_by_state_as_it_is_shown(self, ready: World, owner: Program) -> None:
        experiments(ready, 2, placement={"count": 2})
        dispatch()  # one job of each is queued, the other waits for another host
        for e in Experiment.objects.prefetch_related("jobs"):
            assert e.state == "queued"
        by_state = {s: len(owner.get(f"experiments/?state={s}").json()["experiments"]) for s in ("queued", "waiting", "running")}
        assert by_state == {"queued": 2, "waiting": 0, "running": 0}
        refused = error(owner.get("experiments/?state=done"), 400)
        assert refused["message"] == "state is 'done'"
        assert "processed" in refused["remedy"]

    def test_a_retry_speaks_for_what_it_replaced(self, ready: World, owner: Program) -> None:
        (one,) = experiments(ready, 1)
        job = one.jobs.get()
        assert owner.post(f"jobs/{job.pk}/cancel").status_code == 200
        assert owner.post(f"jobs/{job.pk}/retry").status_code == 201
        by_state = {s: len(owner.get(f"experiments/?state={s}").json()["experiments"]) for s in ("cancelled", "waiting")}
        assert by_state == {"cancelled": 0, "waiting": 1}

    @pytest.mark.parametrize(
        ("query", "said"),
        [
            ("stat=running", "there is no parameter 'stat' (did you mean 'state'?)"),
            ("limit=0", "limit is '0'"),
            ("limit=10000", "limit is '10000'"),
            ("limit=٣", "limit is '٣'"),
            ("before=first", "before is 'first'"),
        ],
    )
    def test_queries_that_cannot_be(self, owner: Program, query: str, said: str) -> None:
        assert error(owner.get(f"experiments/?{query}"), 400)["message"] == said

    def test_text_that_no_database_holds(self, owner: Program) -> None:
        assert owner.get("experiments/?q=%00&team=%00").json()["experiments"] == []


class TestReading:
    def test_a_finished_experiment(self, db: Any) -> None:
        people = sample.people()
        run = sample.finished(people.team, people.owner, sample.spec(blocks=3))
        told = Program(people.owner).get(f"experiments/{run.experiment.pk}").json()
        assert (told["state"], told["spec"]["name"]) == ("processed", "Demo pair")
        job = told["jobs"][0]
        assert (job["host"], job["n_trials"], job["n_trials_done"]) == ("xeon", 12, 12)
        assert job["runtime"]["manifest_hash"] == "a" * 64
        by_arm = {(c["arm"], c["workload"]): c for c in told["comparisons"]}
        assert len(by_arm) == 9
        good = by_arm["draft-8", "count"]
        assert good["verdict"]["word"]
        assert 1 < good["speedup"]["low"] < good["speedup"]["estimate"] < good["speedup"]["high"]
        assert isinstance(good["tokens_per_target_pass"], float)
        assert f"/jobs/{run.job.pk}/numbers?arm=draft-8" in good["url"]
        assert {"name", "state", "sentence"} <= set(good["checks"][0])

    def test_what_is_withheld_tells_why(self, db: Any) -> None:
        people = sample.people()
        run = sample.finished(people.team, people.owner, sample.spec(blocks=3), fails=lambda trial: trial.arm == "draft-8")
        told = Program(people.owner).get(f"experiments/{run.experiment.pk}").json()
        lost = next(c for c in told["comparisons"] if c["arm"] == "draft-8")
        assert list(lost["speedup"]) == ["withheld"]
        assert lost["speedup"]["withheld"]

    def test_the_engines_log_is_for_the_team(self, ready: World) -> None:
        experiment = submit(spec(), ready.team, ready.owner, Visibility.PUBLIC)
        dispatch()
        offer = ready.agent.offer()
        running = {"job_id": offer.job_id, "lease": offer.lease, "phase": "probing", "log_tail": ["secret line"], "note": "secret note"}
        ready.agent.poll(running=running)
        mine, theirs = (Program(u).get(f"experiments/{experiment.pk}") for u in (ready.owner, ready.stranger))
        assert mine.json()["jobs"][0]["progress"]["log_tail"] == ["secret line"]
        assert theirs.json()["jobs"][0]["progress"]["phase"] == "probing"
        assert b"secret" not in theirs.content

    def test_unknown_and_invisible_are_alike(self, ready: World) -> None:
        hidden = submit(spec(), ready.team, ready.owner)
        stranger = Program(ready.stranger)
        for path in ("experiments/{}", "experiments/{}/spec.yaml"):
            there, nowhere = (error(stranger.get(path.format(i)), 404) for i in (hidden.pk, uuid.uuid4()))
            assert there == nowhere


def statements(program: Program, path: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        answer = program.get(path)
    assert answer.status_code == 200, answer.content
    return len(captured)


def test_statements_do_not_grow(ready: World, owner: Program) -> None:
    experiments(ready, 1, placement={"count": 2})
    owner.get("me")  # the token's last use is stamped once a minute
    paths = ["me", "experiments/", "experiments/?state=waiting&q=number&team=ours", "hosts/", "workloads/"]
    paths += [f"experiments/{Experiment.objects.get().pk}"]
    before = {p: statements(owner, p) for p in paths}
    more = experiments(ready, 9, placement={"count": 3})
    for n in range(9):
        sample.host_with_inventory(ready.team, f"host-{n}")
        team = Team.objects.create(slug=f"t{n}", name=f"T{n}")
        Membership.objects.create(user=ready.owner, team=team, role=Role.VIEWER)
    assert {p: statements(owner, p) for p in paths} == before
    assert before == {paths[0]: 2, paths[1]: 3, paths[2]: 3, paths[3]: 2, paths[4]: 2, paths[5]: 8}
    assert statements(owner, f"experiments/{more[0].pk}") == before[paths[5]]
    # Many jobs, whose trials are planned.
    dispatch()
    assert statements(owner, f"experiments/{more[0].pk}") == before[paths[5]]
