"""The pages of what other tools report: choose, see, map, import; the list, a report, what stands beside measured results."""

from __future__ import annotations

import html
import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.importers.mapping import Column, Mapping

from specweb.accounts import urls as account_urls
from specweb.dashboard import reported_urls, urls
from specweb.experiments.models import Visibility
from specweb.reported.models import Draft, MappingTemplate, Report, ReportedNumber
from specweb.reported.services import About, import_file
from tests.imports.recorded import content
from tests.web import sample
from tests.web.pages import as_user

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def sent(client: Client, name: str = "", **typed: str) -> str:
    """The page after choosing a file, as text; ``name`` of a recorded one."""
    told = {"team": "ours", **typed}
    if name:
        told["file"] = SimpleUploadedFile(name, content(name))  # type: ignore[assignment]
    return html.unescape(client.post(reverse("reported-new"), told, follow=True).content.decode())


def draft_address() -> str:
    return reverse("reported-draft", args=[Draft.objects.latest("created_at").pk])


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_tool_s_file_is_seen_before_it_is_stored(people: sample.People) -> None:
    client = as_user(people.owner)
    seen = words(sent(client, "vllm-0.32-four-tokens-an-event.json"))
    assert "1 run with" in seen
    assert "It counts events of the stream" in seen
    assert not Report.objects.exists()
    page = html.unescape(client.post(draft_address(), {"do": "import"}, follow=True).content.decode())
    assert "reported, not verified" in page
    assert "778.7" in page
    assert "Nearest of SpecWeb’s, and not the same" in page
    assert (Report.objects.count(), Draft.objects.count()) == (1, 0)


def test_a_broken_file_is_told_with_its_line(people: sample.People) -> None:
    told = {"team": "ours", "file": SimpleUploadedFile("x.json", content("vllm-0.32-off.json").replace(b"14.35", b"NaN"))}
    answer = as_user(people.owner).post(reverse("reported-new"), told)
    assert answer.status_code == 400
    assert not Draft.objects.exists()
    shown = words(html.unescape(answer.content.decode()))
    assert "nothing is imported" in shown
    cut = SimpleUploadedFile("x.json", content("servebench-1.1-llama-server.json")[:5_000])
    shown = words(html.unescape(as_user(people.owner).post(reverse("reported-new"), {"team": "ours", "file": cut}).content.decode()))
    assert "The file ends too early" in shown


def mapped(page: str) -> dict[str, str]:
    """What the form of the columns would send."""
    told = dict(re.findall(r'<input id="[^"]+" name="([^"]+)" value="([^"]*)"', page))
    for name, options in re.findall(r'<select id="[^"]+" name="([^"]+)">(.*?)</select>', page, re.DOTALL):
        chosen = re.search(r'<option value="([^"]*)" selected', options)
        told[name] = chosen[1] if chosen else ""
    return {k: html.unescape(v) for k, v in told.items()}


def test_a_table_s_columns_are_proposed_corrected_kept_and_used_again(people: sample.People) -> None:
    client = as_user(people.owner)
    told = {"source_url": "https://example.org/t", "public_table": "on"}
    sent(client, "community.csv", **told)
    form = mapped(client.get(draft_address()).content.decode())
    assert (form["as-0"], form["as-2"], form["unit-2"], form["unit-5"]) == ("hardware", "number", "tokens/s", "share")
    form |= {"definition-3": "Tokens by the server's count", "statistic-3": "median", "all-engine": "llama.cpp"}
    seen = client.post(draft_address(), form | {"do": "preview"})
    assert seen.status_code == 200
    assert "0.56–0.94" in seen.content.decode()
    assert "Import 4 runs" in seen.content.decode()
    client.post(draft_address(), form | {"do": "keep", "template_name": "community"})
    assert MappingTemplate.objects.get().mapping["columns"]["with"]["statistic"] == "median"
    page = words(client.post(draft_address(), form | {"do": "import"}, follow=True).content.decode())
    assert "Imported 4 runs" in page
    assert "0.56–0.94" in page
    assert "https://example.org/t" in page
    row = ReportedNumber.objects.filter(key="with").first()
    assert row is not None
    assert (row.statistic, row.definition, row.run.engine) == ("median", "Tokens by the server's count", "llama.cpp")
    sent(client, "community.csv", **told, title="again")
    again = mapped(client.post(draft_address(), {"do": "apply", "template": "community"}).content.decode())
    assert (again["statistic-3"], again["all-engine"]) == ("median", "llama.cpp")
    assert "is here already" in client.post(draft_address(), again | {"do": "import"}, follow=True).content.decode()


def test_a_unit_that_a_cell_contradicts_is_told_with_line_and_column(people: sample.People) -> None:
    client = as_user(people.owner)
    sent(client, text="card,speed\nP40,12 tok/s\nP100,15\n")
    form = mapped(client.get(draft_address()).content.decode()) | {"unit-1": "ms", "name-1": "Mine", "do": "import"}
    answer = client.post(draft_address(), form)
    shown = words(html.unescape(answer.content.decode()))
    assert (answer.status_code, Report.objects.count()) == (400, 0)
    assert "2 speed 12 tok/s It is in tokens/s, and its column is mapped as ms" in shown
    assert mapped(answer.content.decode())["name-1"] == "Mine"


