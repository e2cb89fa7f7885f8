"""Charts of Compare in a browser: drawn for the width and theme, saved as files, with their tables, by keyboard and without JavaScript."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from specweb.results.models import Listing
from tests.browser.visitors import CHROMIUM, Visitor, draw_all, until, visitor
from tests.web import charted, sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
CHARTS = ["worth", "by-limit", "memory-bill"]


@pytest.fixture
def measured(people) -> None:
    charted.limits(people, sample.host_with_inventory(people.team))
    charted.limits(people, charted.card_host(people.team, "odd", charted.LONG), (1.2, 0.9, 0.7), change=charted.on_card(3000, 3600))


def saved(page: Page, name: str, kind: str, folder: Path) -> tuple[str, bytes]:
    with page.expect_download() as download:
        page.locator(f"section:has(> #{name}) [data-save={kind}]").click()
    path = folder / f"{name}.{kind}"
    download.value.save_as(path)
    return download.value.suggested_filename, path.read_bytes()


def ground(page: Page) -> str:
    return page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--bg').trim()")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_charts_come_with_the_page_follow_theme_and_width_and_are_saved_as_they_are(live_server, measured, tmp_path, width, scheme):
    with visitor(live_server.url, width, scheme) as someone:
        page = someone.page
        someone.go("/compare/")
        page.locator("#charts").scroll_into_view_if_needed()
        until(page, "document.getElementById('charts').dataset.came")
        assert [name for name in draw_all(page) if name != "forest"] == CHARTS
        assert someone.sideways() <= 0
        for name in ["forest", *CHARTS]:
            texts = page.evaluate(
                f"[...document.querySelectorAll('#{name} text')].map(t => [parseFloat(getComputedStyle(t).fontSize), t.getBoundingClientRect().right])"
            )
            assert min(size for size, _ in texts) >= 11, name  # drawn for the width, not shrunk
            assert max(right for _, right in texts) <= width, name  # and no label is cut by the edge
            file, png = saved(page, name, "png", tmp_path)
            assert re.fullmatch(r"specweb-[a-z0-9-]+\.png", file)
            assert png.startswith(b"\x89PNG\r\n")
            drawn_width = page.evaluate(f"document.getElementById('{name}').clientWidth")
            assert int.from_bytes(png[16:20], "big") == 2 * (drawn_width + 32)
            assert 4_000 < len(png) < 2_000_000
            file, svg = saved(page, name, "svg", tmp_path)
            assert re.fullmatch(r"specweb-[a-z0-9-]+\.svg", file)
            assert svg.startswith(b"<svg")
            assert svg.endswith(b"</svg>")
            assert svg.count(b"<path") > 3
            assert f"{live_server.url.partition('//')[2]}/compare/".encode() in svg  # where it comes from
        before = ground(page)
        page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
        until(page, f"getComputedStyle(document.documentElement).getPropertyValue('--bg').trim() !== '{before}'")
        ink = page.evaluate("getComputedStyle(document.documentElement).getPropertyValue('--ink').trim()")
        until(
            page,
            f"document.querySelector('#by-limit .annotation text').style.fill === (s => {{ const e = new Option().style; e.color = '{ink}'; return e.color; }})()",
        )
        page.set_viewport_size({"width": 700, "height": 900})
        until(
            page,
            "Math.abs(document.querySelector('#by-limit .main-svg').clientWidth - document.getElementById('by-limit').clientWidth) <= 1",
        )
        assert someone.sideways() <= 0
        assert someone.complaints == []


def test_by_keyboard_through_the_tables_to_the_files_and_to_two_rows(live_server, measured):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go("/compare/")
        stops: list[str] = []

        def tab_to(condition: str) -> None:
            for _ in range(120):
                page.keyboard.press("Tab")
                stops.append(page.evaluate("document.activeElement.outerHTML.slice(0, 60)"))
                if page.evaluate(f"(e => {condition})(document.activeElement)"):
                    return
            raise AssertionError(f"not reached: {condition}; {stops[-20:]}")

        tab_to("e.id === 'f-target'")
        draw_all(page)
        tab_to("e.dataset.save === 'png'")
        with page.expect_download() as download:
            page.keyboard.press("Enter")
        assert download.value.suggested_filename.endswith(".png")
        for _ in range(2):
            tab_to("e.name === 'row'")
            page.keyboard.press("Space")
        tab_to("e.textContent === 'Are these two comparable?'")
        page.keyboard.press("Enter")
        page.wait_for_url("**/compare/two/**")
        assert "The ratios:" in page.inner_text("main")
        page.go_back()
        page.locator("#charts").scroll_into_view_if_needed()
        until(page, "document.getElementById('charts').dataset.came")
        page.focus("#charts summary")
        page.keyboard.press("Enter")
        assert page.locator("#charts details[open] table").first.is_visible()
        assert someone.complaints == []


def test_without_javascript_the_tables_stand_on_a_page_of_their_own(live_server, measured):
    with visitor(live_server.url, 1280) as someone:
        browser = someone.page.context.browser
        assert browser
        plain = Visitor(browser.new_context(viewport={"width": 390, "height": 900}, java_script_enabled=False), live_server.url)
        plain.log_in("owner")
        plain.go("/compare/")
        plain.page.click("#charts a")
        plain.page.wait_for_url("**/compare/charts/")
        assert plain.page.locator(".chart-save:visible").count() == 0
        for summary in plain.page.locator(".chart-table > summary").all():
            summary.click()
        assert plain.page.locator(".chart-table table:visible").count() == len(CHARTS)
        assert "The plot needs JavaScript" in plain.page.inner_text("main")
        assert plain.page.locator("main").evaluate("e => e.scrollWidth") <= 390


def test_a_history_is_drawn_with_its_changes_at_any_width(live_server, people):
    host = sample.host_with_inventory(people.team)
    for days in (3, 2, 1):
        charted.run(people, host, {"off": 1.0, "draft-4": 1 + days / 10}, days=days)
    newest = Listing.objects.latest("measured_at")
    Listing.objects.filter(pk=newest.pk).update(build="b11800 (aaaaaaa)")
    with visitor(live_server.url, 390, "dark") as someone:
        page = someone.page
        someone.go("/compare/")
        page.click("text=history")
        page.wait_for_url("**/compare/history/**")
        draw_all(page)
        assert page.locator("#history path.point").count() == 3
        assert page.locator("#history .annotation", has_text=re.compile(r"^1$")).count() == 1
        assert someone.sideways() <= 0
        page.set_viewport_size({"width": 1280, "height": 900})
        until(page, "document.querySelector('#history .main-svg').clientWidth > 900")
        assert "b11800" in page.inner_text("#history")
        assert someone.complaints == []
