"""An arm that is decided leaves: the service reads real evidence while the job runs, and the agent hears of it between two blocks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: Nearly every draft of 16 tokens is wrong here, and costs 17 passes of the helper: many times slower, on any machine.
SPEC = """
name: Early looks
target: {model: demo-target}
engine: {context: 512, start_timeout_s: 60, probe_timeout_s: 60}
arms:
  - {name: "off", mode: "off"}
  - {name: draft-16, mode: draft, draft_model: demo-draft, draft_limit: 16, p_min: 0}
points:
  - {workload: free-text, sampling: {temperature: 1.5}, max_tokens: 12, probes: 2}
warmup: {mode: fixed}
blocks: 10
sequential: true
seed: 3
"""


@pytest.fixture
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="specweb-e2e-"))
    folder.chmod(0o755)  # the servers' user must get in
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_an_arm_that_real_evidence_decides_is_not_started_again(place: Path) -> None:
    (place / "experiment.yaml").write_text(SPEC)
    given = ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "DEBUG", "ONCE", "RUN", "PORT")
    environment = {k: v for k, v in os.environ.items() if k not in given and not k.startswith(("SPECWEB_", "DJANGO_"))}
    environment |= {
        "SPECWEB_HOME": str(place / "home"),
        "EXPERIMENT": str(place / "experiment.yaml"),
        "OUT": str(place / "out.json"),
        "ONCE": "1",
    }
    ran = subprocess.run([sys.executable, "-m", "demo.run"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads((place / "out.json").read_text())
    (found,) = report["comparisons"]
    assert found["n_blocks"] in (3, 5, 7), found
    assert report["n_trials"] == 20
    trials = {e["trial"] for e in report["evidence"]}
    assert 2 * found["n_blocks"] <= len(trials) < 20  # more than twice, where the agent's wait for the word was over before it came
    assert found["verdict"] == "disable"  # at this confidence the interval may still reach over 1, never to a gain worth having
    log = (place / "home" / "logs" / "agent.log").read_text()
    assert f"arm draft-16 is decided after block {found['n_blocks']}" in log
