"""What a browser fetches until it first paints a page: little, and the library that draws comes later."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from tests.web import sample

pytestmark = pytest.mark.django_db
#: Bytes, compressed.
MOST = 150_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """Static file → its size as it is served in production, compressed and under a name that changes with its content."""
    root = tmp_path_factory.mktemp("static")
    environment = os.environ | {"SPECWEB_STATIC_ROOT": str(root), "SPECWEB_STATIC_FROM_SOURCE": "0", "DEBUG": "0"}
    command = [sys.executable, "manage.py", "collectstatic", "--no-input", "--verbosity=0"]
    subprocess.run(command, check=True, cwd=settings.BASE_DIR, env=environment)
    named = json.loads((root / "staticfiles.json").read_text())["paths"]
    return {name: _least(root / hashed) for name, hashed in named.items()}


def _least(file: Path) -> int:
    """Files that don't shrink have no compressed twin."""
    twin = file.with_name(file.name + ".gz")
    return (twin if twin.exists() else file).stat().st_size


def fetched(html: str) -> set[str]:
    """Static files that the page names: styles, scripts, pictures; not what a script fetches when it draws."""
    return set(re.findall(rf'<(?:link|script|img)\b[^>]*(?:href|src)="{settings.STATIC_URL}([^"?]+)"', html))


def test_the_first_paint_needs_little_and_no_plot_library(db: None, served: dict[str, int]) -> None:
    who = sample.people()
    run = sample.finished(who.team, who.owner)
    client = Client(headers={"Accept-Encoding": "gzip"})
    client.force_login(who.owner)
    for page in ("/", "/compare/", f"/experiments/{run.experiment.pk}/"):
        answer = client.get(page)
        assert answer.headers["Content-Encoding"] == "gzip"
        files = fetched(gzip.decompress(answer.content).decode())
        assert "specweb/site.css" in files
        assert not any("plotly" in name for name in files), page
        sizes = {name: served[name] for name in files}
        assert len(answer.content) + sum(sizes.values()) < MOST, (page, len(answer.content), sizes)
    assert served["vendor/plotly.min.js"] > MOST  # what would be fetched too, were it named


def test_only_whole_pages_are_compressed(db: None) -> None:
    who = sample.people()
    run = sample.finished(
        who.team, who.owner, sample.spec(arms=sample.spec().model_dump(mode="json")["arms"][:2], points=[{"workload": "count"}], blocks=3)
    )
    client = Client(headers={"Accept-Encoding": "gzip"})
    client.force_login(who.owner)
    raw = client.get(f"/attempts/{run.attempts[0].pk}/raw/records.jsonl", headers={"Range": "bytes=0-99"})
    assert raw.headers.get("Content-Encoding") in (None, "identity")
    running = client.get("/running")
    assert "Content-Encoding" not in running.headers
    assert not running.headers["ETag"].startswith("W/")
