"""Names of the greatest length, from right to left, with pictures and with markup, on every page that shows names."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from speccore.inventory import Device

from specweb.accounts.models import Team, User
from specweb.experiments.models import Host
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.submission import seed_workload
from tests.browser.test_axe_in_browser import pages
from tests.browser.visitors import CHROMIUM, draw_all, open_all, visitor
from tests.web import sample
from tests.worlds import workload

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
ODD = "عنوان طويل جدا 🚀🧪 <img src=x onerror=alert(1)> "


VIEWER = "m" * 150
#: What is its owner's alone, or for those who may change things.
NOT_FOR_VIEWERS = {"presets", "watch an experiment", "workload", "columns of a table", "share", "enrol", "upload of prompts", "import"}


def odd(n: int, kind: str) -> str:
    """A name of ``n`` characters without a place to break, of which its kind stays told."""
    return (f"{kind} {ODD}" + "x" * n)[:n]


@pytest.fixture
def world(people: sample.People) -> tuple[sample.Run, sample.Run]:
    """A finished experiment and one that runs, in which everything that people may name has such a name."""
    Team.objects.filter(pk=people.team.pk).update(name=odd(120, "team"))
    people.team.refresh_from_db()
    User.objects.filter(pk=people.mate.pk).update(username=VIEWER)
    host = sample.host_with_inventory(people.team, odd(80, "host"))
    assert host.inventory
    told = host.inventory.parsed
    aliases = {"demo-target": odd(200, "target"), "demo-draft": odd(200, "draft")}
    changes = {
        "models": [m.model_copy(update={"alias": aliases[m.alias]}) for m in told.models],
        "devices": [Device(uuid="gpu-1", kind="gpu", name=odd(180, "card"), memory_bytes=6 * 2**30, driver=odd(80, "driver"))],
        "cpu_model": odd(200, "processor"),
    }
    store_inventory(host, told.model_copy(update=changes), datetime.now(UTC))
    own = seed_workload(workload("w" * 80), people.team, people.owner)
    asked = {
        "question": odd(300, "question"),
        "target": {"model": aliases["demo-target"]},
        "arms": [
            {"name": "off", "mode": "off"},
            {"name": "arm-" + "y" * 76, "mode": "draft", "draft_model": aliases["demo-draft"], "draft_limit": 3},
        ],
        "points": [{"workload": own.name, "max_tokens": 64}, {"workload": "count", "max_tokens": 64}],
        "blocks": 3,
    }
    done = sample.finished(people.team, people.owner, sample.spec(name=odd(120, "experiment"), **asked))
    running = sample.claimed(
        sample.submitted(people.team, people.owner, sample.spec(name=odd(120, "running"), **asked)), Host.objects.get()
    )
    sample.play(running, n_trials=4, fails=lambda t: t.index == 3)
    return done, running


@pytest.mark.parametrize(("width", "scheme", "user"), [(390, "dark", "owner"), (1280, "light", VIEWER)])
def test_no_name_breaks_a_page(live_server, world, width, scheme, user):
    addresses = pages(*world, arm=world[0].experiment.parsed_spec.arms[1].name)
    wide = {}
    with visitor(live_server.url, width, scheme, user) as someone:
        for name, path in addresses.items():
            someone.go(path)
            open_all(someone.page)
            draw_all(someone.page)
            if someone.sideways() > 0:
                wide[name] = someone.sideways()
        assert wide == {}
        withheld = {addresses[name] for name in ("withdrawn", *(NOT_FOR_VIEWERS if user == VIEWER else ()))}
        # The console tells each refused page once more, without its address.
        refused = (
            "error: Failed to load resource",
            *(f"{status}: {live_server.url}{path}" for path in withheld for status in (403, 404, 410)),
        )
        assert [c for c in someone.complaints if not c.startswith(refused)] == []
