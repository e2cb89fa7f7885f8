"""The buttons of a job: who may press them, what happens, what is told in each state."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.test import Client
from django.urls import reverse
from speccore.errors import DiskFull, EngineDied
from speccore.jobstate import JobState

from specweb.accounts.models import Role
from specweb.experiments.models import Host, Job, Lease, Visibility
from specweb.experiments.services.jobs import fail_job, move_job, request_cancel, request_pause
from specweb.results.models import Attempt
from specweb.results.services.blocks import void_block
from specweb.results.services.comparing import compare_job
from tests.web import sample
from tests.web.pages import SMALL, as_user, buttons, now, page_of, with_role

pytestmark = pytest.mark.django_db

#: Addresses of what is done to jobs, and of this file's and the hosts' pages.
JOB_ACTIONS = ("job-cancel", "job-pause", "job-resume", "job-retry", "job-more", "job-rest")
HOST_ACTIONS = ("host-drain", "host-undrain", "host-revoke")
NAMES = {"hosts", "host", "host-enrol", "enrolment-code-withdraw", *JOB_ACTIONS, *HOST_ACTIONS}


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


@pytest.fixture
def run(people) -> sample.Run:
    """Two of six trials are measured, the third runs."""
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=2)
    return run


def tell(job: Job, **running: object) -> None:
    Job.objects.filter(pk=job.pk).update(progress={"job_id": str(job.pk), "lease": 1} | running)
    job.refresh_from_db()


# --- who may ---


@pytest.mark.parametrize("name", JOB_ACTIONS)
def test_only_submitters_and_maintainers_act_on_a_job(people, run, name):
    url = reverse(name, args=[run.job.pk])
    before = Job.objects.values().get(pk=run.job.pk)
    for user, expected in ((people.mate, 403), (people.stranger, 404), (None, 302)):
        answer = as_user(user).post(url)
        assert answer.status_code == expected, user
        if user is None:
            assert urlsplit(answer["Location"]).path == "/login/"
            assert str(run.experiment.pk) not in answer["Location"]  # who isn't logged in learns nothing from it
    assert Job.objects.values().get(pk=run.job.pk) == before
    assert Job.objects.count() == 1
    for user in (people.owner, with_role(people.team, Role.SUBMITTER)):
        answer = as_user(user).post(url)
        assert (answer.status_code, urlsplit(answer["Location"]).path) == (302, reverse("experiment", args=[run.experiment.pk]))
        assert as_user(user).get(url).status_code == 405


@pytest.mark.parametrize("name", JOB_ACTIONS)
def test_a_public_experiment_is_read_by_all_and_acted_on_by_its_team(people, run, name):
    run.experiment.visibility = Visibility.PUBLIC
    run.experiment.save()
    url = reverse(name, args=[run.job.pk])
    assert as_user(people.stranger).post(url).status_code == 403
    answer = Client().post(url)
    assert answer.status_code == 302
    assert str(run.experiment.pk) in answer["Location"]  # back to the page with the button
    for user in (people.stranger, None):
        page = page_of(user, run.job)
        assert "2 of 6 trials done" in page
        assert not buttons(page)


def test_viewers_see_no_buttons(people, run):
    host = Host.objects.get()
    paths = [reverse("experiment", args=[run.experiment.pk]), reverse("host", args=[host.pk]), reverse("hosts")]
    for path in paths:
        page = as_user(people.mate).get(path).content.decode()
        assert not buttons(page)
        assert "/revoke" not in page
        assert 'href="/hosts/enrol"' not in page
    assert buttons(as_user(people.owner).get(paths[0]).content.decode()) == {"pause", "cancel"}
    assert buttons(as_user(people.owner).get(paths[1]).content.decode()) == {"drain"}


@pytest.mark.parametrize("name", [*JOB_ACTIONS, *HOST_ACTIONS, "host-enrol"])
def test_another_site_can_not_press_a_button(people, run, name):
    of = {"job": [run.job.pk], "host": [Host.objects.get().pk]}["job" if name in JOB_ACTIONS else "host"]
    url = reverse(name, args=[] if name == "host-enrol" else of)
    answer = as_user(people.owner, enforce_csrf_checks=True).post(url, {"team": people.team.slug})
    assert answer.status_code == 403
    assert "Nothing was changed" in answer.content.decode()
    job = Job.objects.get()
    assert (job.cancel_requested_at, job.pause_requested_at) == (None, None)
    assert Host.objects.get().revoked_at is None


# --- a job ---


def test_cancelling_is_told_until_the_agent_has_stopped(people, run):
    answer = as_user(people.owner).post(reverse("job-cancel", args=[run.job.pk]), follow=True)
    page = html.unescape(answer.content.decode())
    assert "told with its next poll" in page
    assert "Cancelling on xeon" in page
    assert "owner asked for it" in page
    assert not buttons(page)
    again = as_user(people.owner).post(reverse("job-cancel", args=[run.job.pk]), follow=True).content.decode()
    assert "being cancelled already" in again
    move_job(run.job.pk, JobState.CANCELLED, now=now(), by="xeon", reason="cancelled by owner")
    page = page_of(people.owner, run.job)
    assert "cancelled by owner" in page
    assert "1 of 3 blocks are whole, 2 of 6 trials are done" in page
    assert buttons(page) == {"retry", "rest"}


def test_a_job_that_nobody_has_taken_is_cancelled_at_once(people):
    experiment = _waiting(people)
    page = as_user(people.owner).post(reverse("job-cancel", args=[experiment.jobs.get().pk]), follow=True).content.decode()
    assert "The job is cancelled." in page
    assert "Nothing was measured" in page
    assert experiment.jobs.get().state == JobState.CANCELLED


def test_a_job_without_a_plan_claims_no_trials(people):
    page = html.unescape(as_user(people.owner).get(reverse("experiment", args=[_waiting(people).pk])).content.decode())
    assert "0 trials" not in page
    assert re.search(r"<span>\d+ blocks</span>", page)


def _waiting(people):
    sample.host_with_inventory(people.team)
    return sample.submitted(people.team, people.owner, sample.spec(**SMALL))


def test_pausing_and_resuming(people, run):
    client = as_user(people.owner)
    page = html.unescape(client.post(reverse("job-pause", args=[run.job.pk]), follow=True).content.decode())
    assert "rests after the trial that runs" in page
    assert "xeon pauses after the trial that runs" in page
    assert buttons(page) == {"resume", "cancel"}
    tell(run.job, phase="paused")
    page = page_of(people.owner, run.job)
    assert "Paused by owner on xeon" in page
    assert "more than 10 minutes" in page
    assert "paused" in client.get("/").content.decode()
    page = html.unescape(client.post(reverse("job-resume", args=[run.job.pk]), follow=True).content.decode())
    assert "The job goes on." in page
    assert buttons(page) == {"pause", "cancel"}
    assert "was not paused" in client.post(reverse("job-resume", args=[run.job.pk]), follow=True).content.decode()


def test_a_waiting_job_can_rest_before_it_begins(people):
    job = _waiting(people).jobs.get()
    assert request_pause(job, now=now(), by="owner")
    page = page_of(people.owner, job)
    assert "Paused by owner before it began" in page
    assert buttons(page) == {"resume", "cancel"}


def test_a_page_comes_anew_when_a_job_is_paused_or_cancelled(people, run):
    client, seen = as_user(people.owner), []
    for change in (lambda *_, **__: None, request_pause, request_cancel):
        change(run.job, now=now(), by="owner")
        page = client.get(reverse("experiment", args=[run.experiment.pk])).content.decode()
        seen.append(html.unescape(re.search(r'hx-get="([^"]+)"', page)[1]))
        assert [client.get(address).get("HX-Refresh") for address in seen] == ["true"] * (len(seen) - 1) + [None]
    assert len(set(seen)) == 3


def test_what_failed_is_tried_again_as_a_new_job(people, run):
    error = EngineDied("llama-server ended with code 139").body()
    assert fail_job(run.job.pk, error, now=now(), by="test")
    page = page_of(people.owner, run.job)
    assert buttons(page) == {"retry", "rest"}
    client, url = as_user(people.owner), reverse("job-retry", args=[run.job.pk])
    answer = client.post(url)
    new = Job.objects.get(retry_of=run.job)
    assert answer["Location"].endswith(f"?job={new.pk}")
    page = html.unescape(client.get(answer["Location"]).content.decode())
    assert "This is the new try" in page
    assert f"?job={run.job.pk}" in page
    assert buttons(page) == {"pause", "cancel"}
    old = page_of(people.owner, run.job)
    assert not buttons(old)
    assert f"?job={new.pk}" in old
    assert "llama-server ended with code 139" in old
    assert str(new.pk) in client.get(reverse("experiment", args=[run.experiment.pk])).content.decode()  # the new try comes first
    told = client.post(url, follow=True).content.decode()
    assert "retried already" in told
    assert Job.objects.count() == 2
    assert "failed" not in client.get("/").content.decode().partition("<h2>Hosts</h2>")[0]  # its retry speaks for it


def test_a_failed_job_says_what_its_blocks_say_and_that_it_is_incomplete(people):
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL | {"blocks": 4})), host)
    sample.play(run, n_trials=7)
    fail_job(run.job.pk, EngineDied("llama-server ended with code 139").body(), now=now(), by="test")
    page = page_of(people.mate, run.job)
    assert "What they say is being worked out" in page
    assert "hx-get" in page  # the answer comes by itself
    assert compare_job(run.job.pk, now())
    page = page_of(people.mate, run.job)
    assert "hx-get" not in page
    assert "Incomplete: 3 of 4 blocks are whole, 7 of 8 trials are done." in page
    assert "Speed-up by work and arm" in page
    assert page.count("llama-server ended with code 139") == 1
    assert "What to do" in page


def test_a_stalled_job_says_what_comes_next(people, run):
    move_job(run.job.pk, JobState.STALLED, now=now(), by="sweep", reason="xeon is silent since 2026-11-30 09:00:00 UTC")
    page = page_of(people.owner, run.job)
    assert "xeon is silent" in page
    assert "After 24 h of silence it fails as lost" in page
    assert buttons(page) == {"pause", "cancel"}


def test_live_work_is_told_with_its_note_and_log(people, run):
    third = run.plan.trials[2]
    tell(
        run.job,
        trial=third.id,
        phase="probing",
        probe=2,
        n_probes=5,
        eta_s=200,
        note="block 2, run 2: it was torn apart",
        log_tail=[f"slot {sample.NASTY}"],
    )
    url = reverse("experiment", args=[run.experiment.pk])
    raw = as_user(people.mate).get(url).content.decode()
    page = html.unescape(raw)
    assert re.search(rf"<b>{third.arm}</b> <span>trial 3 of 6, block 2</span> <span class=.phase.>probing, probe 2 of 5<", page)
    assert "block 2, run 2: it was torn apart" in page
    assert html.escape(f"slot {sample.NASTY}") in raw
    assert sample.NASTY not in raw


def test_a_host_s_trouble_is_told_to_its_team_only(people, run):
    run.experiment.visibility = Visibility.PUBLIC
    run.experiment.save()
    problem = DiskFull("12 MiB are free in /var/lib/agent").body()
    Host.objects.update(problem=problem.model_dump(mode="json"), problem_at=now())
    tell(run.job, phase="waiting for room")
    for user, told in ((people.mate, True), (people.stranger, False), (None, False)):
        page = page_of(user, run.job)
        assert "waits for room on its disk" in page
        assert ("12 MiB are free" in page) is told, user
        assert (problem.remedy in page) is told, user


def test_the_live_log_is_for_the_team(people, run):
    """It may hold answers, and a note the host's paths."""
    run.experiment.visibility = Visibility.PUBLIC
    run.experiment.save()
    tell(run.job, phase="probing", note="/home/somebody is full", log_tail=["next token: 262 'secret'"])
    for user, told in ((people.mate, True), (people.stranger, False), (None, False)):
        for address in (reverse("experiment", args=[run.experiment.pk]), reverse("progress", args=[run.job.pk])):
            page = html.unescape((as_user(user) if user else Client()).get(address).content.decode())
            assert "probing" in page
            assert ("next token" in page) is told, (user, address)
            assert ("/home/somebody" in page) is told, (user, address)


