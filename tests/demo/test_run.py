"""`python -m demo.run` on real parts: it measures once, serves old results, and leaves nothing running, however it ends."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).resolve().parents[2]
KEYS = {
    *("host", "arm", "mode", "workload", "concurrency", "occupied_context", "temperature", "speedup", "ci_low", "ci_high", "n_blocks"),
    *("verdict", "reason", "acceptance_rate", "mean_acceptance_length", "tokens_per_target_pass", "memory_bill_bytes"),
}
SMALL = """
name: Small
target: {model: demo-target}
engine: {context: 512, start_timeout_s: 60, probe_timeout_s: 60}
arms:
  - {name: "off", mode: "off"}
  - {name: draft-3, mode: draft, draft_model: demo-draft, draft_limit: 3}
points:
  - {workload: count, max_tokens: 16, probes: 1}
blocks: 1
warmup: {mode: fixed}
"""


@pytest.fixture(scope="module")
def place():
    """A folder, with a space in its name, which the servers' user can enter."""
    folder = Path(tempfile.mkdtemp(prefix="specweb demo "))
    folder.chmod(0o755)
    (folder / "small.yaml").write_text(SMALL)
    yield folder
    shutil.rmtree(folder)


class Demo:
    """The demo as a child of the test, with its output collected in a file."""

    def __init__(self, place: Path, **variables: str) -> None:
        names = ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "DEBUG", "OUT", "ONCE", "RUN", "PORT", "LLAMA_SERVER")
        clean = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(("SPECWEB_", "DJANGO_"))}
        self.home = place / "home"
        self.log = place / "output.txt"
        environment = {**clean, "SPECWEB_HOME": str(self.home), "EXPERIMENT": str(place / "small.yaml"), **variables}
        with self.log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "demo.run"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def output(self) -> str:
        return self.log.read_text()

    def until(self, text: str, within_s: float = 90) -> str:
        end = time.monotonic() + within_s
        while text not in self.output():
            assert self.process.poll() is None, self.output()
            assert time.monotonic() < end, self.output()
            time.sleep(0.1)
        return self.output()

    def end(self, within_s: float = 90) -> int:
        return self.process.wait(within_s)

    def left(self, within_s: float = 0) -> list[str]:
        """Processes that still work for this home: by command line, folder or environment."""
        end = time.monotonic() + within_s
        while True:
            found = [line for p in psutil.process_iter() if p.pid != os.getpid() and (line := self._of_this_home(p))]
            if not found or time.monotonic() >= end:
                return found
            time.sleep(0.2)

    def _of_this_home(self, process: psutil.Process) -> str:
        try:
            command = " ".join(process.cmdline())
            if str(self.home) in command or str(self.home) in process.cwd() or process.environ().get("SPECWEB_HOME") == str(self.home):
                return command
        except psutil.Error:
            pass
        return ""


@pytest.fixture
def demo(place):
    started: list[Demo] = []

    def start(**variables: str) -> Demo:
        started.append(Demo(place, **variables))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


def test_once_measures_writes_the_report_and_leaves_nothing(place, demo):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        busy = s.getsockname()[1]
        run = demo(ONCE="1", OUT=str(place / "report.json"), PORT=str(busy))
        assert run.end() == 0, run.output()
        assert f"port {busy} is busy, taking {busy + 1}" in run.output()
    assert run.left() == []
    report = json.loads((place / "report.json").read_text())
    assert set(report) == {"experiment", "url", "n_trials", "comparisons", "evidence"}
    assert report["n_trials"] == 2
    assert [c["arm"] for c in report["comparisons"]] == ["draft-3"]
    assert set(report["comparisons"][0]) >= KEYS
    assert report["comparisons"][0]["acceptance_rate"] > 0.5
    assert {e["file"] for e in report["evidence"]} >= {"server.log", "records.jsonl", "launch.json", "manifest.json"}
    assert "draft-3" in run.output()


def test_a_later_start_serves_the_old_result_with_a_login_link_until_ctrl_c(demo):
    run = demo()
    output = run.until("Ctrl-C stops everything")
    assert "measured before" in output
    assert not re.search(r"trial +\d", output)
    link = re.search(r"log in: +(http\S+)", output)[1]
    page = re.search(r"results: +(http\S+)", output)[1]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert opener.open(link, timeout=10).status == 200
    assert b"Small" in opener.open(page, timeout=10).read()
    stranger = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert "/login/" in stranger.open(link, timeout=10).url.replace("/login/once/", "")  # once means once
    environment = {"PATH": os.environ["PATH"], "SPECWEB_HOME": str(run.home)}  # manage.py finds the service by its folder alone
    manage = [sys.executable, "manage.py", "enrolment_code"]
    assert subprocess.check_output(manage, cwd=ROOT, env=environment, text=True).startswith("enrol_")
    told = run.home / "environment.json"
    assert told.stat().st_mode & 0o777 == 0o600
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.output()
    assert run.left() == []
    assert not told.exists()
    assert "database system is shut down" in (run.home / "logs/postgres.log").read_text()


def test_a_measurement_that_ctrl_c_cut_short_goes_on_at_the_next_start(place, demo):
    (place / "longer.yaml").write_text(SMALL.replace("blocks: 1", "blocks: 5").replace("name: Small", "name: Longer"))
    longer = str(place / "longer.yaml")
    run = demo(RUN="1", EXPERIMENT=longer)
    run.until("trial  1/10")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 0, run.output()
    assert run.left() == []
    again = demo(EXPERIMENT=longer)
    output = again.until("Ctrl-C stops everything")
    assert "measuring 'Longer', which was interrupted:" in output
    assert "no reason given" not in output
    again.process.send_signal(signal.SIGINT)
    assert again.end() == 0, again.output()


def test_a_part_that_dies_is_named_and_everything_else_is_stopped(demo):
    run = demo()
    run.until("Ctrl-C stops everything")
    worker = next(p for p in psutil.Process(run.process.pid).children() if "worker" in p.cmdline())
    worker.kill()
    assert run.end() == 1
    assert "worker ended with code -9" in run.output()
    assert run.left(within_s=10) == []


def test_a_killed_demo_takes_everything_along(demo):
    run = demo(RUN="1")
    run.until("measuring")
    run.process.kill()
    run.process.wait()
    assert run.left(within_s=30) == []


def test_bad_input_is_told_in_words(place, demo):
    (place / "bad.yaml").write_text(SMALL.replace("draft_limit", "draft_limt"))
    run = demo(ONCE="1", EXPERIMENT=str(place / "bad.yaml"))
    assert run.end() == 1
    assert "did you mean 'draft_limit'" in run.output()
    assert "Traceback" not in run.output()
    assert run.left() == []


def test_a_report_that_could_not_be_written_is_told_before_anything_is_measured(place, demo):
    run = demo(ONCE="1", OUT=str(place / "no such folder" / "report.json"))
    assert run.end(within_s=15) == 1
    assert "name a file in a folder that is there" in run.output()
    assert "measuring" not in run.output()
