"""A dockerd on a socket of its own with an image made here, and what the tests start in it."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from specagent import local, runner
from specagent.config import Config, Limits, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.prepared import PreparedJob
from speccore.spec import ExperimentSpec
from speccore.workload import Workload

from tests.agent.conftest import demo_models, llama_server, make_spec, workload
from tests.docker.image import write_tar

__all__ = ["demo_models", "llama_server", "workload"]

TAG = "specweb-test/llama-server:wheel"
_READY_S = 60.0


@pytest.fixture(scope="session")
def socket() -> Iterator[str]:
    """Address of a dockerd that runs for these tests alone."""
    if "SPECWEB_TEST_DOCKER" not in os.environ:
        pytest.fail("these tests want a network and processes of their own: make test-docker")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    folder = Path(tempfile.mkdtemp(prefix="specweb-docker-"))
    address, log = f"unix://{folder}/docker.sock", folder / "dockerd.log"
    command = [
        "dockerd",
        "--bridge=none",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/pid",
        "-H",
        address,
    ]
    with log.open("wb") as out:
        dockerd = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        _wait_for(dockerd, address, log)
        yield address
    finally:
        dockerd.terminate()
        try:
            dockerd.wait(20)
        except subprocess.TimeoutExpired:
            dockerd.kill()
            dockerd.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(dockerd: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _READY_S
    while True:
        try:
            docker.APIClient(base_url=address, version="auto").close()
            return
        except docker.errors.DockerException:
            if dockerd.poll() is not None or time.monotonic() > deadline:
                pytest.fail("dockerd does not run here; its last words:\n" + "\n".join(log.read_text().splitlines()[-15:]))
            time.sleep(0.05)


@pytest.fixture(scope="session")
def client(socket: str) -> Iterator[Any]:
    api = docker.APIClient(base_url=socket, version="auto")
    yield api
    api.close()


@pytest.fixture(scope="session")
def image(client: Any, llama_server: Path) -> str:
    """The image's id, which is the digest of one that comes from no registry."""
    tar = io.BytesIO()
    write_tar(tar, llama_server)
    changes = ["ENV LD_LIBRARY_PATH=/engine/bin", "ENV PATH=/engine/bin:/bin", 'ENTRYPOINT ["/engine/bin/llama-server"]']
    name, _, tag = TAG.rpartition(":")
    client.import_image_from_data(tar.getvalue(), repository=name, tag=tag, changes=changes)
    found: str = client.inspect_image(TAG)["Id"]
    return found


@dataclass
class Bench:
    """What a test starts engines in containers with."""

    socket: str
    client: Any
    image: str
    folder: Path
    models: Path
    workload: Workload

    def config(self, image: str = "", *, path: str = "", engine: str = "llama-server", **limits: object) -> Config:
        entry = RuntimeEntry(
            engine=engine,
            image=image or self.image,
            path=Path(path) if path else None,
            docker=self.socket,
            limits=Limits.model_validate(limits),
        )
        models = [ModelEntry(alias=name, path=self.models / f"{name}.gguf") for name in ("target", "draft")]
        return Config(state_dir=self.folder / "state", runtimes=[entry], models=models, threads=1)

    def host(self, image: str = "", *, path: str = "", **limits: object) -> Host:
        config = self.config(image, path=path, **limits)
        return take_inventory(config, FileCache(config.state_dir / "files.json"))

    def job(self, host: Host, spec: ExperimentSpec | None = None) -> PreparedJob:
        workloads = {self.workload.name: self.workload}
        return runner.prepare(local.make_offer(spec or make_spec(), host, workloads), workloads, host)

    def left(self) -> list[str]:
        """Containers and networks of this program that are there now."""
        containers = [c["Names"][0] for c in self.client.containers(all=True, filters={"label": "specweb.attempt"})]
        return containers + [n["Name"] for n in self.client.networks(filters={"label": "specweb.attempt"})]

    def standing(self) -> str:
        """Id of the one container that runs."""
        (container,) = self.client.containers(filters={"label": "specweb.attempt"})
        return str(container["Id"])

    def inside(self, container: str, command: str) -> tuple[int, str]:
        """Exit code and output of a shell's words, run as the engine runs."""
        run = self.client.exec_create(container, ["/bin/bash", "-c", command])["Id"]
        said = self.client.exec_start(run).decode()
        return int(self.client.exec_inspect(run)["ExitCode"]), said


@pytest.fixture
def bench(socket: str, client: Any, image: str, tmp_path: Path, demo_models: Path, workload: Workload) -> Iterator[Bench]:
    made = Bench(socket, client, image, tmp_path, demo_models, workload)
    yield made
    left = made.left()
    for container in client.containers(all=True, filters={"label": "specweb.attempt"}):
        client.remove_container(container["Id"], force=True)
    for network in client.networks(filters={"label": "specweb.attempt"}):
        client.remove_network(network["Id"])
    assert left == [], "a test left something behind"


@pytest.fixture
def never() -> threading.Event:
    return threading.Event()


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 20) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
