"""The page behind a comparison's numbers: where a cycle's time goes, and what each of several drafters had."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from speccore.measurement import DrafterCounts, Withheld
from speccore.metrics import METRICS

from specweb.results.models import Analysis
from tests.core.made import number
from tests.web import sample

pytestmark = pytest.mark.django_db
NOT_TOLD = Withheld(withheld="the log doesn't tell it for each drafter, or it was reset")


@pytest.fixture
def run(db: None) -> sample.Run:
    people = sample.people()
    small = sample.spec(blocks=3, points=[{"workload": "count", "max_tokens": 64, "probes": 2}])
    run = sample.finished(people.team, people.owner, small)
    run.people = people  # type: ignore[attr-defined]
    return run


def page(run: sample.Run, **changed: Any) -> str:
    """The page of the first comparison, with some of its stored numbers changed."""
    stored = Analysis.objects.filter(job=run.job).latest("id")
    analysis = stored.parsed
    numbers = next(c for c in analysis.comparisons if c.arm == "draft-3").model_copy(update=changed)
    others = [c for c in analysis.comparisons if c.arm != "draft-3"]
    stored.numbers = analysis.model_copy(update={"comparisons": [numbers, *others]}).model_dump(mode="json")
    stored.save()
    client = Client()
    client.force_login(run.people.owner)  # type: ignore[attr-defined]
    text = client.get(reverse("numbers", args=[run.job.pk]) + f"?arm=draft-3&point={numbers.point}").content.decode()
    return re.sub(r"\s+", " ", text)


def row(text: str, metric: str) -> str:
    return next(r for r in re.findall(r"<tr id=\"[^\"]+\">.*?</tr>", text) if r.startswith(f'<tr id="{metric}"'))


def test_drafting_and_verifying_stand_beside_each_other_below_the_cycle(run: sample.Run) -> None:
    text = page(run, cycle_ms=number(5.5), draft_ms_per_cycle=number(1.25), verify_ms_per_cycle=number(4.25))
    ids = re.findall(r"<tr id=\"([^\"]+)\">", text)
    assert ids[ids.index("cycle_ms") :][:4] == ["cycle_ms", "plain_step_ms", "draft_ms_per_cycle", "verify_ms_per_cycle"]
    for metric, value in (("draft_ms_per_cycle", "1.25"), ("verify_ms_per_cycle", "4.25")):
        assert value in row(text, metric)
        assert METRICS[metric].definition in html.unescape(row(text, metric))


def test_what_the_engine_does_not_tell_is_withheld_with_its_reason(run: sample.Run) -> None:
    why = Withheld(withheld="the log has no drafting time (needs log_verbosity 4)")
    text = page(run, draft_ms_per_cycle=why, verify_ms_per_cycle=why)
    assert "the log has no drafting time" in row(text, "draft_ms_per_cycle")


def test_each_of_several_drafters_has_a_line(run: sample.Run) -> None:
    def of(name: str, drafts: int, drafted: int, accepted: int) -> DrafterCounts:
        return DrafterCounts(type=name, drafts=number(drafts), drafted=number(drafted), accepted=number(accepted), draft_ms=NOT_TOLD)

    text = page(run, drafters=[of("ngram-mod", 7, 32, 9), of("draft-simple", 25, 100, 22)])
    table = text.partition('<h2 id="drafters">')[2].partition("</table>")[0]
    lines = [re.sub(r"<[^>]+>", " ", line).split() for line in table.split("<tr>")[2:]]
    assert [line[:4] for line in lines] == [["ngram-mod", "7", "32", "9"], ["draft-simple", "25", "100", "22"]]
    assert "was reset" in table


def test_a_lone_drafter_has_no_such_table(run: sample.Run) -> None:
    assert 'id="drafters"' not in page(run)
