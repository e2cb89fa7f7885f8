"""The overview: what runs, what was answered, the hosts; who sees which; what to do where there is nothing yet."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.errors import EngineDied
from speccore.jobstate import JobState

from specweb.accounts.models import Membership, User
from specweb.dashboard.overview_page import axis_of
from specweb.experiments.models import Host, Job, Visibility
from specweb.experiments.services.jobs import fail_job, move_job, retry_job
from tests.web import sample
from tests.web.pages import SMALL, as_user, small

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def running(people: sample.People, visibility: Visibility = Visibility.TEAM, **changes: object) -> sample.Run:
    """Two of six trials are measured, the third is probed."""
    host = Host.objects.filter(team=people.team).first() or sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL | changes), visibility), host)
    sample.play(run, n_trials=2)
    tell = {"trial": run.plan.trials[2].id, "phase": "probing", "probe": 1, "n_probes": 2, "tokens_per_s": 84.4}
    Job.objects.filter(pk=run.job.pk).update(progress={"job_id": str(run.job.id), "lease": 1} | tell)
    return run


def page_of(user: User | None, query: str = "") -> str:
    return html.unescape(as_user(user).get("/" + query).content.decode())


def part(page: str, heading: str) -> str:
    """The section that begins with a heading."""
    return page.partition(f">{heading}</h2>")[2].partition("</section>")[0]


# --- who sees what ---


def test_it_lists_only_what_one_may_read(people):
    mine = small(people, name="Of our team").experiment
    public = small(people, Visibility.PUBLIC, name="For all").experiment
    works, shown_to_all = running(people).experiment, running(people, Visibility.PUBLIC).experiment
    team, everybody = {mine.id, public.id, works.id, shown_to_all.id}, {public.id, shown_to_all.id}
    for user, expected in ((people.owner, team), (people.mate, team), (people.stranger, everybody), (None, everybody)):
        page, polled = page_of(user), as_user(user).get(reverse("running")).content.decode()
        assert {e for e in team if str(e) in page} == expected, user
        assert {e for e in team if str(e) in polled} == expected & {works.id, shown_to_all.id}, user
    assert "xeon" not in part(page_of(people.stranger), "Hosts")
    assert ">Hosts</h2>" not in page_of(None)


# --- the three parts ---


def test_what_runs_tells_how_far_it_is(people):
    run = running(people)
    now = part(page_of(people.owner), "Running now")
    assert "2 of 6 trials" in now
    assert "probing 1 of 2" in now
    assert "84 tokens/s" in now
    assert re.search(r"about [\d–]+ s left", now)
    assert f"?job={run.job.pk}" in now
    assert str(run.experiment.pk) not in part(page_of(people.owner), "Latest answers")


def test_a_waiting_job_tells_why(people):
    sample.host_with_inventory(people.team)
    sample.submitted(people.team, people.owner, sample.spec(**SMALL))
    Job.objects.update(reason="xeon could run it and is offline")
    assert "xeon could run it and is offline" in part(page_of(people.owner), "Running now")


def test_answers_stand_with_their_figures_and_intervals(people):
    small(people)
    page = part(page_of(people.owner), "Latest answers")
    assert re.search(r"<b>\d\.\d\d×</b> <small>\d\.\d\d–\d\.\d\d</small>", page)
    assert "Counting" in page
    assert 'class="mini m-draft"' in page


def test_all_answers_share_an_axis_around_one():
    axis = axis_of([{"speedup": 4.0, "ci_low": 3.0, "ci_high": 5.0}, {"speedup": None}])
    assert axis.place(5.0) == 97
    assert axis.place(1 / 1.5) == 3
    assert 3 < axis.place(1.0) < axis.place(3.0) < axis.place(4.0) < 97
    assert axis.place(1e-300) == 3


def test_what_failed_is_no_answer_and_still_stands_there(people):
    run = running(people)
    fail_job(run.job.pk, EngineDied("llama-server ended with code 139").body(), now=datetime.now(UTC), by="test")
    page = page_of(people.owner)
    assert "failed" in part(page, "Latest answers")
    assert "Nothing runs" in part(page, "Running now")
    retry_job(Job.objects.get(), now=datetime.now(UTC), by="test")
    page = page_of(people.owner)
    assert str(run.experiment.pk) not in part(page, "Latest answers")  # its retry speaks for it
    assert str(run.experiment.pk) in part(page, "Running now")


def test_a_host_says_what_it_works_on(people):
    run = running(people)
    hosts = part(page_of(people.owner), "Hosts")
    assert f"/experiments/{run.experiment.pk}/?job={run.job.pk}" in hosts
    Job.objects.update(state="processed")
    assert str(run.experiment.pk) not in part(page_of(people.owner), "Hosts")


def test_a_silent_host_is_not_called_online(people):
    sample.host_with_inventory(people.team)
    assert ">online<" in page_of(people.owner)
    Host.objects.update(last_seen_at=sample.START)
    page = page_of(people.owner)
    assert ">lost<" in page
    assert ">online<" not in page


# --- what changes by itself ---


def test_the_running_part_is_asked_for_again_and_unchanged_costs_nothing(people):
    run = running(people)
    client = as_user(people.owner)
    page = client.get("/").content.decode()
    tag, url = (html.unescape(re.search(rf'{name}="([^"]+)"', page)[1]) for name in ("data-tag", "hx-get"))
    assert client.get(url, headers={"If-None-Match": tag}).status_code == 304
    Job.objects.update(progress=None)
    changed = client.get(url, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.get("HX-Refresh")) == (200, None)
    move_job(run.job.pk, JobState.COMPLETED, now=datetime.now(UTC), by="test")
    assert client.get(url).get("HX-Refresh") is None  # it is still being read
    Job.objects.update(state="processed")
    assert client.get(url)["HX-Refresh"] == "true"


# --- finding again ---


def test_words_find_an_experiment_in_name_or_question(people):
    first = small(people, name="Alpha run", question="Is it 100% faster?").experiment
    second = small(people, name="Beta run", question="").experiment
    found = {
        words: {e.pk for e in (first, second) if str(e.pk) in page_of(people.owner, f"?q={words}")}
        for words in ("alpha", "RUN", "100%25+alpha", "beta+faster")
    }
    assert found == {"alpha": {first.pk}, "RUN": {first.pk, second.pk}, "100%25+alpha": {first.pk}, "beta+faster": set()}
    assert "No experiment has all of these words" in page_of(people.owner, "?q=gamma")
    for odd in ("?q=%00", "?q=" + "x" * 5000, "?q=%ff", "?page=0", "?page=-1", "?page=" + "9" * 50):
        assert as_user(people.owner).get("/" + odd).status_code == 200, odd


def test_older_experiments_are_on_further_pages_and_the_search_goes_along(people, monkeypatch):
    from specweb.dashboard import overview_views

    monkeypatch.setattr(overview_views, "N_EXPERIMENTS", 1)
    old, new = (small(people, name=f"{name} run").experiment for name in ("Old", "New"))
    first, second = page_of(people.owner, "?q=run"), page_of(people.owner, "?q=run&page=2")
    assert str(new.pk) in first
    assert str(old.pk) not in first
    assert 'href="?q=run&page=2">Older' in first
    assert str(old.pk) in second
    assert 'href="?q=run&page=1">Newer' in second
    assert "There are no older ones" in page_of(people.owner, "?page=9")


# --- nothing yet ---


def test_without_experiments_the_next_step_depends_on_who_asks(people):
    page = page_of(people.owner)
    assert f'href="{reverse("experiment-new")}">New experiment</a></p>' in page
    assert f'href="{reverse("host-enrol")}"' in page
    page = page_of(people.mate)
    assert "turn to owner" in page
    assert f'class="button" href="{reverse("experiment-new")}"' not in page
    assert "A maintainer of your team can add one" in page
    nobody = User.objects.create_user("nobody")
    assert "You are in no team" in page_of(nobody)
    assert 'href="/login/">Log in</a> to see' in page_of(None)


def test_who_was_shut_out_is_nobody_to_turn_to(people):
    gone = User.objects.create_user("gone", is_active=False)
    Membership.objects.create(user=gone, team=people.team, role="maintainer")
    page = page_of(people.mate)
    assert "turn to owner." in page
    assert "gone" not in page


def test_a_team_whose_first_experiment_runs_is_told_where_the_answer_comes(people):
    running(people)
    assert "The first appears here" in page_of(people.owner)


# --- cost ---


def test_statements_do_not_grow_with_experiments_jobs_or_hosts(people):
    counts = []
    for i in range(2):
        small(people)
        running(people)
        sample.host_with_inventory(people.team, f"more-{i}")
        for path in ("/", reverse("running")):
            client = as_user(people.owner)
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path).status_code == 200
            counts.append(len(queries))
        Job.objects.filter(state="running").update(state="failed", ended_at=datetime.now(UTC) - timedelta(hours=1))
    assert counts[:2] == counts[2:]
    assert counts[0] <= 14
    assert counts[1] <= 5


def test_a_visitor_costs_no_more(people):
    small(people, Visibility.PUBLIC)
    with CaptureQueriesContext(connection) as queries:
        assert Client().get("/").status_code == 200
    assert len(queries) <= 7
