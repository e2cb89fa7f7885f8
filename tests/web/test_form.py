"""The experiment form: every button gives back all that was typed, every fault stands beside its field, one form is one experiment."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore import workloads
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.accounts.models import Membership, Role, Team, User
from specweb.experiments.models import Experiment, Host, Visibility, Workload
from specweb.experiments.services.hosts import create_host
from specweb.experiments.services.submission import seed_workload
from tests.web import sample
from tests.web.form_client import FormClient, fields_in

pytestmark = pytest.mark.django_db

ROOT = Path(__file__).parents[2]
NEW = "/experiments/new"
HELP = re.compile(r'(?s)<p class="fault" id="f-(?P<name>[^"]+)-fault"[^>]*>(?P<text>[^<]+)</p>')


@pytest.fixture
def people() -> sample.People:
    made = sample.people()
    for content in workloads.builtin().values():
        seed_workload(content)
    return made


@pytest.fixture
def form(people) -> FormClient:
    """The owner has a new form open, and the team a host with the demo pair."""
    sample.host_with_inventory(people.team)
    return FormClient(people.owner)


def faults(page: str) -> dict[str, str]:
    """Field → what stands beside it."""
    return {m["name"]: html.unescape(m["text"]) for m in HELP.finditer(page)}


def summary(page: str) -> str:
    found = re.search(r'(?s)id="f-faults".*?</ul>', page)
    return html.unescape(re.sub(r"<[^>]+>", "", found[0])) if found else ""


PASSWORD = "a long enough password"


def with_password(people: sample.People) -> FormClient:
    people.owner.set_password(PASSWORD)
    people.owner.save()
    return FormClient(people.owner)


def with_role(team: Team, role: Role, name: str = "sub") -> User:
    user, _ = User.objects.get_or_create(username=name)
    Membership.objects.create(user=user, team=team, role=role)
    return user


# --- a new form ---


def test_a_new_form_is_filled_with_what_the_team_has_and_can_be_sent_as_it_is(form):
    assert form["target-model"] == "demo-target"
    assert form.values("-mode", "arms-") == ["off", "draft", "draft", "ngram-simple"]
    assert form["arms-1-draft_model"] == "demo-draft"
    assert form.values("-workload", "points-") == ["count", "python-code", "free-text"]
    answer = form.press("submit")
    made = Experiment.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, reverse("experiment", args=[made.pk]))
    assert made.parsed_spec.blocks == 5
    assert made.created_by.username == "owner"
    assert made.visibility == Visibility.TEAM
    assert made.jobs.count() == 1


def test_the_sample_is_two_clicks_away(people):
    sample.host_with_inventory(people.team)
    assert 'href="?from=sample"' in FormClient(people.owner).page
    form = FormClient(people.owner, "?from=sample")
    form.press("submit")
    expected, _ = parse_spec(read_yaml((ROOT / "demo" / "experiment.yaml").read_bytes()))
    assert Experiment.objects.get().parsed_spec == expected


def test_an_earlier_experiment_is_copied_and_stays_as_it_is(people):
    sample.host_with_inventory(people.team)
    earlier = sample.submitted(people.team, people.owner, sample.spec(seed=77, engine={"context": 2048, "extra": {}}))
    first = getattr(earlier, "experiment", earlier)
    assert f'<option value="{first.pk}">' in FormClient(people.owner).page
    form = FormClient(people.owner, f"?from={first.pk}")
    assert form["seed"] == "77"
    assert "default: llama-server" in form.page  # a default that nobody chose is named
    form.change(name="Again").press("submit")
    again = Experiment.objects.exclude(pk=first.pk).get()
    assert again.parsed_spec == first.parsed_spec.model_copy(update={"name": "Again"})


def test_what_one_may_not_read_can_t_be_copied(people):
    sample.host_with_inventory(people.other, "theirs")
    other = sample.submitted(people.other, people.stranger, sample.spec())
    pk = getattr(other, "experiment", other).pk
    client = Client()
    client.force_login(people.owner)
    for origin in (pk, "nonsense", "00000000-0000-0000-0000-000000000000"):
        assert client.get(f"{NEW}?from={origin}").status_code == 404
    assert client.get(NEW).content.decode().count(str(pk)) == 0


def test_suggestions_are_of_the_chosen_team_alone(people):
    sample.host_with_inventory(people.team)
    foreign = sample.host_with_inventory(people.other, "their-secret-box")
    Workload.objects.create(team=people.other, name="their-prompts", version=1, title="T", content_hash="x", content={"items": []})
    form = FormClient(people.owner)
    assert "xeon" in form.page
    assert "demo-target" in form.page
    assert foreign.name not in form.page
    assert "their-prompts" not in form.page


def test_without_a_host_the_form_works_and_tells_the_next_step(people):
    form = FormClient(people.owner)
    assert "The team has no host yet" in form.page
    assert reverse("hosts") in form.page
    assert form["target-model"] == ""
    assert "is required" in faults(form.press("submit").content.decode())["target-model"]


# --- buttons ---

ODD = "<b>&\"'</b> {{ 7 }} \u202e ünïcode"


@pytest.mark.parametrize("htmx", [False, True])
@pytest.mark.parametrize(
    "action",
    [
        "add-arms",
        "add-points",
        "add-engine-extra",
        "add-placement-labels",
        "duplicate-arms-1",
        "up-arms-2",
        "sweep-arms-1",
        "preview",
        "submit",
        "refresh",
        "",
        "nonsense",
    ],
)
def test_every_button_gives_back_all_that_was_typed(form, action, htmx):
    form.change(name=ODD, question=f"{ODD}\n\nsecond line ", blocks="many", arms__0__name=ODD, points__0__probes="2,5", engine__threads="-")
    form.change(
        engine__extra__0__flag="--what",
        engine__extra__0__value=" a ",
        arms__1__sweep="1,x",
        engine__prefix_cache="on",
        requirements__slots="٣",
    )
    before = sorted(text for name, text in form.fields if name not in ("csrfmiddlewaretoken",))
    form.press(action, htmx=htmx)
    after = sorted(text for name, text in form.fields if name not in ("csrfmiddlewaretoken",))
    left = list(after)
    for text in before:
        assert text in left, text
        left.remove(text)
    assert Experiment.objects.count() == 0
    assert ("<html" in form.page) != htmx
    assert form.answer.headers.get("HX-Trigger-After-Settle") == ("form-changed" if htmx else None)


def test_rows_can_be_built_up_and_taken_away(form):
    form.press("add-arms")
    assert len(form.values("-mode", "arms-")) == 5
    form.change(arms__4__name="mine").press("remove-arms-1")
    assert [name for name in form.values("-name") if name] == ["off", "draft-8", "ngram-simple", "mine"]
    form.press("duplicate-points-0")
    assert form.values("-workload", "points-") == ["count", "count", "python-code", "free-text"]


def test_a_sweep_from_the_form(form):
    form.change(arms__1__sweep="1, 2, 4").press("sweep-arms-1")
    assert form.values("-draft_limit")[1:4] == ["1", "2", "4"]
    form.press("submit")
    assert [a.name for a in Experiment.objects.get().parsed_spec.arms][:4] == ["off", "draft-1", "draft-2", "draft-4"]


def test_a_sweep_in_yaml_becomes_its_arms(form):
    text = (
        "name: Limits\ntarget: {model: demo-target}\narms:\n- {name: 'off', mode: off}\n"
        "- {name: 'd{draft_limit}', mode: draft, draft_model: demo-draft, draft_limit: [1, 2]}\npoints: [{workload: count}]\n"
    )
    form.press("to-yaml")
    form.change(yaml=text).press("from-yaml")
    assert form.values("-draft_limit")[-2:] == ["1", "2"]
    assert [name for name in form.values("-name") if name.startswith("d")] == ["d1", "d2"]
    form.press("to-yaml")
    assert "[1, 2]" in form.values("yaml")[0]  # the text that it was read from
    form.change(yaml=text.replace("[1, 2]", "[1, 1]")).press("from-yaml")
    assert "line 5" in form.page
    assert "holds 1 twice" in form.page
    form.change(yaml=text).press("submit")
    assert [a.name for a in Experiment.objects.get().parsed_spec.arms] == ["off", "d1", "d2"]


def test_further_flags_labels_and_hosts_come_into_the_experiment(form):
    form.change(placement__hosts="xeon", engine__extra__0__flag="--no-mmap", engine__extra__0__value="", engine__prefix_cache="on")
    form.press("submit")
    spec = Experiment.objects.get().parsed_spec
    assert spec.placement.hosts == ["xeon"]
    assert spec.engine.extra == {"--no-mmap": True}
    assert spec.engine.prefix_cache is True


def test_drafters_beside_another_one_and_further_settings_come_into_the_experiment(form):
    form.change(arms__1__also="ngram-mod, ngram-simple", arms__1__also_limit="12", arms__1__extra="--spec-draft-poll: 50")
    form.press("submit")
    arm = Experiment.objects.get().parsed_spec.arms[1]
    assert (arm.also, arm.also_limit, arm.extra) == (["ngram-mod", "ngram-simple"], 12, {"--spec-draft-poll": 50})
    assert arm.drafters == ("draft", "ngram-mod", "ngram-simple")


def test_a_host_that_is_no_more_stays_ticked_until_its_owner_decides(form):
    form.change(placement__hosts="gone-box").press("preview")
    assert ("placement-hosts", "gone-box") in form.fields
    assert "no host of this team" in form.page
    assert "gone-box" in summary(form.page)


# --- bad input, each beside its field ---


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"arms__0__mode": "ngram-simple"}, "arms", "baseline"),
        ({"arms__1__mode": "off", "arms__1__draft_model": "", "arms__1__draft_limit": ""}, "arms", "baseline"),
        ({"arms__1__draft_limit": "0"}, "arms-1-draft_limit", "1 to 1,024"),
        ({"arms__1__draft_limit": "-1"}, "arms-1-draft_limit", "-1"),
        ({"arms__1__draft_limit": "1000000"}, "arms-1-draft_limit", "1000000"),
        ({"arms__1__draft_limit": "a few"}, "arms-1-draft_limit", "a few"),
        ({"arms__1__mode": "drafft"}, "arms-1-mode", "draft"),
        ({"arms__1__draft_model": "demo-drafd"}, "arms-1-draft_model", "demo-draft"),
        ({"arms__1__name": "draft-8"}, "arms", "draft-8"),
        ({"target__model": "demo-targt"}, "target-model", "demo-target"),
        ({"points__0__workload": "count@99"}, "points-0-workload", "count@99"),
        ({"points__1__workload": ""}, "points-1-workload", "required"),
        ({"engine__extra__0__flag": "--no-such-flag", "engine__extra__0__value": "1"}, "engine-extra-0-flag", "--no-such-flag"),
        ({"engine__extra__0__flag": "--model", "engine__extra__0__value": "/etc/passwd"}, "engine-extra-0-flag", "--model"),
        ({"engine__extra__0__flag": "", "engine__extra__0__value": "7"}, "engine-extra-0-flag", "long flag"),
        ({"arms__1__also": "ngram-modd"}, "arms-1-also", "did you mean 'ngram-mod'?"),
        ({"arms__1__also_limit": "4"}, "arms-1-also_limit", "there are none"),
        ({"arms__1__extra": "--api-key: x"}, "arms-1-extra", "--api-key"),
        ({"arms__1__extra": "a: 1, a: 2"}, "arms-1-extra", "the key 'a' is there twice"),
        ({"runtime__engine": "vllm"}, "runtime-engine", "no host of this team offers vllm"),
        ({"name": "n" * 300}, "name", "120"),
        ({"name": ""}, "name", "required"),
        ({"blocks": "0"}, "blocks", "1 to 100"),
        ({"margin": "nan"}, "margin", "nan"),
        ({"placement__labels__0__key": "gpu", "placement__labels__0__value": "h200"}, "placement-labels", "gpu"),
    ],
)
def test_a_fault_stands_beside_its_field_with_what_was_typed(form, changes, field, words):
    form.change(**changes)
    form.press("submit")
    assert form.answer.status_code == 200
    assert Experiment.objects.count() == 0
    beside = faults(form.page)
    # A fault of a whole group stands in its head, and in the list of faults.
    assert words in beside.get(field, summary(form.page)), (beside, summary(form.page))
    for name, text in changes.items():
        assert form[name.replace("__", "-")] == text
    assert f'href="#f-{field}' in form.page
    assert f'id="f-{field}' in form.page
    # The preview says the same of it.
    assert words in html.unescape(form.look())


def test_every_fault_is_told_at_once(form):
    form.change(arms__1__draft_limit="0", arms__2__draft_limit="x", blocks="0", name="").press("submit")
    assert {"arms-1-draft_limit", "arms-2-draft_limit", "blocks", "name"} <= set(faults(form.page))
    assert "4 things to mend" in summary(form.page)
    for name in ("arms-1-draft_limit", "blocks"):
        tag = re.search(rf'<input name="{name}"[^>]*>', form.page)[0]
        assert 'aria-invalid="true"' in tag
        described = re.search(r'aria-describedby="([^"]+)"', tag)[1].split()
        assert all(f'id="{one}"' in form.page for one in described), described
    assert re.search(r'id="f-faults"[^>]*autofocus', form.page)


def test_a_label_twice_is_a_fault_and_not_one_that_silently_wins(form):
    form.change(
        placement__labels__0__key="gpu", placement__labels__0__value="a", placement__labels__1__key="gpu", placement__labels__1__value="b"
    )
    for action in ("submit", "to-yaml"):
        form.press(action)
        assert "there twice" in faults(form.page)["placement-labels-1-key"]
        assert form.values("-value") == ["a", "b"]


NASTY = "<script>alert(1)</script>"


def test_names_from_everywhere_are_text(people):
    host = sample.host_with_inventory(people.team, f"box{NASTY}")
    Host.objects.filter(pk=host.pk).update(labels={NASTY: NASTY})
    people.team.name = NASTY
    people.team.save()
    inventory = host.inventory
    inventory.content["models"][0]["alias"] = NASTY
    inventory.content["models"][0]["architecture"] = NASTY
    inventory.save()
    sample.submitted(people.team, people.owner, sample.spec(name=NASTY))
    Workload.objects.create(team=people.team, name=NASTY, version=1, title=NASTY, content_hash="x", content={"items": []})
    form = FormClient(people.owner)
    form.change(
        name=NASTY, arms__0__name=NASTY, arms__1__mode=NASTY, points__0__workload=NASTY, runtime__engine=NASTY, placement__hosts=NASTY
    )
    pages = [form.page, form.press("preview").content.decode(), form.look(), form.press("to-yaml").content.decode(), form.look()]
    for page in pages:
        assert NASTY not in page
        assert html.escape(NASTY) in page
    assert form["yaml"].count(NASTY) >= 4


# --- one form, one experiment ---


def test_the_same_form_twice_is_one_experiment(form):
    sent = form.data("submit")
    answers = [form.client.post(NEW, sent, headers={"HX-Request": "true"}) for _ in range(2)]
    made = Experiment.objects.get()
    assert {a["HX-Redirect"] for a in answers} == {reverse("experiment", args=[made.pk])}
    assert "submitted before" in form.client.get(answers[1]["HX-Redirect"]).content.decode()
    assert made.jobs.count() == 1


def test_back_and_changed_is_another_experiment(form):
    form.client.post(NEW, form.data("submit"))
    form.change(blocks="7")
    form.client.post(NEW, form.data("submit"))
    assert sorted(e.parsed_spec.blocks for e in Experiment.objects.all()) == [5, 7]


def test_a_host_that_can_t_run_it_is_told_apart_from_one_that_would(form, people):
    bare = sample.host_with_inventory(people.team, "bare-box")
    bare.inventory.content["models"] = bare.inventory.content["models"][:1]
    bare.inventory.save()
    shown = html.unescape(re.sub(r"<[^>]+>", " ", form.look()))
    assert re.search(r"xeon\s+online\s+would run it", shown)
    assert re.search(r"bare-box\s+online\s+can’t run it", shown)
    assert "has no model 'demo-draft'" in shown
    assert "--spec-draft-n-max 8" in shown
    assert "20 starts of the server" in shown
    assert "block 5" in shown
    assert re.search(r"\d min", shown)


def test_a_rare_wish_is_warned_about_beside_its_field(form):
    assert 'href="#f-blocks"' in form.change(blocks="2").look()


def test_what_goes_away_between_check_and_submission_is_told(form):
    def meanwhile(execute, sql, params, many, context):
        if "submission_key" in sql and sql.startswith("SELECT %s AS"):  # the check is done, and nothing is stored yet
            Workload.objects.filter(name="count").update(name="counted")
        return execute(sql, params, many, context)

    with connection.execute_wrapper(meanwhile):
        form.press("submit")
    assert not Workload.objects.filter(name="count").exists()
    assert "count" in faults(form.page)["points-0-workload"]
    assert Experiment.objects.count() == 0


def test_two_new_forms_are_two_experiments(form, people):
    form.press("submit")
    FormClient(people.owner).press("submit")
    assert Experiment.objects.count() == 2


@pytest.mark.parametrize("key", ["", "nonsense", "\0"])
def test_a_key_that_is_none_gets_a_new_one(form, key):
    form.change(key=key).press("submit")
    assert Experiment.objects.count() == 1


# --- YAML ---


def test_the_form_in_yaml_and_back(form):
    form.change(name="Both ways", blocks="many", arms__1__draft_limit="")
    before = dict(form.fields)
    form.press("to-yaml")
    assert form["view"] == "yaml"
    data = read_yaml(form["yaml"].encode())
    assert (data["name"], data["blocks"], data["arms"][0]) == ("Both ways", "many", {"name": "off", "mode": "off"})
    form.press("from-yaml")
    assert form["view"] == "form"
    kept = {name: text for name, text in form.fields if name in before and name not in ("csrfmiddlewaretoken", "kept")}
    assert kept == {name: text for name, text in before.items() if name in kept}
    assert "many" in faults(form.page)["blocks"]


def test_what_was_changed_in_yaml_is_in_the_form_and_can_be_sent_from_either(form):
    form.press("to-yaml")
    form.change(yaml=form["yaml"].replace("blocks: 5", "blocks: 9")).press("from-yaml")
    assert form["blocks"] == "9"
    form.press("to-yaml")
    form.press("submit")
    assert Experiment.objects.get().parsed_spec.blocks == 9


def test_comments_come_back_if_the_form_says_the_same(form):
    text = "# why\n" + (ROOT / "demo" / "experiment.yaml").read_text()
    form.press("to-yaml")
    form.change(yaml=text).press("from-yaml")
    form.press("to-yaml")
    assert form["yaml"] == text
    form.press("from-yaml")
    form.change(blocks="6").press("to-yaml")
    assert "blocks: 6" in form["yaml"]
    assert "Your earlier text" in form.page
    assert "# why" in form.page


BOMB = "a: &a [x, x]\n" + "".join(f"{c}: &{c} [*{p}, *{p}, *{p}]\n" for p, c in zip("abcdefgh", "bcdefghi", strict=True))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "line"),
        ("- a\n- b\n", "mapping"),
        ("just words", "mapping"),
        ("", "mapping"),
        ("nmae: x\n", "nmae"),
        ("name: x\nname: y\n", "twice"),
        ("arms: 3\n", "arms"),
        ("name: !!python/object:os.system x\n", "python"),
        (BOMB, "alias"),
        ("[" * 3000, "nested"),
        ("name: " + "x" * 300_000, "bytes"),
    ],
)
@pytest.mark.parametrize("action", ["from-yaml", "submit", "preview"])
def test_yaml_that_is_no_experiment_stays_with_words(form, text, words, action):
    form.press("to-yaml")
    form.change(yaml=text).press(action)
    assert form.answer.status_code == 200
    assert (form["view"], form["yaml"]) == ("yaml", text)
    assert words in summary(form.page), summary(form.page)
    assert Experiment.objects.count() == 0


def test_an_unknown_key_is_named_with_its_line_and_the_nearest(form):
    form.press("to-yaml")
    text = form["yaml"].replace("blocks: 5", "blcks: 5")
    form.change(yaml=text).press("from-yaml")
    told = summary(form.page)
    assert "blcks" in told
    assert "'blocks'" in told
    assert re.search(r'href="#f-yaml"( data-line="\d+")?', form.page)


def upload(content: bytes, name: str = "mine.yaml") -> SimpleUploadedFile:
    return SimpleUploadedFile(name, content, "application/yaml")


def test_a_file_takes_the_place_of_what_was_typed_and_that_can_be_undone(form):
    form.change(name="Typed before")
    form.press("upload", file=upload((ROOT / "demo" / "experiment.yaml").read_bytes()))
    assert form["name"] == "Demo pair on this machine"
    assert "mine.yaml took the place" in form.page
    form.press("undo")
    assert form["name"] == "Typed before"


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"x" * 5 * 2**20, "5,242,880 bytes"), (b"\xff\xfe\x00", "UTF-8"), (None, "No file was chosen")],
)
def test_a_file_that_can_t_be_read_changes_nothing(form, content, words):
    form.change(name="Typed before")
    form.press("upload", **({} if content is None else {"file": upload(content)}))
    assert words in summary(form.page)
    assert form["name"] == "Typed before"


def test_five_megabytes_of_yaml_are_refused_in_words(form):
    form.press("to-yaml")
    text = "name: x\n" + "# filler\n" * 600_000
    form.change(yaml=text).press("submit")
    assert "more than the" in summary(form.page)
    assert form["yaml"] == text


# --- too much for one request ---


def test_too_many_fields_are_refused_in_words(form):
    many = {f"arms-{i}-name": "x" for i in range(4100)}
    answer = form.client.post(NEW, form.data("submit") | many)
    assert answer.status_code == 400
    assert "at most 40 arms" in answer.content.decode()
    answer = form.client.post(NEW, form.data("submit") | many, headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Retarget"]) == (200, "#form-notice")


@pytest.mark.parametrize("name", ["arms-{}-name", "engine-extra-{}-flag", "placement-labels-{}-key"])
def test_more_rows_than_can_be_laid_out_are_refused_in_words(form, name):
    many = {name.format(i): "x" for i in range(201)}
    answer = form.client.post(NEW, form.data("resume") | many)
    assert answer.status_code == 400
    assert "That is too large" in answer.content.decode()
    answer = form.client.post("/experiments/preview", form.data("") | many, headers={"HX-Request": "true"})
    assert (answer.status_code, answer["HX-Retarget"]) == (200, "#form-notice")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("arms: [" + "{name: x}," * 900 + "]", "needs at most 40 arms, has 900"),
        ("engine: {extra: {--override-tensor: [" + "x," * 900 + "]}}", "holds 900 flags and values; at most 200 are possible"),
        ("placement: {hosts: [" + "x," * 900 + "]}", "needs at most 100 hosts, has 900"),
    ],
)
def test_yaml_with_more_rows_than_can_be_laid_out_stays_as_it_is(form, text, words):
    form.press("to-yaml")
    form.change(yaml=text).press("from-yaml")
    assert words in summary(form.page)
    assert (form["view"], form["yaml"]) == ("yaml", text)


def test_a_request_that_is_too_large_is_refused_in_words(form, settings):
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 20_000
    answer = form.client.post(NEW, form.data("submit") | {"yaml": "x" * 30_000})
    assert answer.status_code == 400
    assert "That is too large" in answer.content.decode()


def test_the_largest_experiment_fits_into_a_request(form):
    arms = {
        f"arms-{i}-{name}": "1"
        for i in range(40)
        for name in ("name", "mode", "draft_model", "draft_limit", "draft_min", "p_min", "sweep", "ngram_size")
    }
    points = {
        f"points-{i}-{name}": "1"
        for i in range(60)
        for name in ("workload", "max_tokens", "probes", "concurrency", "sampling-temperature", "sampling-top_k")
    }
    assert form.client.post(NEW, form.data("preview") | arms | points).status_code == 200


# --- a session that ended ---


def test_a_form_sent_logged_out_survives_the_login(people, form):
    form = with_password(people)
    form.change(name=ODD, question="two\nlines", blocks="many")
    typed = dict(form.fields)
    form.client.logout()
    page = form.press("submit").content.decode()
    assert form.answer.status_code == 403
    assert "Your session ended" in page
    wrong = form.client.post(NEW, form.data("login") | {"username": "owner", "password": "wrong"})
    assert "correct username and password" in wrong.content.decode()
    assert dict(fields_in(wrong.content.decode()))["name"] == ODD
    form.take(form.client.post(NEW, form.data("login") | {"username": "owner", "password": PASSWORD}))
    assert form.answer.status_code == 200
    assert "Submit the experiment" in form.page
    for name, text in typed.items():
        if name != "csrfmiddlewaretoken":
            assert form[name] == text, name
    assert Experiment.objects.count() == 0  # nothing was sent behind their back
    form.change(name="n", blocks="5").press("submit")
    assert Experiment.objects.count() == 1
    assert PASSWORD not in page


def test_a_chosen_file_survives_the_login_too(people):
    form = with_password(people)
    form.client.logout()
    form.press("upload", file=upload(b"name: From a file\n"))
    form.take(form.client.post(NEW, form.data("login") | {"username": "owner", "password": PASSWORD}))
    assert (form["view"], form["yaml"]) == ("yaml", "name: From a file\n")


def test_a_script_gets_a_notice_and_never_a_login_form(form):
    form.client.logout()
    for path in (NEW, reverse("experiment-preview")):
        answer = form.client.post(path, form.data("preview"), headers={"HX-Request": "true"})
        assert (answer.status_code, answer["HX-Retarget"]) == (200, "#form-notice")
        assert "session ended" in answer.content.decode()
        assert "password" not in answer.content.decode()


def test_a_visitor_is_led_to_the_login_form_and_back():
    answer = Client().get(f"{NEW}?from=sample")
    assert answer.status_code == 302
    assert answer["Location"].startswith("/login/?next=")


def test_a_token_of_an_earlier_login_loses_nothing(people):
    sample.host_with_inventory(people.team)
    form = FormClient(people.owner, enforce_csrf_checks=True)
    form.change(name=ODD)
    form.client.force_login(people.owner)  # in another tab: the token is another one now
    form.client.get(NEW)
    form.change(csrfmiddlewaretoken="x" * 64).press("submit")
    assert form.answer.status_code == 403
    assert form["name"] == ODD
    form.press("resume")
    assert form.answer.status_code == 200
    assert form["name"] == ODD
    form.change(name="fine").press("submit")
    assert Experiment.objects.get().name == "fine"


def test_a_foreign_site_gets_nothing_back(people):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(NEW, {"name": "planted"}, headers={"Origin": "https://elsewhere.example"})
    assert answer.status_code == 403
    assert "planted" not in answer.content.decode()


def test_other_pages_keep_their_answer_to_an_old_token(people):
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.owner)
    answer = client.post(reverse("host-enrol"), {"team": "ours"})
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.content.decode()


# --- who may ---


def test_a_viewer_may_not_and_is_told_who_can_change_that(people):
    client = Client()
    client.force_login(people.mate)
    for answer in (client.get(NEW), client.post(NEW, {"do": "submit"}), client.post(reverse("experiment-preview"), {})):
        assert answer.status_code == 403
        assert "ask owner" in answer.content.decode()
    assert NEW not in client.get("/").content.decode()
    client.force_login(people.owner)
    assert NEW in client.get("/").content.decode()


def test_who_is_in_no_team_is_told_the_next_step():
    client = Client()
    client.force_login(User.objects.create(username="new"))
    answer = client.get(NEW)
    assert answer.status_code == 403
    assert "in no team yet" in answer.content.decode()


def test_a_submitter_of_several_teams_chooses(people):
    user = with_role(people.team, Role.SUBMITTER)
    Membership.objects.create(user=user, team=people.other, role=Role.SUBMITTER)
    sample.host_with_inventory(people.team)
    create_host(people.other, "their-box")
    form = FormClient(user)
    assert form["team"] == "ours"
    form.change(team="theirs").press("refresh")
    assert "their-box" in form.page
    form.change(team="ours", visibility="public").press("submit")
    made = Experiment.objects.get()
    assert (made.team, made.visibility) == (people.team, Visibility.PUBLIC)


def test_a_team_that_one_may_not_submit_for_is_refused_with_all_that_was_typed(form, people):
    form.change(team="theirs", name=ODD).press("submit")
    assert "can’t submit for that team" in summary(form.page)
    assert form["name"] == ODD
    assert Experiment.objects.count() == 0
    assert form.client.post(reverse("experiment-preview"), form.data("") | {"team": "theirs"}).status_code == 403


# --- cost ---


def statements(call) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert call().status_code == 200
    return len(queries)


def test_statements_do_not_grow_with_hosts_experiments_or_rows(people):
    sample.host_with_inventory(people.team)
    form = FormClient(people.owner)
    counts = []
    for i in range(2):
        counts.append(
            (
                statements(lambda: form.client.get(NEW)),
                statements(lambda: form.press("add-arms")),
                statements(lambda: form.client.post(reverse("experiment-preview"), form.data(""))),
            )
        )
        for j in range(4):
            sample.host_with_inventory(people.team, f"more-{i}-{j}")
            sample.submitted(people.team, people.owner, sample.spec())
    assert counts[0] == counts[1]
    assert counts[0][0] <= 7, counts
    assert counts[0][1] <= 7, counts
    assert counts[0][2] <= 12, counts
