"""The agent's doctor against the server itself: it learns whether its token counts, and nothing comes of the asking."""

from __future__ import annotations

from typing import Any

import pytest
from specagent.client import Client
from specagent.doctor import server_findings

from specweb.experiments.models import Host
from tests.worlds import make_world


@pytest.mark.django_db(transaction=True)
def test_the_doctor_learns_whether_the_token_counts(servers: None, live_server: Any) -> None:
    world = make_world()
    client, stranger, lost = (
        Client(live_server.url, world.token),
        Client(live_server.url, "no-such-token"),
        Client(f"{live_server.url}/login"),
    )
    try:
        assert [(f.subject, f.level) for f in server_findings(client, live_server.url)] == [("server", "ok"), ("clock skew", "ok")]
        assert [(f.subject, f.level) for f in server_findings(stranger, live_server.url)] == [("server", "fail")]
        assert [(f.subject, f.level) for f in server_findings(lost, live_server.url)] == [("server", "fail")]
    finally:
        for opened in (client, stranger, lost):
            opened.close()
    assert Host.objects.get(pk=world.host.pk).last_seen_at is None  # only a poll says that the agent runs
