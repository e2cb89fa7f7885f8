"""A public experiment that no host has taken: why it waits names the team's hosts, and that is for the team alone."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import AnonymousUser
from django.test import Client

from specweb.accounts.models import User
from specweb.experiments.models import Experiment, Visibility
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.silence import Limits, expire_silent_jobs
from specweb.experiments.services.submission import submit
from tests.web.people_api import Program
from tests.worlds import World, dispatch, inventory, spec


@pytest.fixture
def waiting(world: World) -> Experiment:
    store_inventory(world.host, inventory(allowed_flags=["--no-mmap"]), datetime.now(UTC))
    made = submit(spec(engine={"extra": {"--no-mmap": True}}), world.team, world.owner, Visibility.PUBLIC)
    store_inventory(world.host, inventory(), datetime.now(UTC))
    assert dispatch() == 0
    assert made.jobs.get().reason.startswith("box ")
    return made


def pages(made: Experiment, user: User | AnonymousUser) -> Iterator[str]:
    client = Client()
    if isinstance(user, User):
        client.force_login(user)
    for path in ("/", "/running", f"/experiments/{made.pk}/", f"/jobs/{made.jobs.get().pk}/progress"):
        yield client.get(path).content.decode()
    if isinstance(user, User):
        program = Program(user)
        for path in ("experiments/", f"experiments/{made.pk}"):
            yield program.get(path).content.decode()


def test_why_it_waits_is_for_the_team(world: World, waiting: Experiment) -> None:
    assert all("allow --no-mmap" in page for page in pages(waiting, world.teammate))
    for other in (world.stranger, AnonymousUser()):
        for page in pages(waiting, other):
            assert "allow --no-mmap" not in page
            assert "waits for a host of its team" in page


def test_and_so_is_why_it_never_ran(world: World, waiting: Experiment) -> None:
    limits = Limits(stalled_after=timedelta(0), host_lost_after=timedelta(0), waiting_for=timedelta(0))
    expire_silent_jobs(datetime.now(UTC), limits)
    assert "allow --no-mmap" in waiting.jobs.get().error["message"]
    assert any("allow --no-mmap" in page for page in pages(waiting, world.teammate))
    for other in (world.stranger, AnonymousUser()):
        assert all("allow --no-mmap" not in page for page in pages(waiting, other))
