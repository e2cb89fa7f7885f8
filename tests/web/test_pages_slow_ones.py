"""The numbers page tells how slow the slow requests are, or how many probes that takes."""

from __future__ import annotations

import re

import pytest
from django.test import Client
from django.urls import reverse
from speccore.measurement import TailLine
from speccore.metrics import METRICS

from specweb.experiments.models import Job
from specweb.results.models import Analysis
from tests.core import made
from tests.web import sample
from tests.web.measured import job_of, scatter

pytestmark = pytest.mark.django_db


def section(who: sample.People, job: Job) -> str:
    client = Client()
    client.force_login(who.mate)
    page = client.get(reverse("numbers", args=[job.pk]) + "?arm=again&point=count/c1/ctx0/t0").content.decode()
    found = re.search(r'<section aria-labelledby="tails">.*?</section>', page, re.DOTALL)
    assert found is not None
    return found[0]


def job(who: sample.People, probes: int) -> Job:
    control = {"name": "again", "mode": "off", "control": True}
    points = [{"workload": "count", "probes": probes}]
    spec = made.spec_of(control, target={"model": "demo-target"}, blocks=3, points=points)
    host = sample.host_with_inventory(who.team)
    return job_of(who, host, spec, {"off": 1.0, "again": 1.0}, scatter(3, 0.0, 0.1))


def test_few_probes_have_no_percentile_and_say_how_many_they_need() -> None:
    who = sample.people()
    shown = section(who, job(who, 2))
    assert '<th scope="col" class="num">p95</th><th scope="col" class="num">p99</th>' in shown
    assert shown.count("withheld: needs 100 probes, has 6") == 6  # three metrics of both arms
    assert shown.count("withheld: needs 500 probes, has 6") == 6


def test_from_100_probes_on_p95_stands_with_its_interval() -> None:
    who = sample.people()
    found = job(who, 40)
    shown = section(who, found)
    analysis = Analysis.objects.get(job=found).parsed
    line = next(t for t in analysis.comparisons[0].tails if (t.side, t.metric, t.quantile) == ("arm", "e2e_s", 0.95))
    assert isinstance(line, TailLine)
    show = METRICS["e2e_s"].show
    high = show(line.high) if line.high is not None else "?"
    assert f"{show(line.value)}</span> <small>{show(line.low)}–{high}</small>" in shown
    assert "withheld: needs 500 probes, has 120" in shown


def test_numbers_of_an_earlier_version_say_that_they_lack_it() -> None:
    who = sample.people()
    found = job(who, 2)
    analysis = Analysis.objects.get(job=found)
    for stored in (analysis, *analysis.comparisons.all()):
        for numbers in stored.numbers.get("comparisons", [stored.numbers]):
            del numbers["tails"], numbers["variation"]
        stored.save(update_fields=["numbers"])
    assert "Not computed by the version that stored this comparison" in section(who, found)
