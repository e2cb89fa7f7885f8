"""The doctor: each line ok, warn or fail, each of the two latter with what to do; and what it says of the server."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import UnixStreamServer
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from specagent import cli, doctor, filecache, fitness
from specagent.client import Client
from specagent.config import Config
from specagent.container_findings import container_engine, sockets
from specagent.filecache import FileCache
from specagent.findings import GIB, Finding, is_fit
from specagent.gpus import Gpus
from specagent.inventory import Host
from specagent.terminal import HashProgress

from tests.agent.fake_nvml import NOT_SUPPORTED, FakeNvml, NVMLError, process
from tests.agent.fake_server import FakeServer, refusal

NOWHERE = Path("/nowhere")


def cards(card: dict[str, Any]) -> dict[str, Finding]:
    return {f.subject: f for f in fitness.gpu_findings(Gpus(FakeNvml(card), drm=NOWHERE))}


def level(findings: list[Finding], subject: str) -> list[str]:
    return [f.level for f in findings if f.subject == subject]


def test_a_machine_that_is_ready(config: Config, host: Host) -> None:
    found = doctor.findings(config, None, host, doctor.server_findings(None, ""))
    assert is_fit(found)
    assert all(f.remedy for f in found if f.level != "ok")
    engine = next(f for f in found if f.subject == "engine")
    assert "draft-simple, draft-eagle3, draft-mtp" in engine.text
    assert {"--spec-draft-n-max", "--ctx-size"} <= set(engine.details["flags"])
    assert "--draft-max" in engine.details["removed_flags"]
    assert "--spec-type" in next(f for f in found if f.subject == "its speculation").text
    model = next(f for f in found if f.subject == "model")
    target = host.inventory.models[0]
    for word in (target.manifest_hash[:12], f"tokenizer {target.tokenizer_hash[:8]}", "no MTP layers", "llama Q8_0"):
        assert word in model.text


def test_without_an_engine_or_a_model_nothing_runs(config: Config, host: Host) -> None:
    bare = Host(host.inventory.model_copy(update={"models": [], "problems": ["model 'x': gone"]}), [], host.gpus, host.cache)
    found = doctor.findings(config, None, bare, [])
    assert not is_fit(found)
    assert (level(found, "engine"), level(found, "model"), level(found, "problem")) == (["fail"], ["fail"], ["warn"])


def test_a_gpu_that_no_build_uses(config: Config, host: Host) -> None:
    with_card = Host(host.inventory, host.runtimes, Gpus(FakeNvml({}), drm=NOWHERE), host.cache)
    assert any("no build finds the GPU" in f.text and f.level == "warn" for f in doctor.findings(config, None, with_card, []))
    assert not any("no build finds the GPU" in f.text for f in doctor.findings(config, None, host, []))


def test_a_card_that_is_capped_hot_and_shared() -> None:
    me = os.getpid()
    found = cards({"nvmlDeviceGetCurrentClocksEventReasons": 0x24, "nvmlDeviceGetComputeRunningProcesses": [process(me, 2 * GIB)]})
    assert {s: f.level for s, f in found.items()} == {
        "GPU 0": "ok",
        "GPU 0 power": "warn",
        "GPU 0 clock": "warn",
        "GPU 0 driver": "warn",
        "GPU 0 users": "warn",
    }
    assert found["GPU 0"].text.startswith("Made-up Card, 24.0 GiB, 21.0 GiB free, driver 999.1")
    assert "capped at 280 W, the maker's cap is 350 W" in found["GPU 0 power"].text
    assert found["GPU 0 power"].remedy.startswith("If it is not meant: nvidia-smi -i 0 -pl 350")
    assert found["GPU 0 clock"].text == "held down by: heat software"
    assert f"({me}, 2.0 GiB)" in found["GPU 0 users"].text
    assert all(f.remedy for f in found.values() if f.level == "warn")


def test_a_card_in_order() -> None:
    free = {"nvmlDeviceGetMemoryInfo": SimpleNamespace(total=24 * GIB, used=GIB // 2)}
    found = cards({**free, "nvmlDeviceGetEnforcedPowerLimit": 350_000, "nvmlDeviceGetPersistenceMode": 1})
    assert {s: f.level for s, f in found.items()} == {"GPU 0": "ok", "GPU 0 power": "ok", "GPU 0 users": "ok"}


def test_users_that_can_not_be_seen_are_not_nobody() -> None:
    assert "can't be seen from here" in cards({})["GPU 0 users"].text  # 3 of 24 GiB in use, and nobody listed
    hidden = cards({"nvmlDeviceGetComputeRunningProcesses": NVMLError(NOT_SUPPORTED)})["GPU 0 users"]
    assert (hidden.level, hidden.text) == ("warn", "the driver doesn't tell who uses it")


def test_a_driver_whose_cards_are_not_seen(tmp_path: Path) -> None:
    class NoCards(FakeNvml):
        def nvmlInit(self) -> None:
            raise NVMLError(9)

    unseen = Gpus(NoCards(), drm=NOWHERE)
    (tmp_path / "version").touch()
    assert [f.level for f in fitness.gpu_findings(unseen, (tmp_path / "version",))] == ["warn"]
    assert [f.level for f in fitness.gpu_findings(unseen, (tmp_path / "none",))] == ["ok"]


@pytest.mark.parametrize(
    ("finding", "expected"),
    [
        (fitness.governor(["performance"]), "ok"),
        (fitness.governor(["performance", "powersave"]), "warn"),
        (fitness.governor([]), "warn"),
        (fitness.load(0.5, 2), "ok"),
        (fitness.load(0.51, 2), "warn"),
        (fitness.client(first=True), "ok"),
        (fitness.client(first=False), "warn"),
        (fitness.clock(lambda: 0x2001), "ok"),
        (fitness.clock(lambda: 0x0041), "warn"),
        (fitness.clock(lambda: None), "warn"),
    ],
)
def test_what_disturbs_a_measurement(finding: Finding, expected: str) -> None:
    assert finding.level == expected
    assert bool(finding.remedy) == (expected != "ok")


def test_the_kernel_is_really_asked_about_its_clock() -> None:
    assert isinstance(fitness._timex_status(), int)


def test_a_full_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitness.disk(tmp_path / "not" / "there").level == "ok"
    monkeypatch.setattr(fitness, "_LEAST_FREE", 1 << 62)
    assert fitness.disk(tmp_path).level == "fail"


# --- the server ---


def asked(server: FakeServer, token: str = "agent-token") -> dict[str, Finding]:
    client = Client("http://server", token, transport=server.transport)
    return {f.subject: f for f in doctor.server_findings(client, "http://server")}


def with_date(moment: datetime) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        found = refusal(403, "not_allowed")
        found.headers["Date"] = format_datetime(moment.astimezone(UTC), usegmt=True)
        return found

    return answer


def test_a_server_that_takes_the_token(fake_server: FakeServer) -> None:
    found = asked(fake_server)
    assert [(s, f.level) for s, f in found.items()] == [("server", "ok")]
    assert fake_server.requests == [("GET", f"workloads/{'0' * 64}")]  # no poll, which would fetch a job
    fake_server.faults = [with_date(datetime.now(UTC))]
    assert asked(fake_server)["clock skew"].level == "ok"
    for minutes, word in ((-5, "s ahead of"), (5, "s behind")):
        fake_server.faults = [with_date(datetime.now(UTC) + timedelta(minutes=minutes))]
        skewed = asked(fake_server)["clock skew"]
        assert skewed.level == "warn"
        assert re.search(rf"(299|300|301) {word} the server", skewed.text)


def test_a_token_that_is_refused_fails(fake_server: FakeServer) -> None:
    found = asked(fake_server, token="another")["server"]
    assert (found.level, bool(found.remedy)) == ("fail", True)
    assert "unknown token" in found.text


def test_something_else_than_the_server_fails_and_nobody_there_warns(fake_server: FakeServer) -> None:
    fake_server.faults = [lambda request: httpx.Response(200, text="<html>a page</html>")]
    assert asked(fake_server)["server"].level == "fail"
    assert "what is no protocol v1" in asked(fake_server)["server"].text

    def gone(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    fake_server.faults = [gone]
    assert asked(fake_server)["server"].level == "warn"


def test_the_command_as_json_with_a_token_that_no_longer_counts(
    config: Config, tmp_path: Path, fake_server: FakeServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "Client", lambda server, token: Client(server, token, transport=fake_server.transport))
    config.state_dir.mkdir()
    path = tmp_path / "c.yaml"
    path.write_text(json.dumps(config.model_dump(mode="json")))
    identity = {"server": "http://server", "host_id": "h", "host_name": "b", "agent_token": "agent-token"}
    for token, code in (("agent-token", 0), ("old", 3)):
        (config.state_dir / "server.json").write_text(json.dumps(identity | {"agent_token": token}))
        assert cli.main(["doctor", "--json", "--config", str(path)]) == code
        told = json.loads(capsys.readouterr().out)
        assert told["fit"] == (code == 0)
        assert {"level", "subject", "text", "remedy", "details"} == set(told["findings"][0])


# --- Docker, by a made-up one behind a real socket ---


@pytest.fixture
def docker(tmp_path: Path) -> Iterator[Path]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"Version": "20.10.24"} if self.path == "/version" else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return "a socket"

        def log_message(self, *args: Any) -> None: ...

    path = tmp_path / "d.sock"
    with UnixStreamServer(str(path), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield path
        server.shutdown()
        thread.join()


def test_a_container_engine_is_named(docker: Path, tmp_path: Path) -> None:
    assert container_engine(docker)[0].text.startswith("Docker 20.10.24 answers: engines can run in its containers")
    assert container_engine(tmp_path / "none")[0].level == "ok"
    (wanted,) = container_engine(tmp_path / "none", wanted=True)
    assert (wanted.level, wanted.text) == ("warn", f"none at {tmp_path / 'none'}, and the configuration names images")
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(dead))
    (found,) = container_engine(dead)
    assert (found.level, bool(found.remedy)) == ("warn", True)


def test_a_container_engine_that_can_not_hand_on_the_gpu_says_what_is_missing(docker: Path) -> None:
    def texts(**here: Any) -> list[str]:
        return [f"{f.level}: {f.text}" for f in container_engine(docker, is_root=True, **here)]

    assert len(texts()) == 1
    assert "warn: containers get no GPU: NVIDIA's toolkit is missing" in texts(has_nvidia=True, find=lambda _: None)
    assert "ok: NVIDIA's toolkit is here: containers can get GPUs" in texts(has_nvidia=True, find=lambda name: f"/usr/bin/{name}")


def test_an_agent_that_is_not_root_is_told_what_its_containers_could_reach(docker: Path) -> None:
    (_, found) = container_engine(docker, is_root=False)
    assert (found.level, "listens on every address of this machine" in found.text, bool(found.remedy)) == ("warn", True, True)


def test_the_socket_is_the_owners_else_the_environments_else_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///run/mine.sock")
    assert sockets(["unix:///a.sock", "unix:///a.sock", ""]) == [Path("/a.sock")]
    assert sockets([""]) == [Path("/run/mine.sock")]
    monkeypatch.delenv("DOCKER_HOST")
    assert sockets([]) == [Path("/var/run/docker.sock")]


# --- hashing ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_hashing_a_large_file_shows_how_far_it_is() -> None:
    at = iter(range(100))
    for stream in (Terminal(), io.StringIO()):
        progress = HashProgress(stream=stream, clock=lambda: float(next(at)))
        for done in (1, 2, 3, 4):
            progress(Path("/m/big.gguf"), done << 30, 4 << 30)
        progress(Path("/m/small.gguf"), 10, 10)
        shown = stream.getvalue()
        assert "small" not in shown
        assert shown.count("hashing big.gguf, 4.3 GB") == (2 if stream.isatty() else 1)
        assert ("50 %, about 1.0 s left" in shown) == stream.isatty()


def test_a_file_is_hashed_in_parts_and_once(tmp_path: Path) -> None:
    path, heard = tmp_path / "m", []
    path.write_bytes(b"x" * (filecache._CHUNK + 5))
    cache = FileCache(tmp_path / "c.json", lambda *told: heard.append(told))
    assert cache.sha256(path) == cache.sha256(path) == subprocess.check_output(["sha256sum", path], text=True).split()[0]
    assert heard == [(path, filecache._CHUNK, filecache._CHUNK + 5), (path, filecache._CHUNK + 5, filecache._CHUNK + 5)]
