"""The account and team pages in a real browser: by keyboard, on a phone, in the dark, and free of serious findings of axe-core."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from specweb.accounts.models import ApiToken
from specweb.accounts.services import create_token
from tests.browser.visitors import CHROMIUM, PASSWORD, in_thread, visitor
from tests.web.people_api import Program, error

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
#: Where pictures of the pages are left to look at, if anywhere.
PICTURES = os.environ.get("SPECWEB_PICTURES")


def serious(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{v['id']}: {n['target']} {n['failureSummary']}" for v in found if v["impact"] in ("serious", "critical") for n in v["nodes"]]


def picture(page: Page, name: str) -> None:
    if PICTURES:
        page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), full_page=True)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_pages_fit_and_shut_nobody_out(live_server, people, width, scheme):
    create_token(people.owner, "the nightly run on the big machine in the cellar")
    # Axe compiles its rules from text, which the pages' policy forbids; that the policy holds is tested below.
    with visitor(live_server.url, width, scheme, bypass_csp=True) as someone:
        page = someone.page

        def look(name: str) -> None:
            picture(page, f"{name}-{width}-{scheme}")
            assert someone.sideways() <= 0, name
            assert serious(page) == [], name

        someone.go("/account/")
        look("account")
        page.fill("#token-name", "x" * 100)
        page.click("text=Make a token")
        look("account-fault")
        page.fill("#token-name", "laptop")
        page.click("text=Make a token")
        look("token")
        someone.go("/teams/ours/")
        look("team")
        page.fill("#member-user", "nobody")
        page.click("text=Add >> nth=-1")
        look("team-fault")
        someone.page.context.clear_cookies()
        someone.go("/login/?next=/account/")
        look("login")
        page.fill("[name=username]", "owner")
        page.fill("[name=password]", "wrong")
        page.click("button.button")
        look("login-fault")


def tab_to(page: Page, expression: str) -> None:
    """Presses Tab until ``expression`` of the element that has the focus is true."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate(f"(e => {expression})(document.activeElement)"):
            return
    raise AssertionError(f"Tab never came to where {expression}")


def test_a_token_from_making_to_revoking_by_keyboard(live_server, people):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        tab_to(page, "e.textContent == 'owner'")
        page.keyboard.press("Enter")
        page.wait_for_url("**/account/")
        tab_to(page, "e.id == 'token-name'")
        page.keyboard.type("laptop")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=shown this one time only")
        secret = page.inner_text(".shell >> nth=0").removeprefix("export SPECWEB_TOKEN=").strip()
        tab_to(page, "e.textContent == 'I have copied it'")
        page.keyboard.press("Enter")
        page.wait_for_url("**/account/")
        program = Program(token=secret)
        answers = []
        in_thread(lambda: answers.append(program.get("me").json()["user"]))
        tab_to(page, "e.textContent == 'Revoke laptop'")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=The token laptop is revoked")
        in_thread(lambda: answers.append(error(program.get("me"), 401)["code"]))
        assert answers == ["owner", "not_authenticated"]
        assert someone.complaints == []
    assert ApiToken.objects.get().revoked_at


def test_a_new_password_is_the_one_that_counts(live_server, people):
    with visitor(live_server.url, 390) as someone:
        page = someone.page
        someone.go("/account/")
        page.fill("[name=old_password]", PASSWORD)
        page.fill("[name=new_password1]", "another long password")
        page.fill("[name=new_password2]", "another long password")
        page.click("text=Change it")
        page.wait_for_selector("text=Your password is changed")
        page.click("text=Log out everywhere else")
        page.wait_for_selector("text=Logged out in 0 other browsers")
        page.click("text=Log out >> nth=0")
        page.wait_for_url(someone.site + "/")
        someone.go("/account/")
        page.wait_for_url("**/login/?next=/account/")
        page.fill("[name=username]", "owner")
        page.fill("[name=password]", "another long password")
        page.click("button.button")
        page.wait_for_url("**/account/")
        assert someone.complaints == []
