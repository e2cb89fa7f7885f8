"""Watching a job: the time left, the speeds so far, the trials drawn to time; mostly without a database."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.urls import reverse

from specweb.dashboard.speeds import speeds_by_work
from specweb.dashboard.time_left import Ran, TimeLeft, in_words, since_in_words, time_left
from specweb.dashboard.trial_strip import climate_words
from specweb.experiments.models import Job
from specweb.results.models import Attempt, MeasurementSet
from specweb.results.page_queries import Climate, TrialSpeed
from tests.web import sample
from tests.web.pages import POINT, SMALL, as_user

# --- the time left ---


def test_the_time_left_is_what_the_arm_s_own_trials_took():
    done = [Ran("off", 10), Ran("off", 10), Ran("draft", 4), Ran("draft", 4)]
    left = time_left(done, ["draft", "off", "off"], between_s=1)
    assert left is not None
    assert (left.low_s + left.high_s) / 2 == pytest.approx(4 + 10 + 10 + 3)


def test_an_arm_without_a_trial_takes_as_long_as_the_others():
    left = time_left([Ran("off", 7), Ran("draft", 5)], ["ngram"])
    assert left is not None
    assert (left.low_s + left.high_s) / 2 == pytest.approx(6)


def test_the_running_trial_has_had_some_of_its_time_but_never_more_than_all():
    done = [Ran("off", 10), Ran("off", 10)]
    middle = [(t.low_s + t.high_s) / 2 for had in (0, 4, 99) if (t := time_left(done, ["off", "off"], running_for_s=had))]
    assert middle == pytest.approx([20, 16, 10])


def test_the_range_is_wider_when_trials_differ_and_narrower_when_there_are_more():
    def width(seconds):
        found = time_left([Ran("off", s) for s in seconds], ["off"] * 4)
        return found.high_s - found.low_s

    assert width([10, 10, 10, 10]) < width([8, 12, 8, 12])
    assert width([8, 12] * 8) < width([8, 12])
    assert width([10]) > width([10, 10])  # one trial says nothing of how they differ
    # two errors: of the four trials, and of their common mean: 2 · sqrt(s² · (4 + 16/n)) on both sides
    assert width([8, 12] * 2) == pytest.approx(2 * 2 * (16 / 3 * (4 + 16 / 4)) ** 0.5)


def test_nothing_is_promised_before_a_trial_has_ended():
    assert time_left([], ["off"]) is None
    assert time_left([Ran("off", 3)], []) == TimeLeft(0, 0)


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (0, 4, "a few seconds left"),
        (31, 44, "about 30–40 s left"),
        (38, 42, "about 40 s left"),
        (0, 100, "about 10–100 s left"),
        (470, 610, "about 8–10 min left"),
        (590, 610, "about 10 min left"),
        (3500, 4300, "about 1 h to 1 h 10 min left"),
        (7180, 7230, "about 2 h left"),
    ],
)
def test_the_time_left_in_words(low, high, words):
    assert in_words(TimeLeft(low, high)) == words


def test_elapsed_time_changes_once_a_minute():
    assert [since_in_words(s) for s in (-3, 0, 59, 60, 119, 240, 7500)] == [
        "just now",
        "just now",
        "just now",
        "1 min ago",
        "1 min ago",
        "4 min ago",
        "2 h 5 min ago",
    ]


# --- the speeds so far ---


def test_speeds_stand_by_work_and_arm_on_an_axis_from_zero():
    spec = sample.spec()
    speeds = [
        TrialSpeed(2, "draft-3", "draft", POINT, 150.0),
        TrialSpeed(1, "off", "off", POINT, 50.0),
        TrialSpeed(3, "draft-3", "draft", POINT, 100.0),
    ]
    (work,) = speeds_by_work(spec, speeds, {POINT: "Counting"})
    assert (work.title, [a.arm for a in work.arms]) == ("Counting", ["off", "draft-3"])
    off, draft = work.arms
    assert draft.middle == "125"
    assert draft.dots[0].x == pytest.approx(3 * off.dots[0].x, abs=0.02)
    assert [d.newest for d in (*off.dots, *draft.dots)] == [False, False, True]
    assert "trial 2: 150.0 tokens/s" in draft.dots[0].title
    assert work.unit == "tokens/s"


def test_the_speed_of_several_requests_at_once_is_called_that_of_one():
    spec = sample.spec(
        engine={"context": 2048, "slots": 4}, points=[{"workload": "count", "concurrency": 4}, {"workload": "count", "rate_per_s": 2}]
    )
    speeds = [TrialSpeed(1, "off", "off", p.key, 50.0) for p in spec.points]
    assert [w.unit for w in speeds_by_work(spec, speeds, {})] == ["tokens/s of one request"] * 2


@pytest.mark.parametrize(
    ("climate", "words"),
    [
        (None, ""),
        (Climate((1380, 1410), 61.4), "1,380–1,410 MHz, 61 °C"),
        (Climate((1410, 1410), None), "1,410 MHz"),
        (Climate(None, 70), "70 °C"),
    ],
)
def test_clock_and_temperature_in_words(climate, words):
    assert climate_words(climate) == words


# --- the page of a job that runs ---


@pytest.fixture
def run(db, settings, tmp_path: Path) -> sample.Run:
    """Three of six trials are measured, the fourth runs."""
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    people = sample.people()
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=3)
    tell(run, trial=run.plan.trials[3].id, phase="probing", probe=1, n_probes=2)
    return run


def tell(run: sample.Run, **words: object) -> None:
    Job.objects.filter(pk=run.job.pk).update(progress={"job_id": str(run.job.pk), "lease": 1} | words)


def page(run: sample.Run) -> str:
    client = as_user(run.experiment.created_by)
    return html.unescape(client.get(reverse("experiment", args=[run.experiment.pk])).content.decode())


def boxes(page: str) -> dict[int, tuple[float, float]]:
    """Number of a trial → where its box begins and how wide it is, in percent of its row."""
    found = re.findall(r'<foreignObject role="listitem" x="([\d.]+)%" y="0" width="([\d.]+)%".*?class="place">(\d+)<', page, re.S)
    return {int(n): (float(x), float(width)) for x, width, n in found}


def test_speeds_time_left_and_what_is_worth_saying_are_there(run):
    shown = page(run)
    assert shown.count("<circle ") == 3
    assert re.search(r"about [\d–]+ s left", shown)
    assert f'data-say="probing, trial 4 of 6, {run.plan.trials[3].arm}"' in shown
    tell(run, trial=run.plan.trials[3].id, phase="probing", probe=2, n_probes=2, tokens_per_s=77.7)
    again = page(run)
    assert "78</b> tokens/s" in again
    assert re.search('data-say="[^"]+"', again)[0] == re.search('data-say="[^"]+"', shown)[0]  # a number alone is not said


@pytest.mark.parametrize(
    ("phase", "words"),
    [("starting", "starting the engine"), ("warm-up", "warming up"), ("uploading", "sending the evidence"), ("dreaming", "dreaming")],
)
def test_phases_are_told_in_words(run, phase, words):
    tell(run, trial=run.plan.trials[3].id, phase=phase)
    assert f'class="phase">{words}<' in page(run)


def test_a_host_whose_clock_is_wrong_spoils_no_estimate(run):
    Attempt.objects.update(started_at=datetime(2031, 1, 1, tzinfo=UTC), ended_at=datetime(2031, 1, 1, 0, 0, 30, tzinfo=UTC))
    found = re.search(r"about (\d+)–(\d+) s left", page(run))  # three trials of 30 s, less what has passed
    assert found
    assert 50 <= int(found[1]) < 90 <= int(found[2]) <= 119


def test_trials_are_drawn_to_time_and_a_long_rest_is_told_not_drawn(run):
    at_first = boxes(page(run))
    assert sorted(at_first) == [1, 2, 3, 4, 5, 6]
    (x1, w1), (x2, w2) = at_first[1], at_first[2]
    assert x1 == 0
    assert x2 >= w1
    first, second, _ = sorted(Attempt.objects.all(), key=lambda a: a.started_at)
    lengths = [(a.ended_at - a.started_at).total_seconds() for a in (first, second)]
    assert w1 / w2 == pytest.approx(lengths[0] / lengths[1], rel=0.01)
    later = timedelta(hours=2)
    Attempt.objects.filter(pk=second.pk).update(started_at=second.started_at + later, ended_at=second.ended_at + later)
    shown = page(run)
    assert "after 2 h" in shown
    assert all(x + width <= 100.01 for x, width in boxes(shown).values())
    assert boxes(shown)[2][1] > 20  # the rest did not press it flat


def test_a_very_short_trial_can_still_be_seen(run):
    first = min(Attempt.objects.all(), key=lambda a: a.started_at)
    Attempt.objects.filter(pk=first.pk).update(ended_at=first.started_at + timedelta(milliseconds=1))
    assert boxes(page(run))[1][1] > 1


def test_clocks_stand_along_the_order_where_they_were_sampled(run):
    assert "MHz" not in page(run)
    kept = MeasurementSet.objects.order_by("pk").first()
    kept.numbers |= {"clock_mhz": [1380.0, 1410.0], "temperature_c": 61.0}
    kept.save()
    assert page(run).count("<small>1,380–1,410 MHz, 61 °C</small>") == 1


def test_who_is_logged_out_is_told_so_and_nobody_else(run, client):
    url = reverse("progress", args=[run.job.pk])
    assert client.get(url).status_code == 401
    assert client.get(reverse("progress", args=[run.experiment.pk])).status_code == 401  # a job that isn't there looks the same
    client.force_login(sample.User.objects.get(username="stranger"))
    assert client.get(url).status_code == 404
