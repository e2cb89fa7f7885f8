"""Own workloads in a real browser: uploaded with faults and without, read, offered in the form, shared; no JavaScript, by keyboard, on a phone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from specweb.experiments.models import Workload
from tests.browser.visitors import CHROMIUM, in_thread, visitor
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]


def write(path: Path, *more: str) -> Path:
    lines = [json.dumps({"prompt": f"{n}. Summarise what the customer wants, in one sentence: the parcel was wet."}) for n in range(30)]
    path.write_text("\n".join([*lines, *more]))
    return path


def test_without_javascript_on_a_phone_from_a_faulty_file_to_a_shared_workload(live_server: Any, people: Any, tmp_path: Path) -> None:
    sample.host_with_inventory(people.team)
    with visitor(live_server.url, 390, java_script_enabled=False) as someone:
        page = someone.page
        someone.go("/workloads/")
        page.click("text=Upload prompts")
        page.fill("#w-name", "tickets")
        page.fill("#w-title", "تذاكر 🦙 " + "long " * 20)
        page.set_input_files(
            "#w-file", write(tmp_path / "bad.jsonl", '{"prompt": NaN}', '{"promt": "<i>"}', '{"prompt": "' + "x" * 5000 + '", "id": 3}')
        )
        page.click("form.upload .button")
        assert "3 things to correct in bad.jsonl" in page.inner_text("main")
        assert page.input_value("#w-name") == "tickets"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.set_input_files("#w-file", write(tmp_path / "good.jsonl"))
        page.click("form.upload .button")
        assert "Stored as tickets@1" in page.inner_text("main")
        assert "about 1" in page.inner_text("main")
        page.click("ol.items summary >> nth=0")
        assert "the parcel was wet" in page.inner_text("ol.items li >> nth=0")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.click("text=Share with the team")
        assert "tickets@1 is shared" in page.inner_text("main")
        someone.go("/experiments/new")
        assert "tickets" in page.inner_html("select[name='points-0-workload'], [name*='workload']")
        assert [c for c in someone.complaints if "400" not in c] == []


def test_by_keyboard_alone(live_server: Any, people: Any) -> None:
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go("/workloads/new")
        page.focus("#w-name")
        page.keyboard.type("mine")
        for _ in range(4):
            page.keyboard.press("Tab")
        _to(page, "w-text")
        page.keyboard.insert_text("\n".join(json.dumps({"prompt": f"{n} of a kind"}) for n in range(4)))
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**/workloads/*/")
        assert "4 " not in page.inner_text("h1")
        assert someone.complaints == []
    in_thread(lambda: _is_private("mine"))


def _to(page: Page, element: str) -> None:
    for _ in range(4):
        if page.evaluate("document.activeElement.id") == element:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab never came to {element}")


def _is_private(name: str) -> None:
    assert Workload.objects.get(name=name).private
