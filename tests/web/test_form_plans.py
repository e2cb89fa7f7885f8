"""Plans proposed beside the form and in the API: for the margin or for a time, from what the host showed before, taken by a button."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from speccore.measurement import Variation
from speccore.yamltext import read_yaml

from specweb.experiments.models import Experiment, Host
from specweb.results.models import Comparison
from specweb.results.pilot_queries import pilots
from tests.core import made
from tests.web import sample
from tests.web.form_client import FormClient
from tests.web.measured import job_of, scatter
from tests.web.people_api import Program, error

pytestmark = pytest.mark.django_db
DRAFT = {"name": "draft-4", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 4}
POINTS = [{"workload": "count", "probes": 4, "max_tokens": 64}]
ASKED = made.spec_of(DRAFT, target={"model": "demo-target"}, blocks=4, points=POINTS, engine={"context": 2048})
ROW = re.compile(
    r'<span class="plan-name">([^<]+)</span> <small>(\d+) blocks of (\d+) probes?, ([^<]+)</small></th><td class="num">([^<]+)</td><td>(.*?)</td>'
)
QUIET, LOUD = scatter(1, 0.003, 0.01), scatter(1, 0.1, 0.2)


@pytest.fixture
def who(db: Any) -> sample.People:
    return sample.people()


@pytest.fixture
def host(who: sample.People) -> Host:
    return sample.host_with_inventory(who.team)


@pytest.fixture
def form(who: sample.People, host: Host) -> FormClient:
    for content in sample.workloads.builtin().values():
        sample.seed_workload(content)
    return FormClient(who.owner, "?from=sample")


def rows(page: str) -> dict[str, list[str]]:
    """Plan → blocks, probes, minutes, width, and the button's action."""
    found = {}
    for name, blocks, probes, minutes, percent, rest in ROW.findall(page[page.index('class="proposals"') : page.index("Order of trials")]):
        button = re.search(r'value="(take-[0-9-]+)"', rest)
        found[name] = [blocks, probes, minutes, percent, button[1] if button else ""]
    return found


def width(row: list[str]) -> float:
    return float(row[3].removeprefix("±"))


class TestPilots:
    def test_what_finished_jobs_varied_by_by_host(self, who: sample.People, host: Host) -> None:
        job = job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.5}, QUIET)
        found = pilots(who.team, "demo-target")
        assert set(found) == {host.pk}
        (one,) = found[host.pk]
        assert one.found == Comparison.objects.get(job=job).parsed.variation
        assert isinstance(one.found, Variation)
        assert (one.engine, one.arm.draft_limit, one.point.key) == ("llama-server", 4, "count/c1/ctx0/t0")
        assert pilots(who.team, "b" * 64) == found
        assert pilots(who.team, "demo-draft") == {}
        assert pilots(who.other, "demo-target") == {}

    def test_one_statement(self, who: sample.People, host: Host) -> None:
        for _ in range(2):
            job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.5}, QUIET)
        with CaptureQueriesContext(connection) as seen:
            assert len(pilots(who.team, "demo-target")[host.pk]) == 2
        assert len(seen) == 1

    def test_of_an_earlier_version_or_invalid_none_counts(self, who: sample.People, host: Host) -> None:
        for _ in range(2):
            job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.5}, QUIET)
        old, invalid = Comparison.objects.all()
        del old.numbers["variation"]
        old.save(update_fields=["numbers"])
        Comparison.objects.filter(pk=invalid.pk).update(verdict="invalid")
        assert pilots(who.team, "demo-target") == {}


