"""Starting from a preset, and asking on another host what a finished experiment asked."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

import pytest
from django.test import Client
from django.urls import reverse
from speccore import workloads
from speccore.plan import plan_job
from speccore.presets import presets
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.experiments.models import Experiment, Host, Job
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.submission import seed_workload
from tests.web import sample
from tests.web.form_client import FormClient
from tests.web.people_api import Program

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> sample.People:
    made = sample.people()
    for content in workloads.builtin().values():
        seed_workload(content)
    return made


@pytest.fixture
def host(people: sample.People) -> Host:
    return sample.host_with_inventory(people.team)


def page_of(user: object) -> str:
    client = Client()
    client.force_login(user)
    answer = client.get(reverse("presets"))
    assert answer.status_code == 200
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", answer.content.decode()))) + answer.content.decode()


def test_the_page_lists_each_with_its_question_its_needs_and_its_commands(people: sample.People, host: Host) -> None:
    said = page_of(people.owner)
    for preset in presets().values():
        assert preset.question in said
        assert f"?preset={preset.name}&amp;team={people.team.slug}" in said
    assert "needs a card with about 24 GiB" in said
    assert "--spec-draft-ngl 99" in said
    assert "--gpu-layers-draft 99" in said  # of the older dialect
    assert "mode mtp needs --spec-type draft-mtp, which this build doesn't offer" in said


def test_the_page_says_what_each_host_lacks(people: sample.People, host: Host) -> None:
    said = page_of(people.owner)
    assert "xeon has no Qwen3 14B, no Qwen3 0.6B of the same vocabulary" in said
    assert "xeon has the models and the engine for it" in said
    assert "xeon has no such target that was trained for 32,768 tokens" in said
    assert "xeon has no model in two quantisations" in said
    assert "4,096 tokens, no second GPU" in said
    assert "has no host yet that has said what it offers" in page_of(people.stranger)


@pytest.mark.parametrize("name", [n for n, p in presets().items() if not any(r.like or r.name == "LARGER" for r in p.roles.values())])
def test_a_preset_of_any_models_fills_a_form_that_can_be_sent(people: sample.People, host: Host, name: str) -> None:
    form = FormClient(people.owner, f"?preset={name}")
    assert form["target-model"] == "demo-target"
    assert f"This is the preset “{name}”" in html.unescape(form.page)
    form.press("submit")
    made = Experiment.objects.get()
    asked = {role: "demo-draft" if role == "DRAFT" else "demo-target" for role in presets()[name].roles}
    expected, problems = parse_spec(presets()[name].bound(asked))
    assert expected is not None, problems
    assert made.parsed_spec == expected


def test_a_preset_of_models_that_are_not_there_says_so_beside_them(people: sample.People, host: Host) -> None:
    form = FormClient(people.owner, "?preset=qwen3-14b-draft")
    assert form["target-model"] == "Qwen3-14B-Q5_K_M"
    assert "None of this team’s hosts has Qwen3 14B, Qwen3 0.6B of the same vocabulary" in html.unescape(form.page)
    said = html.unescape(form.look())
    assert "no host of this team ever had a model 'Qwen3-14B-Q5_K_M'" in said
    plain = re.sub(r"<[^>]+>", "", said)  # what it would be started with is shown all the same, in each dialect
    assert "--spec-draft-model Qwen3-0.6B-Q8_0.gguf --spec-draft-n-max 8 --spec-draft-ngl 99" in plain
    assert "--model-draft Qwen3-0.6B-Q8_0.gguf --draft-max 8 --gpu-layers-draft 99" in plain
    assert "Launch commands without a host" not in form.change(blocks="0").look()  # what is wrong in itself has none
    form.change(blocks="5")
    form.change(target__model="demo-target", arms__1__draft_model="demo-draft")
    assert "to mend" not in form.look()


@pytest.mark.parametrize(
    "query", ["?preset=nothing", "?preset=spare-memory", "?reproduce=7", f"?reproduce={'0' * 8}-0000-0000-0000-{'0' * 12}"]
)
def test_what_is_not_there_is_not_found(people: sample.People, query: str) -> None:
    client = Client()
    client.force_login(people.owner)
    assert client.get(reverse("experiment-new") + query).status_code == 404


def finished(people: sample.People, host: Host) -> Job:
    asked = sample.spec(seed=77, points=[{"workload": "count", "max_tokens": 64}], placement={"hosts": [host.name]})
    return sample.finished(people.team, people.owner, asked).job


def test_spare_memory_takes_one_model_in_two_quantisations(people: sample.People, host: Host) -> None:
    inventory = host.inventory.parsed
    small, draft = (m.model_copy(update={"n_parameters": n}) for m, n in zip(inventory.models, (3_700_000, 300_000), strict=True))
    large = small.model_copy(update={"alias": "demo-f16", "manifest_hash": "d" * 64, "quantization": "F16", "size_bytes": 240_000_000})
    store_inventory(host, inventory.model_copy(update={"models": [large, small, draft]}), datetime.now(UTC))
    assert FormClient(people.owner, "?preset=spare-memory/larger-quantisation")["target-model"] == "demo-f16"
    assert FormClient(people.owner, "?preset=spare-memory/more-context")["target-model"] == "demo-target"


class TestReproduce:
    def test_the_form_asks_the_same_with_everything_pinned(self, people: sample.People, host: Host) -> None:
        job = finished(people, host)
        other = sample.host_with_inventory(people.team, "other")
        client = Client()
        client.force_login(people.owner)
        page = client.get(reverse("experiment", args=[job.experiment_id])).content.decode()
        assert f"?reproduce={job.pk}" in page
        form = FormClient(people.owner, f"?reproduce={job.pk}")
        assert form["target-model"] == job.target.manifest_hash
        assert form.values("-workload", "points-") == ["count@2"]
        assert form["seed"] == "77"
        assert form.values("placement-hosts") == [other.name]
        form.press("submit")
        again = Experiment.objects.exclude(pk=job.experiment_id).get().parsed_spec
        contents = workloads.builtin()
        first = plan_job(job.experiment.parsed_spec, contents)
        second = plan_job(again, contents)
        assert [(t.arm, [(p.item, p.seed) for p in t.probes]) for t in first.trials] == [
            (t.arm, [(p.item, p.seed) for p in t.probes]) for t in second.trials
        ]
        assert [a.draft_model for a in again.arms if a.draft_model] == [job.draft_hashes[a.name] for a in again.arms if a.draft_model]
        assert again.runtime.version

    def test_no_other_host_with_these_models_is_said(self, people: sample.People, host: Host) -> None:
        form = FormClient(people.owner, f"?reproduce={finished(people, host).pk}")
        assert form.values("placement-hosts") == []
        assert "No other host of this team has its models yet" in form.page

    def test_a_program_gets_it_as_yaml_and_can_send_it(self, people: sample.People, host: Host) -> None:
        job = finished(people, host)
        program = Program(people.owner)
        answer = program.get(f"jobs/{job.pk}/spec.yaml", {"Accept": "application/yaml"})
        assert answer.status_code == 200
        spec, problems = parse_spec(read_yaml(answer.content))
        assert spec is not None, problems
        assert (spec.target.model, spec.seed, spec.placement.hosts) == (job.target.manifest_hash, 77, [])
        assert [p.workload for p in spec.points] == ["count@2"]
        assert spec.name.endswith("(reproduced)")
