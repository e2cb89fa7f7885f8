"""One configuration over time, and whether two rows of Compare may be compared."""

from __future__ import annotations

import html
import json
import re
import uuid
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Visibility
from specweb.results import chart_queries
from specweb.results.models import Listing
from tests.web import charted, sample
from tests.web.pages import as_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


def asked(shown: Listing, **more: str) -> dict[str, str]:
    return {"question": shown.question_key, "hardware": shown.hardware} | more


def history(user: User | None, query: dict[str, Any]) -> str:
    answer = as_user(user).get(reverse("compare-history"), query)
    assert answer.status_code == 200
    return html.unescape(answer.content.decode())


def drawn(text: str) -> Any:
    found = re.search(r'<script id="history-data" type="application/json">(.*?)</script>', text, re.S)
    return json.loads(found[1]) if found else None


def runs(text: str) -> list[list[str]]:
    body = text.partition("<tbody>")[2].partition("</tbody>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", r, re.S) for r in re.findall(r"<tr>(.*?)</tr>", body, re.S)]
    return [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in row] for row in rows]


# --- history ---


def test_each_run_has_its_own_mark_and_what_changed_is_numbered_and_listed(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    for days, speed in ((5, 1.5), (4, 1.52), (3, 1.2), (2, 1.22)):
        charted.run(who, host, {"off": 1.0, "draft-4": speed}, days=days)
    charted.run(who, host, {"off": 1.0, "draft-8": 1.9}, arms=(charted.draft(8),))  # another question
    charted.run(who, charted.card_host(who.team, "old", "NVIDIA T4"), {"off": 1.0, "draft-4": 1.9})  # other hardware
    old, _, third, fourth = Listing.objects.filter(
        question_key=Listing.objects.earliest("measured_at").question_key, hardware__startswith="CPU"
    ).order_by("measured_at")
    Listing.objects.filter(pk__in=[third.pk, fourth.pk]).update(build="b11800 (aaaaaaa)")
    Listing.objects.filter(pk=fourth.pk).update(driver="560.1", setup="threads 3")
    text = history(who.owner, asked(old))
    data = drawn(text)
    assert [run["text"] for run in data["runs"]] == ["1.50×", "1.52×", "1.20×", "1.22×"]
    assert data["changes"] == [{"before": 2, "number": 1}, {"before": 3, "number": 2}]
    assert [(b["from"], b["to"], b["build"]) for b in data["builds"]] == [(0, 1, old.build), (2, 3, "b11800 (aaaaaaa)")]
    rows = runs(text)
    assert [row[1].partition(" ")[0] for row in rows] == ["1.22×", "1.20×", "1.52×", "1.50×"]
    assert re.sub(r" (?=[;:])", "", rows[0][-1]) == "2 driver: none → 560.1; settings: none → threads 3"
    assert f"{old.build} → b11800" in rows[1][-1]
    assert rows[2][-1] == "nothing"
    assert rows[3][-1] == "the first"


def test_a_row_of_compare_leads_to_the_history_of_its_own_settings(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.5}, days=3)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.4}, days=2)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.3}, engine={"context": 2048, "threads": 3})
    compare = html.unescape(as_user(who.owner).get(reverse("compare")).content.decode())
    links = re.findall(rf'href="({reverse("compare-history")}\?[^"]+)"', compare)
    texts = [as_user(who.mate).get(link).content.decode() for link in links]
    assert sorted(len(runs(text)) for text in texts) == [1, 2]
    assert [bool(drawn(text)) for text in sorted(texts, key=lambda t: len(runs(t)))] == [False, True]
    (alone,) = (text for text in texts if not drawn(text))
    assert "A history begins with the second run" in alone


def test_a_run_that_judges_no_ratio_stays_in_the_history_as_what_it_is(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.5}, days=2)
    charted.run(
        who, host, {"off": 1.0, "draft-4": 1.4}, change=lambda a: a.model_copy(update={"pair_fields": a.pair_fields | {"os": a.arm}})
    )
    data = drawn(history(who.owner, asked(Listing.objects.earliest("pk"))))
    assert [(run["judged"], run["verdict"]) for run in data["runs"]] == [(True, "keep"), (False, "invalid")]


def test_older_runs_than_are_shown_are_told(who: sample.People, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chart_queries, "MOST_RUNS", 2)
    host = sample.host_with_inventory(who.team)
    for days in (3, 2, 1):
        charted.run(who, host, {"off": 1.0, "draft-4": 1 + days / 10}, days=days)
    text = history(who.owner, asked(Listing.objects.earliest("pk")))
    assert [row[1].partition(" ")[0] for row in runs(text)] == ["1.10×", "1.20×"]
    assert "the newest 2; older ones are not shown" in text
    assert runs(text)[-1][-1] == "the first shown"


