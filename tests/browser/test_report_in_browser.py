"""The report of an experiment in a real browser: one button copies it, one link downloads it, and the link works without scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.urls import reverse

from tests.browser.visitors import CHROMIUM, until, visitor

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def test_what_is_copied_is_what_is_downloaded(live_server, run):
    with visitor(live_server.url, 390, "dark") as someone:
        page = someone.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        someone.go(reverse("experiment", args=[run.experiment.id]))
        button = page.get_by_role("button", name="Copy report")
        button.focus()
        page.keyboard.press("Enter")
        until(page, "[...document.querySelectorAll('.buttons button')].some(b => b.textContent === 'Copied')")
        copied = page.evaluate("navigator.clipboard.readText()")
        assert copied.startswith("## Demo pair\n")
        assert reverse("experiment", args=[run.experiment.id]) in copied
        with page.expect_download() as download:
            page.get_by_role("link", name="Report.md").click()
        assert download.value.suggested_filename == "Demo-pair-report.md"
        assert Path(download.value.path()).read_text() == copied
        assert someone.complaints == []
        assert someone.sideways() <= 0


def test_without_scripts_the_report_can_be_downloaded(live_server, run):
    with visitor(live_server.url, 1280, java_script_enabled=False) as someone:
        page = someone.page
        someone.go(reverse("experiment", args=[run.experiment.id]))
        assert page.get_by_role("button", name="Copy report").count() == 0
        with page.expect_download() as download:
            page.get_by_role("link", name="Report.md").click()
        assert Path(download.value.path()).read_text().startswith("## Demo pair\n")
