"""Runs of a question side by side, the buttons for more of them, and their addresses for programs."""

from __future__ import annotations

import html
import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from specweb.accounts.models import User
from specweb.accounts.services import create_token
from specweb.experiments.models import Host, Job, Visibility
from specweb.experiments.services.jobs import request_cancel
from specweb.experiments.services.more import add_blocks
from tests.web import sample
from tests.web.test_more_blocks import SMALL, another_driver, failed_after, first, ran

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def evidence(settings, tmp_path):  # type: ignore[no-untyped-def]
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def text(answer: Any) -> str:
    assert answer.status_code == 200, answer.status_code
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


def runs(client: Client, run: sample.Run) -> str:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        shown = text(client.get(reverse("runs", args=[run.experiment.pk])))
    assert len(captured) <= 12, len(captured)
    return shown


def test_the_button_adds_blocks_and_the_page_tells_how_the_answer_changed() -> None:
    people, run = first()
    client = browser(people.owner)
    before = runs(client, run)
    assert "Nothing: what was computed first still stands." in before
    assert re.search(r"blocks added in all .* 3 6 ±\d+ % 99\.10 %", before), before
    answer = client.post(reverse("job-more", args=[run.job.pk]), {"blocks": "2"}, follow=True)
    assert "These blocks are added to the answer when they are measured." in text(answer)
    job = Job.objects.get(extends=run.job)
    assert job.blocks == [4, 5]
    assert "Blocks are being added: the job of blocks 4–5 is waiting." in runs(client, run)
    twice = text(client.post(reverse("job-more", args=[run.job.pk]), {"blocks": "2"}, follow=True))
    assert f"No blocks added: blocks are being added already, by job {job.pk}" in twice
    ran(run, job)
    after = runs(client, run)
    assert "2 blocks added, at 98.8 % confidence" in after
    assert "of 3 blocks" in after
    assert "of 5 blocks" in after
    assert "compared together, blocks of 2 jobs" in after
    old = re.search(r'href="([^"]*computed=\d+)"', client.get(reverse("runs", args=[run.experiment.pk])).content.decode())
    assert old is not None
    assert "not the newest" in text(client.get(html.unescape(old[1])))
    for shown in (run.job, job):
        page = text(client.get(reverse("experiment", args=[run.experiment.pk]), {"job": str(shown.pk)}))
        assert "2 blocks of" in page
        assert "2 of them added after an answer was there" in page


def test_what_is_no_number_of_blocks_is_said_back() -> None:
    people, run = first()
    client = browser(people.owner)
    for given in ("", "0", "two", "-1", "9" * 40, "٣"):
        page = text(client.post(reverse("job-more", args=[run.job.pk]), {"blocks": given}, follow=True))
        assert f"No blocks added: {given[:20]!r} is no number of blocks. Add from 1 to 197." in page
    assert not Job.objects.filter(extends=run.job).exists()


def test_who_may_not_submit_sees_the_runs_and_adds_none() -> None:
    people, run = first()
    for user, status in ((people.mate, 403), (people.stranger, 404)):
        client = browser(user)
        for button in ("job-more", "job-rest"):
            assert client.post(reverse(button, args=[run.job.pk]), {"blocks": "2"}).status_code == status
    assert "Add blocks" not in runs(browser(people.mate), run)
    assert browser(people.stranger).get(reverse("runs", args=[run.experiment.pk])).status_code == 404
    assert Job.objects.count() == 1


def test_the_rest_of_a_failed_job_is_one_button_away() -> None:
    people, run = failed_after(7)
    client = browser(people.owner)
    page = text(client.get(reverse("experiment", args=[run.experiment.pk])))
    assert "Run the rest" in page
    assert "Try again" in page
    answer = text(client.post(reverse("job-rest", args=[run.job.pk]), follow=True))
    assert "This job runs the blocks that were missing" in answer
    again = text(client.post(reverse("job-rest", args=[run.job.pk]), follow=True))
    assert "Nothing to run: blocks are being added already" in again
    request_cancel(Job.objects.get(extends=run.job), now=datetime.now(UTC), by="owner")


def test_blocks_that_stand_apart_say_why_on_each_page() -> None:
    people, run = first()
    another_driver(run.lease.host)
    job = add_blocks(run.job, 3, by="owner")
    ran(run, job)
    client = browser(people.owner)
    shown = runs(client, run)
    assert "stands alone: it ran with something else" in shown
    assert re.search(r"driver: \S* ?in the earlier blocks against 570.99 in the added ones", shown), shown
    assert "Both intervals hold" in shown or "have no value in common" in shown
    assert "driver: 570.99" in shown or "driver: none" in shown
    assert "570.99" in text(client.get(reverse("experiment", args=[run.experiment.pk]), {"job": str(job.pk)}))


def test_the_same_question_on_another_host_stands_beside_it_for_those_who_may_read_it() -> None:
    people, run = first()
    theirs = sample.host_with_inventory(people.other, "their-box")
    elsewhere = sample.finished(people.other, people.stranger, sample.spec(**SMALL | {"name": "Elsewhere"}))
    assert elsewhere.lease.host_id == theirs.pk
    client = browser(people.owner)
    assert "their-box" not in runs(client, run)
    elsewhere.experiment.visibility = Visibility.PUBLIC
    elsewhere.experiment.save()
    shown = runs(client, run)
    assert "their-box" in shown
    assert "Both intervals hold" in shown
    assert "no proof that they are equal" in shown


def test_programs_add_blocks_and_are_told_what_stands_against_it() -> None:
    people, run = first()
    _, token = create_token(people.owner, "program")
    program = Client(headers={"Authorization": f"Bearer {token}"})
    address = f"/api/v1/jobs/{run.job.pk}"
    made = program.post(f"{address}/more?blocks=2")
    assert made.status_code == 201, made.content
    told = made.json()
    assert (told["extends"], told["blocks"], told["state"]) == (str(run.job.pk), [4, 5], "waiting")
    refused = program.post(f"{address}/more?blocks=2")
    assert refused.status_code == 409
    assert "being added already" in refused.json()["error"]["message"]
    for query in ("", "?blocks=0", "?blocks=many", "?blocks=201"):
        wrong = program.post(f"{address}/more{query}")
        assert (wrong.status_code, wrong.json()["error"]["details"]["parameter"]) == (400, "blocks")
    assert program.post(f"{address}/rest").status_code == 409
    request_cancel(Job.objects.get(pk=told["id"]), now=datetime.now(UTC), by="owner")
    too_many = program.post(f"{address}/more?blocks=199")
    assert too_many.status_code == 422
    assert too_many.json()["error"]["details"]["field"] == "blocks"
    Host.objects.update(revoked_at=datetime.now(UTC))
    gone = program.post(f"{address}/more?blocks=2")
    assert gone.status_code == 409
    assert "was revoked" in gone.json()["error"]["message"]
    assert json.dumps(gone.json()["error"]["remedy"])
