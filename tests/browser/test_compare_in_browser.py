"""The Compare page in a browser: by keyboard alone, as a permalink, without JavaScript, on a phone."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page

from tests.browser.visitors import CHROMIUM, Visitor, draw_all, visitor
from tests.web import sample
from tests.web.test_compare import CARD, XEON, other_host, run

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def rows(page: Page) -> list[str]:
    return [" ".join(text.split()) for text in page.locator(".across tbody tr:not(.group) > th").all_inner_texts()]


def choose_hardware_by_keyboard(page: Page) -> None:
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "f-hardware":
            break
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Show"
    page.keyboard.press("Enter")
    page.wait_for_url("**hardware=*")


def test_by_keyboard_as_a_permalink_on_a_phone_and_without_javascript(live_server, people):
    run(people, sample.host_with_inventory(people.team))
    run(people, other_host(people.team), {"off": 0.05, "draft-4": 0.045})
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go("/compare/")
        draw_all(page)
        assert sorted(rows(page)) == [CARD, XEON]
        choose_hardware_by_keyboard(page)
        draw_all(page)
        found = rows(page)
        assert found in ([CARD], [XEON])
        assert someone.complaints == []
        browser, address = page.context.browser, page.url.removeprefix(live_server.url)
        assert browser

        colleague = Visitor(browser.new_context(viewport={"width": 390, "height": 900}, color_scheme="dark"), live_server.url)
        colleague.log_in("mate")
        colleague.go(address)
        draw_all(colleague.page)
        assert rows(colleague.page) == found
        assert colleague.sideways() <= 0
        assert colleague.complaints == []

        plain = Visitor(browser.new_context(viewport={"width": 390, "height": 900}, java_script_enabled=False), live_server.url)
        plain.log_in("owner")
        plain.go("/compare/")
        assert "The plot needs JavaScript" in plain.page.inner_text("main")
        plain.page.select_option("#f-hardware", CARD)
        plain.page.click("text=Show")
        assert rows(plain.page) == [CARD]
