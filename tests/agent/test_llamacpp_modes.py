"""Every llama-server mode that the demo's target and draft model carry, as arms of one experiment: engaged, counted, compared.

Real runs of a real engine. How fast anything was is nowhere asserted: that is the machine's to say.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from specagent import cli
from speccore.engines import engine
from speccore.measurement import JobAnalysis, Number, Withheld, value_of
from speccore.records import LAUNCH

N_GRAM = {"draft_limit": 6, "ngram_size": 3}
ARMS: list[dict[str, Any]] = [
    {"name": "off", "mode": "off"},
    {"name": "draft", "mode": "draft", "draft_model": "draft", "draft_limit": 3, "p_min": 0.1, "draft_threads": 1},
    {"name": "draft-on-cpu", "mode": "draft", "draft_model": "draft", "draft_limit": 3, "draft_device": "none", "draft_gpu_layers": 0},
    *({"name": mode, "mode": mode, **N_GRAM} for mode in ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod")),
    {"name": "ngram-cache", "mode": "ngram-cache"},
    {"name": "beside", "mode": "draft", "draft_model": "draft", "draft_limit": 3, "also": ["ngram-mod"], "also_limit": 6, "ngram_size": 3},
]
EXPERIMENT = {
    "name": "every mode",
    "target": {"model": "target"},
    "engine": {"context": 512, "start_timeout_s": 60},
    "arms": ARMS,
    "points": [{"workload": "python-code", "max_tokens": 64, "probes": 2}],
    "blocks": 3,
    "warmup": {"mode": "fixed"},
    "second_look": "never",
}


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory, llama_server: Path, demo_models: Path) -> tuple[JobAnalysis, Path]:
    folder = tmp_path_factory.mktemp("modes")
    config = {
        "state_dir": str(folder / "state"),
        "runtimes": [{"path": str(llama_server)}],
        "models": [{"alias": name, "path": str(demo_models / f"{name}.gguf")} for name in ("target", "draft")],
        "threads": 1,
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(config))
    (folder / "e.yaml").write_text(yaml.safe_dump(EXPERIMENT, sort_keys=False))
    out = folder / "out"
    assert cli.main(["run", str(folder / "e.yaml"), "--config", str(folder / "agent.yaml"), "--out", str(out), "--quiet"]) == 0
    return JobAnalysis.model_validate_json((out / "analysis.json").read_bytes()), out


def test_every_arm_is_compared_and_ends_in_a_verdict(analysed: tuple[JobAnalysis, Path]) -> None:
    analysis, _ = analysed
    assert [c.arm for c in analysis.comparisons] == [a["name"] for a in ARMS if a["mode"] != "off"]
    for c in analysis.comparisons:
        assert c.verdict.word != "not engaged", c.verdict.sentence
        assert c.verdict.sentence
        if not c.n_pairs_dropped:  # on a busy machine an answer may come in one piece, which has no speed
            assert not isinstance(c.speedup, Withheld)
            assert sorted(c.block_values) == [1, 2, 3]
        agree = next(k for k in c.checks if k.name == "counts agree")
        assert agree.passed, agree.sentence


def test_what_each_drafted_is_counted_or_said_to_be_nothing(analysed: tuple[JobAnalysis, Path]) -> None:
    analysis, _ = analysed
    longest = {a["name"]: a.get("also_limit", a.get("draft_limit", 8)) for a in ARMS}  # the cache's own limit is 8
    for c in analysis.comparisons:
        per_pass = value_of(c.tokens_per_target_pass)
        assert per_pass is not None
        assert per_pass >= 1
        if isinstance(c.acceptance_rate, Withheld):  # an n-gram may find nothing in so little text, and says so
            assert c.arm.startswith("ngram")
            assert c.acceptance_rate.withheld == "nothing was drafted"
        else:
            assert 0 <= c.acceptance_rate.value <= 1
            assert isinstance(c.drafted_per_cycle, Number)
            assert c.drafted_per_cycle.value <= longest[c.arm]
            assert not isinstance(c.accepted_by_position, Withheld)


def test_a_cycle_is_told_in_its_parts_wherever_the_helper_runs(analysed: tuple[JobAnalysis, Path]) -> None:
    """Drafting and verifying stand beside each other; what another device costs shows in the first."""
    analysis, _ = analysed
    for c in analysis.comparisons:
        if c.mode == "draft":
            drafting, verifying, whole = map(value_of, (c.draft_ms_per_cycle, c.verify_ms_per_cycle, c.cycle_ms))
            assert drafting is not None
            assert verifying is not None
            assert whole is not None
            assert drafting > 0
            assert drafting + verifying == pytest.approx(whole)


def test_each_of_two_drafters_is_told_apart(analysed: tuple[JobAnalysis, Path]) -> None:
    analysis, _ = analysed
    assert [(c.arm, [d.type for d in c.drafters]) for c in analysis.comparisons if c.drafters] == [
        ("beside", ["ngram-mod", "draft-simple"])
    ]


def test_commands_and_reported_types_are_those_that_were_asked_for(analysed: tuple[JobAnalysis, Path]) -> None:
    _, out = analysed
    types = engine("llama-server").SPEC_TYPES
    for arm in ARMS:
        launch = json.loads((out / "attempts" / f"b1-{arm['name']}.1" / LAUNCH).read_text())
        wanted = sorted(types[d] for d in (arm["mode"], *arm.get("also", [])) if d != "off")
        argv: list[str] = launch["argv"]
        assert sorted(argv[argv.index("--spec-type") + 1].split(",") if "--spec-type" in argv else []) == wanted
