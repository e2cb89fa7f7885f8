"""How far drafts are accepted, on the page of an experiment and on the page behind its numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specweb.results.page_queries import newest_analysis
from tests.web import sample
from tests.web.pages import as_user, small
from tests.web.test_pages import every_page

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _evidence_folder(settings, tmp_path: Path) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path


@pytest.fixture
def people() -> sample.People:
    return sample.people()


def test_both_pages_name_the_second_token_and_show_each_position(people: sample.People) -> None:
    run = small(people)
    (found,) = newest_analysis(run.job).comparisons
    shares = [f"{100 * share:.0f}" for share in found.accepted_by_position]
    assert len(shares) == 3
    client = as_user(people.owner)
    pages = {name: client.get(every_page(run)[name]).content.decode() for name in ("experiment", "numbers")}
    assert f">{' '.join(shares)}</a>" in pages["experiment"]
    rows = re.findall(r'<tr><th scope="row">(\d)( <small>second token</small>)?</th><td class="num">(\d+)</td>', pages["numbers"])
    assert rows == [(str(n), " <small>second token</small>" if n == 1 else "", share) for n, share in enumerate(shares, 1)]
    for page in pages.values():
        assert "acceptance of the second token that papers on multi-token prediction quote" in page
        assert "(conditional_by_position/1)" in page
