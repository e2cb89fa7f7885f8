"""The command to take home in a real browser: chosen with the keyboard, copied by a button, and readable without scripts."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.browser.test_axe_in_browser import serious
from tests.browser.visitors import CHROMIUM, until, visitor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def test_a_form_is_chosen_with_the_keyboard_and_copied(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.locator(".recipe summary").first.focus()
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")  # to the chosen form
        page.keyboard.press("ArrowRight")
        recipe = page.locator(".recipe").first
        assert recipe.locator("pre:visible").count() == 1
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Copy"
        page.keyboard.press("Enter")
        until(page, "document.activeElement.textContent === 'Copied'")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied == recipe.locator("pre:visible").text_content()
        assert copied.startswith("[Unit]\n")
        assert someone.complaints == []


def test_without_javascript_every_form_can_be_read_and_no_button_promises_more(live_server, run):
    with visitor(live_server.url, 390, java_script_enabled=False) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        recipe = page.locator(".recipe").first
        recipe.locator("summary").click()
        for kind, start in (("systemd", "[Unit]"), ("compose", "services:"), ("shell", "LD_LIBRARY_PATH=")):
            recipe.locator(f"label:text-is('{kind}')").click()
            assert recipe.locator("pre:visible").count() == 1
            assert recipe.locator("pre:visible").inner_text().startswith(start)
        assert page.locator(".take button").count() == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_no_name_in_the_order_of_trials_is_cut(live_server, run, width):
    with visitor(live_server.url, width) as someone:
        someone.go(reverse("experiment", args=[run.experiment.id]))
        cut = "[...document.querySelectorAll('.trial .what')].filter(e => e.scrollWidth > e.clientWidth).map(e => e.textContent)"
        assert someone.page.evaluate(cut) == []
        named = someone.page.locator(".trial .arm:visible").count()
        assert named == someone.page.locator(".trial").count() if width == 1280 else someone.page.locator(".trial .key:visible").count() > 0
        assert someone.page.locator(".arm-keys li").all_inner_texts() == ["Aoff", "Bdraft-3", "Cdraft-8", "Dngram-simple"]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_finds_nothing_serious_in_what_is_opened(live_server, run, width, scheme):
    with visitor(live_server.url, width, scheme) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.locator(".recipe summary").first.click()
        page.locator(".recipe label:text-is('compose')").first.click()
        assert page.locator(".recipe pre:visible").count() == 1
        assert serious(page) == []
        assert someone.sideways() <= 0
