"""What would make an engine run code, read files or speak to the world, asked for by file or interface: told by field, name and remedy."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from speccore.engines import vllm
from speccore.inventory import RuntimeInfo
from speccore.workloads import builtin

from specweb.experiments.models import Experiment
from specweb.experiments.services.checking import check, check_yaml
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.submission import seed_workload
from tests.web import sample
from tests.web.people_api import Program

pytestmark = pytest.mark.django_db
HELP = Path(__file__).resolve().parents[1] / "logs" / "vllm" / "v0.32.0.help-all.txt"
VLLM: dict[str, Any] = {
    "name": "x",
    "target": {"model": "demo-target"},
    "runtime": {"engine": "vllm"},
    "engine": {"context": 2048},
    "arms": [{"name": "off", "mode": "off"}, {"name": "ngram", "mode": "ngram", "draft_limit": 4}],
    "points": [{"workload": "count"}],
    "blocks": 3,
}


def _words(text: str) -> list[str]:
    return text.split()


#: Flags that run code, read files, fetch or send; each is refused whatever a host allows.
NEVER = _words("""--trust-remote-code --middleware --tool-parser-plugin --reasoning-parser-plugin --io-processor-plugin --logits-processors
--worker-cls --worker-extension-cls --scheduler-cls --model-class-overrides --distributed-executor-backend --kv-transfer-config
--ec-transfer-config --compilation-config --additional-config --tool-server --logging-config --config --chat-template
--allowed-local-media-path --hf-config-path --lora-modules --ssl-keyfile --uds --download-dir --profiler-config --hf-token
--otlp-traces-endpoint --kv-events-config --trust-request-chat-template --enable-trace-replay --speculative-config --host --api-key""")


@pytest.fixture
def who(db: Any) -> sample.People:
    """With a host that offers the recorded vLLM."""
    who = sample.people()
    host = sample.host_with_inventory(who.team)
    assert host.inventory
    offered = host.inventory.parsed
    runtime = RuntimeInfo(
        engine="vllm",
        version="0.32.0",
        backend="cpu",
        manifest_hash="5" * 64,
        executable="/opt/vllm/bin/vllm",
        capabilities=vllm.capabilities(HELP.read_text()),
    )
    store_inventory(host, offered.model_copy(update={"runtimes": [*offered.runtimes, runtime]}), datetime.now(UTC))
    for workload in builtin().values():
        seed_workload(workload)
    return who


def found(who: sample.People, **changes: Any) -> dict[str, str]:
    return {p.field: p.message for p in check(VLLM | changes, who.team).problems}


def test_each_flag_is_refused_at_its_field(who: sample.People) -> None:
    told = found(who, engine={"context": 2048, "extra": dict.fromkeys(NEVER, "x")})
    assert {flag for flag in NEVER if f"engine.extra.{flag}" not in told} == set()
    assert all(flag in told[f"engine.extra.{flag}"] for flag in NEVER)


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({"rejection_sample_method": "synthetic"}, "rejection_sample_method"),
        ({"model": "pkg.Class"}, "model"),
        ({"hf_overrides": "x"}, "hf_overrides"),
        ({"no_such_key": 1}, "no_such_key"),
    ],
)
def test_keys_of_the_speculative_config_too(extra: dict[str, Any], said: str, who: sample.People) -> None:
    told = found(who, arms=[VLLM["arms"][0], VLLM["arms"][1] | {"extra": extra}])
    field, message = next((f, m) for f, m in told.items() if f.startswith("arms.1"))
    assert said in f"{field} {message}"


def test_a_file_tells_the_line(who: sample.People) -> None:
    text = "name: x\ntarget: {model: demo-target}\nruntime: {engine: vllm}\nengine:\n  extra:\n    --trust-remote-code: true\n"
    text += "arms: [{name: off, mode: off}, {name: n, mode: ngram, draft_limit: 4}]\npoints: [{workload: count}]\n"
    problem = next(p for p in check_yaml(text.encode(), who.team).problems if "trust-remote-code" in p.field)
    assert problem.line == 6


def test_the_interface_refuses_and_keeps_nothing(who: sample.People) -> None:
    answer = Program(who.owner).post("experiments/", VLLM | {"engine": {"extra": {"--trust-remote-code": True}}})
    assert answer.status_code == 422
    assert "--trust-remote-code" in answer.content.decode()
    assert "Traceback" not in answer.content.decode()
    assert Experiment.objects.count() == 0


def test_an_unknown_engine_comes_with_the_known_ones(who: sample.People) -> None:
    assert (
        found(who, runtime={"engine": "vlm"})["runtime.engine"] == "unknown engine 'vlm' (did you mean 'vllm'?); known: llama-server, vllm"
    )
