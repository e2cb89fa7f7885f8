"""The page of a trial: its course, each number's sources, the log around what was read, the command as it was run."""

from __future__ import annotations

import html
import io
import re
import uuid
from pathlib import Path

import pytest
from django.urls import reverse
from speccore.measurement import Number, Source
from speccore.records import AttemptSummary

from specweb.dashboard.course import course
from specweb.dashboard.sources import measured_cell
from specweb.experiments.models import Visibility
from specweb.results import evidence_text
from specweb.results.models import Attempt, EvidenceFile, MeasurementSet
from tests.web import sample
from tests.web.pages import SMALL, as_user, small

# --- the course ---


def summary(*phases: tuple[str, float]) -> AttemptSummary:
    return AttemptSummary(
        attempt_id="a",
        job_id="j",
        trial="t",
        arm="off",
        block=1,
        n=1,
        outcome="ok",
        started_at=sample.START,
        ended_at=sample.START,
        phases=list(phases),
    )


def test_phases_fill_the_time():
    found = course(summary(("starting", 0), ("probing", 2), ("stopping", 8)), 10)
    assert found is not None
    assert [(b.name, b.x, b.width, b.duration) for b in found.bands] == [
        ("starting", 0, 20, "2.0 s"),
        ("probing", 20, 60, "6.0 s"),
        ("stopping", 80, 20, "2.0 s"),
    ]


def test_a_course_needs_a_length_and_phases():
    assert course(None, 10) is None
    assert course(summary(), 10) is None
    assert course(summary(("starting", 0)), None) is None


# --- sources ---


def test_a_number_s_other_sources_stand_in_its_title():
    final = Source(file="records.jsonl", line=3, field="final.timings.draft_n")
    log = [Number(value=v, source=Source(file="server.log", line=9, field="draft acceptance")) for v in (81, 80)]
    cell = measured_cell(uuid.UUID(int=0), Number(value=81, source=final, also=log), "drafted")
    assert "the same in server.log line 9" in cell.title
    assert "80 in server.log line 9" in cell.title


def test_lines_are_read_with_their_neighbours_in_one_pass():
    content = "".join(f"line {i}\n" for i in range(1, 101)).encode()
    passages = evidence_text.read_around(io.BytesIO(content), {1, 10, 12, 100}, 1)
    assert [[line.n for line in p] for p in passages] == [[1, 2], [9, 10, 11, 12, 13], [99, 100]]
    assert passages[1][1].text == "line 10"
    assert evidence_text.read_around(io.BytesIO(b""), {5}, 1) == []


# --- the page ---


@pytest.fixture
def people(db, settings, tmp_path: Path) -> sample.People:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    return sample.people()


def page_of(user, attempt: Attempt) -> str:
    return html.unescape(as_user(user).get(reverse("attempt", args=[attempt.pk])).content.decode())


def of_arm(run: sample.Run, arm: str) -> Attempt:
    return next(a for a in run.attempts if a.trial.arm.name == arm)


def test_it_says_which_trial_it_is_and_leads_to_its_neighbours(people):
    run = small(people)
    first, second, third = run.attempts[:3]
    page = page_of(people.owner, second)
    assert "trial 2 of 6</p>" in page
    assert f'href="{reverse("attempt", args=[first.pk])}" rel="prev">← trial 1<' in page
    assert f'href="{reverse("attempt", args=[third.pk])}" rel="next">trial 3 →<' in page
    assert 'rel="prev"' not in page_of(people.owner, first)
    assert 'rel="next"' not in page_of(people.owner, run.attempts[-1])


def test_the_log_is_shown_around_the_lines_that_were_read(people):
    run = small(people)
    attempt = of_arm(run, "draft-3")
    line = attempt.measurement.parsed.log.speculation_line
    page = page_of(people.owner, attempt)
    marked = re.findall(r'<li class="hit"><a href="([^"]+)">(\d+)</a>.*?class="why">← ([^<]+)<', page, re.S)
    assert (f"{reverse('evidence', args=[attempt.pk, 'server.log'])}?line={line}#L{line}", str(line), "speculation: draft-simple") in marked
    assert f">{line - 1}</a>" in page


