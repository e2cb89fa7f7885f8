"""Experiments on a real vLLM, on the processor: every mode is on, drafts, is counted by two sources, and answers as the baseline does.

What is asserted does not depend on how fast the machine is; speeds are printed. `make test-vllm` runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from specagent import scratch
from specagent.config import load_config
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.local import LocalRun, read_spec, run_local
from speccore.engines.vllm_counts import growth, totals
from speccore.errors import SpecError
from speccore.measurement import JobAnalysis, Number
from speccore.workloads import builtin

REPO = Path(__file__).resolve().parents[2]
SCRIPT, MODELS = Path(os.environ["SPECWEB_TEST_VLLM"]), Path(os.environ["SPECWEB_TEST_VLLM_MODELS"])
BLOCKS = int(os.environ.get("SPECWEB_TEST_VLLM_BLOCKS", "3"))
ENGINE = {
    "context": 1024,
    "slots": 4,
    "threads": 1,
    "start_timeout_s": 600,
    "probe_timeout_s": 300,
    "extra": {"--enforce-eager": True, "--dtype": "float32"},
}
POINT = {"workload": "python-code", "sampling": {"temperature": 0}, "max_tokens": 64, "probes": 4}
OFF = {"name": "off", "mode": "off"}
PAIR = {
    "name": "vLLM on the processor",
    "target": {"model": "target"},
    "runtime": {"engine": "vllm"},
    "engine": ENGINE,
    "arms": [
        OFF,
        {"name": "ngram-4", "mode": "ngram", "draft_limit": 4, "ngram_size": 4, "ngram_min": 2},
        {"name": "draft-3", "mode": "draft", "draft_model": "draft", "draft_limit": 3},
        {"name": "eagle-2", "mode": "eagle", "draft_model": "eagle", "draft_limit": 2},
        {"name": "suffix-8", "mode": "suffix", "draft_limit": 8},
    ],
    "points": [POINT],
    "blocks": BLOCKS,
    "warmup": {"mode": "fixed", "requests": 1},
    "seed": 3,
}
#: MiMo's shape of the same target, which holds a head.
HEAD = {**PAIR, "name": "mtp", "target": {"model": "mimo"}, "arms": [OFF, {"name": "mtp-1", "mode": "mtp", "draft_limit": 1}]}
MODES = {"ngram-4": "pair", "draft-3": "pair", "eagle-2": "pair", "suffix-8": "pair", "mtp-1": "head"}
#: What vLLM settles otherwise by itself, seen with 0.32.0.
CAME_WITH = {
    "ngram-4": {"max_num_scheduled_tokens", "async_scheduling"},
    "suffix-8": {"max_num_scheduled_tokens", "async_scheduling"},
    "draft-3": {"max_num_scheduled_tokens", "kv_cache_tokens"},
    "eagle-2": {"max_num_scheduled_tokens", "kv_cache_tokens"},
}
#: Both engines compute with rounded numbers of different kinds, so that single answers may part where two tokens are as likely.
LEAST_ALIKE = 0.25


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("vllm")
    config = {
        "state_dir": str(SCRIPT.parents[1] / "agent-state"),  # what was hashed stays known from one run to the next
        "runtimes": [{"engine": "vllm", "path": str(SCRIPT), "env": {"VLLM_CPU_KVCACHE_SPACE": "1"}}],
        "models": [{"alias": name, "path": str(MODELS / name)} for name in ("target", "draft", "eagle", "mimo")]
        + [{"alias": "gguf", "path": str(REPO / "demo/models/target.gguf")}],
    }
    (folder / "agent.yaml").write_text(yaml.safe_dump(config))
    for name, experiment in (("pair", PAIR), ("head", HEAD), ("gguf", {**PAIR, "target": {"model": "gguf"}})):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(experiment))
    return folder


@pytest.fixture(scope="session")
def host(work: Path) -> Host:
    config = load_config(work / "agent.yaml")
    return take_inventory(config, FileCache(config.state_dir / "files.json"))


@pytest.fixture(scope="session")
def before(host: Host) -> set[str]:
    """What lay in shared memory before any engine was started."""
    return leftovers()


def leftovers() -> set[str]:
    """Shared memory of Python's kind that no process has in use."""
    in_use = "".join(map(read_maps, Path("/proc").glob("[0-9]*/maps")))
    return {p.name for p in Path("/dev/shm").glob("psm_*") if p.name not in in_use}


