"""``run`` beyond a plain file: presets, a time to keep to, the report, going on after a kill; and ``push`` before it reaches a server."""

from __future__ import annotations

import hashlib
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from specagent.config import Config, ModelEntry
from specagent.filecache import FileCache
from specagent.inventory import take_inventory
from specagent.local import BlockClock, make_offer
from specagent.push import read_folder
from specagent.terminal import RunProgress
from speccore.presets import presets
from speccore.protocol import AttemptReport, Running, TrialPlan
from speccore.selfrun import RunIndex
from speccore.spec import parse_spec
from speccore.workloads import builtin

from tests.agent.commands import SMALL, call, command
from tests.runs import edit, make_run

Tell = Callable[..., tuple[int, str, str]]


class TestPresets:
    def test_they_are_listed_with_what_they_need(self, tell: Tell) -> None:
        code, said, _ = tell("presets")
        assert code == 0
        for name, found in presets().items():
            assert name in said
            assert found.question in said
            named = [line for line in said.splitlines() if f"specweb-agent run {name} " in line]
            assert len(named) == 1
            assert all(f"{role.name}=ALIAS" in named[0] or f"--{role.name.lower()} ALIAS" in named[0] for role in found.roles.values())

    @pytest.mark.parametrize("name", presets())
    def test_each_can_be_run_on_the_wheels_engine(self, name: str, config: Config, demo_models: Path) -> None:
        models = [*config.models, ModelEntry(alias="mtp", path=demo_models / "mtp.gguf")]
        host = take_inventory(config.model_copy(update={"models": models}), FileCache(config.state_dir / "files.json"))
        found = presets()[name]
        target = "mtp" if any(arm["mode"] == "mtp" for arm in found.data["arms"]) else "target"
        asked = {role: target if role in ("TARGET", "LARGER") else "draft" for role in found.roles}
        spec, problems = parse_spec(found.bound(asked))
        assert spec is not None, problems
        offer = make_offer(spec, host, builtin())  # plans it and renders every arm
        assert len(offer.plan.trials) >= spec.blocks * len(spec.arms)
        assert spec.question

    def test_models_are_found_by_their_names(self) -> None:
        found = presets()["qwen3-14b-draft"]
        aliases = ["qwen3-14b-q4_k_m", "Qwen3-14B-Q5_K_M.gguf", "unsloth/Qwen3-0.6B-Q8_0", "qwen3-4b-q8_0"]
        assert found.matched(aliases) == {"TARGET": "Qwen3-14B-Q5_K_M.gguf", "DRAFT": "unsloth/Qwen3-0.6B-Q8_0"}
        assert found.matched(aliases, {"DRAFT": "mine"})["DRAFT"] == "mine"
        assert found.matched(["qwen3-140b-q5_k_m"]) == {}

    def test_commands_of_both_dialects_are_printed(self, tell: Tell) -> None:
        code, said, _ = tell("presets", "qwen3-14b-draft", "--commands")
        assert code == 0
        assert "--spec-type draft-simple --spec-draft-model Qwen3-0.6B-Q8_0.gguf --spec-draft-n-max 8 --spec-draft-ngl 99" in said
        assert "--model-draft Qwen3-0.6B-Q8_0.gguf --draft-max 8 --gpu-layers-draft 99" in said
        assert "--port {port}" in said
        assert "# can't: mode mtp needs --spec-type draft-mtp" in tell("presets", "qwen3.8-27b-mtp", "--commands")[1]

    def test_one_is_printed_as_a_file(self, tell: Tell) -> None:
        code, said, _ = tell("presets", "draft-limit-sweep")
        assert code == 0
        assert yaml.safe_load(said) == presets()["draft-limit-sweep"].data

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (("run", "draft-limit-swep", "--target", "t"), "did you mean 'draft-limit-sweep'?"),
            (("run", "draft-limit-sweep"), "Name one with --target ALIAS"),
            (("run", "draft-limit-sweep", "--target", "t"), "needs a draft model"),
            (("run", "spare-memory/more-context"), "the preset spare-memory/more-context needs a model"),
            (("run", "qwen3.8-27b-mtp"), "needs a model (Qwen3.8 27B with MTP layers)"),
            (("run", "spare-memory"), "Name one: spare-memory/helper, spare-memory/larger-quantisation, spare-memory/more-context"),
            (
                ("run", "draft-limit-sweep", "--target", "t", "--draft", "d", "--model", "HUGE=x"),
                "no place for 'HUGE'; it has TARGET, DRAFT",
            ),
            (("run", "draft-limit-sweep", "--model", "x"), "a role and an alias are due"),
            (("run", "missing.yaml"), "missing.yaml can't be read"),
            (("run",), "no experiment is named"),
            (("presets", "x"), "there is no preset 'x'"),
        ],
    )
    def test_what_is_missing_is_named(self, line: tuple[str, ...], said: str, tell: Tell, config_file: Path) -> None:
        options = ("--config", config_file) if line[0] == "run" else ()
        code, _, err = tell(*line, *options)
        assert code == 2
        assert said in err

    def test_models_of_a_file_stay_as_they_are(self, tell: Tell, experiment: Callable[..., Path], config_file: Path) -> None:
        code, _, err = tell("run", experiment(), "--target", "x", "--config", config_file)
        assert code == 2
        assert "a file names its models itself" in err


