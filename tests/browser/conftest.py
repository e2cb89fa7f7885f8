"""What the browser tests share: people who can log in, a finished experiment and one that runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.browser.visitors import PASSWORD, shared
from tests.web import sample


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture(scope="module", autouse=True)
def _browser() -> Iterator[None]:
    """The browser stays open between tests, and its event loop with it; Django is told that no other work waits in there."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "1"
    try:
        yield
    finally:
        shared.close()
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def people() -> sample.People:
    return sample.people(PASSWORD)


@pytest.fixture
def run(people) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(blocks=3))


@pytest.fixture
def running(people) -> sample.Run:
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(blocks=3)), host)
    sample.play(run, n_trials=2)
    return run
