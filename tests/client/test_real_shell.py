"""The command as a program of its own on the real server: docs/cli.md by a shell, its gate with a real agent, a terminal, a pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.db import connection

from specweb.accounts.services import create_token
from specweb.experiments.models import Experiment, Host, Job
from specweb.experiments.services.dispatch import dispatch_waiting
from specweb.experiments.services.hosts import create_enrolment_code
from specweb.reported.models import Report
from specweb.results.queries import left_to_parse
from specweb.results.services.comparing import compare_job
from specweb.results.services.parsing import parse_attempt
from specweb.results.services.reports import create_trials
from tests.e2e.test_two_hosts import WORK, Machine, done
from tests.web import sample
from tests.web.pages import SMALL

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
BIN = Path(sys.executable).parent
COLUMNS = 72


@pytest.fixture
def people(live_server: Any, settings: Any) -> sample.People:
    settings.SPECWEB_BASE_URL = live_server.url
    return sample.people()


@pytest.fixture
def environment(live_server: Any, people: sample.People, tmp_path: Path) -> dict[str, str]:
    path = f"{BIN}:{os.environ['PATH']}"
    token = create_token(people.owner, "shell")[1]
    return {"PATH": path, "HOME": str(tmp_path), "SPECWEB_URL": live_server.url, "SPECWEB_TOKEN": token, "no_proxy": "*", "LANG": "C"}


def shell(text: str, environment: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["bash", "-ec", text], cwd=cwd, env=environment, capture_output=True, encoding="utf-8", timeout=240)


@contextmanager
def worker() -> Iterator[None]:
    """What the workers do, in a thread of this process: hand out, read, compare."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.2):
            dispatch_waiting(datetime.now(UTC), online_within=timedelta(minutes=5), on_queued=create_trials)
            for attempt_id in left_to_parse(datetime.now(UTC) + timedelta(days=1)):
                parse_attempt(attempt_id)
            for job in Job.objects.filter(state="completed"):
                compare_job(job.pk, datetime.now(UTC))
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_the_page_s_gate_and_commands_on_a_real_agent(
    live_server: Any, people: sample.People, environment: dict[str, str], tmp_path: Path
) -> None:
    machine = Machine(tmp_path, live_server.url, "box", one_core=False)
    done(machine.agent("enrol", "--server", live_server.url, "--code", create_enrolment_code(people.team, datetime.now(UTC))))
    for content in {w.content_hash(): w for w in sample.workloads.builtin().values()}.values():
        sample.seed_workload(content)
    (tmp_path / "experiment.yaml").write_text(
        yaml.safe_dump(sample.spec(**WORK | {"placement": {}}).model_dump(mode="json", exclude_defaults=True))
    )
    (sample_file,) = [text for kind, text in BLOCKS if kind == "yaml"]
    gate = yaml.safe_load(sample_file)["jobs"]["gate"]["steps"][-1]["run"]
    agent = machine.agent("poll")
    try:
        with worker():
            deadline = time.monotonic() + 60
            while not Host.objects.exclude(inventory=None).exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            ran = shell(gate, environment | {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}, tmp_path)
    finally:
        agent.terminate()
        agent.communicate(timeout=60)
    told = json.loads((tmp_path / "verdict.json").read_text())
    (finding,) = told["gate"]["findings"]
    assert (told["state"], finding["expected"], finding["arm"]) == ("processed", "draft-3=no-regression", "draft-3"), ran.stderr
    assert ran.returncode == told["gate"]["exit_code"] == finding["exit_code"], ran.stderr
    assert ran.returncode in (0, 10, 11, 12), "which one is the machine's to say"
    assert "processed on box" in ran.stderr or "processed on" in ran.stderr
    assert "\x1b" not in ran.stderr + ran.stdout
    assert (tmp_path / "summary.md").read_text().startswith("## Two hosts\n")

    environment |= {"EXPERIMENT": told["id"]}
    commands = [text for kind, text in BLOCKS if kind == "sh"]
    assert len(commands) == 4
    first, *others = commands
    for text in [*others, first]:
        ran = shell(text, environment, tmp_path)
        assert ran.returncode == 0, (text, ran.stderr)
        assert "Traceback" not in ran.stderr
    assert Experiment.objects.count() == 2
    assert (tmp_path / "report.md").read_text() == (tmp_path / "summary.md").read_text()
    assert (tmp_path / "experiment.zip").stat().st_size > 10_000
    assert Report.objects.get().file_name == "table.csv"


def test_a_terminal_shows_how_far_it_is_and_ctrl_c_leaves_it_running(people: sample.People, environment: dict[str, str]) -> None:
    host = sample.host_with_inventory(people.team)
    run = sample.claimed(sample.submitted(people.team, people.owner, sample.spec(**SMALL)), host)
    sample.play(run, n_trials=2)
    doing = {"job_id": str(run.job.pk), "lease": 1, "trial": "b2-draft-3", "phase": "probing", "probe": 1, "n_probes": 2, "eta_s": 95.0}
    Job.objects.filter(pk=run.job.pk).update(progress=doing)
    terminal = Terminal(["specweb", "watch", str(run.experiment.pk)], environment | {"TERM": "xterm-256color"})
    try:
        terminal.until(rf"2/{len(run.plan.trials)} trials · b2-draft-3 probing 1 of 2")
        assert re.search(r"█+░+ 2/", terminal.seen)
        terminal.press("\x03")
        terminal.until(f"specweb watch {run.experiment.pk}")
        assert terminal.ended() == 130
    finally:
        terminal.close()
    lines = [re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", terminal.seen.replace("^C", ""))]
    assert max(len(line) for line in lines if "trials ·" in line) < COLUMNS
    assert Job.objects.get().state == "running"
    assert "Traceback" not in terminal.seen


class Terminal:
    """A program on a pseudo-terminal of COLUMNS columns."""

    def __init__(self, line: list[str], environment: dict[str, str]) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            [str(BIN / line[0]), *line[1:]], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def until(self, pattern: str, seconds: float = 60) -> None:
        ends = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            assert time.monotonic() < ends, self.seen
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:  # it has ended
                    break
        assert re.search(pattern, self.seen), self.seen

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def ended(self) -> int:
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)


def test_in_a_pipe_it_is_whole_plain_utf_8_and_quiet(people: sample.People, environment: dict[str, str], tmp_path: Path) -> None:
    run = sample.finished(people.team, people.owner, sample.spec(**SMALL))
    Experiment.objects.filter(pk=run.experiment.pk).update(name="A name that is longer than any terminal is wide " * 2)
    bare = environment | {
        "LC_ALL": "C",
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "COLUMNS": "40",
        "EXPERIMENT": str(run.experiment.pk),
    }
    ran = shell("specweb watch $EXPERIMENT --expect any | cat; specweb list; specweb list --json | head -c 1", bare, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"^count/c1/ctx0/t0 +draft-3 +\d\.\d\d×", ran.stdout, re.MULTILINE)
    assert "is wide A name that is longer than any terminal is wide\n" in ran.stdout
    assert ran.stdout.endswith("{")
    assert "\x1b" not in ran.stdout + ran.stderr
    assert ran.stderr.splitlines() == ["processed on xeon"]
    nobody = shell("specweb list --json | true; specweb nonsense", bare, tmp_path)
    assert nobody.returncode == 2
    assert "Traceback" not in nobody.stderr
