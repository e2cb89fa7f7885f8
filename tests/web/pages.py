"""What the tests of pages share: a small experiment, and somebody who asks."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

from django.test import Client
from django.urls import reverse

from specweb.accounts.models import Membership, Role, Team, User
from specweb.experiments.models import Job, Visibility
from tests.web import sample

SMALL = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 64}],
    "warmup": {"mode": "fixed"},
    "blocks": 3,
}
POINT = "count/c1/ctx0/t0"


def small(people: sample.People, visibility: Visibility = Visibility.TEAM, *, fails=lambda _: False, **changes: object) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(**SMALL | changes), visibility, fails=fails)


def as_user(user: User | None, **options: object) -> Client:
    client = Client(**options)
    if user is not None:
        client.force_login(user)
    return client


def with_role(team: Team, role: Role) -> User:
    user = User.objects.create_user(f"{role}-of-{team.slug}")
    Membership.objects.create(user=user, team=team, role=role)
    return user


def buttons(page: str) -> set[str]:
    """Names of the addresses that the page's forms post to, but for logging out."""
    return {a.rstrip("/").rsplit("/", 1)[-1] for a in re.findall(r'<form method="post" action="([^"]+)"', page)} - {"logout"}


def now() -> datetime:
    return datetime.now(UTC)


def page_of(user: User | None, job: Job) -> str:
    url = reverse("experiment", args=[job.experiment_id]) + f"?job={job.pk}"
    return html.unescape(as_user(user).get(url).content.decode())
