"""``sampling-test``: real engines with and without a draft model, and servers that draw wrongly on purpose."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from specagent import cli
from specagent.config import Config

from tests.agent.commands import SMALL, call, command
from tests.agent.test_cli_probe import engine
from tests.replay.scripted import ReplayServer, Script

DRAFT = ("--spec-type", "draft-simple", "--spec-draft-n-max", "3")
FAIR = [0.5, 0.3, 0.2]


@pytest.fixture
def config_file(config: Config, tmp_path: Path) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(json.loads(config.model_dump_json(exclude_none=True))))
    return path


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "experiment.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"engine": {"context": 512, "slots": 2}}))
    return path


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """The command in this process: exit code, standard output, standard error."""

    def main(*line: object) -> tuple[int, str, str]:
        code = cli.main(["sampling-test", *map(str, line)])
        said = capsys.readouterr()
        return code, said.out, said.err

    return main


@contextmanager
def scripted(shares: list[float], *, drafted: int, fails: int = 0, ids: bool = True, otherwise_from: int = 1 << 31) -> Iterator[str]:
    """Answers as llama-server does, each seed with tokens of its own: the first three positions drawn fairly, the fourth by ``shares``."""
    asked = 0

    def answer(path: str, body: Any) -> Script:
        nonlocal asked
        if path == "/props":
            data: dict[str, Any] = {"default_generation_settings": {"n_ctx": 512}, "total_slots": 4, "model_path": "/m/target.gguf"}
        elif path == "/completion":
            asked += 1
            if asked <= fails:
                return Script([(0, b'{"error": {"message": "no slot"}}')], status=503)
            draw = random.Random(body["seed"])
            last = [0.1, 0.7, 0.2] if body["seed"] > otherwise_from else shares
            tokens = [draw.choices(range(3), weights)[0] for weights in (FAIR, FAIR, FAIR, last)]
            data = {"content": "x", "stop": True, "timings": {"predicted_n": 4} | ({"draft_n": drafted} if drafted else {})}
            data |= {"tokens": [*tokens, 9, 9][: body["n_predict"]]} if ids else {}
        else:
            return Script([(0, b"{}")], status=404)
        return Script([(0, json.dumps(data).encode())], headers={"Content-Type": "application/json"})

    with ReplayServer(answer) as server:
        yield f"http://127.0.0.1:{server.port}"


class TestRealEngines:
    def test_the_arms_of_an_experiment_are_started_and_stopped(self, config_file: Path, experiment: Path, tmp_path: Path) -> None:
        out = tmp_path / "result.json"
        ran = call("sampling-test", experiment, "--config", config_file, "--n", 300, "--prompts", 2, "--json", out)
        assert ran.returncode == 0, ran.stderr
        assert "draft-3: not accused; " in ran.stdout
        assert "control: the baseline agrees with itself." in ran.stdout
        told = json.loads(out.read_text())
        (arm,) = told["result"]["arms"]
        assert (arm["arm"], arm["n"], told["result"]["n_baseline"], told["result"]["control"]["n"]) == ("draft-3", 300, 300, 300)
        assert told["drafted"]["draft-3"] > 300  # each continuation had drafts
        assert [p["position"] for p in arm["positions"]] == [1, 2, 3, 4]
        assert all(p["n_kinds"] > 2 for p in arm["positions"])
        assert len(told["asked"]["prompts"]) == 2
        state = str(yaml.safe_load(config_file.read_text())["state_dir"])
        assert list((Path(state) / "engines").iterdir()) == []
        assert not [p for p in psutil.process_iter(["cmdline"]) if str(config_file.parent) in " ".join(p.info["cmdline"] or [])]

    def test_two_servers(self, llama_server: Path, demo_models: Path, tell: Callable[..., tuple[int, str, str]]) -> None:
        draft = ("--spec-draft-model", str(demo_models / "draft.gguf"), *DRAFT)
        with engine(llama_server, demo_models) as off, engine(llama_server, demo_models, *draft) as on:
            code, said, _ = tell(off, on, "--n", 200)
            assert code == 0
            assert "on: not accused" in said
            code, _, said = tell(on, off, "--n", 100)
            assert code == 3
            assert "the baseline drafted" in said
            code, _, said = tell(off, off, "--n", 100)
            assert code == 3
            assert "drafted nothing in 100 continuations" in said

    def test_told_to_stop_it_leaves_no_engine(self, config_file: Path, experiment: Path) -> None:
        line = command("sampling-test", experiment, "--config", config_file, "--n", 100_000)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        def engines() -> list[psutil.Process]:
            return [p for p in psutil.process_iter(["cmdline"]) if f"{config_file.parent}/models" in " ".join(p.info["cmdline"] or [])]

        until = time.monotonic() + 30
        while not engines() and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "stopped" in said
        assert engines() == []


class TestServersThatDrawWrongly:
    """Scripted in the place of an engine: no real one can be made to draw wrongly."""

    def test_is_accused(self, tell: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
        with scripted(FAIR, drafted=0) as off, scripted([0.62, 0.18, 0.2], drafted=3) as on:
            code, said, _ = tell(off, on, "--n", 1000, "--json", tmp_path / "r.json")
        assert code == 1
        assert "on: ACCUSED. It draws its tokens from another distribution than the baseline: at position 4 at least" in said
        (arm,) = json.loads((tmp_path / "r.json").read_text())["result"]["arms"]
        assert arm["outcome"] == "accused"
        assert [p["position"] for p in arm["positions"] if p["p_adjusted"] < 0.01] == [4]

    def test_a_server_that_draws_as_it_should_is_not(self, tell: Callable[..., tuple[int, str, str]]) -> None:
        with scripted(FAIR, drafted=0) as off, scripted(FAIR, drafted=3) as on:
            code, said, _ = tell(off, on, "--n", 1000)
        assert code == 0
        assert "no difference shown" in said

    def test_a_baseline_that_changes_accuses_nobody(self, tell: Callable[..., tuple[int, str, str]]) -> None:
        """Its seeds beyond 600, the control's, are drawn otherwise."""
        with scripted(FAIR, drafted=0, otherwise_from=600) as off, scripted([0.1, 0.7, 0.2], drafted=3) as on:
            code, said, _ = tell(off, on, "--n", 300)
        assert code == 4
        assert "on: nothing said; nothing is said: the baseline does not agree with itself" in said

    def test_failures_are_not_left_out_silently(self, tell: Callable[..., tuple[int, str, str]]) -> None:
        with scripted(FAIR, drafted=0, fails=5) as off, scripted(FAIR, drafted=3) as on:
            code, _, said = tell(off, on, "--n", 200)
        assert code == 3
        assert "5 of 200 requests failed; the first: HTTP 503" in said
        assert "no slot" in said

    def test_a_server_without_ids_is_told(self, tell: Callable[..., tuple[int, str, str]]) -> None:
        with scripted(FAIR, drafted=0, ids=False) as off, scripted(FAIR, drafted=3) as on:
            code, _, said = tell(off, on, "--n", 200)
        assert code == 3
        assert "the answer holds no token ids" in said


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--n", 50], "--n 50: it is 100 to 1,000,000"),
            (["--positions", 0], "--positions 0"),
            (["--temperature", 0], "At 0 nothing is drawn"),
            (["--workload", "fre-text"], "did you mean 'free-text'?"),
            (["--prompts", 163], "--prompts 163: free-text@2 has 162"),
            (["--arm", "draft-4"], "did you mean 'draft-3'?"),
            (["--arm", "off"], "the experiment has no such arm"),
            (["--concurrency", 3], "the experiment's engine has 2 slots"),
            (["--json", "/nowhere/x.json"], "there is no such folder"),
        ],
    )
    def test_is_named_and_nothing_is_started(
        self, config_file: Path, experiment: Path, tell: Callable[..., tuple[int, str, str]], options: list[object], said: str
    ) -> None:
        code, out, complaint = tell(experiment, "--config", config_file, *options)
        assert (code, out) == (2, "")
        assert said in complaint

    def test_more_than_two_servers(self, tell: Callable[..., tuple[int, str, str]]) -> None:
        code, _, complaint = tell("a", "b", "c")
        assert code == 2
        assert "3 things are named" in complaint
