"""Engines in containers that misbehave, and agents that are killed: what is told of it, and that nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import psutil
import pytest
from specagent import container_start, processes, ready
from specagent.arm_engine import standing
from specagent.enginelog import HEAD_BYTES, TAIL_BYTES
from specagent.sweep import sweep_records
from speccore.errors import BuildChanged, EngineExitedAtStart

from tests.agent.conftest import REPO, Ran, make_spec
from tests.docker.conftest import Bench, wait_until
from tests.docker.image import CHATTY, DEAF, FORKING

GONE_WITHIN_S = 10.0


def marked() -> list[int]:
    """Processes that carry the mark of an attempt, wherever they run."""
    found = []
    for process in psutil.process_iter():
        try:
            if processes.MARKER in process.environ() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


def test_an_engine_that_is_killed_at_its_memory_limit_is_out_of_memory(bench: Bench) -> None:
    spec = make_spec(engine={"context": 200_000, "start_timeout_s": 60, "probe_timeout_s": 20})
    ran = Ran(bench.host(memory_mib=128), spec, bench.workload, bench.folder / "out")
    ran.run()
    report, folder = ran.sink.done[0]
    assert report.outcome == "failed"
    assert report.error
    assert report.error.code in ("engine_out_of_memory", "engine_killed_at_start"), report.error
    assert "memory" in report.error.message + report.error.remedy
    launch = json.loads((folder / "launch.json").read_text())
    assert launch["container"]["oom_killed"] is True
    assert launch["exit_code"] == -signal.SIGKILL


def test_one_that_hears_no_term_is_killed_after_the_grace_time(bench: Bench, never: threading.Event) -> None:
    with standing(bench.job(bench.host(path=DEAF)), "off", bench.folder / "one", never) as engine:
        began = time.monotonic()
        ended = engine.engine.stop()
    assert ended.exit_code == -signal.SIGKILL
    assert ended.stopped_by == "agent"
    assert ended.left == []
    assert time.monotonic() - began >= 5
    assert bench.left() == []


def test_somebody_who_waits_shortens_the_grace_time(bench: Bench, never: threading.Event, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_start, "GRACE_S", 60.0)
    with standing(bench.job(bench.host(path=DEAF)), "off", bench.folder / "one", never) as engine:
        hurry = threading.Event()
        hurry.set()
        began = time.monotonic()
        ended = engine.engine.stop(hurry)
        took_s = time.monotonic() - began
    assert ended.exit_code == -signal.SIGKILL
    assert took_s < 5 + 4, "a second of grace and the removal, on a busy machine too"
    assert bench.left() == []


def test_what_an_engine_forks_goes_with_it(bench: Bench, never: threading.Event) -> None:
    with standing(bench.job(bench.host(path=FORKING)), "off", bench.folder / "one", never):
        assert len(marked()) >= 3, "the engine, its child, and the process that stands for the container"
    assert marked() == []
    assert bench.left() == []


def test_a_chatty_one_is_not_held_up_and_its_log_keeps_both_ends(bench: Bench, never: threading.Event) -> None:
    with standing(bench.job(bench.host(path=CHATTY)), "off", bench.folder / "one", never) as engine:
        log, container = engine.log, bench.standing()
        wait_until(lambda: bench.inside(container, "cat /tmp/logged")[0] == 0, "90 MB are logged", 60)
        assert ready.fetch(engine.at, "/health")[0] == 200, "it was not held up"
        assert log.stat().st_size <= HEAD_BYTES
    kept = log.read_bytes()
    assert HEAD_BYTES < len(kept) <= HEAD_BYTES + TAIL_BYTES + (2 << 20), "the end is kept in whole reads"
    assert b"bytes of this log are left out here" in kept
    assert kept.startswith(b"x" * 1000 + b"\n") or b"system info" in kept[: 1 << 20], "the beginning"
    assert kept.endswith(b"\n")
    assert bench.left() == []


def test_one_that_ends_by_itself_tells_its_exit_code(bench: Bench) -> None:
    spec = make_spec(engine={"context": 512, "start_timeout_s": 30, "probe_timeout_s": 20, "extra": {"--numa": "nonsense"}})
    ran = Ran(bench.host(), spec, bench.workload, bench.folder / "out")
    ran.run()
    report, folder = ran.sink.done[0]
    assert report.outcome == "failed"
    launch = json.loads((folder / "launch.json").read_text())
    assert launch["exit_code"] == 1
    assert launch["stopped_by"] == "itself"
    assert "numa" in (folder / "server.log").read_text()


def test_an_image_that_was_removed_meanwhile_is_no_engine_that_died(bench: Bench, never: threading.Event) -> None:
    job = bench.job(bench.host())
    gone = "sha256:" + "1" * 64
    object.__setattr__(job.runtime.container, "image_id", gone)
    with pytest.raises(BuildChanged, match="gone"), standing(job, "off", bench.folder / "one", never):
        pass


def test_a_gpu_that_the_container_engine_can_not_give_is_named(bench: Bench, never: threading.Event) -> None:
    job = bench.job(bench.host())
    object.__setattr__(job.runtime.container, "gpus", ("all",))
    with pytest.raises(EngineExitedAtStart, match="gpu"), standing(job, "off", bench.folder / "one", never):
        pass


class AgentProcess:
    """An agent of its own with an experiment that goes on for longer than the test."""

    def __init__(self, bench: Bench) -> None:
        config = bench.config()
        self.bench, self.records = bench, config.state_dir / "engines"
        self._order = bench.folder / "order.json"
        spec = make_spec(points=[{"workload": "numbers", "max_tokens": 400, "probes": 8}])
        order = {"config": config.model_dump(mode="json"), "spec": spec.model_dump(mode="json"), "out": str(bench.folder / "out")}
        self._order.write_text(json.dumps(order | {"workload": bench.workload.model_dump(mode="json")}))
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.docker.agent_process", str(self._order)], stdout=subprocess.PIPE, text=True, cwd=REPO
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

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.process.stdout:
            self.process.stdout.close()


@pytest.fixture
def agent(bench: Bench) -> Iterator[AgentProcess]:
    made = AgentProcess(bench)
    yield made
    made.kill()
    wait_until(lambda: not marked(), "its processes are gone", GONE_WITHIN_S)
    sweep_records(made.records, [bench.socket])


@pytest.mark.parametrize("phase", ["starting", "probing 2"])
def test_kill_9_of_the_agent_and_container_and_network_go_without_it(agent: AgentProcess, phase: str) -> None:
    agent.wait_for(phase)
    if phase != "starting":
        assert agent.bench.left()
    agent.kill()
    wait_until(lambda: agent.bench.left() == [] and marked() == [], "nothing is left", GONE_WITHIN_S)


def test_agent_and_all_that_keeps_are_killed_at_once_and_the_next_start_removes_what_is_left(agent: AgentProcess) -> None:
    agent.wait_for("probing 2")
    record = agent.record()
    for who in (agent.process.pid, record["guard"][0], record["keeper"][0], record["engine"][0]):
        os.kill(who, signal.SIGKILL)
    agent.kill()
    time.sleep(0.5)
    assert len(agent.bench.left()) == 2, "container and network are left: this is what sweeping is for"
    agent.start()
    agent.wait_for("swept")
    running = agent.bench.client.containers(all=True, filters={"label": f"specweb.attempt={record['attempt']}"})
    assert running == []
    assert agent.bench.client.networks(filters={"label": f"specweb.attempt={record['attempt']}"}) == []
    assert not (agent.records / f"{record['attempt']}.json").exists()
    assert not (agent.records / f"{record['attempt']}.container").exists()


def test_what_is_on_no_record_any_more_is_found_by_its_labels(agent: AgentProcess) -> None:
    agent.wait_for("probing 2")
    record = agent.record()
    sweep_records(agent.records, [agent.bench.socket])
    assert agent.bench.left(), "while its agent lives, nothing of it is touched"
    for who in (agent.process.pid, record["guard"][0], record["keeper"][0], record["engine"][0]):
        os.kill(who, signal.SIGKILL)
    agent.kill()
    (agent.records / f"{record['attempt']}.json").unlink()
    assert len(agent.bench.left()) == 2
    sweep_records(agent.records.parent / "elsewhere", [agent.bench.socket])
    assert len(agent.bench.left()) == 2, "another agent's state folder has nothing to do with it"
    sweep_records(agent.records, [agent.bench.socket])
    assert agent.bench.left() == []


def test_the_process_in_between_is_killed_and_the_agent_removes_the_container(bench: Bench, never: threading.Event) -> None:
    job = bench.job(bench.host())
    assert job.host.engine_records
    with standing(job, "off", bench.folder / "one", never) as engine:
        (path,) = job.host.engine_records.glob("*.json")
        os.kill(json.loads(path.read_text())["engine"][0], signal.SIGKILL)
        ended = engine.engine.stop()
    assert ended.left == []
    assert bench.left() == []
    assert list(job.host.engine_records.iterdir()) == []
