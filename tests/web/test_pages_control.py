"""Pages about hosts, and the buttons: who may, what happens, what is told in each state, and that nothing grows with the fleet."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.errors import DiskFull, EngineDied
from speccore.jobstate import JobState

from specweb.accounts.models import Membership, Role, Team, User
from specweb.experiments.models import EnrolmentCode, Host, HostInventory, Job, Lease, Visibility
from specweb.experiments.services.jobs import fail_job, move_job, request_cancel, request_pause, retry_job
from specweb.results.models import Attempt
from specweb.results.services.blocks import void_block
from specweb.results.services.comparing import compare_job
from tests.web import sample
from tests.worlds import Agent

pytestmark = pytest.mark.django_db

SMALL = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}
#: Addresses of this file's pages: what they need, and the methods that they take.
JOB_ACTIONS = ("job-cancel", "job-pause", "job-resume", "job-retry")
HOST_ACTIONS = ("host-drain", "host-undrain", "host-revoke")
NAMES = {"hosts", "host", "host-enrol", *JOB_ACTIONS, *HOST_ACTIONS}


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


def with_role(team: Team, role: Role) -> User:
    user = User.objects.create_user(f"{role}-of-{team.slug}")
    Membership.objects.create(user=user, team=team, role=role)
    return user


def as_user(user: User | None, **options: object) -> Client:
    client = Client(**options)
    if user is not None:
        client.force_login(user)
    return client


def page_of(user: User | None, job: Job) -> str:
    url = reverse("experiment", args=[job.experiment_id]) + f"?job={job.pk}"
    return html.unescape(as_user(user).get(url).content.decode())


def buttons(page: str) -> set[str]:
    """Names of the addresses that the page's forms post to, but for logging out."""
    return {a.rstrip("/").rsplit("/", 1)[-1] for a in re.findall(r'<form method="post" action="([^"]+)"', page)} - {"logout"}


def now() -> datetime:
    return datetime.now(UTC)


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


@pytest.mark.parametrize("name", HOST_ACTIONS)
def test_only_maintainers_act_on_a_host(people, name):
    host = sample.host_with_inventory(people.team)
    url = reverse(name, args=[host.pk])
    before = Host.objects.values().get(pk=host.pk)
    refused = ((people.mate, 403), (with_role(people.team, Role.SUBMITTER), 403), (people.stranger, 404), (None, 302))
    for user, expected in refused:
        assert as_user(user).post(url).status_code == expected, user
        assert as_user(user).get(url).status_code == (expected if name == "host-revoke" else 405), user
    assert Host.objects.values().get(pk=host.pk) == before
    answer = as_user(people.owner).post(url)
    assert (answer.status_code, answer["Location"]) == (302, reverse("host", args=[host.pk]))
    assert as_user(people.owner).get(url).status_code == (200 if name == "host-revoke" else 405)


def test_hosts_are_shown_to_their_team(people):
    host = sample.host_with_inventory(people.team)
    url = reverse("host", args=[host.pk])
    for user in (people.owner, with_role(people.team, Role.SUBMITTER), people.mate):
        assert as_user(user).get(url).status_code == 200
        assert url in as_user(user).get(reverse("hosts")).content.decode()
    assert as_user(people.stranger).get(url).status_code == 404
    assert "xeon" not in as_user(people.stranger).get(reverse("hosts")).content.decode()
    for path in (url, reverse("hosts"), reverse("host-enrol")):
        answer = Client().get(path)
        assert (answer.status_code, urlsplit(answer["Location"]).path) == (302, "/login/")
        assert as_user(people.owner).delete(path).status_code == 405
    assert as_user(people.owner).get(f"/hosts/{people.team.pk}/").status_code == 404
    assert as_user(people.owner).get("/hosts/00000000-0000-0000-0000-000000000000/").status_code == 404


def test_codes_are_for_maintainers_of_the_team(people):
    url = reverse("host-enrol")
    theirs = {"team": people.other.slug}
    refused = ((people.mate, 403), (with_role(people.team, Role.SUBMITTER), 403), (people.stranger, 404), (None, 302))
    for user, expected in refused:
        assert as_user(user).post(url, {"team": people.team.slug}).status_code == expected, user
    for user in (people.mate, with_role(people.other, Role.VIEWER), User.objects.create_user("nobody")):
        assert as_user(user).get(url).status_code == 403
    assert as_user(people.owner).post(url, theirs).status_code == 404
    assert as_user(people.owner).post(url, {"team": "\x00"}).status_code == 404
    assert not EnrolmentCode.objects.exists()


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
    assert buttons(page) == {"retry"}


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
    assert buttons(page) == {"retry"}
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


