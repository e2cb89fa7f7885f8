"""More of a finished answer in a browser: blocks added by keyboard, the runs side by side, on a phone and without JavaScript."""

from __future__ import annotations

import pytest

from specweb.experiments.models import Job
from tests.browser.visitors import CHROMIUM, in_thread, visitor
from tests.web import sample
from tests.web.test_more_blocks import SMALL, ran

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def test_blocks_are_added_by_keyboard_and_the_answer_tells_how_it_changed(live_server, people):
    run = sample.finished(people.team, people.owner, sample.spec(**SMALL))
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(f"/experiments/{run.experiment.pk}/")
        page.get_by_role("link", name="Runs of this question").focus()
        page.keyboard.press("Enter")
        page.wait_for_url("**/runs?job=*")
        field = page.get_by_label("Blocks to add")
        field.focus()
        page.keyboard.press("Control+a")
        page.keyboard.type("2")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?job=*")
        assert "These blocks are added to the answer" in page.inner_text("main")
        in_thread(lambda: ran(run, Job.objects.get(extends=run.job)))
        someone.go(f"/experiments/{run.experiment.pk}/runs")
        changed = " ".join(page.locator("section:has(#changes) tbody tr").inner_text().split())
        assert "of 3 blocks" in changed
        assert "2 blocks added" in changed
        assert someone.complaints == []
    with visitor(live_server.url, 390, "dark", java_script_enabled=False) as someone:
        someone.go(f"/experiments/{run.experiment.pk}/runs")
        assert someone.page.locator("section:has(#jobs) tbody tr").count() == 2
        assert someone.page.get_by_role("button", name="Add blocks").is_visible()
    with visitor(live_server.url, 390) as someone:
        someone.go(f"/experiments/{run.experiment.pk}/runs")
        assert someone.sideways() <= 0
        assert someone.complaints == []
