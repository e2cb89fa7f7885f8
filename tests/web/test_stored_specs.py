"""An experiment that today's rules would refuse stays whole: its pages, the API, its numbers, and its offer to an agent."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from speccore.spec import parse_spec

from specweb.experiments.models import Experiment
from specweb.experiments.services.submission import submit
from specweb.results.queries import experiment_report
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from tests.web.everything import Everything, everything
from tests.web.test_visibility import TABLE
from tests.worlds import World, dispatch, spec

pytestmark = pytest.mark.django_db


def limits(stored: dict[str, Any]) -> None:
    stored["name"], stored["blocks"], stored["margin"], stored["colour"] = "n" * 300, 900, 7, "red"
    stored["points"][0]["probes"], stored["engine"]["context"] = 20_000, 50  # no room for an answer
    stored["engine"]["extra"] = {f"--flag-{i}": i for i in range(300)} | {"-short": 1}
    stored["arms"][1] |= {"draft_limit": 5000, "draft_min": 6000, "shape": "round"}


def modes(stored: dict[str, Any]) -> None:
    stored["arms"][1]["mode"] = "telepathy"


def helper_of_ngram(stored: dict[str, Any]) -> None:
    stored["arms"][1]["mode"] = "ngram-mod"  # beside its draft_model


def broken(of: Any, change: Any) -> None:
    """Writes into the row what no service would take today."""
    for row in of:
        change(row.spec)
        assert parse_spec(row.spec)[0] is None
        row.save(update_fields=["spec"])


@pytest.fixture
def it() -> Everything:
    return everything()


@pytest.mark.parametrize("change", [limits, modes, helper_of_ngram])
def test_every_page_of_it_and_the_api(it: Everything, change: Any) -> None:
    broken(Experiment.objects.all(), change)
    for route in [r for r, row in TABLE.items() if row.get.startswith("200")]:
        answer = it.client("maintainer", route).get(it.address(route) + TABLE[route].query)
        assert answer.status_code == 200, (route, answer.content[:300])
    for run in (it.finished, it.running):
        for name in ("", "/raw/records.jsonl", "/evidence/server.log"):
            assert it.client("maintainer", "").get(f"/attempts/{run.attempts[0].pk}{name or '/'}").status_code == 200
        assert it.client("maintainer", "").get(f"/experiments/new?from={run.experiment.pk}").status_code == 200


@pytest.mark.parametrize("change", [limits, modes, helper_of_ngram])
def test_its_numbers_are_made_again(it: Everything, change: Any) -> None:
    broken(Experiment.objects.filter(pk=it.finished.experiment.pk), change)
    for attempt in it.finished.attempts:
        assert parse_attempt(attempt.pk, again=True)
        attempt.refresh_from_db()
        assert attempt.parse_error is None
    assert compare_job(it.finished.job.pk, datetime.now(UTC), again=True)
    experiment = Experiment.objects.get(pk=it.finished.experiment.pk)
    (compared,) = experiment_report(experiment, "http://x")["comparisons"]
    assert compared["arm"] == experiment.arms.get(is_baseline=False).name


@pytest.mark.parametrize("change", [limits, modes, helper_of_ngram])
def test_an_agent_is_offered_it_with_its_job(world: World, change: Any) -> None:
    world.agent.poll()
    world.agent.send_inventory()
    made = submit(spec(), world.team, world.owner)
    assert dispatch() == 1
    broken([made], change)
    offer = world.agent.offer()
    assert offer.spec == Experiment.objects.get().parsed_spec
    assert offer.spec.arms[1].mode == Experiment.objects.get().spec["arms"][1]["mode"]
