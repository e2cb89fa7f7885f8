"""The people's API: experiments listed and read, and how many statements that costs."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from specweb.accounts.models import Membership, Role, Team
from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.submission import submit
from tests.web import sample
from tests.web.people_api import Program, error
from tests.worlds import World, dispatch, spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def ready(world: World) -> World:
    world.agent.poll()
    world.agent.send_inventory()
    return world


@pytest.fixture
def owner(ready: World) -> Program:
    return Program(ready.owner)


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
            ("cursor=first", "cursor is 'first'"),
            ("cursor=cD14", "cursor is 'cD14'"),  # a place that is none of an experiment's
            ("since=yesterday", "since is 'yesterday'"),
            ("host=mine", "host is 'mine'"),
            ("order=best", "order is 'best'"),
        ],
    )
    def test_queries_that_cannot_be(self, owner: Program, query: str, said: str) -> None:
        assert error(owner.get(f"experiments/?{query}"), 400)["message"] == said

    def test_text_that_no_database_holds(self, owner: Program) -> None:
        for name in ("q", "team"):
            assert "Null characters" in error(owner.get(f"experiments/?{name}=%00"), 400)["remedy"]

    def test_by_everything_else(self, ready: World, owner: Program) -> None:
        one, two = experiments(ready, 2)
        public = submit(spec(name="a public one"), ready.team, ready.owner, Visibility.PUBLIC)
        names = lambda q: [e["name"] for e in owner.get(f"experiments/?{q}").json()["experiments"]]  # noqa: E731
        assert names("order=oldest") == names("order=newest")[::-1] == ["number 0", "number 1", "a public one"]
        assert names("order=name") == ["a public one", "number 0", "number 1"]
        assert names("visibility=public") == ["a public one"]
        assert names("by=owner") == names("origin=service") == names("")
        assert names("by=nobody") == names("origin=self-run") == []
        when = two.created_at.isoformat().replace("+00:00", "Z")
        assert names(f"since={when}&order=oldest") == ["number 1", public.name]
        assert names(f"until={when}") == [one.name]
        dispatch()
        host = one.jobs.get().host_id
        assert one.name in names(f"host={host}")
        assert names("host=00000000-0000-0000-0000-000000000000") == []

    def test_what_comes_meanwhile_shifts_no_page(self, ready: World, owner: Program) -> None:
        experiments(ready, 4)
        first = owner.get("experiments/?limit=2").json()
        experiments(ready, 3)
        second = owner.get(first["next"]).json()
        assert [e["name"] for e in first["experiments"] + second["experiments"]] == ["number 3", "number 2", "number 1", "number 0"]


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
        assert "noise floor is unknown" in good["noise_floor"]["withheld"]
        assert isinstance(good["p_holm"], float)

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
