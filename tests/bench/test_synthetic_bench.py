"""The bench of synthetic acceptance: whole cycles alone are counted, a build without the flag is no success, a wrong length fails."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from bench import synthetic
from tests.core.streams import cycling
from tests.replay.engine import Script, Side

ENGINE = Path(__file__).resolve().parents[1] / "replay" / "engine.py"


def test_cycles_without_room_for_a_whole_draft_are_left_out() -> None:
    steps = [(4, 4, 5, 10.0), (4, 0, 1, 10.0), (4, 2, 3, 10.0), (3, 3, 4, 10.0)]
    assert synthetic.whole_cycles(cycling(steps)) == [5, 1, 3]
    assert synthetic.whole_cycles(cycling([(4, 4, 5, 10.0), (0, 0, 1, 10.0)])) == [5]


def test_a_build_without_it_says_that_nothing_was_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "synthetic.json"
    assert synthetic.main(["--out", str(out)]) == 0
    said = json.loads(out.read_text())
    assert said["ran"] is False
    assert "NOT RUN: this build's help lists no --spec-synth-len" in capsys.readouterr().out
    assert "within" not in said


@pytest.mark.parametrize(("wanted", "code"), [(3.2, 1), (3.0, 0)])
def test_the_length_that_is_counted_is_held_against_the_one_asked_for(
    wanted: float, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A replayed engine stands for a build with the flag: it commits 3 tokens in every cycle."""
    script = Script(starts=str(tmp_path / "starts"), token_ms=0.1, sides={"4": Side(accepted=2)}).write(tmp_path / "script.json")
    program = tmp_path / "llama-server"
    replayed = " ".join(shlex.quote(str(word)) for word in (sys.executable, ENGINE, script))
    program.write_text(f'#!/bin/sh\nif [ "$1" = --help ]; then echo "{synthetic.SYNTH_FLAG} N"; else exec {replayed} "$@"; fi\n')
    program.chmod(0o755)
    monkeypatch.setenv("LLAMA_SERVER", str(program))
    monkeypatch.setattr(synthetic, "LENGTH", wanted)
    out = tmp_path / "synthetic.json"
    assert synthetic.main(["--cycles", "200", "--out", str(out)]) == code
    said = json.loads(out.read_text())
    assert (said["ran"], said["mean_length"], said["within"]) == (True, 3.0, code == 0)
    assert said["n_cycles"] >= 200
    assert "mean length 3.000" in capsys.readouterr().out
