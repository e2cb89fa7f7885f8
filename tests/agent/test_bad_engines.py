"""What is asked wrongly, and engines and hosts that misbehave, as a person meets them: named field, value and remedy, nothing half-written.

Beside these: a port that is taken, a gigabyte of log, an engine that hears no TERM or forks, in test_misbehaving and test_keeper;
vocabularies in test_pairs_before_start; a target without a head in test_runner; the lists of each engine in tests/core.
"""

from __future__ import annotations

import http.server
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from specagent import local, ready
from specagent.asking import Address
from specagent.attached import Standing
from specagent.config import Config, ModelEntry, RuntimeEntry
from specagent.filecache import FileCache
from specagent.gpus import Gpus
from specagent.inventory import Host, take_inventory
from specagent.runtimes import RuntimeBroken, check_environment
from speccore.engines import vllm
from speccore.errors import EngineLoadedOther, SpecError
from speccore.protocol import Running
from speccore.spec import EngineSettings, ExperimentSpec, parse_spec
from speccore.workload import Workload

from tests.agent.commands import SMALL
from tests.agent.fake_engines import fake_engine
from tests.agent.fake_nvml import FakeNvml
from tests.agent.replayed import Replay, panel
from tests.replay.engine import Side

Tell = Callable[..., tuple[int, str, str]]


# --- asked wrongly ---


def test_flags_that_are_ours_or_reach_out_are_refused_by_name(
    host: Host, workload: Workload, spec_with: Callable[..., ExperimentSpec]
) -> None:
    """Each on a host whose owner allows what is in the engine's own list and nothing else."""
    with_value = ["--host", "--port", "--model", "--api-key", "--path", "--log-file", "--slot-save-path", "--lora", "--grammar-file"]
    with_value += ["--hf-repo", "--model-url", "--chat-template-file", "--spec-type", "--spec-draft-model", "--no-such-flag"]
    for flag in with_value:
        with pytest.raises(SpecError, match=rf"engine\.extra: .*{flag}") as caught:
            local.make_offer(spec_with(engine={"extra": {flag: "x"}}), host, {"numbers": workload})
        assert "this host can't run the experiment" in caught.value.message


def test_not_even_an_owner_gives_away_what_the_agent_sets_itself(
    config: Config, workload: Workload, spec_with: Callable[..., ExperimentSpec]
) -> None:
    owned = ["--host", "--port", "--model", "--spec-draft-model"]
    host = take_inventory(config.model_copy(update={"allowed_flags": owned}), FileCache(config.state_dir / "files.json"))
    for flag in owned:
        with pytest.raises(SpecError, match=f"engine.extra: {flag} (is set by SpecWeb itself|belongs to speculation)"):
            local.make_offer(spec_with(engine={"extra": {flag: "0.0.0.0"}}), host, {"numbers": workload})


@pytest.mark.parametrize("name", ["VLLM_PLUGINS", "LD_PRELOAD"])
def test_an_environment_that_runs_other_code_is_refused_by_name(name: str) -> None:
    with pytest.raises(RuntimeBroken, match=f"env: {name}") as caught:
        check_environment(RuntimeEntry(engine="vllm", path=Path("/opt/vllm/bin/vllm"), env={name: "x"}))
    assert name in caught.value.remedy


@pytest.mark.parametrize("name", ["LLAMA_ARG_SPEC_TYPE", "LLAMA_ARG_TOOLS", "LLAMA_API_KEY", "LD_PRELOAD", "GGML_BACKEND_PATH"])
def test_an_environment_that_says_flags_of_llama_server_is_refused(name: str) -> None:
    """A baseline that is told ``LLAMA_ARG_SPEC_TYPE`` would speculate."""
    with pytest.raises(RuntimeBroken, match=f"env: {name}"):
        check_environment(RuntimeEntry(path=Path("/opt/llama-server"), env={"CUDA_VISIBLE_DEVICES": "0", name: "x"}))


@pytest.mark.parametrize("name", ["../../../etc/passwd", "/etc/passwd", "models/../draft.gguf", "draft.gguf\x00.txt"])
def test_a_path_is_no_name_of_a_model(name: str, tell: Tell, config_file: Path, tmp_path: Path) -> None:
    """A person names what the owner offers: nothing that they write becomes a path."""
    arms = [{"name": "off", "mode": "off"}, {"name": "d", "mode": "draft", "draft_model": name}]
    file = tmp_path / "e.yaml"
    file.write_text(json.dumps(SMALL | {"arms": arms}))
    out = tmp_path / "run"
    code, said, complained = tell("run", file, "--config", config_file, "--out", out)
    assert code == 2
    assert "draft_model" in said + complained
    assert "Traceback" not in said + complained
    assert not out.exists() or list(out.iterdir()) == []


def test_a_helper_without_speculation_is_told_and_does_not_run_in_silence() -> None:
    spec, problems = parse_spec(SMALL | {"arms": [{"name": "off", "mode": "off", "draft_model": "draft"}, SMALL["arms"][1]]})
    assert spec is None
    assert [p.field for p in problems] == ["arms.0.draft_model"]
    assert "off" in problems[0].message


