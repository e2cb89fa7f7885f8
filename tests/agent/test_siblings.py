"""A run here goes by the runs beside it: the machine's noise floor, what comparisons varied by, and what starts cost."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from specagent import siblings
from speccore.compare import JobFacts, analyse_job
from speccore.measurement import Variation
from speccore.protocol import ProbePlan, TrialPlan
from speccore.selfrun import RunIndex
from speccore.spec import ExperimentSpec

from tests import runs, worlds
from tests.core import made

Tell = Callable[..., tuple[int, str, str]]
Make = Callable[..., Path]
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
CONTROL = made.spec_of({"name": "again", "mode": "off", "control": True}, target={"model": "target"}, blocks=3)
DRAFT = {"name": "draft-3", "mode": "draft", "draft_model": "draft", "draft_limit": 3}
ASKED = made.spec_of(DRAFT, target={"model": "target"}, blocks=3)


def noise_of(seed: int) -> Callable[[TrialPlan, ProbePlan], float]:
    return lambda trial, probe: 1 + made.hash_of(f"{seed}{trial.id}{probe.id}") % 100 / 50_000


def run(
    folder: Path, spec: ExperimentSpec, speeds: dict[str, float], *, at: datetime = NOW, seed: int = 0, outcome: str = "completed"
) -> str:
    """A run that has ended, with numbers of the test's choice and reports of trials that took 20 s."""
    held, workloads = worlds.inventory(), {p.workload: made.workload(p.workload) for p in spec.points}
    offer = runs.make_offer(spec, held, workloads).model_copy(update={"job_id": str(uuid.uuid4())})
    analysis = analyse_job(spec, offer.plan, made.attempts(spec, offer.plan, speeds, noise=noise_of(seed)), [], JobFacts())
    index = RunIndex(job_id=offer.job_id, outcome=outcome, started_at=at, ended_at=at, documents={}, attempts=[])
    folder.mkdir()
    for name, document in (("job.json", offer), ("inventory.json", held), ("analysis.json", analysis), ("run.json", index)):
        (folder / name).write_text(document.model_dump_json())
    for trial in offer.plan.trials:
        took = {"start": 10.0, "warmup": 2.0, "probe": 4.0, "stop": 1.0}
        report = worlds.report(offer, trial.id, {}, started_at=at, ended_at=at + timedelta(seconds=20), durations_s=took)
        (folder / "attempts" / trial.id).mkdir(parents=True)
        (folder / "attempts" / trial.id / "report.json").write_text(report.model_dump_json())
    return offer.job_id


def contrasts(place: Path, n: int, **more: datetime) -> list[str]:
    speeds = [{"off": 1.0, "again": math.exp(0.04 * (-1) ** i)} for i in range(n)]
    return [run(place / f"r{len(list(place.iterdir()))}", CONTROL, s, seed=i, **more) for i, s in enumerate(speeds)]


def floors(place: Path, mine: Path) -> dict[str, siblings.KnownFloor]:
    held = worlds.inventory()
    offer = runs.make_offer(ASKED, held, {"count": made.workload()})
    return siblings.floors(place, offer, held, 3, NOW, without=mine)


def test_ten_runs_of_the_baseline_against_itself_make_the_floor(tmp_path: Path) -> None:
    jobs = contrasts(tmp_path, 9)
    assert floors(tmp_path, tmp_path / "mine")["c1/ctx0"].why == "needs 10 A/A contrasts, has 9"
    jobs += contrasts(tmp_path, 1)
    known = floors(tmp_path, tmp_path / "mine")["c1/ctx0"]
    assert set(known.jobs) == set(jobs)
    assert 0.06 < (known.floor or 0) < 0.1


def test_not_its_own_nor_what_is_old_broken_off_or_unreadable(tmp_path: Path) -> None:
    contrasts(tmp_path, 1)
    contrasts(tmp_path, 1, at=NOW - timedelta(days=31))
    run(tmp_path / "stopped", CONTROL, {"off": 1.0, "again": 1.0}, outcome="cancelled")
    run(tmp_path / "mine", CONTROL, {"off": 1.0, "again": 1.0})
    run(tmp_path / "broken", CONTROL, {"off": 1.0, "again": 1.0})
    (tmp_path / "broken" / "analysis.json").write_text("{")
    assert floors(tmp_path, tmp_path / "mine")["c1/ctx0"].why == "needs 10 A/A contrasts, has 1 (left out: 1 older than 30 days)"


def test_off_with_what_speculation_implies_is_no_contrast(tmp_path: Path) -> None:
    implied = made.spec_of(
        {"name": "again", "mode": "off", "control": True, "extra": {"--no-async-scheduling": True}}, target={"model": "target"}, blocks=3
    )
    run(tmp_path / "r", implied, {"off": 1.0, "again": 1.0})
    assert floors(tmp_path, tmp_path / "mine")["c1/ctx0"].why == "needs 10 A/A contrasts, has 0"


