"""Filters by a moment take what a person can write, and refuse what no database can hold."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from tests.web import sample
from tests.web.people_api import Program

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("address", ["/api/v1/experiments/", "/api/v1/exports/experiments", "/api/v1/comparisons/"])
@pytest.mark.parametrize(
    ("moment", "status"),
    [("0530-12-20T07:53:30.39-17:39", 200), ("2026-01-01T00:00:00Z", 200), ("0001-01-01T00:00:00+23:00", 400), ("yesterday", 400)],
)
def test_a_moment_in_any_zone(address: str, moment: str, status: int) -> None:
    program = Program(sample.people().owner)
    answer = program.get(f"{address}?{urlencode({'until': moment})}")
    assert answer.status_code == status
    if status == 400:
        assert "until" in answer.content.decode()
