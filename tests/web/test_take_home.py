"""What the experiment page gives to take home: the recommended arm's command as it ran, quoted right for each kind of starter."""

from __future__ import annotations

import html
import json
import re
import shlex
from dataclasses import replace

import pytest
import yaml
from django.test import Client
from django.urls import reverse
from speccore.engines.llamacpp_flags import MEASURING_FLAGS
from speccore.inventory import HostInventory
from speccore.spec import RuntimeSelector

from specweb.dashboard import trial_strip
from specweb.dashboard.strips import Strip, strips
from specweb.dashboard.take_home import Form, TakeHome, take_home
from specweb.experiments.models import Experiment, Job
from specweb.results import page_queries
from tests.web import sample
from tests.web.pages import as_user

pytestmark = pytest.mark.django_db

#: What a shell, systemd or YAML would read as its own, and what all of them cut at.
AWKWARD = '/data/my models/50% of $HOME\'s "best" \\ {x}/x.gguf'


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


@pytest.fixture
def run(people) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(blocks=3))


def shown(run: sample.Run) -> tuple[Job, list[Strip], HostInventory]:
    job = Job.objects.select_related("host", "inventory", "runtime", "target").get(pk=run.job.pk)
    analysis, inventory = page_queries.newest_analysis(job), page_queries.frozen_inventory(job)
    assert analysis
    assert inventory
    return job, strips(run.experiment.parsed_spec, analysis, {}, lambda *_: ""), inventory


def taken(run: sample.Run, path: str = "", env: dict[str, str] | None = None, *, for_team: bool = True) -> TakeHome:
    job, found, inventory = shown(run)
    if path:
        inventory = inventory.model_copy(update={"models": [m.model_copy(update={"path": path}) for m in inventory.models]})
    take = take_home(run.experiment.parsed_spec, job, found, inventory, env or {}, for_team=for_team)
    assert take
    return take


def text(form: Form) -> str:
    return "".join(p.text for p in form.pieces)


def argv(run: sample.Run, arm: str, model: str) -> list[str]:
    bound = {"{executable}": "/opt/llama-server", "{target}": model, "{draft}": model, "{host}": "127.0.0.1", "{port}": "8080"}
    return [bound.get(word, word) for word in shown(run)[0].commands[arm]]


@pytest.mark.parametrize("model", ["/models/x.gguf", AWKWARD])
def test_each_form_starts_the_command_that_ran(run, model):
    env = {"LD_LIBRARY_PATH": "/opt/a lib", "CUDA_VISIBLE_DEVICES": "0"}
    (recipe,) = [r for r in taken(run, model, env).recipes if r.arm == "draft-8"]
    wanted = argv(run, "draft-8", model)
    assert "--spec-draft-model" in wanted
    shell, systemd, compose = recipe.forms

    assert shlex.split(text(shell)) == ["CUDA_VISIBLE_DEVICES=0", "LD_LIBRARY_PATH=/opt/a lib", *wanted]

    unit = text(systemd).replace(" \\\n", " ")
    (started,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(started)] == wanted
    assert not re.search(r"(?<!%)(%%)*%(?!%)", started)
    assert 'Environment="LD_LIBRARY_PATH=/opt/a lib"\n' in unit

    service = yaml.safe_load(text(compose))["services"]["llama-server"]
    wanted[wanted.index("--host") + 1] = "0.0.0.0"
    assert [word.replace("$$", "$") for word in service["command"]] == wanted[1:]
    (volume,) = service["volumes"]
    assert volume["source"].replace("$$", "$") == volume["target"].replace("$$", "$") == model.rpartition("/")[0]
    assert service["ports"] == ["127.0.0.1:8080:8080"]
    assert service["environment"] == {"CUDA_VISIBLE_DEVICES": "0"}  # the host's libraries are not in the image


def test_flags_that_are_there_for_measuring_are_told_apart(run):
    (recipe,) = [r for r in taken(run).recipes if r.arm == "draft-8"]
    asides = {p.text.split()[0] for p in recipe.forms[0].pieces if p.aside}
    assert asides == {flag for flag, _ in recipe.asides} == set(argv(run, "draft-8", "")) & set(MEASURING_FLAGS)
    assert {"--port", "--metrics", "--no-cache-prompt"} <= asides
    kept = " ".join(p.text for p in recipe.forms[0].pieces if not p.aside)
    assert "--ctx-size 2048" in kept
    assert "--fit off" in kept
    assert "--spec-draft-n-max 8" in kept


