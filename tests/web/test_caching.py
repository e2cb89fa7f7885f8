"""No cache on the way keeps what one person may read, and no browser shows it again without asking."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.web.people_api import Program
from tests.worlds import World


@pytest.mark.parametrize("path", ["/", "/hosts/", "/experiments/new", "/teams/ours/", "/running", "/experiments/nowhere"])
def test_pages_are_private(world: World, path: str) -> None:
    client = Client()
    client.force_login(world.owner)
    assert client.get(path)["Cache-Control"] == "private, no-cache"


@pytest.mark.parametrize("path", ["me", "experiments/", "hosts/", "nothing"])
def test_answers_to_programs_too(world: World, path: str) -> None:
    assert Program(world.owner).get(path)["Cache-Control"] == "private, no-cache"


def test_a_page_that_shows_secrets_says_more(world: World) -> None:
    client = Client()
    client.force_login(world.owner)
    assert "no-store" in client.get("/account/")["Cache-Control"]