class TestAgain:
    def test_a_run_asks_what_another_asked(self, tell: Tell, config_file: Path, experiment: Callable[..., Path], tmp_path: Path) -> None:
        first, again = tmp_path / "first", tmp_path / "again"
        assert call("run", experiment(blocks=1), "--config", config_file, "--out", first).returncode == 0
        code, _, err = tell("run", "--again", first, "--config", config_file, "--out", again)
        assert code == 0, err
        asked, then = (json.loads((folder / "job.json").read_text()) for folder in (first, again))
        assert then["spec"]["target"]["model"] == asked["target_hash"]
        assert all("@" in p["workload"] for p in then["spec"]["points"])
        assert [[(p["item"], p["seed"]) for p in t["probes"]] for t in then["plan"]["trials"]] == [
            [(p["item"], p["seed"]) for p in t["probes"]] for t in asked["plan"]["trials"]
        ]

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (("--again", "{}"), "holds no run that can be read"),
            (("--again", "{}", "--target", "x"), "--again asks what a run asked, and target would change it"),
        ],
    )
    def test_what_can_not_be_asked_again_is_said(
        self, line: tuple[str, ...], said: str, tell: Tell, config_file: Path, tmp_path: Path
    ) -> None:
        code, _, err = tell("run", *(word.format(tmp_path) for word in line), "--config", config_file)
        assert code == 2
        assert said in err


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def trial(block: int, name: str = "off") -> TrialPlan:
    return TrialPlan(id=f"b{block}-{name}", index=0, block=block, position=1, arm=name, points=[], warmup=[], probes=[])


