"""Watches and notices in the browser and by program: what their pages say, and that both ways do the same."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from specweb.accounts.models import Role, User
from specweb.accounts.services import create_token, set_role
from specweb.experiments.models import Host
from specweb.watching.models import Alert, Channel, Watch
from specweb.watching.services.looking import look_at_ended
from specweb.watching.services.watches import stop
from tests.web import sample
from tests.web.watched import POINT, Watched, add_history, watched

pytestmark = pytest.mark.django_db
MOST_STATEMENTS = 12


@pytest.fixture
def it(db: Any) -> Watched:
    return watched()


def text_of(answer: Any) -> str:
    """What a reader sees, without the tags."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def program(user: User) -> Client:
    return Client(headers={"Authorization": f"Bearer {create_token(user, f'of {user}, {uuid4()}')[1]}"})


def shown(client: Client, name: str, *args: Any, query: str = "") -> str:
    with CaptureQueriesContext(connection) as asked:
        answer = client.get(reverse(name, args=args) + query)
    assert answer.status_code == 200
    assert len(asked) <= MOST_STATEMENTS, [q["sql"][:90] for q in asked]
    return text_of(answer)


def test_a_watch_begins_on_its_experiment_s_page_and_shows_its_history_and_alert(it: Watched) -> None:
    add_history(it, [2.0] * 12 + [1.6] * 4)
    (alert,) = look_at_ended(datetime.now(UTC))
    client = browser(it.people.owner)
    assert (
        reverse("watch-new", args=[it.run.experiment.pk]) in client.get(reverse("experiment", args=[it.run.experiment.pk])).content.decode()
    )
    page = shown(client, "watch", it.watch.pk)
    assert "worse" in page
    assert "-20" in page.replace("−", "-")
    assert "build 12" in page
    assert "build 13" in page
    raw = client.get(reverse("watch", args=[it.watch.pk])).content.decode()
    for job in (alert.job_before, alert.job_after):
        assert reverse("experiment", args=[job.experiment_id]) in raw
        assert reverse("evidence-list", args=[job.pk]) in raw
    assert '"history-data"' in raw
    assert "1 " in shown(client, "watches")
    assert "worse" in shown(client, "watches")


def test_an_alert_is_acknowledged_on_the_page_and_then_stands_among_the_seen(it: Watched) -> None:
    add_history(it, [2.0] * 12 + [1.6] * 4)
    (alert,) = look_at_ended(datetime.now(UTC))
    client = browser(it.people.owner)
    client.post(reverse("alert-acknowledge", args=[alert.pk]), {"note": "driver 590"})
    page = shown(client, "watch", it.watch.pk)
    assert "Acknowledged: 1" in page
    assert "driver 590" in page
    assert "driver 590" not in shown(client, "watches")


def test_a_watch_says_what_keeps_it_from_its_host(it: Watched) -> None:
    client = browser(it.people.mate)
    Host.objects.update(last_seen_at=datetime.now(UTC) - timedelta(days=2))
    assert "is offline since" in shown(client, "watch", it.watch.pk)
    Host.objects.update(revoked_at=datetime.now(UTC))
    assert "is gone: it was revoked" in shown(client, "watches")
    assert "Pause" not in shown(client, "watch", it.watch.pk)  # a viewer reads


def test_a_watch_without_repeats_says_what_brings_one(it: Watched) -> None:
    page = shown(browser(it.people.owner), "watch", it.watch.pk)
    assert "A changed or added build on the host brings the first one" in page
    assert "A history begins with the second run" in page


def test_the_form_keeps_what_was_written_and_names_what_is_wrong(it: Watched) -> None:
    stop(it.watch, it.people.owner)
    client, address = browser(it.people.owner), reverse("watch-new", args=[it.run.experiment.pk])
    assert "Watch Demo pair" in shown(client, "watch-new", it.run.experiment.pk)
    for fields, words in (
        ({}, "neither a host nor labels"),
        ({"labels": "gpu"}, "is no label"),
        ({"labels": "gpu=a", "every_days": "often"}, "no whole number"),
        ({"labels": "gpu=a", "every_days": "9999"}, "every_days is 9999"),
        ({"labels": "gpu=a", "smallest": "much"}, "is no number"),
        ({"labels": "gpu=a", "smallest": "nan"}, "smallest is nan"),
        ({"host": "00000000-0000-0000-0000-000000000000"}, "none of the team's"),
    ):
        answer = client.post(address, fields)
        assert answer.status_code in (400, 409)
        assert words in text_of(answer)
        assert all(str(v) in answer.content.decode() for k, v in fields.items() if k != "host")
    answer = client.post(address, {"host": str(it.host.pk), "every_days": "7", "smallest": "5"})
    made = Watch.objects.get(state="active")
    assert answer["Location"] == reverse("watch", args=[made.pk])
    assert (made.host, made.every_days, made.smallest) == (it.host, 7, 0.05)