class TestForm:
    def test_the_preview_says_how_sure_and_proposes_three_plans(self, form: FormClient) -> None:
        shown = form.look()
        assert "For ±3 %, the margin" in shown
        assert "Widths are a guess (starts that differ by 2 % and prompts by 8 %)" in shown
        found = rows(shown)
        assert list(found) == ["as it stands", "proposed", "in half the time", "in twice the time"]
        assert found["as it stands"][4] == ""
        by_point = dict(re.findall(r'<tr><th scope="row">(\S+/c1/ctx0/\S+)</th><td class="num">(±[\d.]+)</td>', shown))
        assert len(by_point) == 3
        assert max(map(float, (w.removeprefix("±") for w in by_point.values()))) == width(found["as it stands"])
        assert width(found["proposed"]) <= 3
        assert width(found["in twice the time"]) < width(found["proposed"]) < width(found["in half the time"])

    def test_what_may_end_early_is_told_beside_the_time(self, form: FormClient) -> None:
        assert "At the most: looks" not in form.look()
        assert "At the most: looks after blocks 3, 5, 7 and 10, the earlier the wider" in form.change(blocks="10", sequential="on").look()

    def test_a_time_changes_the_plans_and_not_the_experiment(self, form: FormClient) -> None:
        before = rows(form.look())
        after = form.change(budget="3 h").look()
        assert "For the time you have" in after
        assert rows(after)["as it stands"] == before["as it stands"]
        assert width(rows(after)["proposed"]) < width(before["proposed"])
        form.press("submit")
        assert "budget" not in Experiment.objects.get().spec

    def test_a_time_that_is_none_is_told_and_the_margin_stands(self, form: FormClient) -> None:
        shown = form.change(budget="3").look()
        assert "Time I have: &#x27;3&#x27; has no unit: write 3 h, 90 min or 1h30m" in shown
        assert "For ±3 %, the margin" in shown

    def test_too_short_a_time_says_what_three_blocks_take(self, form: FormClient) -> None:
        assert "proposed: 3 blocks of 1 probe take" in form.change(budget="1 s").look()

    def test_the_button_takes_a_plan_into_the_form_without_a_script(self, form: FormClient) -> None:
        form.change(budget="2 h")
        blocks, probes, *_, action = rows(form.look())["proposed"]
        page = form.press(action).content.decode()
        assert (form["blocks"], set(form.values("-probes", "points-"))) == (blocks, {probes})
        assert f"The plan is {blocks} blocks of {probes} probes now." in page
        assert 'value="2 h"' in page
        found = rows(page)
        assert found["as it stands"][:2] == found["proposed"][:2] == [blocks, probes]
        assert found["proposed"][4] == ""
        form.press("submit")
        spec = Experiment.objects.get().parsed_spec
        assert (str(spec.blocks), {str(p.probes) for p in spec.points}) == (blocks, {probes})

    def test_points_with_requests_at_once_keep_their_probes(self, form: FormClient) -> None:
        form.change(engine__slots="4", points__0__concurrency="4", points__0__probes="2").press("take-7-9")
        assert form.values("-probes", "points-") == ["2", *["9"] * (len(form.values("-probes", "points-")) - 1)]
        assert form["blocks"] == "7"

    def test_in_yaml_too_and_it_can_be_undone(self, form: FormClient) -> None:
        form.press("to-yaml")
        text = form["yaml"]
        form.press("take-7-9")
        data = read_yaml(form["yaml"].encode())
        assert (data["blocks"], {p["probes"] for p in data["points"]}) == (7, {9})
        assert form["before"].strip() == text.strip()
        for wrong in ("just text", "a: [", "points: 3"):
            form.change(yaml=wrong).press("take-7-9")
        assert form["view"] == "yaml"

    def test_a_hosts_own_history_makes_the_expectation(self, who: sample.People, host: Host) -> None:
        seen = {}
        for name, noise in (("quiet", QUIET), ("loud", LOUD)):
            Comparison.objects.all().delete()
            job = job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.5}, noise)
            shown = FormClient(who.owner, f"?from={job.experiment_id}").look()
            assert "Widths are from earlier jobs of the same arms and work on this host." in shown
            seen[name] = rows(shown)
        assert width(seen["quiet"]["as it stands"]) < 3 < width(seen["loud"]["as it stands"])


class TestApi:
    def test_the_same_is_told_to_a_program(self, who: sample.People, host: Host) -> None:
        job_of(who, host, ASKED, {"off": 1.0, "draft-4": 1.5}, QUIET)
        ask = ASKED.model_dump(mode="json", exclude_defaults=True)
        program = Program(who.owner)
        (told,) = program.post("experiments/preview", ask).json()["hosts"]
        found = told["expected"]
        assert set(found) == {"as_typed", "asked", "proposal", "shorter", "longer", "basis", "guessed"}
        assert set(found["proposal"]) == {"blocks", "probes", "low_minutes", "high_minutes", "percent", "percent_at"}
        assert found["proposal"]["percent"] == max(found["proposal"]["percent_at"].values())
        assert (found["as_typed"]["blocks"], found["as_typed"]["probes"], found["guessed"]) == (4, 4, False)
        (longer,) = program.post("experiments/preview?budget=3h", ask).json()["hosts"]
        assert longer["expected"]["proposal"]["percent"] < found["proposal"]["percent"]
        assert longer["expected"]["proposal"]["low_minutes"] < 180

    def test_what_can_not_be_had_says_why(self, who: sample.People, host: Host) -> None:
        ask = (ASKED.model_dump(mode="json", exclude_defaults=True)) | {"blocks": 2}
        sample.submitted(who.team, who.owner, ASKED)
        told = Program(who.owner).post("experiments/preview?budget=1s", ask).json()
        found = told["hosts"][0]["expected"]
        assert found["as_typed"] == {"withheld": "needs 3 blocks, has 2"}
        assert found["proposal"]["withheld"].startswith("3 blocks of 1 probe take")
        assert {w["field"] for w in told["warnings"]} >= {"blocks"}

    @pytest.mark.parametrize("wrong", ["3", "soon", "-1h"])
    def test_a_budget_that_is_no_time_is_refused(self, who: sample.People, host: Host, wrong: str) -> None:
        sample.submitted(who.team, who.owner, ASKED)
        ask = ASKED.model_dump(mode="json", exclude_defaults=True)
        found = error(Program(who.owner).post(f"experiments/preview?budget={wrong}", ask), 400)
        assert "budget" in found["message"]
        assert "3h" in found["remedy"]