class TestBudget:
    def test_blocks_are_begun_while_they_would_end_in_time(self) -> None:
        clock = Clock()
        keeper = BlockClock(100.0, 20, clock)
        begun = []
        for block in range(1, 21):
            if not keeper.may_start(trial(block)):
                break
            begun.append(block)
            clock.now += 12.0
            assert keeper.may_start(trial(block, "draft"))  # a begun block is never broken off
            clock.now += 12.0
        assert begun == [1, 2, 3, 4]
        assert keeper.decision.why_not == "4.0 s are left and a block takes 24 s"

    def test_a_run_that_could_answer_nothing_ends_after_its_first_block(self) -> None:
        clock = Clock()
        keeper = BlockClock(100.0, 20, clock)
        assert keeper.may_start(trial(1))
        clock.now = 45.0
        assert not keeper.may_start(trial(2))
        assert "2 of the 3 blocks" in keeper.decision.why_not

    def test_without_a_budget_every_block_runs(self) -> None:
        clock = Clock()
        keeper = BlockClock(None, 20, clock)
        for block in range(1, 21):
            assert keeper.may_start(trial(block))
            clock.now += 1e6

    def test_it_says_what_was_run_and_what_that_bought(self, config_file: Path, experiment: Callable[..., Path], tmp_path: Path) -> None:
        out = tmp_path / "out"
        began = time.monotonic()
        ran = call("run", experiment(blocks=100), "--config", config_file, "--out", out, "--budget", "8s")
        assert ran.returncode == 0, ran.stderr
        index = RunIndex.model_validate_json((out / "run.json").read_bytes())
        assert 3 <= index.n_blocks < 100
        assert index.budget_s == 8
        assert (index.ended_at - index.started_at).total_seconds() < 16  # a block may be much slower than those before
        assert time.monotonic() - began < 60
        assert f"the time was up: {index.n_blocks} blocks of 100 planned bought 95 % intervals of ±" in ran.stdout
        assert "plan: 100 blocks of 2 starts, in 8.0 s at most" in ran.stderr
        assert "a block takes" in ran.stderr
        assert {a.trial.split("-")[0] for a in index.attempts} == {f"b{n}" for n in range(1, index.n_blocks + 1)}
        assert len(index.attempts) == 2 * index.n_blocks
        assert read_folder(out).run.index == index  # and it can be uploaded so

    def test_a_time_that_can_not_be_enough_is_refused_before_anything_runs(
        self, tell: Tell, config_file: Path, experiment: Callable[..., Path], tmp_path: Path
    ) -> None:
        code, _, err = tell("run", experiment(), "--config", config_file, "--out", tmp_path / "out", "--budget", "0.01s")
        assert code == 2
        assert "0 of the 3 blocks that an interval needs" in err
        assert "Nothing was run" in err
        assert not (tmp_path / "out").exists()

    def test_what_is_no_time(self, tell: Tell, config_file: Path, experiment: Callable[..., Path]) -> None:
        code, _, err = tell("run", experiment(), "--config", config_file, "--budget", "soon")
        assert code == 2
        assert "'soon' is no time such as 45m, 3h or 1h30m" in err


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory, llama_server: Path, demo_models: Path) -> Path:
    folder = tmp_path_factory.mktemp("report")
    models = [{"alias": name, "path": str(demo_models / f"{name}.gguf")} for name in ("target", "draft")]
    settings = {"state_dir": str(folder / "state"), "runtimes": [{"path": str(llama_server)}], "models": models, "threads": 1}
    (folder / "agent.yaml").write_text(yaml.safe_dump(settings))
    (folder / "e.yaml").write_text(yaml.safe_dump(SMALL | {"name": "A | b <script> *c*", "question": "Does `it` pay?"}))
    ran = call("run", folder / "e.yaml", "--config", folder / "agent.yaml", "--out", folder / "out")
    assert ran.returncode == 0, ran.stderr
    assert f"report: {folder / 'out' / 'report.md'}" in ran.stdout
    return folder / "out"


class TestReport:
    def test_the_table_has_the_numbers_of_the_analysis(self, reported: Path) -> None:
        analysis = json.loads((reported / "analysis.json").read_text())
        (comparison,) = analysis["comparisons"]
        report = (reported / "report.md").read_text()
        rows = [line for line in report.splitlines() if line.startswith("| count")]
        assert len(rows) == 1
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", rows[0])[1:-1]]
        assert cells[:3] == ["count/c1/ctx0/t0", "draft-3", f"{comparison['speedup']['estimate']:.2f}×"]
        assert cells[8].startswith(comparison["verdict"]["word"])
        assert "3 blocks bought 95 % intervals of ±" in report
        assert "Integrity" in report
        assert re.search(r"^- count/c1/ctx0/t0, \S+: greedy answers ", report, re.MULTILINE)
        assert "the baseline beside itself: " in report

    def test_names_are_no_markup(self, reported: Path) -> None:
        report = (reported / "report.md").read_text()
        assert report.startswith(r"## A \| b \<script\> \*c\*")
        assert "<script>" not in report.split("```")[0]
        assert r"Does \`it\` pay?" in report

    def test_what_it_says_of_the_machine_is_in_the_inventory(self, reported: Path) -> None:
        inventory = json.loads((reported / "inventory.json").read_text())
        report = (reported / "report.md").read_text()
        assert inventory["runtimes"][0]["manifest_hash"][:12] in report
        assert inventory["models"][0]["manifest_hash"][:12] in report
        assert inventory["hostname"] not in report  # nobody asked for that
        assert "--spec-type draft-simple" in report

    def test_it_can_be_repeated_from_the_report_alone(self, reported: Path) -> None:
        report = (reported / "report.md").read_text()
        found = re.search(r"```yaml\n(.*?)```", report, re.DOTALL)
        assert found
        spec, problems = parse_spec(yaml.safe_load(found[1]))
        assert spec is not None, problems
        assert spec.model_dump(mode="json") == json.loads((reported / "job.json").read_text())["spec"]

    def test_the_hashes_are_those_of_the_files(self, reported: Path) -> None:
        told = dict(re.findall(r"^\| (\S+) \| `([0-9a-f]{64})` \|$", (reported / "report.md").read_text(), re.MULTILINE))
        assert {"run.json", "job.json"} < told.keys()
        assert len(told) == 2 + 6
        for name, digest in told.items():
            assert hashlib.sha256((reported / name).read_bytes()).hexdigest() == digest

    def test_a_run_can_be_read_back_whole(self, reported: Path) -> None:
        folder = read_folder(reported)
        assert len(folder.run.reports) == 6
        assert folder.run.index.outcome == "completed"
        assert folder.run.index.n_blocks == 3


