"""What works on my card: the best arm that was found for each kind of work on some hardware, or what to start with; models and hardware."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from specweb.accounts.models import Role, User
from specweb.experiments.models import Experiment, Host, Visibility
from specweb.experiments.services.hosts import revoke_host, store_inventory
from specweb.results.models import Listing
from tests.web import sample
from tests.web.form_client import FormClient
from tests.web.pages import as_user, with_role
from tests.web.test_compare import CARD, DRAFT, XEON, other_host, run

pytestmark = pytest.mark.django_db

EIGHT = {"name": "draft-8", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 8}
LONG = "a very long name " * 11 + "of 200 charac"
TARGET_HASH, DRAFT_HASH = "b" * 64, "c" * 64


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


def page(user: User | None, path: str = "/", **query: str) -> str:
    answer = as_user(user).get(path, query)
    assert answer.status_code == 200
    return " ".join(html.unescape(answer.content.decode()).split())


def card(user: User | None, **query: str) -> str:
    return page(user, **query).partition('<section class="works"')[2].partition("</section>")[0]


def lines(text: str) -> list[str]:
    """Each line of best arms, without markup."""
    parts = [part for body in re.findall(r'<ul class="bests">(.*?)</ul>', text) for part in re.findall(r"<li>(.*?)</li>", body)]
    return [" ".join(re.sub(r"<[^>]+>", " ", part).split()) for part in parts]


def with_models(host: Host, **aliases: str) -> Host:
    """The host calls its models otherwise: alias before → alias now."""
    assert host.inventory
    told = host.inventory.parsed
    renamed = [m.model_copy(update={"alias": aliases.get(m.alias.replace("-", "_"), m.alias)}) for m in told.models]
    store_inventory(host, told.model_copy(update={"models": renamed}), datetime.now(UTC))
    host.refresh_from_db()
    return host


# --- what works on my card ---


def test_each_kind_of_work_has_the_arm_that_was_recommended_on_this_very_hardware(who: sample.People) -> None:
    points = [{"workload": "count", "max_tokens": 64}, {"workload": "free-text", "max_tokens": 64}]
    run(who, sample.host_with_inventory(who.team), {"off": 1.0, "draft-4": 2.0, "draft-8": 1.5}, arms=(DRAFT, EIGHT), points=points)
    run(who, other_host(who.team), {"off": 0.05, "draft-4": 0.045})
    found = lines(card(who.mate, hardware=XEON, model="demo-target"))
    assert len(found) == 2
    assert all(re.search(r"draft-4 .*(1\.9|2\.0)\d×", line) for line in found)
    assert {line.split()[0] for line in found} == {"Counting", "Free"}
    (slow,) = lines(card(who.mate, hardware=CARD, model="demo-target"))
    assert "No arm is recommended." in slow
    assert "disable" in slow
    assert "2.0" not in slow


def test_of_several_runs_the_one_whose_lower_end_is_highest_and_a_newer_one_that_denies_it_is_told(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    days = [datetime.now(UTC) - timedelta(days=n) for n in (3, 2, 1)]
    best = run(who, host, {"off": 1.0, "draft-4": 2.0}, at=days[0])
    run(who, host, {"off": 1.0, "draft-4": 1.5}, at=days[1])
    text = card(who.owner, hardware=XEON, model="demo-target")
    (line,) = lines(text)
    assert re.search(r"(1\.9|2\.0)\d×", line)
    assert "all 2 results" in line
    assert f"job={best.pk}" in text
    assert "otherwise" not in line
    run(who, host, {"off": 1.0, "draft-4": 0.5}, at=days[2])
    (line,) = lines(card(who.owner, hardware=XEON, model="demo-target"))
    assert re.search(r"(1\.9|2\.0)\d×", line)
    assert re.search(r"its newest run says otherwise: disable, 0\.(49|5\d)×", line)


def test_nobody_measured_this_yet_leads_to_a_preset_with_the_model_filled_in(who: sample.People) -> None:
    other_host(who.team)
    text = card(who.owner, hardware=CARD, model="demo-target")
    assert "Nobody measured this yet." in text
    assert "old-card has what it takes." in text
    href = re.findall(r'<a class="button" href="([^"]+)"', text)[0]
    assert parse_qs(urlsplit(href).query) == {"preset": ["draft-limit-sweep"], "model": ["demo-target"]}
    form = FormClient(who.owner, f"?{urlsplit(href).query}")
    assert (form["target-model"], form["arms-1-draft_model"]) == ("demo-target", "demo-draft")
    alone = card(who.owner, hardware=CARD, model="demo-draft")  # nothing smaller drafts for it
    (href,) = re.findall(r'<a class="button" href="([^"]+)"', alone)
    assert parse_qs(urlsplit(href).query) == {"preset": ["ngram-or-nothing"], "model": ["demo-draft"]}
    assert FormClient(who.owner, f"?{urlsplit(href).query}")["target-model"] == "demo-draft"  # no host's likeliest, and yet what was asked
    assert FormClient(who.owner, "?preset=ngram-or-nothing&model=not-here")["target-model"] == "not-here"
    assert "Who submits experiments in your team can start it." in card(with_role(who.team, Role.VIEWER), model="demo-draft")


def test_what_else_is_known_of_the_hardware_or_the_model_is_one_step_away(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    other_host(who.team)
    elsewhere = card(who.owner, hardware=CARD, model="demo-target")
    assert "This model on other hardware" in elsewhere
    assert "Other models on this hardware" not in elsewhere
    another = card(who.owner, hardware=XEON, model="demo-draft")
    assert "Other models on this hardware" in another
    assert "This model on other hardware" not in another
    measured = card(who.owner, hardware=XEON, model="demo-target")
    assert "Nobody measured Python code or Free text on this yet." in measured
    assert "preset=ngram-or-nothing&model=demo-target" in measured


def test_a_model_is_its_weights_whatever_a_host_calls_it(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    with_models(other_host(who.team), demo_target="another-name")
    (line,) = lines(card(who.owner, hardware=XEON, model="another-name"))
    assert "draft-4" in line


def test_only_hardware_or_only_a_model_is_a_question_too(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    run(who, other_host(who.team))
    by_model = card(who.owner, model="demo-target")
    assert [h for h in (CARD, XEON) if f"<h3>{h}</h3>" in by_model] == [CARD, XEON]
    assert len(lines(by_model)) == 2
    (line,) = lines(card(who.owner, hardware=XEON))
    assert "demo-target" in line


def test_others_see_public_results_only(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    assert XEON in card(who.mate)
    assert page(who.stranger).count(XEON) == 0
    assert "Nobody measured this yet." in card(who.stranger, hardware=XEON, model="demo-target")
    assert page(None, hardware=XEON).count('<section class="works"') == 0
    assert 'class="bests"' not in page(who.stranger, reverse("hardware"))
    assert as_user(who.stranger).get(reverse("model", args=[TARGET_HASH])).status_code == 404
    Experiment.objects.update(visibility=Visibility.PUBLIC)
    assert len(lines(card(who.stranger, hardware=XEON, model="demo-target"))) == 1
    assert len(lines(page(who.stranger, reverse("hardware")))) == 1
    assert "xeon" not in page(who.stranger, reverse("models"))


def test_a_choice_that_names_nothing_is_told_as_such(who: sample.People) -> None:
    sample.host_with_inventory(who.team)
    for name in ("no such thing", LONG, "مرحبا بالعالم", "🚀🧪", "<b>x</b>", "\x00", "%", "x" * 5000):
        for query in ({"hardware": name}, {"model": name}, {"hardware": name, "model": "demo-target"}):
            answer = as_user(who.owner).get("/", query)
            text = answer.content.decode()
            assert answer.status_code == 200
            assert "Nobody measured this yet." in text
            assert "No host of yours and no result that you may read is of" in text
            assert "<b>x</b></b>" not in text


def test_without_hosts_and_results_there_is_no_question(who: sample.People) -> None:
    assert '<section class="works"' not in page(who.owner)
    assert "No experiment yet." in page(who.owner)


def test_names_in_every_script_are_chosen_and_found_again(who: sample.People) -> None:
    name = "نموذج 🚀 " + "x" * 191
    run(who, with_models(sample.host_with_inventory(who.team), demo_target=name[:200]), target={"model": name[:200]})
    stored = Listing.objects.get().target
    text = card(who.owner, hardware=XEON, model=stored)
    assert len(lines(text)) == 1
    (model_line,) = re.findall(r'<tr><th scope="row"><a href="([^"]+)"><bdi>نموذج', page(who.owner, reverse("models")))
    assert len(lines(page(who.owner, model_line))) == 1


# --- models ---


def test_models_of_the_teams_hosts_with_what_they_are_and_where(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    run(who, host)
    with_models(other_host(who.team), demo_target="target-of-theirs")
    text = page(who.mate, reverse("models"))
    row = next(r for r in re.findall(r"<tr>(.*?)</tr>", text) if TARGET_HASH in r)
    for words in ("demo-target", "also <bdi>target-of-theirs</bdi>", "llama", "Q8_0", "2,048", "114 MiB", ">xeon<", ">old-card<"):
        assert words in row, words
    assert row.endswith('<td class="num">1</td>')
    one = page(who.mate, reverse("model", args=[TARGET_HASH]))
    assert TARGET_HASH in one
    assert lines(one)[0].startswith("Counting")
    assert f">{XEON}</a>" in one
    assert "also <bdi>target-of-theirs</bdi>" in one
    assert "Nobody measured it yet." in page(who.mate, reverse("model", args=[DRAFT_HASH]))


def test_a_model_that_a_host_no_longer_offers_stays_and_says_so(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    assert host.inventory
    told = host.inventory.parsed
    store_inventory(host, told.model_copy(update={"models": told.models[:1]}), datetime.now(UTC))
    gone, kept = (page(who.owner, reverse("model", args=[h])) for h in (DRAFT_HASH, TARGET_HASH))
    assert "no host of yours has it any more" in gone
    assert "no longer" in gone
    assert "no longer" not in kept
    assert "context it was trained for" in gone
    revoke_host(host, now=datetime.now(UTC), by="owner")
    assert "no host of yours has it any more" in page(who.owner, reverse("model", args=[TARGET_HASH]))


def test_models_and_hardware_without_any_lead_to_a_host(who: sample.People) -> None:
    for name in ("models", "hardware"):
        assert reverse("host-enrol") in page(who.owner, reverse(name)), name
        assert "A maintainer of your team can add a host" in page(who.mate, reverse(name)), name
    assert "There is no page 7." not in page(who.owner, reverse("models"), page="7")
    sample.host_with_inventory(who.team)
    for name in ("models", "hardware"):
        assert "There is no page 7." in page(who.owner, reverse(name), page="7"), name


# --- hardware ---


def test_hardware_has_its_hosts_what_was_measured_and_the_best_arms(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    other_host(who.team)
    text = page(who.mate, reverse("hardware"))
    sections = {re.sub(r"<[^>]+>", "", part.partition("</h2>")[0]).partition(">")[2].strip(): part for part in text.split("<section ")[1:]}
    assert list(sections)[:2] == [CARD, XEON]
    assert [name.partition(":")[0] for name in list(sections)[2:]] == ["Reported elsewhere by other tools and public tables"]
    assert "Nobody measured anything on it yet." in sections[CARD]
    assert ">old-card<" in sections[CARD]
    assert "1 experiment," in sections[XEON]
    assert "measured: demo-target" in sections[XEON]
    assert len(lines(sections[XEON])) == 1


def test_statements_do_not_grow_with_runs_hardware_or_models(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))

    def counted() -> dict[str, int]:
        found = {}
        for path in ("/?hardware=" + XEON, "/?model=demo-target", "/models/", "/hardware/", f"/models/{TARGET_HASH}/"):
            client = as_user(who.owner)
            with CaptureQueriesContext(connection) as captured:
                assert client.get(path).status_code == 200
            found[path] = len(captured)
        return found

    before = counted()
    for n in range(3):
        run(who, other_host(who.team, f"card-{n}", f"Card {n}"), points=[{"workload": w, "max_tokens": 64} for w in ("count", "free-text")])
    after = counted()
    assert {p: n for p, n in after.items() if n > before[p]} == {}
    assert max(after[p] for p in after if not p.startswith("/?")) <= 12