# --- hosts ---


def test_a_code_is_shown_once_and_makes_a_host(people, settings):
    client = as_user(people.owner)
    answer = client.post(reverse("host-enrol"), {"team": people.team.slug})
    assert "no-store" in answer["Cache-Control"]
    page = html.unescape(answer.content.decode())
    code = re.search(r"enrol_[\w-]{40,}", page)[0]
    for command in (
        "pip install ./agent",
        f"specweb-agent enrol --server {settings.SPECWEB_BASE_URL} --code {code}",
        "specweb-agent doctor",
        "specweb-agent poll",
    ):
        assert f">{command}</pre>" in page
    assert code not in EnrolmentCode.objects.get().hash
    assert code not in client.get(reverse("host-enrol")).content.decode()
    assert code not in client.get(reverse("hosts")).content.decode()
    reply = Client().post("/agent/v1/enrol", {"code": code, "hostname": "gpu-box", "agent_version": "1"}, content_type="application/json")
    assert reply.status_code == 201
    page = client.get(reverse("hosts")).content.decode()
    assert "gpu-box" in page
    assert "never seen" in page
    assert "specweb-agent poll" in page


def test_a_maintainer_of_two_teams_chooses_one(people):
    Membership.objects.create(user=people.owner, team=people.other, role=Role.MAINTAINER)
    page = as_user(people.owner).get(reverse("host-enrol")).content.decode()
    assert {people.team.slug, people.other.slug} == set(re.findall(r'<option value="([^"]+)"', page))
    as_user(people.owner).post(reverse("host-enrol"), {"team": people.other.slug})
    assert EnrolmentCode.objects.get().team == people.other


def test_revoking_says_what_is_lost_and_shuts_the_host_out_at_once(people, run):
    host, client = Host.objects.get(), as_user(people.owner)
    token = Agent("x")
    Host.objects.update(token_hash=sample.hashlib.sha256(b"x").hexdigest())
    assert token.poll().status_code == 200
    url = reverse("host-revoke", args=[host.pk])
    page = html.unescape(client.get(url).content.decode())
    assert "1 job that it works on fails" in page
    assert Host.objects.get().revoked_at is None
    page = html.unescape(client.post(url, follow=True).content.decode())
    assert "xeon is revoked" in page
    assert token.poll().status_code == 401
    assert not buttons(page)
    assert Job.objects.get().error["code"] == "host_revoked"
    assert "was revoked by owner" in page_of(people.owner, run.job)
    assert "1 revoked" in client.get(reverse("hosts")).content.decode()
    assert "was revoked before" in client.post(url, follow=True).content.decode()
    assert "<form" not in client.get(url).content.decode().partition("<main")[2]


def test_draining_and_ending_it(people, run):
    host, client = Host.objects.get(), as_user(people.owner)
    page = html.unescape(client.post(reverse("host-drain", args=[host.pk]), follow=True).content.decode())
    assert "takes no new jobs; it finishes the one that it has" in page
    assert "Finishes its job, then takes no other" in page
    assert buttons(page) == {"undrain"}
    assert "draining" in client.get(reverse("hosts")).content.decode()
    assert "draining" in client.get("/").content.decode()
    page = client.post(reverse("host-undrain", args=[host.pk]), follow=True).content.decode()
    assert "takes jobs again" in page
    assert buttons(page) == {"drain"}


@pytest.mark.parametrize(
    ("silent", "state", "step"),
    [
        (timedelta(seconds=5), "online", "next job that fits"),
        (timedelta(minutes=2), "stalled", "its network and its agent"),
        (timedelta(hours=30), "lost", "revoke the host if the machine is gone"),
        (None, "never seen", "specweb-agent poll"),
    ],
)
def test_a_host_s_state_and_what_to_do(people, silent, state, step):
    host = sample.host_with_inventory(people.team)
    Host.objects.update(last_seen_at=now() - silent if silent else None)
    client = as_user(people.owner)
    page = client.get(reverse("host", args=[host.pk])).content.decode()
    assert step in page
    for shown in (page, client.get(reverse("hosts")).content.decode(), client.get("/").content.decode()):
        assert re.search(rf'class="pill {state.replace(" ", "-")}">{state}<', shown)
    assert ("offline since" in page) is (state in ("stalled", "lost"))


