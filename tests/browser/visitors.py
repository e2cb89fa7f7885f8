"""A browser with somebody logged in, and what tests ask of it."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from django.db import connections
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Playwright, sync_playwright
from playwright.sync_api import Error as PlaywrightError

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


class Visitor:
    """A logged-in browser that keeps every complaint of the console and every request that leaves the site."""

    def __init__(self, context: BrowserContext, site: str) -> None:
        self.site, self.complaints = site, []
        context.add_init_script(WATCH)
        self.page: Page = context.new_page()
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        # A request that the page itself gave up, for a newer one or because it was left, did not fail.
        self.page.on("requestfailed", lambda r: r.failure == "net::ERR_ABORTED" or self.complaints.append(f"failed: {r.url}, {r.failure}"))
        self.page.on(
            "request",
            lambda request: request.url.removeprefix("blob:").startswith(site) or self.complaints.append(f"left the site: {request.url}"),
        )
        self.page.on("response", lambda response: response.status < 400 or self.complaints.append(f"{response.status}: {response.url}"))

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text}")

    def log_in(self, user: str) -> None:
        self.go("/login/")
        self.page.fill("[name=username]", user)
        self.page.fill("[name=password]", PASSWORD)
        self.page.click("button.button")
        self.page.wait_for_url(self.site + "/")

    def go(self, path: str) -> None:
        self.page.goto(self.site + path)

    def sideways(self) -> int:
        """Pixels by which the page is wider than the window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")


@dataclass
class _Shared:
    """One browser for the tests of a module: a start of it costs more than most of them."""

    playwright: Playwright | None = None
    browser: Browser | None = None

    def started(self) -> Browser:
        if self.browser is None or not self.browser.is_connected():
            self.close()
            self.playwright = sync_playwright().start()
            self.browser = self.playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        return self.browser

    def close(self) -> None:
        if self.browser is not None:
            self.browser.close()
        if self.playwright is not None:
            self.playwright.stop()
        self.browser = self.playwright = None


shared = _Shared()


@contextmanager
def visitor(site: str, width: int, scheme: str = "light", user: str = "owner", **options: object) -> Iterator[Visitor]:
    """Somebody with cookies, storage and cache of their own."""
    browser = shared.started()
    try:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, **options)
        someone = Visitor(context, site)
        someone.log_in(user)
        yield someone
    finally:
        for context in browser.contexts:
            context.close()


def until(page: Page, expression: str, seconds: float = 15) -> None:
    """Waits for a condition of the page by asking; Playwright's own waiting compiles text, which the content policy forbids."""
    for _ in range(int(seconds * 10)):
        with suppress(PlaywrightError):  # a reload took the page away under the question
            if page.evaluate(expression):
                return
        page.wait_for_timeout(100)
    raise AssertionError(f"never came true: {expression}")


def open_all(page: Page) -> None:
    """Opens whatever the page folds away."""
    page.evaluate("document.querySelectorAll('main details').forEach(e => { e.open = true; })")


def draw_all(page: Page) -> list[str]:
    """Brings every chart of the page near, so that it is drawn, or says why not; the ids of their places."""
    names: list[str] = page.evaluate("[...document.querySelectorAll('[data-chart]')].filter(e => e.checkVisibility()).map(e => e.id)")
    for name in names:
        page.locator(f"[id='{name}']").scroll_into_view_if_needed()
        until(page, f"(e => e.dataset.drawn || e.dataset.said)(document.getElementById('{name}'))")
    page.evaluate("scrollTo(0, 0)")
    return names


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
