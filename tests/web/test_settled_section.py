"""What came with speculation, on an experiment's page: the setting in both arms, with the way to the line of the log."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from speccore.measurement import AttemptMeasurement, JobAnalysis, LogFacts

from specweb.dashboard.settled_section import settled_section
from specweb.experiments.models import Job
from specweb.results.models import Analysis, Attempt
from tests.web import measured, pages, sample

pytestmark = pytest.mark.django_db
OFF: dict[str, str | float] = {"dtype": "float32", "kv_cache_tokens": 131072.0, "kv_cache_bytes": 2.0**30, "model_runner": "V1"}
#: What each arm's engine settles.
SETTLED: dict[str, dict[str, str | float]] = {
    "off": OFF,
    "draft-3": OFF | {"kv_cache_tokens": 116480.0, "max_num_scheduled_tokens": 2048.0},
}


def told(m: AttemptMeasurement) -> AttemptMeasurement:
    log = LogFacts(settled=SETTLED[m.arm], settled_lines=dict.fromkeys(SETTLED[m.arm], 25))
    return m.model_copy(update={"log": log})


def job_of(people: sample.People, *, with_log: bool = True) -> Job:
    spec = sample.spec(**pages.SMALL)
    host = sample.host_with_inventory(people.team)
    speeds = {"off": 1.0, "draft-3": 1.5}
    return measured.job_of(people, host, spec, speeds, lambda t, p: 1.0, change=told if with_log else lambda m: m)


def section_of(page: str) -> str:
    found = re.search(r'<section aria-labelledby="settled">.*?</section>', page, re.DOTALL)
    return re.sub(r"\s+", " ", found[0]) if found else ""


def test_each_difference_stands_with_both_values_and_opens_the_line_of_the_log() -> None:
    people = sample.people()
    job = job_of(people)
    section = section_of(pages.page_of(people.owner, job))
    rows = [re.sub(r"<[^>]+>", " ", row).split() for row in re.findall(r"<tr>.*?</tr>", section)][1:]
    assert [" ".join(row) for row in rows] == [
        "draft-3 tokens a step may schedule not told 2,048",
        "tokens that the KV cache holds 131,072 116,480",
    ]
    attempt = Attempt.objects.filter(trial__job=job, trial__arm__name="draft-3").order_by("trial__index").first()
    assert attempt is not None
    assert f"{reverse('evidence', args=[attempt.pk, 'server.log'])}?line=25&field=kv_cache_tokens#L25" in section


def test_tokens_that_the_cache_lost_stand_with_the_answer() -> None:
    people = sample.people()
    page = pages.page_of(people.owner, job_of(people))
    assert "14,592 tokens of KV cache lost" in page
    lost = 14592 * 2**30 / 131072 / 2**20
    assert f"+{9 + lost:,.0f} MiB memory" in page  # the arm's peak is 9 MiB above the baseline's


def test_where_nothing_differs_or_nobody_looked_there_is_no_section() -> None:
    people = sample.people()
    job = job_of(people, with_log=False)
    assert section_of(pages.page_of(people.owner, job)) == ""
    stored = Analysis.objects.get(job=job)
    for comparison in stored.numbers["comparisons"]:  # as an earlier version stored it
        del comparison["came_with"], comparison["kv_tokens_lost"]
    assert settled_section(sample.spec(**pages.SMALL), JobAnalysis.model_validate(stored.numbers)) == []
