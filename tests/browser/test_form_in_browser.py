"""The experiment form in a real browser: by mouse, by keyboard alone, while typing, without JavaScript, and when a session ends."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.contrib.sessions.models import Session
from django.urls import reverse
from playwright.sync_api import Page
from speccore import workloads
from speccore.spec import parse_spec
from speccore.yamltext import read_yaml

from specweb.experiments.models import Experiment
from specweb.experiments.services.submission import seed_workload
from tests.browser.visitors import CHROMIUM, PASSWORD, Visitor, in_thread, until, visitor
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]

ROOT = Path(__file__).parents[2]
NEW = "/experiments/new"


@pytest.fixture(autouse=True)
def _world(people) -> None:
    sample.host_with_inventory(people.team)
    for content in workloads.builtin().values():
        seed_workload(content)


def demo_spec() -> Any:
    parsed, _ = parse_spec(read_yaml((ROOT / "demo" / "experiment.yaml").read_bytes()))
    return parsed


def stored() -> list[Any]:
    found: list[Any] = []
    in_thread(lambda: found.extend(e.parsed_spec for e in Experiment.objects.order_by("pk")))
    return found


def settled(page: Page) -> None:
    """The form is as the server gave it last, and nothing is on its way."""
    until(page, "!document.querySelector('.htmx-request') && !document.getElementById('experiment-form').inert")


def press(page: Page, button: str) -> None:
    page.click(f"#do-{button}")
    settled(page)


def wait_for_preview(page: Page, text: str) -> None:
    until(page, f"document.getElementById('preview').innerText.includes({text!r}) && !document.querySelector('#preview.htmx-request')")


def focus_of(page: Page) -> str:
    return page.evaluate("document.activeElement.id")


# --- how it looks ---


@pytest.mark.parametrize("width", [1280, 390])
def test_a_fault_of_a_narrow_field_has_the_rows_width(live_server, width):
    with visitor(live_server.url, width) as someone:
        page = someone.page
        someone.go(NEW)
        page.fill("#f-arms-1-draft_limit", "5000")
        page.fill("#f-points-0-max_tokens", "a few")
        press(page, "preview")
        for name in ("arms-1-draft_limit", "points-0-max_tokens"):
            slot = page.locator(f"#f-{name}-fault")
            slot.wait_for()  # it has no place while there is no fault
            fault, row = slot.bounding_box(), slot.locator("xpath=ancestor::*[@role='group']").bounding_box()
            field = page.locator(f"#f-{name}").bounding_box()
            assert fault["width"] > 0.85 * row["width"]
            assert fault["height"] < (50 if width == 1280 else 90)
            assert fault["y"] >= field["y"] + field["height"]
        assert page.inner_text("#f-arms-1-draft_limit-fault").startswith("should be a whole number from 1 to 1,024")
        assert page.get_attribute("#f-arms-1-draft_limit", "aria-describedby").endswith("f-arms-1-draft_limit-fault")
        assert someone.sideways() <= 0


def test_the_words_of_a_mode_are_uncut(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        # As wide as its longest words where nothing narrows it.
        wide = """() => { const s = document.getElementById("f-arms-1-mode"), c = s.cloneNode(true);
          c.style.width = "auto"; s.parentNode.append(c); const w = c.offsetWidth; c.remove(); return [s.offsetWidth, w]; }"""
        has, needs = page.evaluate(wide)
        assert has >= needs


# --- building an experiment ---


def test_the_sample_by_mouse_in_three_clicks(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        page.click("nav >> text=New experiment")
        page.click("text=the sample")
        wait_for_preview(page, "20 starts of the server")
        assert "would run it" in page.inner_text("#preview")
        assert "--spec-draft-n-max 3" in page.inner_text("#preview .m-draft ins >> nth=2")
        page.click("#do-submit-here")
        page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        assert someone.complaints == []
    assert stored() == [demo_spec()]


def test_the_sample_built_field_by_field(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        page.fill("#f-name", "Demo pair on this machine")
        page.fill("#f-question", "Does a small draft model pay for counting, for code and for free text?")
        page.click("text=More settings, and further flags")
        for field, text in (("start_timeout_s", "60"), ("probe_timeout_s", "60")):
            page.fill(f"#f-engine-{field}", text)
        page.select_option("#f-warmup-mode", "fixed")
        press(page, "remove-arms-2")
        page.click("details:has(#f-arms-1-sweep) > summary")
        page.fill("#f-arms-1-sweep", "3, 8")
        press(page, "sweep-arms-1")
        press(page, "remove-points-2")
        press(page, "remove-points-1")
        page.fill("#f-points-0-max_tokens", "64")
        press(page, "add-points")
        assert focus_of(page) == "f-points-1-workload"
        page.select_option("#f-points-1-workload", "python-code")
        page.fill("#f-points-1-sampling-temperature", "0.1")
        press(page, "duplicate-points-1")
        page.select_option("#f-points-2-workload", "free-text")
        page.fill("#f-points-2-sampling-temperature", "0.8")
        wait_for_preview(page, "20 starts of the server")
        page.click("#do-submit")
        page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        assert someone.complaints == []
    assert stored() == [demo_spec()]


def test_by_keyboard_alone(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        wait_for_preview(page, "starts of the server")

        def to(element: str, key: str = "Tab", most: int = 120) -> None:
            for _ in range(most):
                if focus_of(page) == element:
                    return
                page.keyboard.press(key)
            raise AssertionError(f"{key} never came to {element}; it is at {focus_of(page)!r}")

        def enter(element: str) -> None:
            to(element)
            page.keyboard.press("Enter")
            page.wait_for_timeout(50)
            settled(page)

        to("f-name")
        page.keyboard.press("Control+A")
        page.keyboard.type("By keyboard")
        enter("do-remove-arms-3")
        assert focus_of(page) == "do-remove-arms-2"
        enter("do-add-arms")
        assert focus_of(page) == "f-arms-3-name"
        page.keyboard.type("mine")
        page.keyboard.press("Tab")
        page.keyboard.type("ngram-s")  # chooses in the list
        to("f-arms-3-draft_limit")
        page.keyboard.type("0")
        page.keyboard.press("Enter")  # checks; never submits
        page.wait_for_timeout(50)
        settled(page)
        assert focus_of(page) == "f-faults"
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert focus_of(page).startswith("f-arms-3-draft_")
        to("f-arms-3-draft_limit", "Shift+Tab")
        page.keyboard.press("Control+A")
        page.keyboard.type("6")
        enter("do-up-arms-3")
        assert focus_of(page) == "do-up-arms-2"
        assert page.input_value("#f-arms-2-name") == "mine"
        to("do-submit")
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        assert someone.complaints == []
    made = stored()[0]
    assert [(a.name, a.mode, a.draft_limit) for a in made.arms][2] == ("mine", "ngram-simple", 6)
    assert made.arms[2].draft_model is None  # a new arm is given one, which goes with a mode that has no use for it
    assert made.name == "By keyboard"


# --- while typing ---


def test_the_preview_follows_and_faults_come_and_go_beside_their_field(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        wait_for_preview(page, "20 starts of the server")
        page.evaluate("window.stayed = true")
        page.fill("#f-blocks", "7")
        wait_for_preview(page, "28 starts of the server")
        page.fill("#f-arms-1-draft_limit", "a few")
        until(page, "document.getElementById('f-arms-1-draft_limit-fault').textContent.includes('a few')")
        assert page.get_attribute("#f-arms-1-draft_limit", "aria-invalid") == "true"
        assert focus_of(page) == "f-arms-1-draft_limit"
        assert "1 thing to mend" in page.inner_text("#preview")
        page.fill("#f-arms-1-draft_limit", "4")
        until(page, "document.getElementById('f-arms-1-draft_limit-fault').textContent === ''")
        assert page.get_attribute("#f-arms-1-draft_limit", "aria-invalid") is None
        wait_for_preview(page, "28 starts of the server")
        assert page.evaluate("window.stayed")
        assert someone.complaints == []


def test_a_late_preview_never_covers_a_newer_one(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        wait_for_preview(page, "20 starts of the server")
        held: list[Any] = []
        page.route("**/experiments/preview", lambda route: held.append(route) if not held else route.continue_())
        page.fill("#f-blocks", "6")
        page.wait_for_timeout(1000)  # its request is on its way, and held
        assert len(held) == 1
        assert page.locator("#preview.htmx-request").count() == 1
        page.fill("#f-blocks", "8")
        page.wait_for_timeout(1000)
        held[0].continue_()
        wait_for_preview(page, "32 starts of the server")
        assert someone.complaints == []


def test_an_arm_shows_what_its_mode_needs_and_hides_nothing_that_was_typed(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        assert not page.is_visible("#f-arms-0-draft_model")
        page.select_option("#f-arms-0-mode", "draft")
        assert page.is_visible("#f-arms-0-draft_model")
        page.select_option("#f-arms-1-mode", "off")
        assert page.input_value("#f-arms-1-draft_model") == "demo-draft"
        assert page.is_visible("#f-arms-1-draft_model")
        assert "m-off" in page.get_attribute(".form-row.arms >> nth=1", "class")
        until(page, "document.getElementById('f-arms-1-draft_model-fault').textContent.includes(\"can't have draft_model\")")
        page.click("#more-arms-2 > summary")
        for mode, sweep in (("ngram-mod", True), ("off", False)):
            page.select_option("#f-arms-2-mode", mode)
            assert page.input_value("#f-arms-2-draft_model") == ""
            assert page.is_visible("#f-arms-2-sweep") is sweep
            assert page.is_visible("#f-arms-2-control") is not sweep
            assert ("Sweep" in page.inner_text("#more-arms-2 > summary")) is sweep
        page.select_option("#f-arms-2-mode", "draft")
        assert page.input_value("#f-arms-2-draft_model") == "demo-draft"
        assert someone.complaints == []


def test_a_service_that_is_away_loses_nothing(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        wait_for_preview(page, "20 starts of the server")
        page.fill("#f-name", "Still here")
        page.route("**/experiments/**", lambda route: route.abort())
        page.click("#do-add-arms")
        until(page, "document.getElementById('form-notice').textContent.includes('can’t be reached')")
        page.unroute("**/experiments/**")
        press(page, "add-arms")
        assert page.input_value("#f-name") == "Still here"
        assert page.locator(".form-row.arms").count() == 5


# --- YAML ---


def test_yaml_both_ways(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        page.fill("#f-name", "Half filled")
        page.fill("#f-blocks", "many")
        press(page, "to-yaml")
        assert focus_of(page) == "f-yaml"
        text = page.input_value("#f-yaml")
        assert "blocks: many" in text
        wait_for_preview(page, "blocks")
        page.fill("#f-yaml", text.replace("blocks: many", "blcks: 4"))
        press(page, "from-yaml")
        assert focus_of(page) == "f-faults"
        assert "blcks" in page.inner_text("#f-faults")
        assert "blcks: 4" in page.input_value("#f-yaml")
        page.fill("#f-yaml", text.replace("blocks: many", "blocks: 4"))
        press(page, "from-yaml")
        assert page.input_value("#f-blocks") == "4"
        assert page.input_value("#f-name") == "Half filled"
        wait_for_preview(page, "16 starts of the server")
        page.click("text=From a YAML file")
        page.set_input_files("#f-file", str(ROOT / "demo" / "experiment.yaml"))
        page.click("text=Read it")
        settled(page)
        assert page.input_value("#f-name") == "Demo pair on this machine"
        page.click("text=Undo")
        settled(page)
        assert page.input_value("#f-name") == "Half filled"
        assert someone.complaints == []


# --- sent twice, sent logged out ---


def test_a_double_click_makes_one_experiment(live_server):
    with visitor(live_server.url, 1280) as someone:
        someone.go(NEW)
        wait_for_preview(someone.page, "20 starts of the server")
        someone.page.dblclick("#do-submit")
        someone.page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        someone.page.go_back()
        someone.page.wait_for_selector("#do-submit")
        assert someone.complaints == []
    assert len(stored()) == 1


def log_out_elsewhere() -> None:
    in_thread(lambda: Session.objects.all().delete())


def test_a_session_that_ended_meanwhile_loses_nothing(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        wait_for_preview(page, "20 starts of the server")
        log_out_elsewhere()
        page.fill("#f-name", "Typed while logged out")
        until(page, "document.getElementById('form-notice').textContent.includes('Your session ended')")
        assert "password" not in page.inner_html("#preview").lower()
        press(page, "add-arms")
        page.click("#do-resume")
        page.wait_for_selector("text=Your session ended meanwhile")
        page.fill("[name=username]", "owner")
        page.fill("[name=password]", PASSWORD)
        page.click("text=Log in and go on")
        page.wait_for_selector("#do-submit")
        assert page.input_value("#f-name") == "Typed while logged out"
        wait_for_preview(page, "20 starts of the server")
        page.click("#do-submit")
        page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        # That one page is refused by its status, and says what to do.
        assert [c for c in someone.complaints if "403" not in c] == []
    assert stored()[0].name == "Typed while logged out"


def test_a_reload_offers_what_was_typed(live_server):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(NEW)
        page.fill("#f-name", "Typed before the reload")
        press(page, "add-arms")
        page.fill("#f-arms-4-name", "fifth")
        page.wait_for_timeout(700)
        settled(page)
        someone.go(NEW)
        page.click("#draft-notice >> text=Take it up")
        page.wait_for_selector("#f-arms-4-name")
        assert page.input_value("#f-name") == "Typed before the reload"
        assert page.input_value("#f-arms-4-name") == "fifth"
        press(page, "remove-arms-4")
        wait_for_preview(page, "20 starts of the server")
        page.click("#do-submit")
        page.wait_for_url(re.compile(r"/experiments/[0-9a-f-]{36}/"))
        someone.go(NEW)
        settled(page)
        assert not page.is_visible("#draft-notice")  # it was submitted
        assert someone.complaints == []


def test_without_javascript_every_step_works(live_server):
    with visitor(live_server.url, 390, java_script_enabled=False) as someone:
        page = someone.page
        someone.go(NEW)
        page.fill("#f-name", "No script")
        page.click("#do-remove-arms-3")
        assert page.locator(".form-row.arms").count() == 3
        page.click("#do-preview")
        assert "15 starts of the server" in page.inner_text("#preview")
        page.click("#do-to-yaml")
        page.click("#do-from-yaml")
        page.click("#do-submit")
        assert "No script" in page.inner_text("main")
    assert stored()[0].name == "No script"


# --- looks and access ---


def serious(someone: Visitor) -> list[str]:
    found = Axe().run(someone.page).response["violations"]
    return [f"{v['id']}: {n['target']}" for v in found if v["impact"] in ("serious", "critical") for n in v["nodes"]]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])
def test_the_form_fits_and_is_accessible_in_each_state(live_server, width, scheme):
    with visitor(live_server.url, width, scheme) as someone:
        page = someone.page

        def good(state: str) -> None:
            settled(page)
            assert someone.sideways() <= 0, state
            assert serious(someone) == [], state

        someone.go(NEW)
        wait_for_preview(page, "20 starts of the server")
        good("new")
        page.evaluate("document.querySelectorAll('main details').forEach(e => { e.open = true; })")
        good("all opened")
        press(page, "add-engine-extra")
        page.fill("#f-engine-extra-0-flag", "--" + "x" * 90)
        press(page, "add-placement-labels")
        assert page.is_visible("#f-arms-1-sweep")  # what was opened stays open
        page.fill("#f-name", "n" * 300)
        page.fill("#f-arms-1-draft_limit", "0")
        press(page, "preview")
        good("faults")
        press(page, "to-yaml")
        good("yaml")
        log_out_elsewhere()
        page.fill("#f-yaml", page.input_value("#f-yaml") + "\n")
        until(page, "document.getElementById('form-notice').textContent.includes('Your session ended')")
        good("logged out")
        page.click("#do-resume")
        page.wait_for_selector("text=Your session ended meanwhile")
        assert someone.sideways() <= 0
        assert serious(someone) == []
        assert [c for c in someone.complaints if "403" not in c] == []


def test_who_may_not_submit_has_no_way_in(live_server):
    with visitor(live_server.url, 390, user="mate") as someone:
        assert someone.page.locator("nav >> text=New experiment").count() == 0
        someone.go(NEW)
        assert "ask owner" in someone.page.inner_text("main")
        assert serious(someone) == []
    assert reverse("experiment-new") == NEW
