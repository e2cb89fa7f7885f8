"""Agent, keeper and guard are killed, alone and together, in each phase: engine and grandchildren go, or are swept at the next start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from specagent import processes, sweep
from specagent.config import Config
from specagent.launch import Engine
from speccore.workload import Workload

from tests.agent.conftest import make_spec
from tests.agent.fake_engines import FORKS_CHILDREN, IGNORES_TERM

GONE_WITHIN_S = 10


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class AgentProcess:
    """An agent of its own with an engine that forks two children; ``pids()`` are all that it may leave behind."""

    def __init__(self, folder: Path, config: Config, workload: Workload, program: str = FORKS_CHILDREN, *, cgroup: bool = True) -> None:
        self.folder, self._children = folder, folder / "children"
        spec = make_spec(points=[{"workload": "numbers", "max_tokens": 400, "probes": 4}])
        self._order = {
            "config": config.model_dump(mode="json"),
            "program": program,
            "folder": str(folder),
            "cgroup": cgroup,
            "spec": spec.model_dump(mode="json"),
            "workload": workload.model_dump(mode="json"),
            "out": str(folder / "out"),
        }
        self.records = config.state_dir / "engines"
        self.start()

    def start(self) -> None:
        order = self.folder / "order.json"
        order.write_text(json.dumps(self._order))
        repo = Path(__file__).resolve().parents[2]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.agent_process", str(order)], stdout=subprocess.PIPE, text=True, cwd=repo
        )

    def wait_for(self, words: str) -> str:
        assert self.process.stdout
        for line in self.process.stdout:
            if line.startswith(words):
                return line.strip()
        raise AssertionError(f"{words!r} never came")

    def record(self) -> dict:
        (path,) = self.records.glob("*.json")
        return json.loads(path.read_text())

    def wait_for_children(self) -> None:
        wait_until(lambda: self._children.exists() and len(self._children.read_text().split()) == 2, "the engine's children")

    def left_behind(self) -> list[int]:
        children = [int(pid) for pid in self._children.read_text().split()] if self._children.exists() else []
        return [pid for pid in children if runs(pid)]

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()
        sweep.sweep_records(self.records)


@pytest.fixture
def agent(tmp_path: Path, config: Config, workload: Workload) -> Iterator[AgentProcess]:
    """Without a cgroup, as on a host whose cgroups belong to somebody else."""
    made = AgentProcess(tmp_path, config, workload, cgroup=False)
    yield made
    made.close()


@pytest.fixture
def agent_with_cgroup(tmp_path: Path, config: Config, workload: Workload) -> Iterator[AgentProcess]:
    made = AgentProcess(tmp_path, config, workload)
    yield made
    made.close()


@pytest.fixture
def deaf_agent(tmp_path: Path, config: Config, workload: Workload) -> Iterator[AgentProcess]:
    made = AgentProcess(tmp_path, config, workload, IGNORES_TERM)
    yield made
    made.close()


@pytest.mark.parametrize("phase", ["starting", "warm-up", "probing 2", "stopping"])
def test_kill_9_of_the_agent_and_nothing_is_left(agent: AgentProcess, phase: str) -> None:
    agent.wait_for(phase)
    agent.wait_for_children()
    record = agent.record()
    agent.process.kill()
    killed_at = time.monotonic()
    pids = [pid for pid, _ in (record["engine"], record["keeper"], record["guard"])]
    wait_until(lambda: not any(map(runs, pids)) and not agent.left_behind(), "engine, keepers, children", GONE_WITHIN_S)
    assert time.monotonic() - killed_at < GONE_WITHIN_S


def test_kill_9_of_the_agent_with_an_engine_that_hears_no_term(deaf_agent: AgentProcess) -> None:
    deaf_agent.wait_for("starting")
    wait_until(lambda: any(deaf_agent.records.glob("*.json")), "the record")
    engine, _ = deaf_agent.record()["engine"]
    deaf_agent.process.kill()
    wait_until(lambda: not runs(engine), "the engine", GONE_WITHIN_S)


def test_kill_9_of_an_agent_whose_engine_has_a_cgroup(agent_with_cgroup: AgentProcess) -> None:
    agent = agent_with_cgroup
    agent.wait_for("probing")
    agent.wait_for_children()
    record = agent.record()
    agent.process.kill()
    wait_until(lambda: not runs(record["engine"][0]) and not agent.left_behind(), "engine and children", GONE_WITHIN_S)
    wait_until(lambda: not record["cgroup"] or not Path(record["cgroup"]).exists(), "its cgroup", GONE_WITHIN_S)


@pytest.mark.parametrize("victims", [("keeper",), ("guard",), ("agent", "keeper"), ("agent", "guard")])
def test_whoever_is_killed_the_rest_clears_up(agent: AgentProcess, victims: tuple[str, ...]) -> None:
    agent.wait_for("probing")
    agent.wait_for_children()
    record = agent.record()
    children = agent.left_behind()
    assert len(children) == 2
    for name in victims:
        os.kill(record[name][0], signal.SIGKILL)
    wait_until(lambda: not runs(record["engine"][0]) and not any(map(runs, children)), "engine and children", GONE_WITHIN_S)


def test_all_are_killed_together_and_the_next_start_sweeps(agent: AgentProcess) -> None:
    agent.wait_for("probing")
    agent.wait_for_children()
    record, children = agent.record(), agent.left_behind()
    for name in ("agent", "guard", "keeper"):
        os.kill(record[name][0], signal.SIGKILL)
    agent.process.wait()
    wait_until(lambda: not runs(record["engine"][0]), "the engine goes by its parent-death signal")
    assert all(map(runs, children))  # nobody was left to end these
    agent.start()
    swept = agent.wait_for("swept")
    assert all(str(pid) in swept for pid in children)
    assert not any(map(runs, children))


def test_an_engine_is_on_record_before_it_runs_and_off_it_when_it_ended(tmp_path: Path) -> None:
    record = tmp_path / "attempt-1.json"
    program = f"import os, time; print(os.path.exists({str(record)!r}), os.environ['SPECWEB_ATTEMPT'], flush=True); time.sleep(60)"
    engine = Engine([sys.executable, "-c", program], {}, tmp_path, tmp_path / "log", record=record)
    wait_until(lambda: (tmp_path / "log").read_text() != "", "its word")
    assert (tmp_path / "log").read_text() == "True attempt-1\n"
    held = json.loads(record.read_text())
    assert held["engine"] == [engine.pid, processes.start_time(engine.pid)]
    assert held["agent"][0] == os.getpid()
    engine.stop()
    assert not record.exists()


def write_record(folder: Path, **changes: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "a.json"
    record = {"attempt": "", "boot_id": processes.boot_id(), "agent": [1, 1], "cgroup": "", "guard": [1, 1], "keeper": [1, 1]}
    path.write_text(json.dumps(record | changes))
    return path


@pytest.fixture
def bystander() -> Iterator[subprocess.Popen]:
    process = subprocess.Popen(["sleep", "60"])
    yield process
    process.kill()
    process.wait()


def test_a_recycled_pid_is_never_killed(tmp_path: Path, bystander: subprocess.Popen) -> None:
    pid, started = bystander.pid, processes.start_time(bystander.pid)
    path = write_record(tmp_path / "r", engine=[pid, started - 1])
    assert sweep.sweep_records(tmp_path / "r") == []
    assert bystander.poll() is None
    assert not path.exists()
    write_record(tmp_path / "r", engine=[pid, started])
    assert sweep.sweep_records(tmp_path / "r") == [pid]
    assert bystander.wait(5) == -signal.SIGKILL


def test_what_another_boot_or_a_living_agent_has_on_record_is_left_alone(tmp_path: Path, bystander: subprocess.Popen) -> None:
    engine = [bystander.pid, processes.start_time(bystander.pid)]
    other_boot = write_record(tmp_path / "boot", engine=engine, boot_id="another")
    living = write_record(tmp_path / "living", engine=engine, agent=[os.getpid(), processes.start_time(os.getpid())])
    assert sweep.sweep_records(tmp_path / "boot") == []
    assert sweep.sweep_records(tmp_path / "living") == []
    assert bystander.poll() is None
    assert not other_boot.exists()
    assert living.exists()


def test_a_cgroup_catches_what_hides_its_environment(tmp_path: Path) -> None:
    """A child in a session of its own that clears its environment, while both keepers are killed at once."""
    if not processes.cgroup_parent():
        pytest.skip("no cgroup v2 may be written here")
    record = tmp_path / "attempt-2.json"
    program = (
        "import subprocess, time\n"
        "child = subprocess.Popen(['/bin/sleep', '60'], env={}, start_new_session=True)\nprint(child.pid, flush=True)\ntime.sleep(60)"
    )
    engine = Engine([sys.executable, "-c", program], {}, tmp_path, tmp_path / "log", record=record)
    wait_until(lambda: (tmp_path / "log").read_text() != "", "the child's pid")
    child = int((tmp_path / "log").read_text())
    held = json.loads(record.read_text())
    for name in ("guard", "keeper"):
        os.kill(held[name][0], signal.SIGKILL)
    ended = engine.stop()
    assert ended.left == []
    assert not runs(child)
    assert not Path(held["cgroup"]).exists()
