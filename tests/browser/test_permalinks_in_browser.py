"""An address that is handed on shows somebody else, in a fresh browser, what its sender saw."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse
from playwright.sync_api import Page

from specweb.experiments.services.submission import seed_workload
from specweb.experiments.services.workloads import delete_workload
from tests.browser.visitors import CHROMIUM, Visitor, draw_all, in_thread, visitor
from tests.worlds import workload

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
#: What is read on a page: its text, the words in its drawings, what is chosen in its fields.
SEEN = """() => [document.querySelector('main').innerText,
  ...[...document.querySelectorAll('main svg text')].map(t => t.textContent),
  ...[...document.querySelectorAll('main select')].map(s => s.selectedOptions[0]?.text),
  ...[...document.querySelectorAll('main input:not([type=hidden])')].map(i => i.value)].join('\\n')"""


def seen(page: Page) -> str:
    draw_all(page)
    return " ".join(page.evaluate(SEEN).split())


def from_compare(someone: Visitor) -> None:
    page = someone.page
    someone.go("/compare/")
    page.select_option("#f-mode", "draft")
    page.click("main form >> text=Show")
    page.wait_for_url("**mode=draft**")


def to_the_steps_of_a_request(someone: Visitor, attempt: str) -> None:
    page = someone.page
    someone.go(attempt)
    page.select_option("#probe", index=2)
    page.click("text=Show its steps")
    page.wait_for_url("**probe=*")


def to_a_line_behind_a_number(someone: Visitor, attempt: str) -> None:
    someone.go(attempt)
    someone.page.locator("section[aria-labelledby=probes] a.n").first.click()
    someone.page.wait_for_url("**/evidence/**")


def to_a_hit_in_the_log(someone: Visitor, attempt: str) -> None:
    page = someone.page
    someone.go(f"{attempt}evidence/server.log")
    page.fill("input[name=q]", "slot")
    page.press("input[name=q]", "Enter")
    page.wait_for_url("**q=slot#hit")
    assert 0 <= page.locator("li.hit").bounding_box()["y"] < 900
    page.click("text=next hit")
    page.wait_for_url(re.compile(r"#L\d+$"))


def test_a_fresh_browser_shows_the_same(live_server, run):
    attempt = reverse("attempt", args=[run.attempts[next(i for i, t in enumerate(run.plan.trials) if t.arm == "draft-3")].pk])
    walks = {
        "compare": from_compare,
        "experiment": lambda s: s.go(reverse("experiment", args=[run.experiment.pk])),
        "trial": lambda s: to_the_steps_of_a_request(s, attempt),
        "record": lambda s: to_a_line_behind_a_number(s, attempt),
        "log": lambda s: to_a_hit_in_the_log(s, attempt),
    }
    handed = {}
    with visitor(live_server.url, 1280) as someone:
        for name, walk in walks.items():
            walk(someone)
            handed[name] = (someone.page.url.removeprefix(live_server.url), seen(someone.page))
        assert someone.complaints == []
    with visitor(live_server.url, 1280) as another:
        for name, (address, text) in handed.items():
            another.go(address)
            if "#L" in address:
                assert 0 <= another.page.locator("li:target").bounding_box()["y"] < 900, name
            assert seen(another.page) == text, name
        assert another.complaints == []
    with visitor(live_server.url, 390, "dark", user="mate") as colleague:
        for name, (address, _) in handed.items():
            colleague.go(address)
            draw_all(colleague.page)
            assert colleague.sideways() <= 0, name
        assert colleague.complaints == []


def test_an_address_of_what_is_no_more_says_so(live_server, people, run):
    own = seed_workload(workload("own"), people.team, people.owner)
    address = reverse("workload", args=[own.pk])
    in_thread(lambda: delete_workload(own))
    with visitor(live_server.url, 390) as someone:
        page = someone.page
        for path, status, words in (
            (address, 404, "Nothing here for you"),
            (f"{address}?page=3", 404, "Nothing here for you"),
            ("/compare/?work=own@1&page=9", 200, "names nothing"),
        ):
            answer = page.goto(live_server.url + path)
            assert answer
            assert (answer.status, path) == (status, path)
            assert words in page.inner_text("main"), path
            assert page.locator("main a[href]").count(), path  # a way on
            assert someone.sideways() <= 0, path