def test_a_history_is_for_who_may_read_its_results(who: sample.People) -> None:
    job = charted.run(who, sample.host_with_inventory(who.team), {"off": 1.0, "draft-4": 1.5})
    query, address = asked(Listing.objects.get()), reverse("compare-history")
    assert as_user(who.mate).get(address, query).status_code == 200
    assert as_user(who.stranger).get(address, query).status_code == 404
    assert as_user(None).get(address, query).status_code == 302
    Experiment.objects.filter(pk=job.experiment_id).update(visibility=Visibility.PUBLIC)
    assert as_user(who.stranger).get(address, query).status_code == 200
    assert as_user(None).get(address, query).status_code == 200


def test_a_history_of_nothing_is_not_there(who: sample.People) -> None:
    charted.run(who, sample.host_with_inventory(who.team), {"off": 1.0, "draft-4": 1.5})
    shown = Listing.objects.get()
    address, client = reverse("compare-history"), as_user(who.owner)
    for query in (
        {},
        {"question": shown.question_key},
        asked(shown, hardware="<b>none</b>"),
        asked(shown, setup="threads 99"),
        asked(shown, question="x" * 4000),
        asked(shown, question="\x00"),
    ):
        assert client.get(address, query).status_code == 404, query


def test_a_history_costs_the_same_however_long_it_is(who: sample.People) -> None:
    host, client = sample.host_with_inventory(who.team), as_user(who.owner)

    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(reverse("compare-history"), asked(Listing.objects.earliest("pk"))).status_code == 200
        return len(captured)

    charted.run(who, host, {"off": 1.0, "draft-4": 1.5})
    before = statements()
    charted.run(who, host, {"off": 1.0, "draft-4": 1.4})
    assert statements() == before <= 8


# --- two rows ---


def two(user: User | None, *rows: Any) -> str:
    answer = as_user(user).get(reverse("compare-why"), {"row": [str(r) for r in rows]})
    assert answer.status_code == 200
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())).split())


def test_two_rows_of_one_question_compare_by_their_ratios_and_not_by_their_times(who: sample.People) -> None:
    change = [lambda a, n=n: a.model_copy(update={"pair_fields": a.pair_fields | {"boot_id": n}}) for n in ("1", "2")]
    charted.run(who, sample.host_with_inventory(who.team), {"off": 1.0, "draft-4": 1.5}, change=change[0])
    charted.run(who, charted.card_host(who.team, "old", "NVIDIA T4"), {"off": 0.1, "draft-4": 0.09}, change=change[1])
    said = two(who.owner, *Listing.objects.values_list("pk", flat=True))
    assert "The ratios: yes. Both answer the same question" in said
    assert "The times: no. Host, boot, build, driver or a setting differ" in said
    assert "hardware CPU · Intel Xeon, 2 cores 1 × NVIDIA T4" in said
    assert "Parts of the question that differ" not in said


def test_two_rows_of_other_questions_say_in_which_parts(who: sample.People) -> None:
    host = sample.host_with_inventory(who.team)
    charted.run(who, host, {"off": 1.0, "draft-4": 1.5})
    charted.run(who, host, {"off": 1.0, "draft-4": 1.5}, engine={"context": 1024}, points=[{"workload": "count", "max_tokens": 64}])
    a, b = Listing.objects.order_by("measured_at")
    said = two(who.owner, a.pk, b.pk)
    assert "The ratios: no. They answer different questions: 2 parts of the question differ" in said
    assert "The times: no. The work differs" in said
    for part in ("context per slot", "most tokens of an answer"):
        assert part in said
    swapped = two(who.owner, b.pk, a.pk)
    assert "context per slot 2,048 1,024" in said
    assert "context per slot 1,024 2,048" in swapped


def test_two_arms_of_one_job_stand_in_the_same_blocks(who: sample.People) -> None:
    charted.limits(who, sample.host_with_inventory(who.team))
    a, b, _ = Listing.objects.values_list("pk", flat=True)
    said = two(who.owner, a, b)
    assert "The ratios: yes. Two arms of the same work, in the same job" in said
    assert "The times: yes." in said
    assert "draft limit" in said


def test_two_rows_are_for_who_may_read_both_and_anything_else_is_told(who: sample.People) -> None:
    own = charted.limits(who, sample.host_with_inventory(who.team))
    a, b, _ = Listing.objects.values_list("pk", flat=True)
    address = reverse("compare-why")
    for rows in ([a, b], [a], [a, uuid.uuid4()]):
        assert as_user(who.stranger).get(address, {"row": rows}).status_code == 404
        assert as_user(None).get(address, {"row": rows}).status_code == 302
    assert as_user(who.owner).get(address, {"row": [a, uuid.uuid4()]}).status_code == 404
    assert "No two rows are chosen" in two(who.owner)
    assert "No two rows are chosen" in two(who.owner, "nonsense", "\x00", "7" * 500)
    assert "One row is chosen; it takes two" in two(who.owner, a, a)
    Experiment.objects.filter(pk=own.experiment_id).update(visibility=Visibility.PUBLIC)
    assert "In words" in two(None, a, b)