def test_memory_over_time_and_energy_are_shown_where_they_are_known(people):
    run = small(people)
    attempt = of_arm(run, "draft-3")
    before = page_of(people.owner, attempt)
    kept = MeasurementSet.objects.get(attempt=attempt)
    number = Number(value=512 * 2**20, source=Source(file="samples.jsonl", line=4)).model_dump(mode="json")
    kept.numbers |= {"memory_after_load_bytes": number, "energy_j_per_1k_tokens": number | {"value": 88.4}}
    kept.save()
    page = page_of(people.owner, attempt)
    for name, value in (("memory after loading, MiB", "512"), ("energy, J per 1,000 tokens", "88")):
        assert name not in before
        assert re.search(rf"{name}.{{1,400}}samples.jsonl.{{1,400}}{value}", page, re.DOTALL)


def test_layers_that_the_log_calls_offloaded_count_only_where_a_device_holds_them(people):
    attempt = of_arm(small(people), "draft-3")
    kept = MeasurementSet.objects.get(attempt=attempt)
    kept.numbers["log"] |= {"layers_offloaded": "26/26"}
    kept.numbers |= {"host": {"layers_placed": [0, 26]}}
    kept.save()
    page = page_of(people.owner, attempt)
    assert "layers on a device" in page
    assert "0 of 26" in page
    assert "the log says offloaded: 26/26" in page


def test_a_fault_in_the_log_is_shown_where_it_stands(people):
    run = small(people, fails=lambda t: t.arm == "draft-3" and t.block == 1)
    failed = next(a for a in run.attempts if a.outcome == "failed")
    kept = MeasurementSet.objects.get(attempt=failed)
    kept.numbers["log"] |= {"error": "it ended", "error_line": 3}
    kept.save()
    page = page_of(people.owner, failed)
    assert "← the fault that ended it" in page
    assert "No request was timed." in page


def test_a_log_with_answers_in_it_is_for_the_team(people):
    run = small(people, Visibility.PUBLIC)
    attempt = of_arm(run, "draft-3")
    EvidenceFile.objects.filter(attempt=attempt, name="server.log").update(private=True)
    line = attempt.measurement.parsed.log.speculation_line
    for user, told in ((people.mate, True), (people.stranger, False), (None, False)):
        page = page_of(user, attempt)
        assert ("← speculation: draft-simple" in page) is told, user
        assert (f">{line}</a>" in page) is told, user
        assert ("for the team only" in page) is not told, user


def test_the_command_is_the_one_that_was_run_with_what_the_arm_adds_marked(people):
    run = small(people)
    page = page_of(people.owner, of_arm(run, "draft-3"))
    command = page.partition('id="command"')[2].partition("</section>")[0]
    assert "/opt/llama-server" in command
    assert "<span>--port 4711</span>" in command  # a path or a port is no difference
    assert "<ins>--spec-draft-n-max 3</ins>" in command
    assert "<ins>" not in page_of(people.owner, of_arm(run, "off")).partition('id="command"')[2].partition("</section>")[0]


def test_the_manifest_names_what_was_used(people):
    page = page_of(people.owner, small(people).attempts[0])
    manifest = page.partition('id="manifest"')[2].partition("</section>")[0]
    assert 'title="' + "b" * 64 in manifest
    assert "b10434" in manifest


def test_more_numbers_lead_to_their_lines_too(people):
    run = small(people)
    page = page_of(people.owner, of_arm(run, "draft-3")).partition("More of each probe")[2].partition("</details>")[0]
    assert len(re.findall(r'<a class="n" href="/attempts/[^"]+/evidence/records\.jsonl\?line=\d+', page)) > 20


def test_evidence_that_is_gone_leaves_the_numbers(people, settings, tmp_path):
    run = small(people)
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "elsewhere"
    page = page_of(people.owner, of_arm(run, "draft-3"))
    assert page.count('class="n"') > 20
    for part in ('id="course"', 'id="command"', 'id="manifest"'):
        assert part not in page
    assert "start 0.7 s" in page  # what the report said stays


def test_a_trial_that_was_tried_twice_shows_both_fates(people):
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=1, fails=lambda _: True)
    sample.play(run, n_trials=1)
    failed, good = run.attempts
    page = page_of(people.owner, failed)
    assert "Attempts at this trial" in page
    assert 'class="pill failed">failed' in page
    assert f'href="{reverse("attempt", args=[good.pk])}">attempt' in page
