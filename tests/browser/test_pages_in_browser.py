"""Pages in a real browser: nothing breaks the content policy, the plot is drawn for its width, nothing scrolls sideways."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from specweb.experiments.models import Job
from tests.browser.visitors import CHROMIUM, draw_all, in_thread, until, visitor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_every_page_is_clean_and_fits(live_server, run, width, scheme):
    attempt, job = run.attempts[1].id, run.job.id
    paths = [
        "/",
        reverse("experiment", args=[run.experiment.id]),
        reverse("numbers", args=[job]) + "?arm=draft-3&point=count/c1/ctx0/t0#acceptance_rate",
        reverse("evidence-list", args=[job]),
        reverse("attempt", args=[attempt]),
        reverse("evidence", args=[attempt, "server.log"]) + "?line=30#L30",
        reverse("evidence", args=[attempt, "records.jsonl"]) + "?line=2&field=final.timings.draft_n#L2",
        reverse("evidence", args=[attempt, "launch.json"]) + "?field=healthy_after_s",
    ]
    with visitor(live_server.url, width, scheme) as someone:
        for path in paths:
            someone.go(path)
            if someone.page.query_selector("#forest"):
                draw_all(someone.page)
                someone.page.click("details.integrity summary")
            assert someone.sideways() <= 0, path
        assert someone.complaints == []


def test_the_plot_has_every_arm_with_its_interval_and_follows_the_width(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        draw_all(page)
        rows = page.locator("table.comparison").first.locator("tbody tr:not(.group):not(.baseline)").count()
        assert rows == 9
        assert page.locator("#forest .scatterlayer path.point").count() == rows
        assert page.locator("#forest .errorbars path.xerror").count() == rows
        wide = page.evaluate("document.querySelector('#forest .main-svg').clientWidth")
        page.set_viewport_size({"width": 390, "height": 900})
        until(page, f"document.querySelector('#forest .main-svg').clientWidth < {wide}")
        assert page.evaluate("document.querySelector('#forest .main-svg').clientWidth") <= 390 - 2 * 16
        assert someone.sideways() <= 0
        smallest = page.evaluate(
            "Math.min(...[...document.querySelectorAll('#forest text')].map(t => parseFloat(getComputedStyle(t).fontSize)))"
        )
        assert smallest >= 11  # drawn anew, not shrunk
        assert someone.complaints == []


@pytest.mark.parametrize("width", [1280, 390])
def test_what_can_be_done_with_an_experiment_stands_together_and_apart_from_the_text(live_server, run, width):
    with visitor(live_server.url, width) as someone:
        someone.go(reverse("experiment", args=[run.experiment.id]))
        copy, again = (someone.page.locator(".head a.button", has_text=t).bounding_box() for t in ("Copy as new", "Reproduce"))
        about = someone.page.locator("p.meta").first.bounding_box()
        assert about["y"] >= again["y"] + again["height"] + 6
        if width == 1280:
            assert copy["y"] == again["y"]


def test_the_plot_comes_after_the_first_paint(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        someone.go(reverse("experiment", args=[run.experiment.id]))
        draw_all(someone.page)
        paint = someone.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        script = someone.page.evaluate("performance.getEntriesByType('resource').find(e => e.name.includes('plotly')).startTime")
        assert script > paint


def test_a_point_of_the_plot_and_a_number_lead_to_evidence(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        draw_all(page)
        page.locator("#forest").scroll_into_view_if_needed()
        box = page.locator("#forest path.point").first.bounding_box()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_selector("#forest .hoverlayer .hovertext")
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_url("**/numbers?**")
        page.locator("section[aria-labelledby=probes] a.n").first.click()
        page.wait_for_url(re.compile(r"/evidence/records\.jsonl\?line=\d+.*#L\d+$"))
        marked = page.locator("li.hit[id]")
        assert marked.count() == 1
        assert page.evaluate("document.querySelector(':target') === document.querySelector('li.hit')")
        assert 0 <= marked.bounding_box()["y"] <= 900
        assert someone.complaints == []


def test_without_javascript_the_numbers_are_there(live_server, run):
    with visitor(live_server.url, 1280, java_script_enabled=False) as someone:
        someone.go(reverse("experiment", args=[run.experiment.id]))
        assert someone.page.locator("table.comparison a.n").count() > 50
        assert "needs JavaScript" in someone.page.inner_text("main")


def test_progress_comes_without_a_reload_and_the_answer_with_one(live_server, running):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[running.experiment.id]))
        page.evaluate("window.stayed = true")
        assert "2 of 12 trials done" in page.inner_text("#progress")
        in_thread(lambda: Job.objects.update(progress={"job_id": str(running.job.id), "lease": 1, "trial": running.plan.trials[2].id}))
        page.wait_for_selector("#progress .trial.running", timeout=15_000)
        assert page.evaluate("window.stayed")
        in_thread(lambda: Job.objects.update(state="completed"))
        until(page, "!window.stayed")
        page.wait_for_selector("#progress[data-state=completed]")
        assert someone.complaints == []


def test_what_a_check_found_is_in_sight_on_a_phone(live_server, run):
    with visitor(live_server.url, 390) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.click(".integrity > summary")
        edges = page.evaluate("[...document.querySelectorAll('.integrity .checks td')].map(e => e.getBoundingClientRect().right)")
        assert edges
        assert max(edges) <= 390


def test_a_keyboard_reaches_content_and_wide_tables(live_server, run):
    with visitor(live_server.url, 390) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        assert page.evaluate(
            "[...document.querySelectorAll('.scroll')].every(e => e.tabIndex === 0 && e.getAttribute('role') === 'region')"
        )
        assert page.evaluate("[...document.querySelectorAll('th')].every(e => e.scope)")
        assert page.evaluate("document.querySelectorAll('h1').length") == 1
