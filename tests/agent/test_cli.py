"""The command line as a person meets it, in processes of its own: results, messages, exit codes, nothing left behind."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import yaml
from specagent import cli, evidence
from specagent.client import Client
from specagent.config import Config
from speccore import records
from speccore.protocol import EnrolReply

from tests.agent.commands import SMALL, call, command
from tests.agent.fake_server import FakeServer
from tests.agent.ggufs import make_headless


def test_run_prints_the_comparison_and_leaves_the_evidence(config_file: Path, experiment: Callable, tmp_path: Path) -> None:
    out, told = tmp_path / "out", tmp_path / "result.json"
    ran = call("run", experiment(), "--config", config_file, "--out", out, "--json", told)
    assert ran.returncode == 0, ran.stderr
    assert "count/c1/ctx0/t0" in ran.stdout
    assert "draft-3" in ran.stdout
    assert "integrity" in ran.stdout
    assert [line.split("]")[0] for line in ran.stderr.splitlines() if line.startswith("[")] == [f"[{i}/6" for i in range(1, 7)]
    result = json.loads(told.read_text())
    assert result["n_trials"] == 6
    (comparison,) = result["comparisons"]
    assert (comparison["arm"], comparison["mode"], comparison["workload"]) == ("draft-3", "draft", "count")
    assert comparison["acceptance_rate"] > 0.5  # counting is easy to draft
    assert 0 < comparison["drafted_per_cycle"] <= 3  # stands beside the rate, and the limit is three
    assert comparison["memory_bill_bytes"] > 0  # a second model is loaded
    files = [entry["file"] for entry in result["evidence"]]
    asked_for = {records.FIT, records.SECOND_LOOK, records.CONTINUATIONS}
    assert all(files.count(name) == 6 for name in evidence.KINDS.keys() - asked_for)
    assert files.count(records.SECOND_LOOK) == 3  # of the baseline alone
    folders = sorted((out / "attempts").iterdir())
    assert len(folders) == 6
    for entry in result["evidence"]:
        (path,) = (f / entry["file"] for f in folders if f.name == f"{entry['trial']}.1")
        assert (path.stat().st_size, evidence.file_sha256(path)) == (entry["bytes"], entry["sha256"])
    assert json.loads((out / "analysis.json").read_text()) == result["analysis"]
    assert not (out / "work").exists()


def test_quiet_prints_the_result_only(config_file: Path, experiment: Callable, tmp_path: Path) -> None:
    ran = call("run", experiment(blocks=1), "--config", config_file, "--out", tmp_path / "out", "--quiet")
    assert ran.returncode == 0
    assert ran.stderr == ""
    assert "draft-3" in ran.stdout


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arms": [SMALL["arms"][1], SMALL["arms"][1]]}, ["no baseline"]),
        ({"blockz": 3}, ["blockz: unknown key 'blockz' (did you mean 'blocks'?)"]),
        ({"blocks": 0}, ["blocks:", "given: 0"]),
        ({"target": {"model": "targett"}}, ["target.model: no model 'targett'", "did you mean 'target'?", "models here: target, draft"]),
        ({"points": [{"workload": "cuont"}]}, ["no workload 'cuont'"]),
        ({"engine": {"extra": {"--override-tensors": "a"}}}, ["arm 'off'", "--override-tensors"]),
        ({"engine": {"extra": {"--log-file": "x"}}}, ["--log-file"]),
        ({"runtime": {"backend": "cuda"}}, ["runtime:", "cuda", "7e4c0a9"]),
        ({"arms": [SMALL["arms"][0], {"name": "s", "mode": "suffix"}]}, ["arm 's'"]),
    ],
)
def test_bad_input_is_named_and_nothing_is_started(
    config_file: Path, experiment: Callable, tmp_path: Path, changes: dict[str, object], said: list[str]
) -> None:
    ran = call("run", experiment(**changes), "--config", config_file, "--out", tmp_path / "out")
    assert ran.returncode == 2, ran.stderr
    assert "Traceback" not in ran.stderr
    for words in said:
        assert words in ran.stderr
    assert not (tmp_path / "out" / "attempts").exists()


def test_files_that_can_not_be_read(config_file: Path, tmp_path: Path) -> None:
    for name, content in (("none.yaml", None), ("bad.yaml", "a: ["), ("list.yaml", "- a")):
        path = tmp_path / name
        if content:
            path.write_text(content)
        ran = call("run", path, "--config", config_file)
        assert ran.returncode == 2
        assert name in ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_host_without_an_engine_is_exit_3(config: Config, experiment: Callable, tmp_path: Path) -> None:
    bare = Config.model_validate(config.model_dump() | {"runtimes": []})
    path = tmp_path / "bare.yaml"
    path.write_text(yaml.safe_dump(json.loads(bare.model_dump_json(exclude_none=True))))
    env = {"PATH": "/usr/bin:/bin", "LLAMA_SERVER": ""}
    ran = call("run", experiment(), "--config", path, "--out", tmp_path / "out", env=env)
    assert ran.returncode == 3
    assert "LLAMA_SERVER" in ran.stderr
    checked = call("doctor", "--config", path, env=env)
    assert checked.returncode == 3
    assert "[FAIL] engine" in checked.stdout


def test_an_engine_that_never_starts_is_exit_3(config: Config, config_file: Path, experiment: Callable, tmp_path: Path) -> None:
    make_headless(config.models[0].path)
    ran = call("run", experiment(blocks=2), "--config", config_file, "--out", tmp_path / "out")
    assert ran.returncode == 3, ran.stderr
    assert "the job failed: " in ran.stderr
    assert "Traceback" not in ran.stderr
    assert (tmp_path / "out" / "attempts" / "b1-off.1" / "server.log").read_text()


def test_places_that_can_not_be_written(config_file: Path, experiment: Callable, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    ran = call("run", experiment(), "--config", config_file, "--out", tmp_path / "file" / "out")
    assert ran.returncode == 3
    assert "Traceback" not in ran.stderr
    ran = call("run", experiment(), "--config", config_file, "--out", tmp_path / "out", "--json", tmp_path / "none" / "r.json")
    assert ran.returncode == 2
    assert "no such folder" in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_with_another_run_is_not_touched(config_file: Path, experiment: Callable, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "job.json").write_text("{}")
    ran = call("run", experiment(), "--config", config_file, "--out", out)
    assert ran.returncode == 2
    assert (out / "job.json").read_text() == "{}"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_order(config_file: Path, experiment: Callable, tmp_path: Path, number: int) -> None:
    out = tmp_path / "out"
    long = experiment(points=[{"workload": "count", "max_tokens": 400, "probes": 4}], blocks=20, engine={"context": 1024})
    process = subprocess.Popen(command("run", long, "--config", config_file, "--out", out), stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(out.glob("attempts/*")) and time.monotonic() < deadline:
        time.sleep(0.05)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "cancelled" in told
    assert "Traceback" not in told
    _, alive = psutil.wait_procs(children, timeout=5)
    assert alive == []


def test_doctor_and_inventory(config_file: Path) -> None:
    checked = call("doctor", "--config", config_file)
    assert checked.returncode == 0, checked.stdout
    for words in ("[ ok ] engine: llama-server", "[ ok ] model: target", "specweb-agent enrol", "] sensor nvml"):
        assert words in checked.stdout
    told = call("inventory", "--config", config_file)
    assert told.returncode == 0
    assert [m["alias"] for m in json.loads(told.stdout)["models"]] == ["target", "draft"]


def test_faults_of_the_configuration_are_named(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("modles: []")
    ran = call("doctor", "--config", path)
    assert ran.returncode == 2
    assert "did you mean 'models'?" in ran.stderr


def test_polling_needs_an_enrolment(config_file: Path) -> None:
    ran = call("poll", "--config", config_file)
    assert ran.returncode == 2
    assert "specweb-agent enrol --server" in ran.stderr


def test_enrolling_keeps_the_token_for_the_owner_only(
    config: Config, config_file: Path, fake_server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "Client", lambda url, token="": Client(url, token, transport=fake_server.transport))
    assert cli.main(["enrol", "--config", str(config_file), "--server", "https://specweb.test/", "--code", "good-code"]) == 0
    kept = config.state_dir / "server.json"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert json.loads(kept.read_text())["agent_token"] == "agent-token"
    assert "agent-token" not in "".join(capsys.readouterr())
    assert cli.main(["enrol", "--config", str(config_file), "--server", "https://specweb.test", "--code", "bad"]) == 3
    assert "not known" in capsys.readouterr().err
    assert cli.main(["once", "--config", str(config_file)]) == 0
    assert len(fake_server.inventories) == 1


def test_a_code_is_not_spent_where_the_token_cannot_be_kept(
    config: Config, config_file: Path, fake_server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    class Counted(Client):
        def enrol(self, code: str, hostname: str) -> EnrolReply:
            asked.append(code)
            return super().enrol(code, hostname)

    monkeypatch.setattr(cli, "Client", lambda url, token="": Counted(url, token, transport=fake_server.transport))
    monkeypatch.setattr(os, "posix_fallocate", _full)
    assert cli.main(["enrol", "--config", str(config_file), "--server", "https://specweb.test", "--code", "good-code"]) == 3
    assert asked == []
    assert "can't be kept in" in capsys.readouterr().err
    assert not list(config.state_dir.glob("server.json*"))
    monkeypatch.undo()
    monkeypatch.setattr(cli, "Client", lambda url, token="": Counted(url, token, transport=fake_server.transport))
    assert cli.main(["enrol", "--config", str(config_file), "--server", "https://specweb.test", "--code", "good-code"]) == 0
    assert asked == ["good-code"]
    assert [p.name for p in config.state_dir.glob("server.json*")] == ["server.json"]


def _full(fd: int, offset: int, length: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_token_is_shown_to_no_other_server(config: Config, config_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.state_dir.mkdir(parents=True, exist_ok=True)
    (config.state_dir / "server.json").write_text(json.dumps({"server": "https://old.test", "agent_token": "t"}))
    config_file.write_text(config_file.read_text().replace("server: ''", "server: https://new.test"))
    assert cli.main(["once", "--config", str(config_file)]) == 2
    told = capsys.readouterr().err
    assert "Set server: https://old.test in the configuration, or enrol at https://new.test" in told


def test_a_code_is_not_spent_on_a_server_that_polls_would_not_ask(config_file: Path) -> None:
    asked = "--server", "http://127.0.0.1:9", "--code", "c"
    config_file.write_text(config_file.read_text().replace("server: ''", "server: https://specweb.example.org"))
    ran = call("enrol", "--config", config_file, *asked)
    assert ran.returncode == 2
    assert "https://specweb.example.org" in ran.stderr
    assert "Set server: http://127.0.0.1:9 in the configuration, then enrol" in ran.stderr


def test_enrolling_at_what_is_no_server(config_file: Path) -> None:
    ran = call("enrol", "--config", config_file, "--server", "127.0.0.1:9", "--code", "c")
    assert ran.returncode == 2
    assert "'127.0.0.1:9' is no http:// or https:// address" in ran.stderr
    ran = call("enrol", "--config", config_file, "--server", "http://127.0.0.1:9", "--code", "c")
    assert ran.returncode == 3
    assert "then enrol again" in ran.stderr
    assert "by itself" not in ran.stderr


def test_a_server_may_move_to_another_port(
    config: Config, config_file: Path, fake_server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def client(url: str, token: str = "") -> Client:
        asked.append(url)
        return Client(url, token, transport=fake_server.transport)

    monkeypatch.setattr(cli, "Client", client)
    config.state_dir.mkdir(parents=True, exist_ok=True)
    (config.state_dir / "server.json").write_text(json.dumps({"server": "http://127.0.0.1:8000", "agent_token": "agent-token"}))
    config_file.write_text(config_file.read_text().replace("server: ''", "server: http://127.0.0.1:8001"))
    assert cli.main(["once", "--config", str(config_file)]) == 0
    assert asked == ["http://127.0.0.1:8001"]


def test_two_agents_in_one_state_folder(config: Config, capsys: pytest.CaptureFixture[str], config_file: Path) -> None:
    config.state_dir.mkdir(parents=True, exist_ok=True)
    (config.state_dir / "server.json").write_text(json.dumps({"server": "https://specweb.test", "agent_token": "t"}))
    with cli._only_one(config.state_dir):
        assert cli.main(["poll", "--config", str(config_file)]) == 3
    assert "another agent" in capsys.readouterr().err


def test_poll_ends_on_sigterm(config: Config, config_file: Path) -> None:
    config.state_dir.mkdir(parents=True, exist_ok=True)
    # a port that nobody listens on: the agent waits and tries again
    (config.state_dir / "server.json").write_text(json.dumps({"server": "http://127.0.0.1:9", "agent_token": "t"}))
    process = subprocess.Popen(command("poll", "--config", config_file), stderr=subprocess.PIPE, text=True)
    assert process.stderr
    assert "poll" in process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "Traceback" not in told
