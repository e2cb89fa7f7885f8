"""Proposed plans in a real browser: a time is typed, the plans follow, and one press takes a plan into the form."""

from __future__ import annotations

import pytest

from tests.browser.visitors import CHROMIUM, until, visitor
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]

QUIET = "!document.querySelector('.htmx-request') && !document.getElementById('experiment-form').inert"
CAPTION = "document.querySelector('#preview .proposals caption')?.textContent"


@pytest.fixture(autouse=True)
def _world(people: sample.People) -> None:
    sample.host_with_inventory(people.team)
    for content in sample.workloads.builtin().values():
        sample.seed_workload(content)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_time_is_typed_and_a_plan_taken_without_leaving_the_page(live_server, width, scheme):
    with visitor(live_server.url, width, scheme) as someone:
        page = someone.page
        someone.go("/experiments/new?from=sample")
        until(page, f"{CAPTION} === 'For ±3 %, the margin'")
        page.evaluate("window.stayed = true")
        page.fill("#f-question", "Typed before")
        page.fill("#f-budget", "2 h")
        until(page, f"{CAPTION} === 'For the time you have'")
        until(page, QUIET)
        assert someone.sideways() <= 0
        button = page.locator("#preview .proposals tr", has_text="proposed").locator("button")
        blocks, probes = button.get_attribute("value").split("-")[1:]
        button.click()
        until(page, f"document.getElementById('f-blocks').value === '{blocks}'")
        until(page, QUIET)
        assert page.evaluate("[...document.querySelectorAll('[name^=points-][name$=-probes]')].map(e => e.value)") == [probes] * 3
        assert page.evaluate("document.activeElement.id") == "f-blocks"
        assert page.input_value("#f-question") == "Typed before"
        assert page.input_value("#f-budget") == "2 h"
        assert page.evaluate("window.stayed") is True
        until(
            page,
            "![...document.querySelectorAll('#preview .proposals tr')].find(e => e.textContent.includes('proposed')).querySelector('button')",
        )
        assert not someone.complaints
