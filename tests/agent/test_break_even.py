"""``break-even``: refused by a build without synthetic acceptance; with it (a replayed engine here) a curve of its own file."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from specagent import cli, local, runner
from specagent.cli_break_even import NOTICE, shown
from specagent.inventory import Host
from specagent.prepared import PreparedJob
from specagent.runtimes import Runtime
from specagent.synthesis import measure_curve
from speccore.engines.llamacpp import SYNTHETIC_FLAG as SYNTH_FLAG
from speccore.errors import ArmNotSupported, EngineError
from speccore.workload import Workload

from tests.agent.commands import call
from tests.agent.conftest import make_spec
from tests.replay.engine import Script, Side

ENGINE = Path(__file__).resolve().parents[1] / "replay" / "engine.py"

#: Stands for a build with the flag: each length is a side of the replayed engine's script, "20" for a length of 2.
_AS_NEWER_BUILD = """
i = sys.argv.index({flag!r}) if {flag!r} in sys.argv else 0
limit = sys.argv.index("--spec-draft-n-max") if "--spec-draft-n-max" in sys.argv else 0
if i:
    sys.argv[limit + 1] = str(round(10 * float(sys.argv[i + 1])))
    del sys.argv[i:i + 2]
"""


@pytest.fixture
def job(host: Host, workload: Workload, tmp_path: Path) -> Callable[..., PreparedJob]:
    def make(sides: dict[str, Side], *, offered: bool = True, **spec: Any) -> PreparedJob:
        script = Script(starts=str(tmp_path / "starts"), token_ms=3.0, sides=sides).write(tmp_path / "script.json")
        program = tmp_path / "replayed-newer-llama-server"
        words = [sys.executable, str(ENGINE), str(script)]
        code = f"import os, sys\n{_AS_NEWER_BUILD.format(flag=SYNTH_FLAG)}\nos.execv({words[0]!r}, {words!r} + sys.argv[1:])\n"
        (tmp_path / "newer.py").write_text(code)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / "newer.py"))} "$@"\n')
        program.chmod(0o755)
        real = host.inventory.runtimes[0]
        flags = real.capabilities.flags | ({SYNTH_FLAG: SYNTH_FLAG} if offered else {})
        changes = {"executable": str(program), "capabilities": real.capabilities.model_copy(update={"flags": flags})}
        info = real.model_copy(update=changes)
        there = Host(host.inventory.model_copy(update={"runtimes": [info]}), [Runtime(info)], host.gpus, host.cache, host.engine_records)
        workloads = {workload.name: workload}
        offer = local.make_offer(make_spec(**spec), there, workloads)
        return runner.prepare(offer, workloads, there)

    return make


def test_a_curve_is_measured_between_two_baselines(job: Callable[..., PreparedJob], tmp_path: Path) -> None:
    sides = {"10": Side(accepted=0, speed=0.5), "20": Side(accepted=1, speed=0.8), "40": Side(accepted=3, speed=1.6)}
    said: list[str] = []
    made = job(sides, points=[{"workload": "numbers", "max_tokens": 41, "probes": 1}])
    found = measure_curve(made, "draft-3", [1, 2, 4], 3, tmp_path / "work", threading.Event(), said.append)
    assert said == ["off, before", "draft-3, length 1", "draft-3, length 2", "draft-3, length 4", "off, after"]
    assert [p.tokens_per_pass for p in found.points] == [pytest.approx(n) for n in (1, 2, 4)]
    slow, near, fast = (p.ratio for p in found.points)
    assert slow < near < 1 < fast
    assert [p.n_steps for p in found.points] == [120, 60, 30]  # of three answers; the first of each start only warms up
    even = found.break_even()
    assert even is not None
    assert 2 < even < 4
    assert found.words() in shown(found)
    assert (tmp_path / "starts").read_text().split() == ["0", "10", "20", "40", "0"]


def test_an_arm_that_drafts_nothing_has_no_curve(job: Callable[..., PreparedJob], tmp_path: Path) -> None:
    made = job({"20": Side(drafts=False)})
    with pytest.raises(EngineError, match="drafted nothing with --spec-synth-len 2"):
        measure_curve(made, "draft-3", [2], 2, tmp_path / "work", threading.Event(), lambda text: None)


def test_a_build_without_it_is_refused_before_anything_starts(job: Callable[..., PreparedJob], tmp_path: Path) -> None:
    with pytest.raises(ArmNotSupported, match="has no synthetic acceptance"):
        measure_curve(job({}, offered=False), "draft-3", [2], 2, tmp_path / "work", threading.Event(), lambda text: None)
    assert not (tmp_path / "starts").exists()


def test_the_real_build_is_refused_in_words(config_file: Path, experiment: Callable[..., Path], tmp_path: Path) -> None:
    out = tmp_path / "even.json"
    ran = call("break-even", experiment(), "--config", config_file, "--json", out)
    assert ran.returncode == 2
    assert "has no synthetic acceptance: its help lists no --spec-synth-len" in ran.stderr
    assert "→ Add a newer build to the configuration" in ran.stderr
    assert not out.exists()
    assert NOTICE not in ran.stdout


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--arm", "off"), "no such arm with a helper model"),
        (("--lengths", "1,9"), "each is 1 to 4"),
        (("--lengths", "a"), "numbers with commas"),
        (("--requests", "0"), "--requests 0: it is 1 to 200"),
    ],
)
def test_what_is_asked_wrongly_is_told(
    args: tuple[str, str], said: str, experiment: Callable[..., Path], config_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["break-even", str(experiment()), "--config", str(config_file), *args]) == 2
    assert said in capsys.readouterr().err