def test_what_a_host_can_run(people):
    host = sample.host_with_inventory(people.team)
    kept = HostInventory.objects.get()
    kept.content |= {
        "labels": {"room": "lab-2"},
        "allowed_flags": ["--numa"],
        "sensors": {"nvml": "missing: no NVIDIA driver", "pss": "ok"},
        "problems": ["model 'big': /data/big.gguf is not there"],
    }
    kept.save()
    client = as_user(people.mate)
    page = html.unescape(client.get(reverse("host", args=[host.pk])).content.decode())
    for told in (
        "0.1.0-dev (build 1, commit 7e4c0a9)",
        "ngram-simple",
        "demo-target",
        "Q8_0",
        "114 MiB",
        "room=lab-2",
        "--numa",
        "missing: no NVIDIA driver",
        "/data/big.gguf is not there",
    ):
        assert told in page
    page = html.unescape(client.get(reverse("hosts")).content.decode())
    for told in ("ngram-simple", "demo-target", "1 thing in its configuration"):
        assert told in page


def test_the_last_errors_of_a_host_come_with_their_remedies(people):
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=2, fails=lambda t: t.arm == "draft-3")
    client = as_user(people.mate)
    for path in (reverse("host", args=[host.pk]), reverse("hosts")):
        page = html.unescape(client.get(path).content.decode())
        assert "engine_out_of_memory" in page
        assert "Use a smaller context" in page
    problem = DiskFull("12 MiB are free").body()
    Host.objects.update(problem=problem.model_dump(mode="json"), problem_at=now())
    for path in (reverse("host", args=[host.pk]), reverse("hosts")):
        page = html.unescape(client.get(path).content.decode())
        assert "12 MiB are free" in page
        assert problem.remedy in page
    assert "disk_full" in client.get("/").content.decode()
    fail_job(run.job.pk, EngineDied("ended with code 9").body(), now=now(), by="test")
    assert "ended with code 9" in client.get(reverse("host", args=[host.pk])).content.decode()


def test_without_hosts_the_next_step_depends_on_who_asks(people):
    page = as_user(people.owner).get(reverse("hosts")).content.decode()
    assert "No host yet" in page
    assert 'href="/hosts/enrol"' in page
    page = as_user(people.mate).get(reverse("hosts")).content.decode()
    assert "A maintainer of your team can add one" in page
    assert 'href="/hosts/enrol"' not in page


def test_html_from_a_host_is_escaped(people, run):
    nasty = DiskFull(sample.NASTY, remedy=sample.NASTY).body().model_dump(mode="json")
    Host.objects.update(name=sample.NASTY[:80], problem=nasty, problem_at=now())
    kept = HostInventory.objects.get()
    kept.content |= {"labels": {sample.NASTY: sample.NASTY}, "problems": [sample.NASTY], "sensors": {"x": sample.NASTY}}
    kept.content["models"][0]["alias"] = sample.NASTY
    kept.save()
    retry_job_of_failed(run)
    for path in ("/", reverse("hosts"), reverse("host", args=[run.lease.host_id]), reverse("host-revoke", args=[run.lease.host_id])):
        page = as_user(people.owner).get(path).content.decode()
        assert "<script>alert" not in page, path
        assert "<b>bold" not in page, path
        assert not re.search(r"<[^>]+\s(?:style|on\w+)=", page), path


def retry_job_of_failed(run: sample.Run) -> Job:
    fail_job(run.job.pk, EngineDied(sample.NASTY).body(), now=now(), by=sample.NASTY)
    return retry_job(run.job, now=now(), by=sample.NASTY)


# --- cost ---


def test_statements_do_not_grow_with_hosts_jobs_or_failures(people):
    host = sample.host_with_inventory(people.team)
    counts = []
    for i in range(2):
        run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
        sample.play(run, n_trials=3, fails=lambda t: t.arm == "draft-3")
        row = {}
        for path in (reverse("hosts"), reverse("host", args=[host.pk])):
            client = as_user(people.owner)
            with CaptureQueriesContext(connection) as queries:
                assert client.get(path).status_code == 200
            row[path] = len(queries)
        counts.append(row)
        fail_job(run.job.pk, EngineDied("x").body(), now=now(), by="test")
        sample.host_with_inventory(people.team, f"more-{i}")
        Host.objects.exclude(pk=host.pk).update(last_seen_at=None)
    assert counts[0] == counts[1]
    assert max(counts[0].values()) <= 10, counts