def wait_for(path: Path, n: int, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 60
    while len(list(path.glob("*/report.json"))) < n and time.monotonic() < until:
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


class TestGoingOn:
    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
    def test_whole_blocks_are_kept(self, config_file: Path, experiment: Callable[..., Path], tmp_path: Path, number: int) -> None:
        out = tmp_path / "out"
        line = command("run", experiment(blocks=5), "--config", config_file, "--out", out)
        process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        wait_for(out / "attempts", 5, process)  # two blocks are whole, the third is begun
        process.send_signal(number)
        process.communicate(timeout=30)
        kept = {p.parent.name: p.read_bytes() for p in (out / "attempts").glob("b[12]-*/report.json")}
        assert len(kept) >= 4
        ran = call("run", "--resume", out, "--config", config_file)
        assert ran.returncode == 0, ran.stderr
        assert {p.parent.name: p.read_bytes() for p in (out / "attempts").glob("b[12]-*/report.json")} == kept
        folder = read_folder(out)
        assert (folder.run.index.outcome, folder.run.index.n_blocks) == ("completed", 5)
        by_block = {r.trial: r.block_run for r in folder.run.reports}
        assert by_block["b3-off"] == by_block["b3-draft-3"]  # torn apart, so both were run in the same run
        assert "5 blocks" in (out / "report.md").read_text()

    def test_a_run_that_was_out_of_time_gets_its_other_blocks(
        self, config_file: Path, experiment: Callable[..., Path], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        first = call("run", experiment(blocks=30), "--config", config_file, "--out", out, "--budget", "5s")
        assert first.returncode == 0, first.stderr
        before = RunIndex.model_validate_json((out / "run.json").read_bytes())
        assert before.n_blocks < 30
        ran = call("run", "--resume", out, "--config", config_file)
        assert ran.returncode == 0, ran.stderr
        after = RunIndex.model_validate_json((out / "run.json").read_bytes())
        assert (after.n_blocks, after.budget_s) == (30, None)
        assert after.attempts[: len(before.attempts)] == before.attempts
        assert read_folder(out).run.index == after

    @pytest.mark.parametrize(
        ("name", "content"),
        [("attempt.json", None), ("attempt.json", b"{"), ("records.jsonl", b"[" * 3000), ("second-look.jsonl", b'{"point": []}')],
    )
    def test_evidence_that_was_damaged_since_makes_it_invalid_and_is_named(
        self, name: str, content: bytes | None, tell: Tell, config_file: Path, experiment: Callable[..., Path], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        assert call("run", experiment(blocks=1), "--config", config_file, "--out", out).returncode == 0
        file = out / "attempts" / "b1-off.1" / name
        file.unlink() if content is None else file.write_bytes(content)
        code, said, err = tell("run", "--resume", out, "--config", config_file)
        assert code == 0, err
        assert "invalid · evidence hashes" in said
        assert f"{name} of b1-off" in said

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            (lambda out: edit(out / "inventory.json", lambda d: d.update(n_cores=99)), "n cores changed"),
            (lambda out: edit(out / "job.json", lambda d: d.update(runtime_hash="0" * 64)), "is not on this host"),
            (lambda out: (out / "job.json").write_text("{}"), "can't be read"),
            (lambda out: (out / "attempts" / "b1-off.1" / "report.json").write_text("{"), "b1-off.1/report.json can't be read"),
            (lambda out: (out / "job.json").unlink(), "holds no run"),
        ],
    )
    def test_what_can_not_be_gone_on_with(
        self,
        change: Callable[[Path], object],
        said: str,
        tell: Tell,
        config_file: Path,
        experiment: Callable[..., Path],
        tmp_path: Path,
    ) -> None:
        out = tmp_path / "out"
        assert call("run", experiment(blocks=1), "--config", config_file, "--out", out).returncode == 0
        change(out)
        code, _, err = tell("run", "--resume", out, "--config", config_file)
        assert code in (2, 3)
        assert said in err

    def test_a_run_is_not_changed_on_the_way(self, tell: Tell, experiment: Callable[..., Path], config_file: Path, tmp_path: Path) -> None:
        code, _, err = tell("run", experiment(), "--resume", tmp_path, "--config", config_file)
        assert code == 2
        assert "--resume goes on with a run as it is" in err


class Terminal:
    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None: ...

    def isatty(self) -> bool:
        return True


def test_at_a_terminal_one_line_tells_what_happens_now() -> None:
    screen = Terminal()
    progress = RunProgress(quiet=False, stream=screen)  # type: ignore[arg-type]
    progress.planned(6)
    now = Running(job_id="j", lease=0, trial="b1-off", phase="probing", probe=1, n_probes=2, tokens_per_s=58.2, eta_s=95)
    progress.running(now)
    assert screen.text.endswith("[1/6] b1-off probing · 1 of 2 · 58.2 tokens/s · about 1 min 35 s left")
    moment = "2026-01-01T00:00:00Z"
    report = AttemptReport(
        attempt_id="a", job_id="j", lease=0, trial="b1-off", n=1, outcome="ok", boot_id="", started_at=moment, ended_at=moment, evidence=[]
    )
    progress.attempt(report)
    assert screen.text.splitlines()[-1].endswith("58.2 tokens/s  ok")
    progress.running(now.model_copy(update={"trial": "b1-draft-3", "tokens_per_s": None, "eta_s": None}))
    assert screen.text.endswith("[2/6] b1-draft-3 probing · 1 of 2 · time left: known after the first trial")
    progress.over()
    assert screen.text.endswith("\r\x1b[2K")


class TestPushBeforeTheServer:
    @pytest.mark.parametrize(
        ("options", "env", "said"),
        [
            ((), {}, "no server is named"),
            (("--server", "nowhere"), {}, "is no http:// or https:// address"),
            (("--server", "http://127.0.0.1:1"), {}, "SPECWEB_TOKEN"),
            (("--server", "http://127.0.0.1:1", "--token", "t"), {}, "is no folder"),
            (("--server", "http://127.0.0.1:1"), {"SPECWEB_TOKEN": "t"}, "is no folder"),
        ],
    )
    def test_what_is_missing_is_named(
        self, options: tuple[str, ...], env: dict[str, str], said: str, tell: Tell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("SPECWEB_TOKEN", raising=False)
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        code, _, err = tell("push", tmp_path / "missing", *options)
        assert code == 2
        assert said in err

    def test_a_run_that_was_killed(self, tell: Tell, tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text("{}")
        code, _, err = tell("push", tmp_path, "--server", "http://127.0.0.1:1", "--token", "t")
        assert code == 2
        assert "run --resume DIR" in err

    def test_a_server_that_is_not_there(self, tell: Tell, tmp_path: Path) -> None:
        make_run(tmp_path / "run")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        code, _, err = tell("push", tmp_path / "run", "--server", f"http://127.0.0.1:{port}", "--token", "t")
        assert code == 3
        assert "Connection refused" in err
        assert "then push again" in err

    def test_what_is_no_token(self, tell: Tell, tmp_path: Path) -> None:
        make_run(tmp_path / "run")
        code, _, err = tell("push", tmp_path / "run", "--server", "http://127.0.0.1:1", "--token", "tökén")
        assert code == 2
        assert "the token holds characters that no token has" in err