def read_maps(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


@pytest.fixture(scope="session")
def pair(host: Host, work: Path, before: set[str]) -> LocalRun:
    """Through the agent's runner."""
    spec = read_spec(work / "pair.yaml")
    (work / "pair").mkdir()
    ran = run_local(
        spec, host, builtin(), work / "pair", threading.Event(), lambda r: None, lambda r: print(r.trial, r.outcome, flush=True)
    )
    assert ran.finished.outcome == "completed", ran.finished.error
    return ran


@pytest.fixture(scope="session")
def head(work: Path, before: set[str]) -> Path:
    """As a person runs it, by the command."""
    command = [sys.executable, "-m", "specagent.cli", "run", work / "head.yaml", "--config", work / "agent.yaml", "--out", work / "head"]
    ran = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return work / "head"


@pytest.fixture(params=MODES)
def arm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(arm: str, work: Path, request: pytest.FixtureRequest) -> Path:
    """The folder of the run that holds the arm."""
    request.getfixturevalue(MODES[arm])
    return work / MODES[arm]


def attempts(run: Path, arm: str) -> list[Path]:
    return sorted(run.glob(f"attempts/b*-{arm}.*"))


def lines(path: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in path.read_text().splitlines())


def probes(attempt: Path) -> dict[str, dict[str, Any]]:
    return {r["probe"]: r for r in lines(attempt / "records.jsonl") if not r["warmup"]}


def answers(run: Path, arm: str) -> dict[tuple[str, str], list[int]]:
    """Token ids by (block, item)."""
    found = {}
    for attempt in attempts(run, arm):
        asked = probes(attempt)
        for text in lines(attempt / "texts.jsonl"):
            if record := asked.get(text["probe"]):
                found[attempt.name.split("-")[0], record["item"]] = [n for ids in text["ids"] for n in ids]
    return found


def analysis(run: Path) -> JobAnalysis:
    return JobAnalysis.model_validate_json((run / "analysis.json").read_text())


def test_the_host_says_what_it_has(host: Host) -> None:
    runtime = host.inventory.runtimes[0]
    assert (runtime.engine, runtime.backend, runtime.kind) == ("vllm", "cpu", "process")
    assert host.inventory.broken_runtimes == []
    assert {"ngram", "draft_model", "mtp", "eagle", "suffix"} <= set(runtime.capabilities.spec_types)
    assert {m.alias: (m.format, m.has_mtp) for m in host.inventory.models} == {
        **dict.fromkeys(("target", "draft", "eagle"), ("hf", False)),
        "mimo": ("hf", True),
        "gguf": ("gguf", False),
    }


def test_a_model_in_the_other_engines_form_is_refused_before_anything_starts(host: Host, work: Path) -> None:
    with pytest.raises(SpecError, match=r"vllm reads a folder with config\.json and safetensors, and gguf is a GGUF file"):
        run_local(read_spec(work / "gguf.yaml"), host, builtin(), work / "gguf", threading.Event(), lambda r: None, lambda r: None)


def test_the_mode_is_on_and_drafts(arm: str, run: Path) -> None:
    compared = next(c for c in analysis(run).comparisons if c.arm == arm)
    assert compared.verdict.word != "not engaged", compared.verdict.sentence
    assert isinstance(compared.drafted_per_cycle, Number)
    assert compared.drafted_per_cycle.value > 0
    assert compared.speedup.n_blocks == BLOCKS


def test_the_steps_of_each_request_equal_the_counters_of_the_server(arm: str, run: Path) -> None:
    n_steps = 0
    for attempt in attempts(run, arm):
        snapshots = {(s["probe"], s["when"]): totals(s["text"]) for s in lines(attempt / "metrics.jsonl")}
        for name, record in probes(attempt).items():
            said = record["final"]["metrics"]["speculative_decoding"]
            grown = growth(snapshots[name, "before"], snapshots[name, "after"])
            counted = (grown.drafts, grown.drafted, grown.accepted, grown.generated)
            sums = (len(said["per_step_drafted"]), sum(said["per_step_drafted"]), sum(said["per_step_accepted"]))
            assert counted == (*sums, record["final"]["usage"]["completion_tokens"]), name
            n_steps += sums[0]
    assert n_steps > 0


def test_every_check_of_the_evidence_holds(arm: str, run: Path) -> None:
    compared = next(c for c in analysis(run).comparisons if c.arm == arm)
    hard = {c.name: c.passed for c in compared.checks if c.kind == "hard"}
    for name in ("same comparison key", "counts agree", "no cache hits", "probe failures"):
        assert hard[name] is True, (name, next(c.sentence for c in compared.checks if c.name == name))


def test_greedy_answers_are_the_baselines_token_by_token(arm: str, run: Path) -> None:
    mine, plain = answers(run, arm), answers(run, "off")
    assert mine
    assert mine == plain


def test_what_came_with_speculation_is_told(arm: str, run: Path) -> None:
    compared = next(c for c in analysis(run).comparisons if c.arm == arm)
    assert compared.came_with is not None
    assert CAME_WITH.get(arm, set()) <= {c.name for c in compared.came_with}


def test_each_attempt_has_its_evidence_and_ends_in_peace(arm: str, run: Path) -> None:
    files = {"attempt.json", "launch.json", "manifest.json", "metrics.jsonl", "records.jsonl", "samples.jsonl", "server.log", "texts.jsonl"}
    assert len(attempts(run, arm)) == BLOCKS
    for attempt in attempts(run, arm):
        assert files <= {p.name for p in attempt.iterdir()}
        launch = json.loads((attempt / "launch.json").read_text())
        assert (launch["exit_code"], launch["stopped_by"], launch["props"]["max_model_len"]) == (0, "agent", 1024)
        rss = [s["rss_bytes"] for s in lines(attempt / "samples.jsonl") if s["phase"] == "probing"]
        assert max(rss) > 1 << 30  # all its processes: each of the three alone has less


def test_nothing_is_left_of_the_engines(pair: LocalRun, head: Path, before: set[str]) -> None:
    told = [json.loads(p.read_text()) for run in (head.with_name("pair"), head) for p in run.glob("attempts/*/report.json")]
    assert len(told) == BLOCKS * (len(MODES) + 2)
    assert [folder for report in told if (folder := scratch.folder_of(report["attempt_id"])).exists()] == []
    assert leftovers() <= before


def test_both_engines_answer_alike(pair: LocalRun, work: Path, tmp_path: Path) -> None:
    """The same numbers in llama-server: a model written wrongly would share no answer at all."""
    from tests.demo.llama import engine_binary

    llama = {
        "state_dir": str(tmp_path / "state"),
        "runtimes": [{"engine": "llama-server", "path": str(engine_binary())}],
        "models": [{"alias": "target", "path": str(REPO / "demo/models/target.gguf")}],
    }
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(llama))
    engine = {k: v for k, v in ENGINE.items() if k != "extra"}
    (tmp_path / "one.yaml").write_text(
        yaml.safe_dump(
            {**PAIR, "runtime": {"engine": "llama-server"}, "engine": engine, "arms": [OFF, {**OFF, "name": "again", "control": True}]}
        )
    )
    config = load_config(tmp_path / "agent.yaml")
    there = take_inventory(config, FileCache(tmp_path / "files.json"))
    spec = read_spec(tmp_path / "one.yaml")
    (tmp_path / "one").mkdir()
    ran = run_local(spec, there, builtin(), tmp_path / "one", threading.Event(), lambda r: None, lambda r: None)
    assert ran.finished.outcome == "completed", ran.finished.error
    mine, theirs = answers(work / "pair", "off"), answers(tmp_path / "one", "off")
    assert mine.keys() == theirs.keys()
    alike = {key: next((i for i, (a, b) in enumerate(zip(mine[key], theirs[key])) if a != b), len(mine[key])) for key in mine}
    whole = sum(n == len(mine[key]) for key, n in alike.items())
    print(f"\nvLLM and llama-server: {whole} of {len(alike)} greedy answers are the same to the last token; shared beginnings: {alike}")
    assert whole >= LEAST_ALIKE * len(alike)


def test_figures(pair: LocalRun, head: Path, work: Path) -> None:
    """Nothing is asserted of them: they are printed for docs/engines.md."""
    print(
        f"\n{'arm':9} {'healthy, s':>10} {'tokens/s':>9} {'speed-up':>9} {'accepted':>9} {'tokens/pass':>11} {'KV tokens lost':>14}  verdict"
    )
    for run in (work / "pair", head):
        for compared in analysis(run).comparisons:
            starts = [json.loads((a / "launch.json").read_text())["healthy_after_s"] for a in attempts(run, compared.arm)]
            values = (compared.arm_tokens_per_s, compared.acceptance_rate, compared.tokens_per_target_pass)
            speed, accepted, per_pass = (f"{v.value:.2f}" if isinstance(v, Number) else "–" for v in values)
            ratio = f"{compared.speedup.estimate:.2f}×" if compared.speedup.estimate else "–"
            lost = "–" if compared.kv_tokens_lost is None else f"{compared.kv_tokens_lost:,.0f}"
            print(
                f"{compared.arm:9} {max(starts):>10.1f} {speed:>9} {ratio:>9} {accepted:>9} {per_pass:>11} {lost:>14}  {compared.verdict.word}"
            )