def test_buttons_of_a_watch(it: Watched) -> None:
    client = browser(it.people.owner)
    for name, state in (("pause", "paused"), ("resume", "active"), ("stop", "stopped")):
        assert client.post(reverse(f"watch-{name}", args=[it.watch.pk])).status_code == 302
        it.watch.refresh_from_db()
        assert it.watch.state == state
    assert "Stopped: 1" in shown(client, "watches")


def test_a_series_is_chosen_by_its_address(it: Watched) -> None:
    add_history(it, [2.0] * 3)
    query = f"?host={it.host.pk}&arm=draft-3&point={POINT}"
    assert "build 3" in shown(browser(it.people.owner), "watch", it.watch.pk, query=query)
    assert "No run of this watch" in shown(browser(it.people.owner), "watch", it.watch.pk, query="?arm=none&host=x&point=%00")


def test_a_program_watches_and_steers(it: Watched) -> None:
    stop(it.watch, it.people.owner)
    api = program(it.people.owner)
    body = {"experiment": str(it.run.experiment.pk), "host": str(it.host.pk), "every_days": 3}
    made = api.post("/api/v1/watches/", body, content_type="application/json")
    assert made.status_code == 201, made.content
    assert made.json()["every_days"] == 3
    address = f"/api/v1/watches/{made.json()['id']}"
    assert api.post("/api/v1/watches/", body, content_type="application/json").status_code == 409
    assert [api.post(f"{address}/{verb}").status_code for verb in ("resume", "pause", "pause", "resume", "stop", "stop")] == [
        409,
        200,
        409,
        200,
        200,
        409,
    ]
    listed = api.get("/api/v1/watches/?state=stopped").json()["watches"]
    assert {w["id"] for w in listed} == {str(it.watch.pk), made.json()["id"]}
    for wrong in (
        {**body, "every_days": 0},
        {**body, "host": str(it.run.job.pk)},
        {**body, "experiment": str(it.host.pk)},
        {**body, "x": 1},
    ):
        assert api.post("/api/v1/watches/", wrong, content_type="application/json").status_code == 400


def test_who_may_watch_by_program(it: Watched) -> None:
    stop(it.watch, it.people.owner)
    body = {"experiment": str(it.run.experiment.pk), "host": str(it.host.pk)}
    statuses = {}
    for user in (it.people.mate, it.people.stranger):
        statuses[user.username] = program(user).post("/api/v1/watches/", body, content_type="application/json").status_code
    statuses["nobody"] = Client().post("/api/v1/watches/", body, content_type="application/json").status_code
    set_role(it.people.team, it.people.mate, Role.SUBMITTER)
    statuses["submitter"] = program(it.people.mate).post("/api/v1/watches/", body, content_type="application/json").status_code
    assert statuses == {"mate": 403, "stranger": 400, "nobody": 401, "submitter": 201}


def test_alerts_by_program_tell_all_that_the_page_tells(it: Watched) -> None:
    jobs = add_history(it, [2.0] * 12 + [1.6] * 4)
    look_at_ended(datetime.now(UTC))
    api = program(it.people.owner)
    (alert,) = api.get("/api/v1/alerts/?open=true&better=false").json()["alerts"]
    assert (alert["job_before"], alert["job_after"]) == (str(jobs[11].pk), str(jobs[12].pk))
    assert alert["after"]["low"] < alert["after"]["estimate"] < alert["after"]["high"]
    assert api.get(f"/api/v1/alerts/?watch={it.host.pk}").json()["alerts"] == []
    address = f"/api/v1/alerts/{alert['id']}/acknowledge"
    assert program(it.people.mate).post(address, {}, content_type="application/json").status_code == 403
    assert program(it.people.stranger).post(address, {}, content_type="application/json").status_code == 404
    seen = api.post(address, {"note": "known"}, content_type="application/json").json()
    assert (seen["acknowledged_by"], seen["acknowledged_note"]) == ("owner", "known")
    assert api.post(address, {}, content_type="application/json").status_code == 409
    assert Alert.objects.filter(acknowledged_at=None).count() == 0


def test_channels_by_program(db: Any) -> None:
    people = sample.people()
    api = program(people.owner)
    body = {"team": "ours", "kind": "webhook", "name": "chat", "target": "https://hooks.example.org/secret", "events": ["alert", "lost"]}
    made = api.post("/api/v1/channels/", body, content_type="application/json")
    assert made.status_code == 201
    assert made.json()["secret"] == Channel.objects.get().secret
    (listed,) = program(people.mate).get("/api/v1/channels/").json()["channels"]
    assert listed["target"] == "https://hooks.example.org/…"
    assert "secret" not in listed
    address = f"/api/v1/channels/{listed['id']}"
    assert api.post(f"{address}/test").status_code == 202
    (sent,) = api.get(f"{address}/deliveries").json()["deliveries"]
    assert (sent["event"], sent["state"]) == ("test", "waiting")
    assert api.post(f"{address}/enable").status_code == 409
    inside = api.post("/api/v1/channels/", {**body, "name": "x", "target": "https://10.0.0.1/"}, content_type="application/json")
    assert inside.status_code == 409
    assert "public Internet" in inside.json()["error"]["message"]
    assert api.delete(address).status_code == 204
