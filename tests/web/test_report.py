"""The Markdown report of an experiment: the page's numbers, all that a reader needs to doubt or repeat them, and nothing private."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest
import yaml
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.markdown import MOST_CHARS
from speccore.measurement import Interval
from speccore.spec import parse_spec

from specweb.experiments.models import Experiment, Host, Visibility
from specweb.results import page_queries, report_text
from specweb.results.models import EvidenceFile
from specweb.results.report_queries import evidence_hashes
from tests.web import sample
from tests.web.pages import SMALL, as_user, small
from tests.web.people_api import Program, error

pytestmark = pytest.mark.django_db


@pytest.fixture
def people(settings, tmp_path: Path) -> sample.People:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    return sample.people()


def report(client: Client, run: sample.Run, query: str = "") -> str:
    answer = client.get(reverse("report", args=[run.experiment.pk]) + query)
    assert answer.status_code == 200
    assert answer["Content-Type"] == "text/markdown; charset=utf-8"
    assert answer["Content-Disposition"].startswith("attachment; filename=")
    return answer.content.decode()


def test_it_has_the_page_s_answer_and_numbers_and_leads_back_to_them(people, settings):
    run = small(people)
    told = report(as_user(people.owner), run)
    analysis = page_queries.newest_analysis(run.job)
    assert analysis
    for c in analysis.comparisons:
        assert isinstance(c.speedup, Interval)
        (row,) = re.findall(rf"^\| {re.escape(c.point)} \| {c.arm} \| (.*)$", told, re.MULTILINE)
        assert row.startswith(f"{c.speedup.estimate:.2f}× | {c.speedup.low:.2f}–{c.speedup.high:.2f} | {len(c.block_values)} |")
        assert c.verdict.word in row
    assert told.startswith("## Demo pair\n")
    assert run.experiment.question in told
    assert f"<{settings.SPECWEB_BASE_URL}/experiments/{run.experiment.pk}/?job={run.job.pk}>" in told
    assert "the experiment is not public" in told
    assert len(re.findall(r"^\*\*Integrity\*\* .*checks\).*$", told, re.MULTILINE)) == 1
    assert "--spec-draft-n-max 3" in told
    assert "CPU · Intel Xeon" in told


def test_a_program_gets_the_same(people):
    run = small(people)
    page = report(as_user(people.owner), run)
    assert Program(people.mate).get(f"jobs/{run.job.pk}/report.md").content.decode() == page
    waiting = sample.submitted(people.team, people.owner, sample.spec(**SMALL)).jobs.get()
    assert error(Program(people.owner).get(f"jobs/{waiting.pk}/report.md"), 404)
    assert error(Program(people.stranger).get(f"jobs/{run.job.pk}/report.md"), 404)


def test_the_hashes_are_those_of_models_build_and_evidence(people):
    run = small(people)
    told = report(as_user(people.owner), run)
    for digest in ("a" * 64, "b" * 64, "c" * 64):
        assert f"`{digest}`" in told
    files = EvidenceFile.objects.filter(attempt__trial__job=run.job, attempt__accepted=True)
    lines = sorted(f"{f.blob_id}  {f.attempt.trial.plan_id}.{f.attempt.n}/{f.name}\n" for f in files.select_related("attempt__trial"))
    assert f"`{hashlib.sha256(''.join(lines).encode()).hexdigest()}`" in told
    listed = dict(re.findall(r"^\| (\S+)\.\d+ \| `([0-9a-f]{64})` \|$", told, re.MULTILINE))
    assert listed == {f.attempt.trial.plan_id: f.blob_id for f in files.filter(name="records.jsonl")}


def test_another_can_ask_the_same_from_the_report_alone(people):
    run = small(people)
    told = report(as_user(people.owner), run)
    (block,) = re.findall(r"```yaml\n(.*?)```", told, re.DOTALL)
    spec, problems = parse_spec(yaml.safe_load(block))
    assert spec is not None, problems
    assert spec.target.model == "b" * 64
    assert spec.seed == run.experiment.parsed_spec.seed
    assert [p.workload for p in spec.points] == ["count@2"]
    assert f"/experiments/new?reproduce={run.job.pk}" in told


def test_no_text_of_a_prompt_or_an_answer_and_no_place_of_a_host_is_in_it(people):
    run = sample.finished(people.team, people.owner, sample.spec(**SMALL), Visibility.PUBLIC)
    for client in (Client(), as_user(people.stranger), as_user(people.owner)):
        told = report(client, run)
        assert "alert(1)" not in told
        assert "/models/" not in told
        assert "/opt/" not in told
        assert Host.objects.get().name not in told.split("```")[0]


def test_names_stay_text(people):
    run = small(people, name="A | @octocat <b> #12 `x`", question="# Does [it](x) pay?")
    told = report(as_user(people.owner), run)
    head, question = told.splitlines()[0], told.split("\n\n")[2]
    assert head == "## A \\| @&#8203;octocat \\<b\\> #&#8203;12 \\`x\\`"
    assert question == "\\# Does \\[it\\](x) pay?"


def test_it_is_of_the_job_that_is_asked_for_and_of_none_that_has_no_answer(people):
    run = small(people)
    other = small(people, name="Other")
    client, address = as_user(people.owner), reverse("report", args=[run.experiment.pk])
    assert str(run.job.pk) in report(client, run, f"?job={run.job.pk}")
    assert str(other.job.pk) not in report(client, run, f"?job={other.job.pk}")  # of another experiment: it is ignored
    waiting = sample.submitted(people.team, people.owner, sample.spec(**SMALL))
    assert client.get(reverse("report", args=[waiting.pk])).status_code == 404
    assert "Report.md" not in client.get(reverse("experiment", args=[waiting.pk])).content.decode()
    page = client.get(reverse("experiment", args=[run.experiment.pk])).content.decode()
    assert f'href="{address}?job={run.job.pk}"' in page


def test_a_viewer_may_take_it_and_a_stranger_finds_nothing(people):
    run = small(people)
    address = reverse("report", args=[run.experiment.pk])
    assert "Copy report" not in as_user(people.mate).get(reverse("experiment", args=[run.experiment.pk])).content.decode()  # a script's
    assert report(as_user(people.mate), run)
    assert as_user(people.stranger).get(address).status_code == 404
    assert Client().get(address).status_code == 302


def test_an_uploaded_run_says_that_nobody_here_saw_it(people):
    run = small(people)
    Experiment.objects.update(origin="self-run")
    assert "Self-run: measured without the service" in report(as_user(people.owner), run)


def test_a_large_one_fits_and_takes_few_statements(people):
    run = small(people)
    client = as_user(people.owner)
    with CaptureQueriesContext(connection) as asked:
        report(client, run)
    assert len(asked) <= 12
    analysis = page_queries.newest_analysis(run.job)
    assert analysis
    many = analysis.model_copy(update={"comparisons": analysis.comparisons * 2_000})
    job = page_queries.experiment_shown(people.owner, run.experiment.pk).jobs.first()
    files = evidence_hashes(job) * 50
    told = report_text.markdown(
        run.experiment, job, many, page_queries.frozen_inventory(job), files, run.experiment.spec, permalink="https://x/y", reproduce="r"
    )
    assert len(told.encode("utf-16-le")) // 2 <= MOST_CHARS
    assert "All of it: https://x/y" in told
    assert "… and " in told
    assert "- **count/c1/ctx0/t0**" in told
