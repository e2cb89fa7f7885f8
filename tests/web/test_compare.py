"""Compare across hardware: finished ratios of one question side by side, other questions apart, nothing of one host divided by another's."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import Any
from urllib.parse import urlencode

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.inventory import Device
from speccore.keys import pair_key

from specweb.accounts.models import Team, User
from specweb.experiments.models import Experiment, Host, HostInventory, Job, Visibility
from specweb.experiments.services.hosts import store_inventory
from specweb.results.models import Comparison, Listing
from specweb.results.services.comparing import compare_job
from tests.core import made
from tests.web import sample
from tests.web.measured import job_of, scatter
from tests.web.pages import as_user, with_role

pytestmark = pytest.mark.django_db
DRAFT = {"name": "draft-4", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 4}
XEON, CARD = "CPU · Intel Xeon, 2 cores", "1 × NVIDIA GeForce GTX 1060"
FAST, SLOW = {"off": 1.0, "draft-4": 2.0}, {"off": 0.05, "draft-4": 0.045}


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


def other_host(team: Team, name: str = "old-card", device: str = "NVIDIA GeForce GTX 1060", driver: str = "535.54") -> Host:
    """A host with a card; the rest as on every other."""
    host = sample.host_with_inventory(team, name)
    assert host.inventory
    card = Device(uuid=f"gpu-{name}", kind="gpu", name=device, memory_bytes=6 * 2**30, driver=driver)
    store_inventory(host, host.inventory.parsed.model_copy(update={"devices": [card]}), datetime.now(UTC))
    host.refresh_from_db()
    return host


def run(
    who: sample.People, host: Host, speeds: dict[str, float] = FAST, *, arms: tuple[dict[str, Any], ...] = (DRAFT,), **more: Any
) -> Job:
    given = {"at", "change", "without"} & more.keys()
    measured = {name: more.pop(name) for name in given}
    asked = {"target": {"model": "demo-target"}, "blocks": 3, "engine": {"context": 2048}, "placement": {"hosts": [host.name]}} | more
    return job_of(who, host, made.spec_of(*arms, **asked), speeds, scatter(1, 0.002, 0.002), **measured)


def page(user: User | None, **query: Any) -> str:
    answer = as_user(user).get(reverse("compare"), query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def shown_rows(text: str) -> list[list[str]]:
    """Cells of each row that has figures, without markup."""
    bodies = re.findall(r'<table class="comparison across">.*?</table>', text, re.S)
    rows = [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.S)
        for b in bodies
        for r in re.findall(r"<tr>(.*?)</tr>", b.partition("</thead>")[2], re.S)
    ]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in rows]


def forest(text: str) -> dict[str, Any]:
    return json.loads(re.search(r'<script id="forest-data" type="application/json">(.*?)</script>', text, re.S)[1])  # type: ignore[index,no-any-return]


# --- rows and questions ---


def test_two_hosts_of_different_speed_answer_one_question_in_two_rows(who: sample.People) -> None:
    fast = run(
        who, sample.host_with_inventory(who.team), change=lambda a: a.model_copy(update={"pair_fields": a.pair_fields | {"boot_id": "1"}})
    )
    slow = run(who, other_host(who.team), SLOW, change=lambda a: a.model_copy(update={"pair_fields": a.pair_fields | {"boot_id": "2"}}))
    text = page(who.owner)
    by_hardware = {row[0]: row for row in shown_rows(text)}
    assert sorted(by_hardware) == [CARD, XEON]
    ratios = {hardware: float(row[1].partition("×")[0]) for hardware, row in by_hardware.items()}
    assert ratios == pytest.approx({XEON: 2.0, CARD: 0.9}, abs=0.02)
    for hardware, speeds in ((XEON, FAST), (CARD, SLOW)):  # the speeds of a row are its own host's
        without, with_ = (float(cell) for cell in by_hardware[hardware][3:5])
        assert with_ / without == pytest.approx(speeds["draft-4"] / speeds["off"], rel=0.03)
    assert float(by_hardware[XEON][3]) > 15 * float(by_hardware[CARD][3])
    assert by_hardware[CARD][2].startswith("disable")
    assert by_hardware[XEON][2].startswith("keep")
    assert [row[11] for row in (by_hardware[XEON], by_hardware[CARD])] == ["none", "535.54"]
    questions = set(Listing.objects.values_list("question_key", flat=True))
    pairs = {listing.comparison.job_id: listing.pair_key for listing in Listing.objects.all()}
    assert len(questions) == 1
    assert len(set(pairs.values())) == 2
    assert set(pairs) == {fast.pk, slow.pk}
    assert pairs[fast.pk] == pair_key(
        made.attempt(sample.JobPlan.model_validate(fast.plan).trials[0], "off", lambda *_: 1.0).pair_fields | {"boot_id": "1"}
    )
    drawn = forest(text)
    assert [(g["title"], [r["arm"] for r in g["rows"]]) for g in drawn["groups"]] == [
        ("Counting", ["GeForce GTX 1060", "Intel Xeon, 2 cores"])
    ]


def test_other_questions_stand_apart_and_say_what_differs(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    run(who, host)
    run(who, host, engine={"context": 1024}, points=[{"workload": "count", "max_tokens": 64}])
    run(who, host, {"off": 1.0, "draft-8": 1.5}, arms=(DRAFT | {"name": "draft-8", "draft_limit": 8},))
    text = page(who.owner)
    assert text.count('<section class="work"') == 2
    rest = text.partition("Why not comparable with the first?")[2]
    told = dict(re.findall(r'<th scope="row">([^<]+)</th><td>([^<]+ ?)</td>', rest))
    assert {"context per slot", "most tokens of an answer"} == set(told)
    assert "draft limit 8 against 4" in text or "draft limit 4 against 8" in text
    assert Listing.objects.values("question_key").distinct().count() == 3
    assert len(shown_rows(text)) == 3


def test_a_further_run_on_the_same_hardware_is_never_pooled(who: sample.People) -> None:
    """The newest that was judged stands for the row; the others are named with their own ratio."""
    twin = sample.host_with_inventory(who.team, "twin")
    run(who, sample.host_with_inventory(who.team), at=datetime.now(UTC) - timedelta(days=1))
    newest = run(who, twin, {"off": 1.0, "draft-4": 1.5})
    (row,) = shown_rows(page(who.owner))
    assert row[1].startswith("1.50×")
    assert row[12] == "2"
    assert re.search(r"2 runs on .* xeon 2\.0\d×", row[14])
    assert str(newest.pk) in page(who.owner)
    run(who, twin, {"off": 1.0, "draft-4": 1.2}, change=lambda a: a.model_copy(update={"pair_fields": a.pair_fields | {"os": a.arm}}))
    (row,) = shown_rows(page(who.owner))
    assert row[1].startswith("1.50×"), "a later run that is invalid doesn't take its place"


def test_a_build_a_driver_and_settings_are_columns_and_no_other_question(who: sample.People) -> None:
    host = other_host(who.team)
    run(who, host)
    run(who, other_host(who.team, "newer-driver", driver="560.1"))
    run(who, host, engine={"context": 2048, "threads": 3})
    rows = shown_rows(page(who.owner))
    assert sorted((r[0], r[11]) for r in rows) == [(CARD, "535.54"), (CARD, "560.1"), (f"{CARD} threads 3", "535.54")]
    assert Listing.objects.values("question_key").distinct().count() == 1


def test_what_was_not_restarted_or_uploaded_is_marked(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    run(who, host, change=lambda a: a.model_copy(update={"not_restarted": True}))
    job = run(who, other_host(who.team))
    Listing.objects.filter(comparison__job=job).update(self_run=True)
    rows = {r[0] for r in shown_rows(page(who.owner))}
    assert rows == {f"{XEON} not restarted", f"{CARD} self-run"}


def test_an_arm_without_speculation_is_no_row(who: sample.People) -> None:
    again = {"name": "again", "mode": "off", "control": True}
    run(who, sample.host_with_inventory(who.team), FAST | {"again": 1.0}, arms=(DRAFT, again))
    assert Comparison.objects.current().count() == 2
    assert len(shown_rows(page(who.owner))) == 1


def test_a_withheld_number_is_its_reason(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team), blocks=2)
    text = page(who.owner)
    (row,) = shown_rows(text)
    assert row[1].endswith("needs 3 blocks, has 2")
    assert "needs 3 blocks, has 2" in json.dumps(forest(text))


# --- what is kept ---


def test_comparing_again_lists_the_newest_only(who: sample.People) -> None:
    job = run(who, sample.host_with_inventory(who.team))
    before = Listing.objects.get()
    assert compare_job(job.pk, datetime.now(UTC), again=True)
    after = Listing.objects.get()
    assert after.comparison_id != before.comparison_id
    assert after.question_key == before.question_key


def test_what_was_compared_before_the_page_is_listed_by_the_migration(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    broken = run(who, other_host(who.team))
    kept = list(Listing.objects.filter(experiment__name="t").exclude(comparison__job=broken).values())
    Listing.objects.all().delete()
    Experiment.objects.filter(pk=broken.experiment_id).update(spec={"arms": []})
    import_module("specweb.results.migrations.0004_list_what_there_is").list_comparisons(apps, None)
    assert list(Listing.objects.values()) == kept


def test_only_the_devices_of_a_job_are_its_hardware(who: sample.People) -> None:
    host = other_host(who.team)
    job = run(who, host)
    inventory = HostInventory.objects.get(pk=job.inventory_id)
    second = inventory.content["devices"][0] | {"uuid": "gpu-unused", "name": "NVIDIA H200"}
    HostInventory.objects.filter(pk=inventory.pk).update(content=inventory.content | {"devices": [*inventory.content["devices"], second]})
    assert compare_job(job.pk, datetime.now(UTC), again=True)
    assert Listing.objects.get().hardware == CARD


# --- filters ---


def test_each_filter_narrows_and_the_address_says_the_same_to_another(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team), points=[{"workload": "count"}, {"workload": "free-text"}])
    run(who, other_host(who.team))
    asked = {
        "target": ("demo-target", 3),
        "engine": ("llama-server", 3),
        "work": ("free-text@1", 1),
        "concurrency": ("1", 3),
        "context": ("0", 3),
        "hardware": (CARD, 1),
        "mode": ("draft", 3),
    }
    works = set(Listing.objects.values_list("workload", flat=True))
    asked["work"] = (next(w for w in works if w.startswith("free-text")), 1)
    for name, (value, n) in asked.items():
        text = page(who.owner, **{name: value})
        assert len(shown_rows(text)) == n, name
        assert f'value="{value}" selected' in text, name
        assert shown_rows(page(who.mate, **{name: value})) == shown_rows(text)
    assert len(shown_rows(page(who.owner, hardware=CARD, mode="draft", context="0"))) == 1


def test_a_filter_that_names_nothing_is_told_with_a_way_out(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    nowhere, no_number = "no result that you may read has it", "that is no whole number"
    for name, value, told in (
        ("target", "gone-model", nowhere),
        ("work", "deleted@3", "it was deleted, it is for another team, or nothing was measured with it"),
        ("concurrency", "many", no_number),
        ("concurrency", "²", no_number),
        ("context", "9" * 400, no_number),
        ("context", "77", nowhere),
        ("mode", "\x00<b>\u202e", nowhere),
        ("hardware", "<script>alert(1)</script>", nowhere),
    ):
        raw = as_user(who.owner).get(reverse("compare"), {name: value, "engine": "llama-server"}).content.decode()
        assert "<script>alert" not in raw
        assert f"names nothing:</b> {told}" in raw, (name, value)
        assert 'href="?engine=llama-server">Show without it' in raw
        assert shown_rows(raw) == []


def test_filters_that_no_result_meets_together_name_each_other(who: sample.People) -> None:
    run(who, sample.host_with_inventory(who.team))
    run(who, other_host(who.team), points=[{"workload": "free-text"}])
    work = next(w for w in Listing.objects.values_list("workload", flat=True) if w.startswith("free-text"))
    text = page(who.owner, hardware=XEON, work=work)
    assert "Nobody measured this combination yet" in text
    assert f"?{urlencode({'work': work})}" in text
    assert f"?{urlencode({'hardware': XEON})}" in text
    assert reverse("presets") in text


def test_pages(who: sample.People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specweb.dashboard.compare_views.N_ROWS", 1)
    run(who, sample.host_with_inventory(who.team))
    run(who, other_host(who.team))
    first, second = page(who.owner, mode="draft"), page(who.owner, mode="draft", page=2)
    assert [len(shown_rows(p)) for p in (first, second)] == [1, 1]
    assert shown_rows(first) != shown_rows(second)
    assert "?mode=draft&page=2" in first
    assert "Page before" in second
    assert "Next page" not in second
    beyond = page(who.owner, mode="draft", page=9)
    assert "There is no page 9" in beyond
    assert "?mode=draft&page=2" in beyond
    assert "“nine” is no page" in page(who.owner, page="nine")
    assert "There is no page" in page(who.owner, page="9" * 12)


# --- who sees what, and what it costs ---


def test_a_stranger_sees_public_results_only(who: sample.People) -> None:
    job = run(who, sample.host_with_inventory(who.team))
    assert len(shown_rows(page(who.mate))) == 1
    for outsider in (who.stranger, None):
        assert XEON not in page(outsider)
        assert "demo-target" not in page(outsider)
        assert shown_rows(page(outsider, hardware=XEON)) == []
    Experiment.objects.filter(pk=job.experiment_id).update(visibility=Visibility.PUBLIC)
    assert len(shown_rows(page(who.stranger))) == len(shown_rows(page(None))) == 1


def test_where_there_is_nothing_the_next_step_is_told(who: sample.People) -> None:
    assert reverse("presets") in page(who.owner)
    assert "that you may read" in page(with_role(who.team, "viewer"))
    assert reverse("login") in page(None)


def test_more_rows_cost_no_more_statements(who: sample.People) -> None:
    client = as_user(who.owner)

    def n_statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            client.get(reverse("compare"))
        return len(captured)

    host = sample.host_with_inventory(who.team)
    run(who, host)
    before = n_statements()
    run(who, other_host(who.team), points=[{"workload": "count"}, {"workload": "free-text"}, {"workload": "python-code"}])
    run(who, host)
    assert n_statements() == before <= 7