def test_names_as_numbers_are_refused_by_line(people: sample.People) -> None:
    client = as_user(people.owner)
    sent(client, "community.csv")
    form = mapped(client.get(draft_address()).content.decode()) | {"as-6": "number", "unit-6": "tokens/s", "do": "import"}
    answer = client.post(draft_address(), form)
    shown = words(html.unescape(answer.content.decode()))
    assert answer.status_code == 400
    assert not Report.objects.exists()
    assert "2 contributor ann It is no number" in shown
    assert mapped(answer.content.decode())["as-6"] == "number"  # nothing that was said is lost


def test_text_in_a_table_is_shown_as_text(people: sample.People) -> None:
    client = as_user(people.owner)
    text = 'card,speed\n<script>alert(1)</script>,12\n"=HYPERLINK(1)",3\n\u202eevil,4\n'
    sent(client, text=text, title="<b>" + "long " * 60)
    form = mapped(client.get(draft_address()).content.decode())
    page = client.post(draft_address(), form | {"do": "import"}, follow=True).content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "\u202e" not in page


@pytest.mark.parametrize("query", ["?before=x", "?tool=nothing", "?model=%00", "?team=nobody", "?hardware=" + "x" * 5000, "?page=9"])
def test_odd_filters_answer_a_page(people: sample.People, query: str) -> None:
    assert as_user(people.owner).get(reverse("reported") + query).status_code == 200


def test_the_list_goes_on_by_its_last(people: sample.People) -> None:
    mapping = Mapping((Column("card", "hardware"), Column("speed", "number", unit="tokens/s")))
    for i in range(41):
        assert import_file(f"card,speed\ncard-{i}.,{i}\n".encode(), people.team, people.owner, About(), mapping=mapping).created
    first = html.unescape(as_user(people.owner).get(reverse("reported")).content.decode())
    older = re.search(r'href="(\?[^"]*before=[^"]+)"', first)
    assert older is not None
    second = as_user(people.owner).get(reverse("reported") + older[1]).content.decode()
    assert [("card-40." in p, "card-0." in p) for p in (first, second)] == [(True, False), (False, True)]


def test_what_stands_beside_is_what_one_may_read(people: sample.People) -> None:
    for visibility, model in ((Visibility.PUBLIC, "alpha-one"), (Visibility.TEAM, "beta-two")):
        sent(as_user(people.owner), text=f"card,model,speed\nP40,{model},12\n", visibility=visibility)
        form = mapped(as_user(people.owner).get(draft_address()).content.decode())
        as_user(people.owner).post(draft_address(), form | {"do": "import"})
    for user, n in ((people.owner, "2 runs"), (people.mate, "2 runs"), (people.stranger, "1 run"), (None, "1 run")):
        page = words(as_user(user).get(reverse("reported-beside") + "?hardware=p40").content.decode())
        assert f"{n} that other tools" in page, user
    answer = as_user(None).get(reverse("reported-beside") + "?hardware=p40")
    again = as_user(None).get(reverse("reported-beside") + "?hardware=p40", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert "No imported file" in as_user(None).get(reverse("reported-beside") + "?hardware=H&model=x").content.decode()


def test_a_report_of_thousands_of_rows_costs_a_page_no_more(people: sample.People) -> None:
    text = "card,speed\n" + "".join(f"card {i},{i + 1}\n" for i in range(1_200))
    sent(as_user(people.owner), text=text)
    form = mapped(as_user(people.owner).get(draft_address()).content.decode())
    client = as_user(people.owner)
    client.post(draft_address(), form | {"do": "import"})
    report = Report.objects.get()
    with CaptureQueriesContext(connection) as captured:
        page = client.get(reverse("reported-one", args=[report.pk]) + "?page=24").content.decode()
    assert len(captured) <= 12
    assert "card 1199" in page
    assert "card 1149" not in page
    assert "There is no page 99" in client.get(reverse("reported-one", args=[report.pk]) + "?page=99").content.decode()


def test_its_visibility_is_changed_by_those_who_may(people: sample.People) -> None:
    done = import_file(content("vllm-0.32-off.json"), people.team, people.owner, About())
    assert done.report is not None
    address = reverse("reported-one-visibility", args=[done.report.pk])
    assert as_user(people.mate).post(address, {"visibility": "public"}).status_code == 403
    assert as_user(people.owner).post(address, {"visibility": "everything"}).status_code == 403
    assert as_user(people.owner).post(address, {"visibility": "public"}).status_code == 302
    assert as_user(None).get(reverse("reported-one", args=[done.report.pk])).status_code == 200


def test_no_two_addresses_share_a_name() -> None:
    """Of two the one would be led to where the other is meant."""
    own = [p.name for p in reported_urls.urlpatterns]
    others = [p.name for module in (urls, account_urls) for p in module.urlpatterns]
    assert len(set(own)) == len(own)
    assert not set(own) & set(others)
