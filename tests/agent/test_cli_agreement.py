"""``agreement`` on a real run: answers that agree, and some that were made to part where the target is sure or is not."""

from __future__ import annotations

import json
import shutil
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from specagent import cli
from specagent.config import Config, ModelEntry, RuntimeEntry

from tests.agent.commands import SMALL, call
from tests.agent.test_cli_probe import engine

POINT = "free-text/c1/ctx0/t0"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, llama_server: Path, demo_models: Path) -> Path:
    """A folder with the configuration and a finished run of two blocks, at temperature 0 and at 0.8."""
    folder = tmp_path_factory.mktemp("agreement")
    config = Config(
        state_dir=folder / "state",
        runtimes=[RuntimeEntry(path=llama_server)],
        models=[ModelEntry(alias=name, path=demo_models / f"{name}.gguf") for name in ("target", "draft")],
        threads=1,
    )
    (folder / "agent.yaml").write_text(yaml.safe_dump(json.loads(config.model_dump_json(exclude_none=True))))
    points = [{"workload": "free-text", "max_tokens": 24, "probes": 2, "sampling": {"temperature": t}} for t in (0, 0.8)]
    (folder / "experiment.yaml").write_text(yaml.safe_dump(SMALL | {"blocks": 2, "points": points}))
    ran = call("run", folder / "experiment.yaml", "--config", folder / "agent.yaml", "--out", folder / "run")
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str], kept: Path) -> Callable[..., tuple[int, str, str]]:
    def main(*line: object) -> tuple[int, str, str]:
        code = cli.main(["agreement", *map(str, line), "--config", str(kept / "agent.yaml")])
        said = capsys.readouterr()
        return code, said.out, said.err

    return main


def changed(kept: Path, to: Path, trial: str, at: int) -> tuple[Path, dict[str, Any], list[int]]:
    """A copy of the run in which one token of a greedy answer is another; also what was asked, and the answer before."""
    shutil.copytree(kept / "run", to)
    file = to / "attempts" / f"{trial}.1" / "texts.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    records = [json.loads(line) for line in (file.parent / "records.jsonl").read_text().splitlines()]
    text = next(t for t, r in zip(lines, records) if not r["warmup"] and t["request"]["temperature"] == 0)
    before = [i for ids in text["ids"] for i in ids]
    seen = 0
    for ids in text["ids"]:
        for k in range(len(ids)):
            ids[k] = ids[k] + 1 if seen == at else ids[k]
            seen += 1
    file.write_text("".join(json.dumps(t) + "\n" for t in lines))
    return to, text["request"], before


def test_greedy_answers_agree_and_drawn_ones_are_left_out(kept: Path, tell: Callable[..., tuple[int, str, str]]) -> None:
    code, said, _ = tell(kept / "run")
    assert code == 0
    assert f"{POINT}\n  off with itself: 4 of 4 answers are identical\n  draft-3: 4 of 4 answers are identical" in said
    assert "left out, 8 answers to free-text/c1/ctx0/t0.8: it was drawn at temperature 0.8" in said


@pytest.mark.parametrize(("choose", "kind"), [(max, "wrong"), (min, "near-tie")])
def test_where_answers_part_the_target_is_asked(
    kept: Path,
    tell: Callable[..., tuple[int, str, str]],
    tmp_path: Path,
    llama_server: Path,
    demo_models: Path,
    choose: Callable[[list[float]], float],
    kind: str,
) -> None:
    """Where the target is surest and where it is least sure, by what the same engine says when asked by hand."""
    _, request, _ = changed(kept, tmp_path / "unused", "b1-draft-3", 0)
    with engine(llama_server, demo_models) as url:
        body = {"prompt": request["prompt"], "n_predict": 24, "temperature": 0, "n_probs": 2, "cache_prompt": False}
        asked = urllib.request.Request(f"{url}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
        tops = [step["top_logprobs"] for step in json.load(urllib.request.urlopen(asked))["completion_probabilities"]]
    gaps = [top[0]["logprob"] - top[1]["logprob"] for top in tops]
    at = gaps.index(choose(gaps))
    run, _, before = changed(kept, tmp_path / "run", "b1-draft-3", at)
    code, said, _ = tell(run, "--json", tmp_path / "a.json")
    assert code == 0
    arm = json.loads((tmp_path / "a.json").read_text())["points"][POINT]["draft-3"]
    (place,) = arm["divergences"]
    assert (place["at"], place["left"], place["right"], place["block"]) == (at, before[at], before[at] + 1, 1)
    assert place["gap_nat"] == pytest.approx(gaps[at], abs=0.01)
    assert place["kind"] == kind
    assert "3 of 4 answers are identical; 1 parts, after" in said
    assert f": 1 {kind}" in said
    assert ("    wrong: " in said) == (kind == "wrong")
    assert not [p for p in psutil.process_iter(["cmdline"]) if str(kept / "state") in " ".join(p.info["cmdline"] or [])]


def test_without_an_engine_the_kind_is_not_known(kept: Path, tell: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    run, _, _ = changed(kept, tmp_path / "run", "b2-draft-3", 5)
    code, said, _ = tell(run, "--no-engine")
    assert code == 0
    assert "1 parts, after 5 tokens: of 1 it is not known whether the target was undecided there" in said


def test_without_a_second_look_nothing_is_said_of_the_baseline(
    kept: Path, tell: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    shutil.copytree(kept / "run", tmp_path / "run")
    for file in (tmp_path / "run" / "attempts").glob("*/second-look.jsonl"):
        file.unlink()
    assert "off with itself: no prompt was answered twice without speculation" in tell(tmp_path / "run", "--no-engine")[1]


def test_what_is_no_run(tell: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    code, _, complaint = tell(tmp_path)
    assert code == 2
    assert "holds no run" in complaint
