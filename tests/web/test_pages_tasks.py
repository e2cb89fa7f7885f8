"""Pages of an experiment whose items are tasks: where their time goes, and both ratios beside each other."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client
from speccore.measurement import AttemptMeasurement, ProbeMeasurement
from speccore.workload import Item, Turn, Workload

from specweb.experiments.models import Job
from specweb.experiments.services.submission import seed_workload
from tests.web import sample
from tests.web.measured import job_of, scatter

pytestmark = pytest.mark.django_db
WAIT_S = 8.0
POINT = "errands/c1/ctx0/t0"


def errands() -> Workload:
    turns = [Turn(prompt="first", answer="x", tool_wait_s=WAIT_S), Turn(prompt="second")]
    items = [Item(id=f"errand-{i}", turns=[turns[0].model_copy(update={"prompt": f"{i}, first"}), turns[1]]) for i in range(8)]
    return Workload(
        name="errands", version=1, title="Errands", items=items, warmup=[Item(id=f"w{i}", prompt=f"warm {i}") for i in range(8)]
    )


def as_tasks(attempt: AttemptMeasurement) -> AttemptMeasurement:
    """Each probe in two turns of half its time."""
    return attempt.model_copy(update={"probes": [turn for p in attempt.probes for turn in in_turns(p)]})


def in_turns(p: ProbeMeasurement) -> list[ProbeMeasurement]:
    more: dict[int, dict[str, Any]] = {1: {"waited_s": 0.0}, 2: {"waited_s": WAIT_S, "rest_s": 0.25}}
    return [p.model_copy(update={"probe": f"{p.probe}.{n}", "turn": n, "n_turns": 2, "check_passed": True, **more[n]}) for n in (1, 2)]


@pytest.fixture
def people(db: None) -> sample.People:
    return sample.people()


@pytest.fixture
def job(people: sample.People) -> Job:
    seed_workload(errands())
    spec = sample.spec(blocks=4, points=[{"workload": "errands", "max_tokens": 64, "probes": 4}, {"workload": "count", "probes": 2}])
    speeds = {a.name: 1.0 if a.mode == "off" else 2.0 for a in spec.arms}

    def change(attempt: AttemptMeasurement) -> AttemptMeasurement:
        tasks = as_tasks(attempt.model_copy(update={"probes": [p for p in attempt.probes if p.point == POINT]}))
        return tasks.model_copy(update={"probes": [*tasks.probes, *(p for p in attempt.probes if p.point != POINT)]})

    return job_of(people, sample.host_with_inventory(people.team), spec, speeds, scatter(3, 0.004), change=change)


@pytest.fixture
def page(client: Client, people: sample.People, job: Job) -> str:
    client.force_login(people.owner)
    return client.get(f"/experiments/{job.experiment_id}/").content.decode()


def rows(section: str) -> dict[str, list[str]]:
    """By arm, the texts of the cells."""
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", section, re.DOTALL):
        cells = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", c)).strip() for c in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)]
        found[cells[0].split()[-1]] = cells[1:]
    return found


def test_the_split_and_both_ratios_stand_side_by_side(page: str) -> None:
    section = page[page.index('id="tasks"') :]
    section = section[: section.index("</section>")]
    assert "Errands" in section
    assert "Counting" not in section  # single prompts have no such split
    table = rows(section)
    arm = next(name for name in table if name.startswith("draft"))
    # each turn of the baseline takes 0.2 s to its first token and 1.8 s after it; the arm half of that, and as long for the tools
    assert [float(cell) for cell in table["off"][2:]] == pytest.approx([4 + WAIT_S + 0.25, 0.4, 3.6, WAIT_S, 0.25, 100], rel=0.02)
    assert [float(cell) for cell in table[arm][2:]] == pytest.approx([2 + WAIT_S + 0.25, 0.2, 1.8, WAIT_S, 0.25, 100], rel=0.02)
    assert table["off"][:2] == ["", ""]
    whole, decode = (float(cell.split("×")[0]) for cell in table[arm][:2])
    assert decode == pytest.approx(2.0, abs=0.03)
    assert whole == pytest.approx(12.25 / 10.25, abs=0.02)
    assert f"{arm} decodes 2.0" in section
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", section[: section.index("</thead>")])
    assert heads[3:] == ["whole task,\u00a0s", "reading", "decoding", "tools", "rest", "passed, %"]


def test_an_experiment_without_tasks_shows_no_such_section(client: Client, people: sample.People) -> None:
    run = sample.finished(people.team, people.owner, sample.spec(blocks=3, points=[{"workload": "count", "max_tokens": 64, "probes": 2}]))
    client.force_login(people.owner)
    assert 'id="tasks"' not in client.get(f"/experiments/{run.experiment.pk}/").content.decode()


def test_the_numbers_of_a_task_name_each_turn(client: Client, people: sample.People, job: Job) -> None:
    client.force_login(people.owner)
    arm = next(a.name for a in job.experiment.parsed_spec.arms if a.mode == "draft")
    address = f"/jobs/{job.pk}/numbers"
    page = client.get(address, {"arm": arm, "point": POINT}).content.decode()
    for metric in ("task_prefill_s", "task_decode_s", "task_tool_wait_s", "task_rest_s", "task_passed", "task_decode_ratio"):
        assert f'id="{metric}"' in page, metric
    assert "errand-0, turn 1" in page
    assert "errand-0, turn 2" in page
    plain = client.get(address, {"arm": arm, "point": "count/c1/ctx0/t0"})
    assert plain.status_code == 200
    assert 'id="task_prefill_s"' not in plain.content.decode()
