"""Experiments for vLLM on the server: what is refused beforehand and at which field, and the command of one that is placed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from speccore.engines import default_allowed_flags, engine
from speccore.inventory import ModelInfo, RuntimeInfo
from speccore.spec import ExperimentSpec, parse_spec
from speccore.workloads import builtin

from specweb.accounts.models import Team
from specweb.experiments.models import Host
from specweb.experiments.services.checking import resolve
from specweb.experiments.services.hosts import store_inventory
from specweb.experiments.services.placement import Fit, NoFit, fit
from specweb.experiments.services.submission import seed_workload
from tests.web import sample

pytestmark = pytest.mark.django_db
HELP = (Path(__file__).parents[1] / "logs" / "vllm" / "v0.32.0.help-all.txt").read_text(encoding="utf-8")
OFF = {"name": "off", "mode": "off"}
NGRAM = {"name": "ngram-4", "mode": "ngram", "draft_limit": 4, "ngram_size": 4}
DRAFT = {"name": "draft-3", "mode": "draft", "draft_model": "small", "draft_limit": 3}


@pytest.fixture
def team() -> Team:
    seed_workload(builtin()["count"])
    return sample.people().team


@pytest.fixture
def host(team: Team) -> Host:
    """One that offers vLLM only, with two models in its form."""
    host = sample.host_with_inventory(team)
    assert host.inventory is not None
    offered = host.inventory.parsed
    build = RuntimeInfo(
        engine="vllm",
        version="0.32.0+cpu",
        backend="cpu",
        manifest_hash="d" * 64,
        executable="/opt/vllm/bin/vllm",
        capabilities=engine("vllm").capabilities(HELP),
    )
    models = [
        ModelInfo(alias=alias, manifest_hash=digit * 64, path=f"/models/{alias}", format="hf", size_bytes=10_000_000, context_length=2048)
        for alias, digit in (("large", "e"), ("small", "f"))
    ]
    changed = offered.model_copy(update={"runtimes": [build], "models": models, "allowed_flags": default_allowed_flags()})
    store_inventory(host, changed, datetime.now(UTC))
    host.refresh_from_db()
    return host


def asked(*arms: dict[str, Any], point: dict[str, Any] | None = None, **settings: Any) -> ExperimentSpec:
    spec, problems = parse_spec(
        {
            "name": "On vLLM",
            "target": {"model": "large"},
            "runtime": {"engine": "vllm"},
            "engine": {"context": 1024, **settings},
            "arms": [OFF, *arms],
            "points": [{"workload": "count", "max_tokens": 64, **(point or {})}],
        }
    )
    assert spec is not None, problems
    return spec


@pytest.mark.parametrize(
    ("spec", "field", "said"),
    [
        (asked(NGRAM, gpu_layers=9), "engine.gpu_layers", "means nothing to vLLM"),
        (asked(NGRAM, extra={"--no-async-scheduling": True}), "engine.extra.--no-async-scheduling", "settles it in each arm"),
        (asked(NGRAM, extra={"--trust-remote-code": True}), "engine.extra.--trust-remote-code", "would run code"),
        (asked({**NGRAM, "extra": {"model": "pkg.Class"}}), "arms.1.extra.model", "is set by the arm's draft_model"),
        (asked({**NGRAM, "extra": {"rejection_sample_method": "synthetic"}}), "arms.1.extra.rejection_sample_method", "by chance"),
        (asked({**DRAFT, "p_min": 0.5}), "arms.1.p_min", "has no p_min"),
        (asked({"name": "n", "mode": "ngram-simple"}), "arms.1.mode", "vLLM has no mode 'ngram-simple'"),
        (
            asked({"name": "o", "mode": "off", "control": True, "extra": {"--middleware": "x"}}),
            "arms.1.extra.--middleware",
            "would run code",
        ),
        (asked(NGRAM, point={"sampling": {"temperature": 0.8, "min_p": 0.1}}), "points.0.sampling.min_p", "under speculation"),
    ],
)
def test_refused_at_its_field_before_any_host_is_chosen(team: Team, host: Host, spec: ExperimentSpec, field: str, said: str) -> None:
    problems = resolve(spec, team).problems
    assert [p.field for p in problems] == [field]
    assert said in problems[0].message


def test_what_can_be_run_is_placed_with_its_command(team: Team, host: Host) -> None:
    control = {"name": "off-implied", "mode": "off", "control": True, "extra": {"--no-async-scheduling": True}}
    spec = asked(NGRAM, DRAFT, control, extra={"--dtype": "float32", "--enforce-eager": True})
    assert resolve(spec, team).problems == []
    assert host.inventory is not None
    found = fit(spec, host.inventory.parsed)
    assert isinstance(found, Fit), found
    config = json.loads(found.commands["draft-3"][found.commands["draft-3"].index("--speculative-config") + 1])
    assert config == {"method": "draft_model", "model": "{draft}", "num_speculative_tokens": 3}
    assert found.commands["off-implied"][:-1] == found.commands["off"]
    assert found.commands["off-implied"][-1] == "--no-async-scheduling"


def test_a_host_that_allows_less_names_the_flag(team: Team, host: Host) -> None:
    assert host.inventory is not None
    strict = host.inventory.parsed.model_copy(update={"allowed_flags": ["--dtype"]})
    found = fit(asked(NGRAM, extra={"--dtype": "float32", "--enforce-eager": True}), strict)
    assert isinstance(found, NoFit)
    assert "doesn't allow --enforce-eager" in found.reason


def test_a_target_in_the_other_engines_form_is_refused_in_words(team: Team, host: Host) -> None:
    assert host.inventory is not None
    offered = host.inventory.parsed
    files = [m.model_copy(update={"format": "gguf"}) if m.alias == "large" else m for m in offered.models]
    found = fit(asked(NGRAM), offered.model_copy(update={"models": files}))
    assert isinstance(found, NoFit)
    assert "vllm reads a folder with config.json and safetensors, and large is a GGUF file" in found.reason