@pytest.mark.parametrize("model", ["/models/draft", AWKWARD.removesuffix("/x.gguf")])
def test_vllm_gets_its_own_image_words_and_the_path_inside_its_speculative_config(run, model):
    spec = run.experiment.parsed_spec.model_copy(update={"runtime": RuntimeSelector(engine="vllm")})
    job, found, inventory = shown(run)
    config = '{"method":"draft_model","model":"{draft}","num_speculative_tokens":8}'
    common = ["{executable}", "serve", "{target}", "--host", "{host}", "--port", "{port}", "--stream-interval", "1"]
    job.commands = {"off": common, "draft-8": [*common, "--speculative-config", config]}
    told = [replace(s, word="keep", arm="draft-8") for s in found]
    inventory = inventory.model_copy(update={"models": [m.model_copy(update={"path": model}) for m in inventory.models]})
    take = take_home(spec, job, told, inventory, {}, for_team=True)
    assert take
    (recipe,) = take.recipes
    assert set(dict(recipe.asides)) == {"--host", "--port", "--stream-interval"}
    shell, systemd, compose = recipe.forms
    words = shlex.split(text(shell))
    assert words[1:3] == ["serve", model]
    assert json.loads(words[-1])["model"] == model
    unit = text(systemd).replace(" \\\n", " ")
    (started,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    assert [word.replace("%%", "%").replace("$$", "$") for word in shlex.split(started)] == words
    service = yaml.safe_load(text(compose))["services"]["vllm"]
    assert service["image"] == "vllm/vllm-openai-cpu"
    assert [word.replace("$$", "$") for word in service["command"][:2]] == [model, "--host"]
    assert json.loads(service["command"][-1].replace("$$", "$"))["model"] == model


def test_what_is_recommended_goes_home_by_kind_of_work(run):
    job, found, inventory = shown(run)
    words = {"count": ("keep", "draft-8"), "python-code": ("disable", ""), "free-text": ("inconclusive", "")}
    told = [replace(s, word=words[s.title][0], arm=words[s.title][1]) for s in found]
    take = take_home(run.experiment.parsed_spec, job, told, inventory, {}, for_team=True)
    assert take
    assert [(r.arm, [w.split(",")[0] for w in r.works]) for r in take.recipes] == [("draft-8", ["count"]), ("off", ["python-code"])]
    assert take.recipes[1].gist == []
    assert "--spec" not in text(take.recipes[1].forms[0])
    assert [word for _, word in take.undecided] == ["inconclusive"]
    alike = [replace(s, word="keep", arm="draft-3") for s in found]
    one = take_home(run.experiment.parsed_spec, job, alike, inventory, {}, for_team=True)
    assert one
    assert [(r.arm, len(r.works)) for r in one.recipes] == [("draft-3", 3)]


def section(client: Client, run: sample.Run) -> str:
    page = client.get(reverse("experiment", args=[run.experiment.pk])).content.decode()
    return html.unescape(page.partition('class="take"')[2].partition("</section>")[0])


def test_the_host_s_paths_are_for_its_team(people, run):
    Experiment.objects.update(visibility="public")
    mine, theirs = section(as_user(people.mate), run), section(Client(), run)
    assert "/opt/llama-server" in mine
    assert "/models/x.gguf" in mine
    assert "Paths are those of xeon" in mine
    assert "/path/to/demo-target" in theirs
    assert "/opt/" not in theirs
    assert "/models/" not in theirs
    assert "--spec-draft-n-max 8" in theirs
    assert "differs by work" in mine


def test_there_is_nothing_to_take_home_before_an_answer(people):
    host = sample.host_with_inventory(people.team)
    waiting = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(blocks=3)), host)
    assert section(as_user(people.owner), waiting) == ""


def test_the_environment_that_an_attempt_was_started_with_comes_along(people, run):
    Experiment.objects.update(visibility="public")
    assert "LD_LIBRARY_PATH=/opt/lib /opt/llama-server --model" in re.sub(r"<[^>]*>", "", section(as_user(people.owner), run))
    assert "LD_LIBRARY_PATH" not in section(Client(), run)


# --- the order strip ---


def test_every_trial_can_be_read_by_its_arm_s_name_or_letter(run):
    trials = page_queries.trials_shown(run.job)
    keys = {k.name: k.key for k in trial_strip.arm_keys(trials)}
    assert keys == {"off": "A", "draft-3": "B", "draft-8": "C", "ngram-simple": "D"}
    for block in trial_strip.trial_blocks(run.job, trials, "", {}):
        for box in block.trials:
            assert box.key == keys[box.arm]
            assert box.fits >= len(box.arm)
            assert box.width > 0.7 * len(box.arm) + 5  # percent of a row that is about a thousand pixels wide
        assert max(b.x + b.width for b in block.trials) <= 100.01


def test_letters_go_on_after_z():
    assert [trial_strip._letters(i) for i in (0, 25, 26, 51, 52)] == ["A", "Z", "AA", "AZ", "BA"]
