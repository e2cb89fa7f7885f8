"""Pages: who sees them, that numbers lead to evidence, that states are told, that nothing grows with the trials."""

from __future__ import annotations

import pytest

from tests.web import sample

pytestmark = pytest.mark.django_db


def test_experiment_page_shows_the_answers(client, settings, tmp_path):
    settings.SPECWEB_EVIDENCE_DIR = tmp_path
    people = sample.people()
    run = sample.finished(people.team, people.owner)
    client.force_login(people.owner)
    page = client.get(f"/experiments/{run.experiment.id}/")
    assert page.status_code == 200
    import pathlib

    pathlib.Path("/tmp/fpages/exp.html").write_text(page.content.decode())
