"""No page and no list of the API asks the database more often because there is more to show."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from specweb.accounts.models import ApiToken
from tests.web.everything import Everything, everything, more_of_everything
from tests.web.test_visibility import TABLE

pytestmark = pytest.mark.django_db

#: Addresses that a maintainer reads.
READ = [route for route, row in TABLE.items() if row.get.startswith("200")]
#: No page asks more often than this, whatever it shows: each statement is a journey to the database and back.
MOST = 12
#: No page but a file of all that an experiment rests on: a statement or two for each kind of thing in it.
MOST_OF_A_FILE = {"experiments/<uuid:experiment_id>/archive": 24, "api/v1/experiments/<uuid:experiment_id>/archive": 24}


def counted(it: Everything, person: str) -> dict[str, int]:
    found = {}
    for route in READ:
        client, address = it.client(person, route), it.address(route) + TABLE[route].query
        with CaptureQueriesContext(connection) as captured:
            answer: Any = client.get(address)
            if answer.streaming:
                list(answer.streaming_content)
        if answer.status_code == 200:
            found[route] = len(captured)
    return found


@pytest.mark.parametrize("person", ["maintainer", "anonymous"])
def test_ten_of_each_cost_what_one_costs(db: None, person: str) -> None:
    it = everything()
    it.make_public()
    # A token's last use is stamped once a minute: that minute doesn't pass here, however slow the machine is.
    ApiToken.objects.update(last_used_at=timezone.now() + timedelta(days=1))
    counted(it, person)
    before = counted(it, person)
    more_of_everything(it, 9)
    it.make_public()
    after = counted(it, person)
    assert {route: (before[route], n) for route, n in after.items() if n > before[route]} == {}
    assert {route: n for route, n in after.items() if n > MOST_OF_A_FILE.get(route, MOST)} == {}
    assert sorted(set(READ if person == "maintainer" else before) - after.keys()) == []
    assert len(after) > 5
