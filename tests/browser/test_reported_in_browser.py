"""What other tools report, in a real browser: dropped, mapped, imported without JavaScript and on a phone; beside Compare by a second request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from specweb.reported.models import Report
from specweb.reported.services import About, import_file
from tests.browser.visitors import CHROMIUM, in_thread, visitor
from tests.imports.recorded import FILES, content
from tests.web import sample
from tests.web.test_reported import community

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(not CHROMIUM, reason="no chromium: apt-get install --no-install-recommends chromium, or set CHROMIUM to its path"),
]
DROP = """([place, name, text]) => {
  const carried = new DataTransfer();
  carried.items.add(new File([text], name));
  const event = new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true });
  document.querySelector(place).dispatchEvent(event);
  return document.querySelector(`${place} input`).files[0]?.name;
}"""


def test_a_table_without_javascript_on_a_phone(live_server: Any, people: Any, tmp_path: Path) -> None:
    long = tmp_path / ("table-" + "long" * 30 + ".csv")
    long.write_bytes(content("community.csv").replace(b"Arc A770", "بطاقة 🦙 ".encode() + b"A770" * 30))
    with visitor(live_server.url, 390, java_script_enabled=False) as someone:
        page = someone.page
        someone.go("/reported/")
        page.click("text=Import a file")
        page.set_input_files("#r-file", long)
        page.check("#r-public-table")
        page.click("form.upload .button")
        assert "source_url" in page.inner_text("main")
        page.set_input_files("#r-file", long)
        page.fill("#r-source", "https://example.org/" + "x" * 200)
        page.click("form.upload .button")
        assert page.input_value("#as-0") == "hardware"
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        page.click("text=See the rows")
        page.click("text=Import 4 runs")
        assert "Imported 4 runs" in page.inner_text("main")
        assert "0.56–0.94" in page.inner_text("main")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert [c for c in someone.complaints if "400" not in c] == []


def test_a_file_is_dropped_and_imported(live_server: Any, people: Any) -> None:
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        someone.go("/reported/new")
        text = (FILES / "vllm-0.32-ngram.json").read_text()
        assert page.evaluate(DROP, [".drop", "dropped.json", text]) == "dropped.json"
        page.click("form.upload .button")
        page.click("text=Import >> nth=-1")
        page.wait_for_url("**/reported/*-*/")
        assert "66.667" in page.inner_text("main")
        assert someone.complaints == []
    in_thread(lambda: _is_stored("dropped.json"))


def _is_stored(name: str) -> None:
    assert Report.objects.get().file_name == name


def test_compare_asks_for_it_after_the_page(live_server: Any, people: Any) -> None:
    sample.finished(people.team, people.owner, sample.spec(blocks=3))
    community(people)
    assert import_file(content("llama-bench-b11434.json"), people.team, people.owner, About()).created
    with visitor(live_server.url, 1280) as someone:
        page = someone.page
        for name in ("compare", "hardware"):
            someone.go(reverse(name))
            assert "Reported elsewhere" in page.inner_text("main")
            page.locator("#beside").scroll_into_view_if_needed()
            page.wait_for_selector(".beside li")
            assert "10 runs that other tools" in page.inner_text(".beside-place")
        someone.go(reverse("model", args=["b" * 64]))
        page.locator("#beside").scroll_into_view_if_needed()
        page.wait_for_selector(".beside-place >> text=No imported file")
        assert someone.complaints == []
