"""Importing what other tools report: who may, what is kept, what is recognised, what is refused whole; and that no verdict reaches it."""

from __future__ import annotations

import hashlib

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.importers.csv_table import table_of
from speccore.importers.mapping import Mapping, proposed

from specweb.accounts.models import Membership, Role, User
from specweb.experiments.models import Visibility
from specweb.reported import queries, services
from specweb.reported.models import Draft, RawFile, Report, ReportedNumber, ReportedRun
from specweb.reported.services import About, import_file
from tests.imports.recorded import ONE_OF_EACH, content
from tests.web import sample
from tests.web.pages import as_user, now, small

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def imported(people: sample.People, name: str = "vllm-0.32-ngram.json", **about: object) -> Report:
    done = import_file(content(name), people.team, people.owner, About(file_name=name, **about))  # type: ignore[arg-type]
    assert done.faults == ()
    assert done.report is not None
    return done.report


def community_mapping() -> Mapping:
    table = table_of(content("community.csv"))
    return proposed(table.headers, table.samples)


def community(people: sample.People, **about: object) -> Report:
    told = About(file_name="community.csv", source_url="https://example.org/table", public_table=True, **about)  # type: ignore[arg-type]
    done = import_file(content("community.csv"), people.team, people.owner, told, mapping=community_mapping())
    assert done.report is not None, done.faults
    return done.report


@pytest.mark.parametrize("tool", ONE_OF_EACH)
def test_a_file_of_each_tool_is_kept_with_its_numbers_and_itself(people: sample.People, tool: str) -> None:
    data = content(ONE_OF_EACH[tool])
    report = imported(people, ONE_OF_EACH[tool])
    assert (report.tool, report.file_sha256, report.n_runs) == (tool, hashlib.sha256(data).hexdigest(), report.runs.count())
    assert services.raw_bytes(report) == data
    found = services.read(data)
    kept = [[(n.key, n.value, n.definition, n.caution) for n in run.numbers.all()] for run in report.runs.all()]
    assert kept == [[(n.kind.key, n.value, n.kind.definition, n.kind.caution) for n in run.numbers] for run in found.runs]


def test_a_range_stays_a_range(people: sample.People) -> None:
    report = community(people)
    row = ReportedNumber.objects.get(run__report=report, run__line=2, name="Acceptance rate")
    assert (row.value, row.low, row.high, row.written) == (None, 0.56, 0.94, "0.56-0.94")
    assert ReportedRun.objects.get(report=report, line=3).devices == ["RTX 3090", "Tesla P40"]
    assert not ReportedNumber.objects.filter(run__report=report, run__line=3, name="With speculation").exists()  # a dash is missing


def test_rows_of_a_public_table_need_their_source(people: sample.People) -> None:
    done = import_file(content("community.csv"), people.team, people.owner, About(public_table=True), mapping=community_mapping())
    assert (done.report, [f.field for f in done.faults]) == (None, ["source_url"])


@pytest.mark.parametrize(
    "url", ["ftp://example.org/x", "javascript:alert(1)", "example.org", "https://me:secret@example.org/", "https://[x", "https://a b"]
)
def test_a_source_is_the_address_of_a_page(people: sample.People, url: str) -> None:
    done = import_file(content("vllm-0.32-off.json"), people.team, people.owner, About(source_url=url))
    assert (done.report, [f.field for f in done.faults]) == (None, ["source_url"])
    assert not Report.objects.exists()


def test_the_same_file_twice_is_one_report(people: sample.People) -> None:
    first = imported(people)
    again = import_file(content("vllm-0.32-ngram.json"), people.team, people.mate, About(title="again"))
    assert (again.report, again.created) == (first, False)
    assert (Report.objects.count(), ReportedRun.objects.count()) == (1, 1)


def test_the_same_table_read_another_way_is_another_report(people: sample.People) -> None:
    first, mapping = community(people), community_mapping()
    fewer = Mapping(tuple(c for c in mapping.columns if c.header != "limit"))
    other = import_file(content("community.csv"), people.team, people.owner, About(), mapping=fewer)
    assert other.created
    assert other.report != first


def test_somebody_s_private_report_is_not_given_away_by_its_file(people: sample.People) -> None:
    imported(people, visibility=Visibility.PRIVATE)
    again = import_file(content("vllm-0.32-ngram.json"), people.team, people.mate, About())
    assert again.created
    assert Report.objects.count() == 2


def test_a_broken_file_leaves_nothing(people: sample.People) -> None:
    done = import_file(content("vllm-0.32-ngram.json")[:2_000], people.team, people.owner, About())
    assert (done.report, Report.objects.count(), RawFile.objects.count()) == (None, 0, 0)
    assert done.faults[0].line == 1


