"""What pages have, by program: comparisons and Compare, numbers with sources, analyses, trials, models, builds, hardware, hosts, workloads."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Host, Visibility
from specweb.experiments.services.submission import seed_workload
from specweb.results.models import Comparison
from tests.web import sample
from tests.web.people_api import Program, error
from tests.worlds import workload

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> sample.People:
    return sample.people()


@pytest.fixture
def run(people: sample.People) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(blocks=3))


@pytest.fixture
def owner(people: sample.People) -> Program:
    return Program(people.owner)


def every(program: Program, path: str, key: str) -> list[Any]:
    """All rows of a list, page by page."""
    found: list[Any] = []
    while path:
        told = program.get(path).json()
        found, path = found + told[key], told["next"]
    return found


class TestComparisons:
    def test_all_in_pages_of_any_size(self, run: sample.Run, owner: Program) -> None:
        whole = every(owner, "comparisons/", "comparisons")
        assert len(whole) == Comparison.objects.current().count() > 4
        for n in (1, 2, 5):
            assert every(owner, f"comparisons/?limit={n}", "comparisons") == whole

    def test_each_filter_leaves_what_has_it(self, run: sample.Run, owner: Program) -> None:
        whole = every(owner, "comparisons/", "comparisons")
        for name in ("mode", "work", "hardware", "engine", "target_hash", "verdict", "question"):
            field = {"question": "question_key"}.get(name, name)
            for value in {row[field] for row in whole}:
                found = every(owner, f"comparisons/?{name}={value}", "comparisons")
                assert found == [row for row in whole if row[field] == value], name
            assert every(owner, f"comparisons/?{name}=nonsense", "comparisons") == []
        assert error(owner.get("comparisons/?arm=x"), 400)["message"].startswith("there is no parameter 'arm'")

    def test_a_ratio_stands_with_its_interval_or_the_reason_why_there_is_none(self, run: sample.Run, owner: Program) -> None:
        for row in every(owner, "comparisons/", "comparisons"):
            if row["low"] is not None:
                assert row["low"] <= row["speedup"] <= row["high"]
            else:
                assert row["withheld"]
            assert all(isinstance(f, float | int) or f["withheld"] for f in row["figures"].values())

    def test_of_a_public_experiment_for_everybody(self, run: sample.Run, people: sample.People) -> None:
        stranger = Program(people.stranger)
        assert every(stranger, "comparisons/", "comparisons") == []
        assert every(stranger, "compare/", "rows") == []
        Experiment.objects.filter(pk=run.experiment.pk).update(visibility=Visibility.PUBLIC)
        assert every(stranger, "comparisons/", "comparisons")
        assert every(stranger, "compare/", "rows")


class TestCompare:
    def test_rows_in_the_order_of_the_page_whatever_the_size_of_a_part(
        self, run: sample.Run, people: sample.People, owner: Program
    ) -> None:
        sample.finished(people.team, people.owner, sample.spec(blocks=3, name="again"))
        whole = every(owner, "compare/", "rows")
        assert len(whole) > 4
        for n in (1, 2, 3, 7):
            assert every(owner, f"compare/?limit={n}", "rows") == whole
        keys = [(r["work"], r["concurrency"], r["context"]) for r in whole]
        assert keys == sorted(keys)
        assert {r["n_runs"] for r in whole} == {2}
        assert all(len(r["further"]) == 1 for r in whole)

    def test_choices_are_what_there_is(self, run: sample.Run, owner: Program) -> None:
        told = owner.get("compare/choices").json()
        whole = every(owner, "comparisons/", "comparisons")
        for name, field in (("mode", "mode"), ("work", "work"), ("hardware", "hardware")):
            assert told["choices"][name] == {v: sum(r[field] == v for r in whole) for v in {r[field] for r in whole}}
        mode = next(iter(told["choices"]["mode"]))
        rows = every(owner, f"compare/?mode={mode}", "rows")
        assert {r["mode"] for r in rows} == {mode}

    @pytest.mark.parametrize("cursor", ["x", "bnVsbA==", "W10=", "WyJhIl0=", "eyJhIjoxfQ=="])
    def test_a_cursor_that_is_none(self, owner: Program, cursor: str) -> None:
        answer = owner.get(f"compare/?cursor={cursor}")
        assert answer.status_code == (200 if cursor == "bnVsbA==" else 400)

    @pytest.mark.parametrize("query", ["concurrency=many", "context=-1", "limit=0", "hardwear=x"])
    def test_filters_that_cannot_be(self, owner: Program, query: str) -> None:
        assert error(owner.get(f"compare/?{query}"), 400)["details"]["parameter"] == query.partition("=")[0]


class TestNumbers:
    def test_each_leads_to_the_line_that_it_was_read_from(self, run: sample.Run, owner: Program) -> None:
        told = owner.get(f"jobs/{run.job.pk}/numbers?arm=draft-8&point=count/c1/ctx0/t0").json()
        assert told["comparison"]["verdict"]["word"]
        by = {(n["metric"], n["side"]): n for n in told["numbers"]}
        assert by["decode_tokens_per_s", "arm"]["definition"]
        assert by["decode_tokens_per_s", "baseline"]["value"] > 0
        for n in told["numbers"]:
            assert (n["value"] is None) == bool(n["withheld"])
            assert (n["source"] is None) == (n["value"] is None)
        probe = next(p for p in told["probes"] if p["ok"])
        number = next(n for n in probe["numbers"].values() if n.get("source", {}).get("line"))
        file = owner.get(f"attempts/{probe['attempt']}/evidence/{number['source']['file']}")
        assert len(b"".join(file.streaming_content).splitlines()) >= number["source"]["line"]
        assert {p["arm"] for p in told["probes"]} == {"draft-8", told["baseline"]}

    def test_a_comparison_that_is_not_there(self, run: sample.Run, owner: Program) -> None:
        assert error(owner.get(f"jobs/{run.job.pk}/numbers?arm=x&point=y"), 404)
        assert error(owner.get(f"jobs/{run.job.pk}/numbers?arm=draft-8"), 400)["details"]["parameter"] == "point"

    def test_checks_analyses_and_trials(self, run: sample.Run, owner: Program) -> None:
        checks = owner.get(f"jobs/{run.job.pk}/integrity").json()
        assert {c["state"] for x in checks["comparisons"] for c in x["checks"]} <= {"passed", "failed", "not checked"}
        (analysis,) = every(owner, f"jobs/{run.job.pk}/analyses", "analyses")
        assert analysis["current"]
        assert analysis["n_comparisons"] == len(checks["comparisons"])
        whole = owner.get(analysis["api_url"]).json()["content"]
        assert len(whole["comparisons"]) == analysis["n_comparisons"]
        trials = every(owner, f"jobs/{run.job.pk}/trials?limit=5", "trials")
        assert [t["number"] for t in trials] == list(range(1, 13))
        attempt = owner.get(trials[0]["attempts"][0]["api_url"]).json()
        assert attempt["arm"] == trials[0]["arm"]
        assert attempt["measurement"]["probes"]

    def test_a_trial_against_its_pair(self, run: sample.Run, owner: Program) -> None:
        trials = every(owner, f"jobs/{run.job.pk}/trials", "trials")
        one, other = (next(t for t in trials if t["arm"] == arm)["attempts"][0]["id"] for arm in ("off", "draft-8"))
        alone = owner.get(f"attempts/{one}/diff").json()
        assert alone["a"] is None
        assert alone["candidates"]
        told = owner.get(f"attempts/{one}/diff?with={other}").json()
        named = {d["name"]: (d["a"], d["b"]) for d in told["differences"]}
        assert named["arm.mode"] == ("off", "draft")
        assert not any(name.startswith(("settings.", "trial.")) for name in named)
        assert told["one_pair"] is True
        itself = owner.get(f"attempts/{one}/diff?with={one}").json()
        assert itself["differences"] == []
        assert error(owner.get(f"attempts/{one}/diff?with={uuid4()}"), 404)
        assert error(owner.get(f"attempts/{one}/diff?with=it"), 400)

    def test_what_a_check_says_of_an_answer_is_for_the_team(self, run: sample.Run, people: sample.People, owner: Program) -> None:
        Experiment.objects.filter(pk=run.experiment.pk).update(visibility=Visibility.PUBLIC)
        attempt = next(a for t in every(owner, f"jobs/{run.job.pk}/trials", "trials") for a in t["attempts"])["id"]
        stranger = Program(people.stranger)
        mine, theirs = (p.get(f"attempts/{attempt}").json()["measurement"]["probes"] for p in (owner, stranger))
        assert all("check_note" in p for p in mine)
        assert not any("check_note" in p for p in theirs)


class TestCatalogues:
    def test_models_where_they_are_and_what_is_best(self, run: sample.Run, owner: Program) -> None:
        models = every(owner, "models/?limit=1", "models")
        assert len(models) >= 2
        for model in models:
            alias = model["places"][0]["aliases"][0]
            assert model["manifest_hash"] in {m["manifest_hash"] for m in every(owner, f"models/?alias={alias}", "models")}
        target = next(m for m in models if m["n_experiments"])
        whole = owner.get(f"models/{target['manifest_hash']}").json()
        assert whole["best"]
        assert whole["jobs"][0]["experiment"] == str(run.experiment.pk)
        assert every(owner, "models/?architecture=none-such", "models") == []

    def test_builds_and_where_they_are(self, run: sample.Run, owner: Program) -> None:
        (build,) = every(owner, "runtimes/", "runtimes")
        whole = owner.get(f"runtimes/{build['manifest_hash']}").json()
        assert whole["places"][0]["n_jobs"] == 1
        assert whole["places"][0]["there"]
        assert every(owner, "runtimes/?engine=vllm", "runtimes") == []
        assert error(owner.get(f"runtimes/{'f' * 64}"), 404)

    def test_hardware_and_what_works_there(self, run: sample.Run, people: sample.People, owner: Program) -> None:
        (card,) = every(owner, "hardware/?limit=1", "hardware")
        assert card["n_experiments"] == 1
        assert card["hosts"] == ["xeon"]
        told = owner.get(f"best?hardware={card['name']}&model=demo-target").json()
        assert (told["measured_on_hardware"], told["measured_with_model"]) == (True, True)
        best = next(b for b in told["best"] if b["recommended"])
        assert best["low"] <= best["speedup"] <= best["high"]
        nothing = owner.get("best?hardware=a+card+that+nobody+has").json()
        assert (nothing["best"], nothing["measured_on_hardware"], nothing["measured_with_model"]) == ([], False, None)

    def test_the_number_of_statements_does_not_grow(self, run: sample.Run, people: sample.People, owner: Program) -> None:
        paths = [
            "comparisons/",
            "compare/",
            "models/",
            "runtimes/",
            "hardware/",
            "best",
            f"jobs/{run.job.pk}/trials",
            "hosts/",
            "experiments/",
        ]

        def statements() -> list[int]:
            found = []
            for path in paths:
                with CaptureQueriesContext(connection) as captured:
                    assert owner.get(path).status_code == 200
                found.append(len(captured))
            return found

        owner.get("me")
        before = statements()
        for n in range(2):
            sample.finished(people.team, people.owner, sample.spec(blocks=3, name=f"more {n}"))
        assert statements() == before
        assert max(before) <= 12


class TestHosts:
    @pytest.fixture
    def host(self, run: sample.Run) -> Host:
        assert run.job.host is not None
        return run.job.host

    def test_one_with_its_jobs_and_floors(self, host: Host, run: sample.Run, owner: Program) -> None:
        told = owner.get(f"hosts/{host.pk}").json()
        assert told["jobs"][0]["id"] == str(run.job.pk)
        assert all(isinstance(f["floor"], float) or f["floor"]["withheld"] for f in told["noise_floors"])
        assert told["revoked_at"] is None

    def test_drained_and_back_and_shut_out(self, host: Host, owner: Program) -> None:
        assert owner.post(f"hosts/{host.pk}/drain").json()["draining"] is True
        assert "already" in error(owner.post(f"hosts/{host.pk}/drain"), 409)["message"]
        assert owner.post(f"hosts/{host.pk}/undrain").json()["draining"] is False
        assert error(owner.post(f"hosts/{host.pk}/undrain"), 409)
        assert owner.post(f"hosts/{host.pk}/revoke").json()["state"] == "revoked"
        host.refresh_from_db()
        assert host.revoked_at is not None

    def test_a_code_enrols_a_machine_until_it_is_withdrawn(self, people: sample.People, owner: Program) -> None:
        made = owner.post(f"hosts/enrol?team={people.team.slug}")
        assert made.status_code == 201
        (line,) = owner.get("hosts/enrol").json()["codes"]
        assert made.json()["code"] not in json.dumps(line)
        assert owner.post(f"hosts/enrol/{line['id']}/withdraw").json()["id"] == line["id"]
        assert owner.get("hosts/enrol").json()["codes"] == []
        body = {"code": made.json()["code"], "hostname": "box", "agent_version": "1"}
        assert Program().client.post("/agent/v1/enrol", json.dumps(body), content_type="application/json").status_code == 403

    def test_a_team_that_one_does_not_maintain(self, people: sample.People, owner: Program) -> None:
        assert "you are in no team 'theirs'" in error(owner.post("hosts/enrol?team=theirs"), 400)["message"]
        nobody = Program(User.objects.create(username="nobody"))
        assert error(nobody.post("hosts/enrol"), 403)["remedy"]


class TestWorkloads:
    def test_one_from_its_file_to_its_end(self, people: sample.People) -> None:
        program, row = Program(people.owner), seed_workload(workload("sea"), people.team)
        told = program.get(f"workloads/{row.pk}").json()
        assert told["readable"]
        assert told["n_experiments"] == 0
        file = program.get(told["file_url"]).content.decode()
        assert len(file.splitlines()) == told["n_items"] + told["n_warmup"]
        assert program.post(f"workloads/{row.pk}/archive").json()["archived_at"]
        assert error(program.post(f"workloads/{row.pk}/archive"), 409)
        assert program.post(f"workloads/{row.pk}/restore").json()["archived_at"] is None
        assert program.call("DELETE", f"workloads/{row.pk}").status_code == 204
        assert error(program.get(f"workloads/{row.pk}"), 404)

    def test_one_that_an_experiment_asks_with_stays(self, run: sample.Run, people: sample.People) -> None:
        own = seed_workload(workload("own"), people.team)
        asked = sample.spec(points=[{"workload": "own", "max_tokens": 64}])
        sample.submitted(people.team, people.owner, asked)
        assert "Archive it" in error(Program(people.owner).call("DELETE", f"workloads/{own.pk}"), 409)["remedy"]


class TestStarts:
    def test_presets_are_experiments(self, owner: Program) -> None:
        presets = owner.get("presets/").json()["presets"]
        assert len(presets) > 5
        assert all(p["spec"]["arms"] and p["question"] and p["title"] for p in presets)

    def test_a_check_tells_all_faults_and_stores_nothing(self, people: sample.People, owner: Program) -> None:
        sample.host_with_inventory(people.team, "box")
        for content in {w.content_hash(): w for w in sample.workloads.builtin().values()}.values():
            seed_workload(content)
        sound = sample.spec().model_dump(mode="json")
        assert owner.post("experiments/check", sound).json() == {"ok": True, "problems": [], "spec_hash": sample.spec().spec_hash()}
        told = owner.post("experiments/check", sound | {"blocks": -1, "bloks": 3}).json()
        assert told["ok"] is False
        assert {"blocks", "bloks"} <= {p["field"] for p in told["problems"]}
        assert Experiment.objects.count() == 0

    def test_ones_tokens_without_their_secrets(self, owner: Program) -> None:
        (line,) = owner.get("tokens/").json()["tokens"]
        assert line["current"]
        assert hashlib.sha256(owner.token.encode()).hexdigest() not in json.dumps(line)
        assert owner.token not in json.dumps(line)
        assert owner.post(f"tokens/{line['id']}/revoke").status_code == 200
        assert error(owner.get("me"), 401)
