"""A real worker on a real broker; the names that the web sends; a broker that is away."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from specweb import queue
from specweb.experiments.models import Job
from specweb.experiments.services.submission import submit
from specweb.results.models import Attempt, Comparison
from tests.evidence import SPEEDUP, files_of
from tests.worlds import make_world, spec

WAIT_S = 60.0


def test_every_name_that_is_sent_is_registered() -> None:
    from workers.app import app

    app.loader.import_default_modules()
    assert set(queue.TASKS.values()) <= set(app.tasks)
    assert {entry["task"] for entry in app.conf.beat_schedule.values()} <= set(queue.TASKS.values())


def test_a_broker_that_is_away_breaks_nothing(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BROKER_URL", "redis://127.0.0.1:1/0")
    queue._producer.cache_clear()
    try:
        began = time.monotonic()
        assert queue.send("sweep") is False
        assert time.monotonic() - began < 5
        assert "the sweep will find the work" in caplog.text
    finally:
        queue._producer.cache_clear()


@pytest.fixture
def worker(transactional_db: Any, evidence_folder: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A worker with beat, as in production, on the test's own database and evidence folder."""
    name = connection.settings_dict["NAME"]
    base, _, query = os.environ["DATABASE_URL"].partition("?")
    environment = os.environ | {
        "DATABASE_URL": base.rpartition("/")[0] + f"/{name}" + (f"?{query}" if query else ""),
        "SPECWEB_EVIDENCE_DIR": str(evidence_folder),
    }
    log = (tmp_path / "worker.log").open("wb")
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "worker", "--beat", "--schedule", str(tmp_path / "beat")]
    process = subprocess.Popen(
        [*command, "--concurrency", "1", "--loglevel", "info", "--without-gossip", "--without-mingle"],
        env=environment,
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)
        log.close()
        sys.stdout.write((tmp_path / "worker.log").read_text(errors="replace")[-4000:])


def until(what: str, condition: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s for {what}"
        time.sleep(0.1)


def test_from_submission_to_comparison(worker: subprocess.Popen[bytes]) -> None:
    world = make_world()
    world.agent.poll()
    world.agent.send_inventory()
    submit(spec(), world.team, world.owner)
    until("a queued job", lambda: Job.objects.get().state == "queued")
    offer = world.agent.offer()
    for trial in offer.plan.trials:
        attempt_id = str(uuid.uuid4())
        reply = world.agent.deliver(offer, trial.id, files_of(offer, trial, attempt_id), attempt_id=attempt_id)
        assert reply.json()["counted"]
    world.agent.poll(finished=[{"job_id": offer.job_id, "lease": 1, "outcome": "completed"}])
    until("the comparison", lambda: Job.objects.get().state == "processed")
    assert set(Attempt.objects.values_list("state", flat=True)) == {"parsed"}
    assert Comparison.objects.get().speedup == pytest.approx(SPEEDUP, rel=1e-3)
    assert worker.poll() is None