@pytest.mark.parametrize(
    ("text", "field", "said"),
    [
        ("runtimes: [{engine: sglang, path: /opt/x}]", "runtimes.0.engine", "known: llama-server, vllm"),
        ("runtimes: [{path: /opt/x, privileged: true}]", "runtimes.0.privileged", "unknown key"),
        ("runtimes: [{path: /opt/x, servers: {x: 'http://127.0.0.1:1'}}]", "runtimes.0", "keep one of them"),
        ("runtimes: [{image: 'x@sha256:ab', limits: {memory_mib: 1}}]", "runtimes.0.limits.memory_mib", "64"),
        ("allowed_flags: ['--x=$(id)']", "allowed_flags", "is no long flag"),
    ],
)
def test_a_configuration_with_faults_names_them_and_nothing_runs(text: str, field: str, said: str, tell: Tell, tmp_path: Path) -> None:
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    code, out, err = tell("doctor", "--config", file)
    assert code == 2
    assert field in out + err
    assert said in out + err
    assert "Traceback" not in out + err
    assert [p.name for p in tmp_path.iterdir()] == ["agent.yaml"]


# --- models that lie elsewhere ---


class TestLinks:
    @pytest.fixture
    def places(self, tmp_path: Path, demo_models: Path) -> Path:
        for name in ("offered", "elsewhere"):
            (tmp_path / name).mkdir()
            shutil.copy(demo_models / "draft.gguf", tmp_path / name / f"{name}.gguf")
        return tmp_path

    def found(self, places: Path, **more: object) -> tuple[list[str], list[str]]:
        config = Config(state_dir=places / "state", **{"model_folders": [places / "offered"]} | more)
        inventory = take_inventory(config, FileCache(places / "files.json")).inventory
        return [m.alias for m in inventory.models], inventory.problems

    def test_one_that_leads_out_is_left_out_and_named(self, places: Path) -> None:
        (places / "offered" / "sneaky.gguf").symlink_to(places / "elsewhere" / "elsewhere.gguf")
        (places / "offered" / "up.gguf").symlink_to("../elsewhere/elsewhere.gguf")
        aliases, problems = self.found(places)
        assert aliases == ["offered"]
        for alias in ("sneaky", "up"):
            said = next(p for p in problems if p.startswith(f"model '{alias}'"))
            assert f"leads to {places / 'elsewhere' / 'elsewhere.gguf'}, outside of model_folders, and is left out" in said
            assert "name it under models, or add the folder" in said

    def test_one_that_stays_inside_is_a_name_like_any_other(self, places: Path) -> None:
        (places / "offered" / "again.gguf").symlink_to("offered.gguf")
        assert self.found(places)[0] == ["again", "offered"]

    def test_a_folder_that_is_a_link_is_the_owners_own_name(self, places: Path) -> None:
        (places / "link").symlink_to(places / "elsewhere")
        assert self.found(places, model_folders=[places / "link"])[0] == ["elsewhere"]

    def test_what_the_owner_names_may_be_a_link(self, places: Path) -> None:
        (places / "mine.gguf").symlink_to(places / "elsewhere" / "elsewhere.gguf")
        aliases, _ = self.found(places, model_folders=[], models=[ModelEntry(alias="mine", path=places / "mine.gguf")])
        assert aliases == ["mine"]

    def test_a_split_model_with_a_part_elsewhere_is_left_out(self, places: Path) -> None:
        (places / "offered" / "big-00001-of-00002.gguf").symlink_to("offered.gguf")
        (places / "offered" / "big-00002-of-00002.gguf").symlink_to(places / "elsewhere" / "elsewhere.gguf")
        aliases, problems = self.found(places)
        assert aliases == ["offered"]
        assert any(p.startswith("model 'big'") for p in problems)

    def test_a_link_that_is_set_to_another_file_after_the_look_is_no_model_any_more(self, places: Path) -> None:
        (places / "offered" / "again.gguf").symlink_to("offered.gguf")
        config = Config(state_dir=places / "state", model_folders=[places / "offered"])
        host = take_inventory(config, FileCache(places / "files.json"))
        again = next(m for m in host.inventory.models if m.alias == "again")
        (places / "offered" / "again.gguf").unlink()
        with pytest.raises(Exception, match=r"again\.gguf can't be read"):
            host.model(again.manifest_hash)


# --- a card that somebody else fills ---