def test_void_and_late_attempts_say_why_they_do_not_count(people, run):
    first = run.attempts[0]
    void_block(Job.objects.get(), 1, 2, "the machine was started anew")
    sample.play(run, n_trials=1)  # under a run that no longer counts
    late = run.attempts[-1]
    assert late.void_reason
    page = page_of(people.mate, run.job)
    assert "<small>run 2</small>" in page
    assert "block 1 was run anew: the machine was started anew" in page
    assert "block 1 was run anew before this came" in page
    shown = html.unescape(as_user(people.mate).get(reverse("attempt", args=[first.pk])).content.decode())
    assert "Not counted: block 1 was run anew: the machine was started anew." in shown
    assert reverse("attempt", args=[late.pk]) in shown
    # … and one that came under a lease that had ended
    Attempt.objects.filter(pk=late.pk).update(void_reason="")
    Lease.objects.update(released_at=now() - timedelta(hours=1))
    shown = html.unescape(as_user(people.mate).get(reverse("attempt", args=[late.pk])).content.decode())
    assert "it came after lease 1 of the job had ended" in shown
    assert 'class="pill late">late' in shown


def test_an_attempt_that_was_stopped_is_no_late_one(people, run):
    stopped = run.attempts[-1]
    Attempt.objects.filter(pk=stopped.pk).update(outcome="cancelled", accepted=False, counted=False)
    Lease.objects.update(released_at=sample.START)
    page = page_of(people.mate, run.job)
    assert "it was stopped before its end" in page
    assert "it came after lease" not in page


def test_the_way_to_the_hosts_is_for_the_team(people, run):
    run.experiment.visibility = Visibility.PUBLIC
    run.experiment.save()
    link = f'href="{reverse("host", args=[run.lease.host_id])}"'
    assert link in page_of(people.mate, run.job)
    assert link not in page_of(people.stranger, run.job)
