"""The quality section: answers are read from evidence when a job is compared, and the page tells what they say of each arm."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client
from speccore.measurement import JobAnalysis
from speccore.quality_results import AgreementResult, SamplingResult

from specweb.experiments.models import Visibility
from specweb.experiments.services.checking import check
from specweb.results.models import Analysis, EvidenceFile
from specweb.results.services import answers
from specweb.results.services.comparing import analyse
from tests.web import sample

pytestmark = pytest.mark.django_db
TEST = {"workload": "free-text", "continuations": 400}


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def finished(people: sample.People, **changes: object) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(**changes), Visibility.PUBLIC)


def flat(page: str) -> str:
    """The words of a page without its markup."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def analysis_of(run: sample.Run) -> JobAnalysis:
    return JobAnalysis.model_validate(Analysis.objects.get(job=run.job).numbers)


def test_a_wrong_answer_is_told_from_a_near_tie_by_the_targets_second_look(people: sample.People) -> None:
    found = {(c.point, c.arm): c for c in analysis_of(finished(people)).comparisons}
    wrong, right = found["count/c1/ctx0/t0", "draft-8"], found["count/c1/ctx0/t0", "draft-3"]
    assert isinstance(wrong.agreement, AgreementResult)
    assert isinstance(right.agreement, AgreementResult)
    assert (wrong.agreement.n_identical, wrong.agreement.n_near_tie, wrong.agreement.n_wrong) == (8, 1, 1)
    assert (right.agreement.n_identical, right.agreement.n) == (10, 10)
    assert next(c for c in wrong.checks if c.name == "greedy answers").state == "failed"
    assert next(c for c in right.checks if c.name == "greedy answers").state == "passed"


def test_the_tests_own_workload_is_resolved_and_named_by_the_plan(people: sample.People) -> None:
    spec = sample.spec(points=[{"workload": "count"}], sampling_test=TEST)
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, spec), host)
    assert set(run.plan.workloads) == {"count", "free-text"}
    checked = check(spec.model_dump(mode="json") | {"sampling_test": {"workload": "nothing"}}, people.team)
    (fault,) = [p for p in checked.problems if p.field == "sampling_test.workload"]
    assert fault.message.startswith("there is no workload 'nothing'")


def test_an_arm_that_draws_otherwise_is_accused_and_disabled_where_answers_are_drawn(people: sample.People) -> None:
    run = finished(people, sampling_test=TEST)
    analysis = analysis_of(run)
    assert isinstance(analysis.sampling, SamplingResult)
    assert {a.arm: a.outcome for a in analysis.sampling.arms} == {
        "draft-3": "not accused",
        "draft-8": "not accused",
        "ngram-simple": "accused",
    }
    verdicts = {c.point: c.verdict for c in analysis.comparisons if c.arm == "ngram-simple"}
    assert {p: v.reason == "quality" for p, v in verdicts.items()} == {
        "count/c1/ctx0/t0": False,  # greedy answers are judged by themselves
        "python-code/c1/ctx0/t0.1": True,
        "free-text/c1/ctx0/t0.8": True,
    }


def test_the_page_tells_each_measure_and_leads_the_team_to_its_evidence(people: sample.People, client: Client) -> None:
    run = finished(people, sampling_test=TEST)
    address = f"/experiments/{run.experiment.pk}/"
    client.force_login(people.owner)
    page = client.get(address).content.decode()
    text = flat(page)
    assert "The baseline beside its own answers: 10 of 10 answers are identical" in text
    assert "8 of 10 answers are identical; 2 part, after 17 tokens in the middle: 1 near-tie, 1 wrong" in text
    assert "not checked No prompt has a check" in text
    assert "accused Draws its tokens from another distribution than the baseline" in text
    for name in ("second-look.jsonl", "continuations.jsonl", "texts.jsonl"):
        assert page.count(f"?name={name}") > 1  # among the evidence, and beside what was read in it
    stranger = Client().get(address).content.decode()
    assert "8 of 10 answers are identical" in flat(stranger)
    assert "?name=second-look.jsonl" not in stranger


def test_answers_that_can_be_read_no_more_are_not_checked_and_nothing_fails(people: sample.People) -> None:
    run = finished(people)
    for file in EvidenceFile.objects.filter(name__in=("texts.jsonl", "second-look.jsonl")).select_related("blob"):
        (Path(settings.SPECWEB_EVIDENCE_DIR) / file.blob.path).unlink(missing_ok=True)
    compared = analyse(run.job).comparisons[0]
    assert not isinstance(compared.agreement, AgreementResult)
    assert "its text is not in the evidence" in compared.agreement.withheld
    assert next(c for c in compared.checks if c.name == "baseline agrees with itself").state == "not checked"


def test_more_answers_than_a_worker_may_read_leave_the_task_checks(people: sample.People, monkeypatch: pytest.MonkeyPatch) -> None:
    run = finished(people)
    monkeypatch.setattr(answers, "MOST_BYTES", 1)
    compared = analyse(run.job).comparisons[0]
    assert [m.name for m in compared.quality] == ["task checks"]