def test_who_sees_a_report(people: sample.People) -> None:
    reports = {v: imported(people, name, visibility=v) for v, name in zip(Visibility, ("vllm-0.32-off.json", "vllm-0.32-ngram.json", "speed-bench-b11434.json"), strict=True)}  # fmt: skip
    seen = {
        "owner": {Visibility.PRIVATE, Visibility.TEAM, Visibility.PUBLIC},
        "mate": {Visibility.TEAM, Visibility.PUBLIC},
        "stranger": {Visibility.PUBLIC},
    }
    for who, expected in seen.items():
        user = getattr(people, who)
        assert {v for v, r in reports.items() if r in queries.reports_listed(user, queries.Asked(), n=10)} == expected
        for v, report in reports.items():
            for name in ("reported-one", "reported-one-file"):
                assert as_user(user).get(reverse(name, args=[report.pk])).status_code == (200 if v in expected else 404), (who, v, name)
    for v, report in reports.items():
        assert as_user(None).get(reverse("reported-one", args=[report.pk])).status_code == (200 if v == Visibility.PUBLIC else 302)


def test_who_takes_a_report_out(people: sample.People) -> None:
    report = imported(people)
    viewer, submitter, maintainer = (User.objects.create_user(role) for role in Role)
    for user, role in ((viewer, Role.VIEWER), (submitter, Role.SUBMITTER), (maintainer, Role.MAINTAINER)):
        Membership.objects.create(user=user, team=people.team, role=role)
    address = reverse("reported-one-delete", args=[report.pk])
    assert [as_user(u).post(address).status_code for u in (None, people.stranger, viewer, submitter)] == [302, 404, 403, 403]
    assert Report.objects.filter(pk=report.pk).exists()
    assert as_user(maintainer).post(address).status_code == 302
    assert (Report.objects.count(), ReportedRun.objects.count(), ReportedNumber.objects.count(), RawFile.objects.count()) == (0, 0, 0, 0)


def test_filters_find_words_however_they_are_written(people: sample.People) -> None:
    report = community(people)
    for asked, found in (
        (queries.Asked(model="qwen3 32b"), True),
        (queries.Asked(hardware="rtx-3090"), True),
        (queries.Asked(hardware="P40", model="Qwen3-32B"), True),
        (queries.Asked(hardware="A770", model="Qwen3-32B"), False),  # each is there, no run has both
        (queries.Asked(tool="vllm"), False),
        (queries.Asked(model="!!!"), False),
    ):
        assert (report in queries.reports_listed(people.owner, asked, n=5)) is found, asked


def test_drafts_are_a_person_s_own_and_go_with_time(people: sample.People) -> None:
    at = now()
    draft = services.keep_draft(b"a,b\n1,2\n", people.team, people.owner, {}, at)
    assert services.draft_of(people.owner, draft.pk, at) is not None
    assert services.draft_of(people.mate, draft.pk, at) is None
    assert services.draft_of(people.owner, draft.pk, at + services.DRAFT_LIFE * 2) is None
    for _ in range(services.MOST_DRAFTS + 2):
        services.keep_draft(b"a,b\n1,2\n", people.team, people.owner, {}, at)
    assert Draft.objects.count() == services.MOST_DRAFTS


# --- never part of a verdict ---


def test_nothing_that_compares_can_reach_a_report() -> None:
    ours = set(apps.get_app_config("reported").get_models())
    for label in ("results", "experiments"):
        for model in apps.get_app_config(label).get_models():
            reached = {f.related_model for f in model._meta.get_fields(include_hidden=True) if f.is_relation and f.related_model}
            assert not reached & ours, model


def test_compare_and_the_pages_of_models_never_touch_its_tables(people: sample.People) -> None:
    run = small(people)
    name = run.experiment.parsed_spec.target.model
    mapping = community_mapping()
    table = content("community.csv").replace(b"Qwen3-14B", name.encode())
    assert import_file(table, people.team, people.owner, About(), mapping=mapping).created
    client = as_user(people.owner)
    ours = [f'"{m._meta.db_table}"' for m in apps.get_app_config("reported").get_models()]
    for address in (
        reverse("compare"),
        reverse("overview"),
        reverse("hardware"),
        reverse("models"),
        reverse("experiment", args=[run.experiment.pk]),
    ):
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address).status_code == 200
        assert [q["sql"][:200] for q in captured if any(t in q["sql"] for t in ours)] == [], address
    beside = client.get(reverse("reported-beside") + f"?model={name}").content.decode()
    assert "reported, not verified" in beside
    assert "38.5" in beside