def test_a_card_that_is_full_says_so_at_the_start(job: Callable, host: Host, spec_with: Callable, tmp_path: Path) -> None:
    full = """
print("ggml_backend_cuda_buffer_type_alloc_buffer: allocating 2000.00 MiB on device 0: cudaMalloc failed: out of memory", flush=True)
print("llama_model_load: error loading model: unable to allocate CUDA0 buffer", flush=True)
sys.exit(1)
"""
    ran = job(
        spec_with(arms=[{"name": "off", "mode": "off"}, {"name": "n", "mode": "ngram-simple"}]),
        fake_engine("on-a-full-card", full, tmp_path, host),
    )
    assert ran.run().outcome == "failed" or all(r.outcome == "failed" for r, _ in ran.sink.done)
    errors = [r.error for r, _ in ran.sink.done]
    assert {e.code for e in errors} == {"engine_out_of_memory"}
    assert all("out of memory" in e.message and e.remedy for e in errors)


def test_a_neighbour_on_the_card_makes_the_comparison_invalid(host: Host, workload: Workload, tmp_path: Path) -> None:
    nvml = FakeNvml({"nvmlDeviceGetCurrentClocksEventReasons": 0})
    there = replace(host, gpus=Gpus(nvml, drm=Path("/nowhere")))
    neighbour, began = 999_999, time.time_ns() // 1000

    def heard(running: Running) -> None:
        ours = [p.pid for p in psutil.Process().children(recursive=True) if "engine.py" in " ".join(_words(p))]
        on_it = [SimpleNamespace(pid=pid, usedGpuMemory=100 << 20) for pid in ours]
        on_it.append(SimpleNamespace(pid=neighbour, usedGpuMemory=20 << 30))
        nvml.cards[0]["nvmlDeviceGetComputeRunningProcesses"] = on_it
        nvml.cards[0]["nvmlDeviceGetProcessUtilization"] = [
            SimpleNamespace(pid=neighbour, smUtil=70, timeStamp=began + time.monotonic_ns() // 1000)
        ]

    log = "load_tensors: offloaded 33/33 layers to GPU\nload_tensors:        CUDA0 model buffer size =  50.00 MiB\n"
    run = Replay(
        there,
        workload,
        tmp_path / "out",
        heard=heard,
        sides={"0": Side(log=log), "3": Side(log=log)},
        token_ms=4.0,
        spec={"points": [{"workload": "numbers", "max_tokens": 200, "probes": 2}]},
    )
    found, checks = panel(run.analysis())
    check = checks["another process on the device"]
    assert (check.state, check.kind) == ("failed", "hard")
    assert f"process {neighbour}" in check.sentence
    assert found.verdict.word == "invalid"


def _words(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


# --- vLLM: healthy before its model is there ---


class Proxy(http.server.BaseHTTPRequestHandler):
    """fake: stands before vLLM and calls itself healthy; what it serves it says ``after`` seconds, if at all."""

    began = 0.0
    after = 0.6
    models: list[dict[str, Any]] = [{"id": "target", "root": "/models/target", "max_model_len": 512}]

    def do_GET(self) -> None:
        loaded = time.monotonic() - self.began > self.after
        status = 200 if self.path == "/health" or loaded else 503
        body = b"" if self.path == "/health" else json.dumps({"object": "list", "data": self.models}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def proxy() -> Iterator[Callable[..., Address]]:
    servers = []

    def serve(**more: object) -> Address:
        handler = type("Handler", (Proxy,), {"began": time.monotonic(), **more})
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return Address("127.0.0.1", server.server_address[1])

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def wait(at: Address, tmp_path: Path, timeout_s: float = 10) -> dict[str, Any]:
    return ready.wait_ready(Standing(), vllm, at, tmp_path / "log", timeout_s, threading.Event())


def test_vllm_is_waited_for_until_it_says_what_it_serves(proxy: Callable[..., Address], tmp_path: Path) -> None:
    began = time.monotonic()
    props = wait(proxy(), tmp_path)
    assert time.monotonic() - began > Proxy.after
    assert vllm.loaded_problem(props, EngineSettings(context=512), "/models/target", 512) == ""


def test_vllm_that_serves_nothing_or_another_context_is_no_result(proxy: Callable[..., Address], tmp_path: Path) -> None:
    settings = EngineSettings(context=512)
    said = vllm.loaded_problem(wait(proxy(after=0.0, models=[]), tmp_path), settings, "/models/target", 512)
    assert "names no model" in said
    other = [{"id": "x", "root": "/models/other", "max_model_len": 512}]
    assert "/models/other" in vllm.loaded_problem(wait(proxy(after=0.0, models=other), tmp_path), settings, "/models/target", 512)
    short = [{"id": "target", "root": "/models/target", "max_model_len": 256}]
    assert "256" in vllm.loaded_problem(wait(proxy(after=0.0, models=short), tmp_path), settings, "/models/target", 512)


def test_an_answer_that_is_no_json_is_told(proxy: Callable[..., Address], tmp_path: Path) -> None:
    class Broken:
        LOADED_PATHS = ("/health",)  # answers nothing at all
        loaded = staticmethod(lambda answers: answers)

    with pytest.raises(EngineLoadedOther, match="/health can't be read"):
        ready.wait_ready(Standing(), Broken, proxy(), tmp_path / "log", 5, threading.Event())  # type: ignore[arg-type]
