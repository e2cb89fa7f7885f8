"""What the tests of pages share: a small experiment, and somebody who asks."""

from __future__ import annotations

from django.test import Client

from specweb.experiments.models import Visibility
from tests.web import sample

SMALL = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "blocks": 3,
}
POINT = "count/c1/ctx0/t0"


def small(people: sample.People, visibility: Visibility = Visibility.TEAM, *, fails=lambda _: False, **changes: object) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(**SMALL | changes), visibility, fails=fails)


def as_user(user) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client
