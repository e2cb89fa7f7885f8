"""Pages about hosts: who may do what, what each state says and what to do, and that nothing grows with the fleet."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from speccore.errors import DiskFull, EngineDied

from specweb.accounts.models import Membership, Role, User
from specweb.experiments.models import EnrolmentCode, Host, HostInventory, Job
from specweb.experiments.services.jobs import fail_job, retry_job
from tests.web import sample
from tests.web.pages import SMALL, as_user, buttons, now, page_of, with_role
from tests.worlds import Agent

pytestmark = pytest.mark.django_db

HOST_ACTIONS = ("host-drain", "host-undrain", "host-revoke")


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


# --- who may ---


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
        "allowed_flags": ["--numa", "--tensor-parallel-size"],
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
        "<code>--numa</code>",
        '<small title="--tensor-parallel-size">and 1 that no engine build here has</small>',
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
    assert max(counts[0].values()) <= 12, counts
