"""A private experiment: on no address does anybody but who submitted it read of it, its team's maintainers neither."""

from __future__ import annotations

from typing import Any

import pytest

from specweb.experiments.models import Experiment, Visibility
from specweb.results.models import Attempt
from tests.web.everything import Everything, everything
from tests.web.test_visibility import TABLE, ask, content_of

pytestmark = pytest.mark.django_db
SECRET = "zqsecret"
OTHERS = ("maintainer", "stranger")


@pytest.fixture
def it(db: Any) -> Everything:
    found = everything()
    for run in (found.finished, found.running):
        run.experiment.refresh_from_db()
        spec = run.experiment.spec | {"name": f"{SECRET} name", "question": f"{SECRET}?"}
        Experiment.objects.filter(pk=run.experiment.pk).update(
            name=f"{SECRET} name", question=f"{SECRET}?", spec=spec, visibility=Visibility.PRIVATE, created_by=found.people["submitter"]
        )
    error = {"code": "engine_error", "message": f"{SECRET} broke", "blame": "engine"}
    Attempt.objects.filter(pk=found.finished.attempts[1].pk).update(outcome="failed", error=error)
    return found


def test_nobody_else_reads_of_it_anywhere(it: Everything) -> None:
    ids = {str(pk) for run in (it.finished, it.running) for pk in (run.experiment.pk, run.job.pk, *(a.pk for a in run.attempts))}
    wrong = []
    for route, row in TABLE.items():
        if not row.get or route.startswith("p/") or "/publications" in route:  # what was published is everybody's
            continue
        asked = it.address(route) + row.query
        hidden = {SECRET} if "audit" in route else {SECRET, *ids}  # that something was done with it, maintainers may know
        for person in OTHERS:
            answer = ask(it, person, "GET", route)
            text = content_of(answer) if answer.status_code == 200 else ""
            wrong += [f"/{route} shows {word} to {person}" for word in hidden if word in text and word not in asked]
    assert wrong == []


def test_who_submitted_it_reads_what_others_do_not(it: Everything) -> None:
    for route in ("hosts/", "hosts/<uuid:host_id>/", "runtimes/<str:manifest_hash>/", "api/v1/runtimes/<str:manifest_hash>", "compare/"):
        text = content_of(ask(it, "submitter", "GET", route))
        assert SECRET in text or str(it.finished.experiment.pk) in text, route


def test_a_host_at_work_on_it_says_no_more_than_that(it: Everything) -> None:
    for route in ("hosts/", "hosts/<uuid:host_id>/"):
        assert "works on a private experiment" in content_of(ask(it, "maintainer", "GET", route))