def test_servers_that_stand_are_no_contrast(tmp_path: Path) -> None:
    """What two of them differ by is the same in every run: it would count as nothing."""
    contrasts(tmp_path, 1)
    runs.edit(tmp_path / "r0" / "analysis.json", lambda data: data["comparisons"][0].update(not_restarted=True))
    assert floors(tmp_path, tmp_path / "mine")["c1/ctx0"].why == "needs 10 A/A contrasts, has 0"


def test_another_machines_runs_say_nothing(tmp_path: Path) -> None:
    contrasts(tmp_path, 1)
    runs.edit(tmp_path / "r0" / "inventory.json", lambda data: data.update(hostname="elsewhere"))
    assert floors(tmp_path, tmp_path / "mine")["c1/ctx0"].why == "needs 10 A/A contrasts, has 0"


def test_what_a_run_varied_by_and_took(tmp_path: Path) -> None:
    run(tmp_path / "r", ASKED, {"off": 1.0, "draft-3": 1.5})
    (found,) = siblings.siblings(tmp_path, worlds.inventory())
    target = worlds.inventory().models[0].manifest_hash
    (before,) = siblings.earlier(found, target)
    assert (before.arm.name, before.found.n_blocks) == ("draft-3", 3)
    assert isinstance(before.found, Variation)
    cost = siblings.costs(found, target)
    assert {(c.mode, c.start_s, c.token_s, c.rest_s) for c in cost} == {(m, 10.0, 6 / (3 * 128), 4.0) for m in ("off", "draft")}
    assert len(cost) == 6
    assert siblings.earlier(found, "0" * 64) == siblings.costs(found, "0" * 64) == []


class TestPlan:
    def test_before_any_run_it_says_that_it_guesses(self, tell: Tell, experiment: Make, config_file: Path, tmp_path: Path) -> None:
        code, said, _ = tell("plan", experiment(), "--config", config_file, "--runs", tmp_path)
        plan, _, memory = said.partition("memory, estimated:\n")
        first, *rows, last = plan.splitlines()
        assert code == 0
        assert re.findall(r"^  (\S+) needs about [\d.]+ MiB of [\d.]+ GiB of memory; ", memory, re.MULTILINE) == ["off", "draft-3"]
        assert first.startswith("6 starts of the server, ")
        assert "a guess from the model's size" in first
        assert [row.partition("  ")[0] for row in rows] == ["as it stands", "for ±3 %, the margin", "in half the time", "in twice the time"]
        assert last.startswith("the widest 95 % interval is meant; widths are a guess (starts that differ by 2 % and prompts by 8 %)")

    def test_after_a_run_it_goes_by_what_that_showed(self, tell: Tell, experiment: Make, config_file: Path, tmp_path: Path) -> None:
        asked = experiment()
        assert tell("run", asked, "--config", config_file, "--out", tmp_path / "run-1", "--quiet")[0] == 0
        code, said, _ = tell("plan", asked, "--config", config_file, "--runs", tmp_path, "--hours", "0.5")
        assert code == 0
        assert "from 6 earlier trials of this model on this host" in said
        assert "for 30 min " in said
        verdict = json.loads((tmp_path / "run-1" / "analysis.json").read_text())["comparisons"][0]["verdict"]["word"]
        assert ("widths are from earlier jobs of the same arms and work on this host" in said) == (verdict != "invalid")

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (("--budget", "soon"), "is no time"),
            (("--hours", "0"), "is no time"),
            (("--budget", "3h", "--hours", "3"), "not allowed with"),
        ],
    )
    def test_what_is_no_time(self, line: tuple[str, ...], said: str, tell: Tell, experiment: Make, config_file: Path) -> None:
        code, _, err = tell("plan", experiment(), "--config", config_file, *line)
        assert code == 2
        assert said in err

    def test_a_context_beyond_what_the_model_was_trained_for_is_told(self, tell: Tell, experiment: Make, config_file: Path) -> None:
        code, _, err = tell("plan", experiment(engine={"context": 100_000}), "--config", config_file)
        assert code == 0
        assert re.search(r"^note: engine\.context: target on this host was trained for [\d,]+ tokens: ", err, re.MULTILINE)
        code, _, err = tell("plan", experiment(engine={"context": 256}), "--config", config_file)
        assert (code, "was trained for" in err) == (0, False)

    def test_what_would_refuse_the_run_is_told_beside_the_plan(self, tell: Tell, experiment: Make, config_file: Path) -> None:
        arms = [{"name": "off", "mode": "off"}, {"name": "mtp-2", "mode": "mtp", "draft_limit": 2}]
        code, said, err = tell("plan", experiment(arms=arms), "--config", config_file)
        assert code == 0
        assert said.startswith("6 starts of the server, ")
        assert "note: this host can't run the experiment:" in err
        (line,) = [line for line in err.splitlines() if "mtp-2" in line]
        assert line == "  arm 'mtp-2': target has no head for mtp. Take a model file that has one, or another mode."

    def test_a_model_that_is_not_here_is_named(self, tell: Tell, experiment: Make, config_file: Path) -> None:
        code, _, err = tell("plan", experiment(target={"model": "targit"}), "--config", config_file)
        assert code == 2
        assert "no model 'targit' on this host (did you mean 'target'?)" in err
