"""Pages in a real browser: nothing breaks the content policy, the plot is drawn for its width, nothing scrolls sideways."""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from django.db import connections
from django.urls import reverse
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, sync_playwright
from playwright.sync_api import Error as PlaywrightError

from specweb.experiments.models import Job
from tests.web import sample

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
PASSWORD = "a long enough password"
WATCH = "addEventListener('securitypolicyviolation', e => console.error('violation', e.violatedDirective, e.blockedURI, e.sample))"

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people(PASSWORD)


@pytest.fixture
def run(people) -> sample.Run:
    return sample.finished(people.team, people.owner, sample.spec(blocks=3))


@pytest.fixture
def running(people) -> sample.Run:
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(blocks=3)), host)
    sample.play(run, n_trials=2)
    return run


class Visitor:
    """A logged-in browser that keeps every complaint of the console and every request that leaves the site."""

    def __init__(self, context: BrowserContext, site: str) -> None:
        self.site, self.complaints = site, []
        context.add_init_script(WATCH)
        self.page: Page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("requestfailed", lambda request: self.complaints.append(f"failed: {request.url}"))
        self.page.on("request", lambda request: request.url.startswith(site) or self.complaints.append(f"left the site: {request.url}"))
        self.page.on("response", lambda response: response.status < 400 or self.complaints.append(f"{response.status}: {response.url}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def log_in(self) -> None:
        self.go("/login/")
        self.page.fill("[name=username]", "owner")
        self.page.fill("[name=password]", PASSWORD)
        self.page.click("button.button")
        self.page.wait_for_url(self.site + "/")

    def go(self, path: str) -> None:
        self.page.goto(self.site + path)

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@contextmanager
def visitor(site: str, width: int, scheme: str = "light", **options: object) -> Iterator[Visitor]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        someone = Visitor(context, site)
        someone.log_in()
        yield someone
        browser.close()


def until(page: Page, expression: str, seconds: float = 15) -> None:
    """Waits for a condition of the page by asking; Playwright's own waiting compiles text, which the content policy forbids."""
    for _ in range(int(seconds * 10)):
        with suppress(PlaywrightError):  # a reload took the page away under the question
            if page.evaluate(expression):
                return
        page.wait_for_timeout(100)
    raise AssertionError(f"never came true: {expression}")


def in_thread(work: Callable[[], object]) -> None:
    """Database work while a browser is open: its event loop owns this thread, where Django refuses to work."""

    def body() -> None:
        try:
            work()
        finally:
            connections.close_all()

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


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
                someone.page.wait_for_selector("#forest[data-drawn]")
                someone.page.click("details.integrity summary")
            assert someone.sideways() <= 0, path
        assert someone.complaints == []


def test_the_plot_has_every_arm_with_its_interval_and_follows_the_width(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.wait_for_selector("#forest[data-drawn]")
        rows = page.locator("table.comparison tbody tr:not(.group):not(.baseline)").count()
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


def test_the_plot_comes_after_the_first_paint(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        someone.go(reverse("experiment", args=[run.experiment.id]))
        someone.page.wait_for_selector("#forest[data-drawn]")
        paint = someone.page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        script = someone.page.evaluate("performance.getEntriesByType('resource').find(e => e.name.includes('plotly')).startTime")
        assert script > paint


def test_a_point_of_the_plot_and_a_number_lead_to_evidence(live_server, run):
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        page.wait_for_selector("#forest[data-drawn]")
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
