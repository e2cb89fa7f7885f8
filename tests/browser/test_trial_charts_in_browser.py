"""The charts of a trial and of an experiment in a real browser: drawn for their width, with tables and files, steps by permalink."""

from __future__ import annotations

import pytest
from django.urls import reverse

from tests.browser.visitors import CHROMIUM, Visitor, draw_all, in_thread, until, visitor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
OF_TRIAL = ["samples", "stream", "cycles"]
OF_EXPERIMENT = ["time-split", "memory-bill", "order-of-starts"]


def fits(someone: Visitor, names: list[str]) -> None:
    """Each chart is as wide as its place, and no word stands outside of it or is too small to read."""
    for name in names:
        told = someone.page.evaluate(
            """name => {
              const place = document.getElementById(name), box = place.querySelector(".main-svg").getBoundingClientRect();
              const texts = [...place.querySelectorAll("text")].filter(t => t.textContent.trim() && t.getBBox().width);
              return {
                wide: box.width - place.clientWidth,
                outside: texts.filter(t => { const r = t.getBoundingClientRect(); return r.left < box.left - 1 || r.right > box.right + 1; }).map(t => t.textContent),
                smallest: Math.min(...texts.map(t => parseFloat(getComputedStyle(t).fontSize))),
              };
            }""",
            name,
        )
        assert abs(told["wide"]) <= 1, name
        assert told["outside"] == [], name
        assert told["smallest"] >= 11, name


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_chart_is_drawn_for_its_width_with_its_table(live_server, run, width, scheme):
    attempt = run.attempts[next(i for i, t in enumerate(run.plan.trials) if t.arm == "draft-3")]
    with visitor(live_server.url, width, scheme) as someone:
        page = someone.page
        for path, names in (
            (reverse("attempt", args=[attempt.id]), OF_TRIAL),
            (reverse("experiment", args=[run.experiment.id]), OF_EXPERIMENT),
        ):
            someone.go(path)
            assert set(names) <= set(draw_all(page))
            fits(someone, names)
            assert someone.sideways() <= 0
        assert page.locator("#time-split .barlayer path").count() > 12 * 3  # arms × works, in parts, twice
        assert page.locator("#order-of-starts .scatterlayer path.point").count() == len(run.plan.trials)
        behind = page.locator("section.chart:has(#order-of-starts) details.chart-table")
        behind.locator("summary").click()
        assert behind.locator("tbody tr").count() == len(run.plan.trials)
        assert someone.complaints == []


def test_a_request_is_chosen_with_the_keyboard_and_a_permalink_shows_it_again(live_server, run):
    attempt = run.attempts[next(i for i, t in enumerate(run.plan.trials) if t.arm == "draft-3")]
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("attempt", args=[attempt.id]))
        draw_all(page)
        page.focus("#probe")
        page.keyboard.press("End")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**probe=*")
        chosen = page.eval_on_selector("#probe", "s => s.options[s.selectedIndex].textContent")
        draw_all(page)
        said = page.locator("section.chart:has(#cycles) .plot-note").inner_text()
        address = page.url.removeprefix(live_server.url)
        with page.expect_download() as saved:
            page.click("section.chart:has(#cycles) button[data-save=svg]")
        assert saved.value.suggested_filename.endswith(".svg")
        assert "draft-3" in saved.value.suggested_filename
        assert someone.complaints == []
    with visitor(live_server.url, 390, user="mate") as another:
        another.go(address)
        draw_all(another.page)
        assert another.page.eval_on_selector("#probe", "s => s.options[s.selectedIndex].textContent") == chosen
        assert another.page.locator("section.chart:has(#cycles) .plot-note").inner_text() == said
        assert another.complaints == []


def test_a_chart_without_evidence_is_a_sentence(live_server, run):
    attempt = run.attempts[1]
    in_thread(lambda: attempt.evidence.get(name="samples.jsonl").delete())
    with visitor(live_server.url, 390) as someone:
        someone.go(reverse("attempt", args=[attempt.id]) + "?probe=1")
        page = someone.page
        assert "left no samples.jsonl" in page.inner_text("section.chart:has(#h-samples)")
        page.locator("#cycles").scroll_into_view_if_needed()
        until(page, "document.getElementById('cycles').dataset.drawn || document.querySelector('#cycles .plot-note')")
        assert someone.complaints == []
