"""The main job on real parts: submit → dispatch → agent → llama-server → evidence → verdict → page, and the same without a server."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from speccore import compare, measure, quality, records
from speccore.measurement import JobAnalysis
from speccore.protocol import JobOffer
from speccore.records import SECOND_LOOK
from speccore.workloads import builtin

ROOT = Path(__file__).resolve().parents[2]
SPEC = """
name: End to end
question: Does a draft pay for counting and for free text?
target: {model: demo-target}
engine: {context: 512, start_timeout_s: 60, probe_timeout_s: 60}
arms:
  - {name: "off", mode: "off"}
  - {name: draft-3, mode: draft, draft_model: demo-draft, draft_limit: 3}
points:
  - {workload: count, max_tokens: 32, probes: 2}
  - {workload: free-text, sampling: {temperature: 0.8}, max_tokens: 32, probes: 1}
blocks: 3
warmup: {mode: fixed}
seed: 11
"""
ARMS_AND_POINTS = {("draft-3", "count"), ("draft-3", "free-text")}
FILES = {records.LOG, records.LAUNCH, records.MANIFEST, records.RECORDS, records.TEXTS, records.METRICS, records.SAMPLES, records.ATTEMPT}


@dataclass(frozen=True)
class Served:
    """The service after it has measured: its report, a logged-in client, and where its state lies."""

    report: dict[str, Any]
    client: httpx.Client
    home: Path
    seconds: float


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="specweb-e2e-"))
    folder.chmod(0o755)  # the servers' user must get in
    (folder / "experiment.yaml").write_text(SPEC)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Served]:
    given = ("DATABASE_URL", "BROKER_URL", "SECRET_KEY", "DEBUG", "ONCE", "RUN", "PORT")
    environment = {k: v for k, v in os.environ.items() if k not in given and not k.startswith(("SPECWEB_", "DJANGO_"))}
    environment |= {"SPECWEB_HOME": str(place / "home"), "EXPERIMENT": str(place / "experiment.yaml"), "OUT": str(place / "out.json")}
    log = place / "demo.log"
    began = time.monotonic()
    with log.open("w") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "demo.run"], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
    try:
        while "Ctrl-C stops everything" not in log.read_text():
            assert demo.poll() is None, log.read_text()
            assert time.monotonic() - began < 300, log.read_text()
            time.sleep(0.2)
        seconds = time.monotonic() - began
        link = re.search(r"log in: +(http\S+)", log.read_text())
        assert link, log.read_text()
        with httpx.Client(follow_redirects=True, timeout=30) as client:
            assert client.get(link[1]).status_code == 200
            yield Served(json.loads((place / "out.json").read_text()), client, place / "home", seconds)
        children = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 0, log.read_text()
        assert [p for p in children if p.is_running()] == []
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()


@pytest.fixture(scope="module")
def local(served: Served, place: Path) -> dict[str, Any]:
    """The same experiment by the agent alone, in ``place/local``, with the same configuration."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "specagent.cli", "run", str(place / "experiment.yaml")),
            *("--config", str(served.home / "agent.yaml"), "--out", str(place / "local"), "--json", str(place / "local.json"), "--quiet"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "draft-3" in done.stdout
    result: dict[str, Any] = json.loads((place / "local.json").read_text())
    return result


class _Links(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value for name, value in attrs if tag == "a" and name == "href" and value]


def links(page: str, pattern: str) -> list[str]:
    return sorted({link for link in _Links(page).found if re.search(pattern, link)})


def test_a_verdict_on_real_measurements(served: Served) -> None:
    report = served.report
    assert report["n_trials"] == 6
    assert {(c["arm"], c["workload"]) for c in report["comparisons"]} == ARMS_AND_POINTS
    for c in report["comparisons"]:
        assert c["n_blocks"] == 3
        assert c["ci_low"] < c["speedup"] < c["ci_high"]
        assert c["verdict"] in {"keep", "shorten", "disable", "inconclusive", "invalid"}
        assert c["reason"]
        assert 0 < c["acceptance_rate"] <= 1
        assert c["mean_acceptance_length"] > 1
        assert c["tokens_per_target_pass"] > 1
        assert c["memory_bill_bytes"] > 0
    count, free = sorted(report["comparisons"], key=lambda c: c["workload"])
    assert count["acceptance_rate"] > 0.9 > free["acceptance_rate"]
    assert served.seconds < 240, "the path is to be walked in two minutes; this is twice that"


def test_each_attempt_left_all_its_evidence_and_the_hashes_hold(served: Served) -> None:
    by_attempt: dict[str, dict[str, dict[str, Any]]] = {}
    for e in served.report["evidence"]:
        by_attempt.setdefault(e["attempt"], {})[e["file"]] = e
    assert len(by_attempt) == 6
    base = served.report["url"].split("/experiments/")[0]
    for attempt, files in by_attempt.items():
        asked_again = {SECOND_LOOK} if any("-off" in e["trial"] for e in files.values()) else set()
        assert files.keys() == FILES | asked_again
        for name, e in files.items():
            raw = served.client.get(f"{base}/attempts/{attempt}/raw/{name}")
            assert raw.status_code == 200
            assert (hashlib.sha256(raw.content).hexdigest(), len(raw.content)) == (e["sha256"], e["bytes"]), (attempt, name)


def test_the_page_tells_the_answer_and_each_number_leads_to_a_line_of_a_raw_file(served: Served) -> None:
    page = served.client.get(served.report["url"])
    assert page.status_code == 200
    assert "Does a draft pay for counting and for free text?" in page.text
    for c in served.report["comparisons"]:
        assert f"{c['speedup']:.2f}" in page.text
    numbers = links(page.text, r"^/jobs/[^/]+/numbers\?")
    assert numbers
    base = served.report["url"].split("/experiments/")[0]
    probes = served.client.get(base + numbers[0])
    assert probes.status_code == 200
    records_links = links(probes.text, r"/attempts/.*/evidence/records\.jsonl.*#L\d+$")
    assert records_links
    target = records_links[0]
    viewer = served.client.get(base + target)
    assert viewer.status_code == 200
    assert f'id="{target.rsplit("#", 1)[1]}"' in viewer.text


def test_a_stranger_without_a_login_sees_none_of_it(served: Served) -> None:
    base = served.report["url"].split("/experiments/")[0]
    evidence = served.report["evidence"][0]
    for url in (served.report["url"], f"{base}/attempts/{evidence['attempt']}/raw/{evidence['file']}"):
        reply = httpx.get(url, follow_redirects=False)
        assert reply.status_code in (302, 404)
        assert "End to end" not in reply.text


def test_the_agent_alone_gives_the_same_comparisons_from_the_same_kind_of_evidence(served: Served, local: dict[str, Any]) -> None:
    def what(result: dict[str, Any]) -> set[tuple[Any, ...]]:
        return {(c["arm"], c["mode"], c["workload"], c["temperature"], c["concurrency"], c["n_blocks"]) for c in result["comparisons"]}

    def files(result: dict[str, Any]) -> set[tuple[str, str]]:
        return {(e["trial"], e["file"]) for e in result["evidence"]}

    assert what(local) == what(served.report)
    assert files(local) == files(served.report)
    # What the clock doesn't touch is equal to the digit: the same prompts, seeds and greedy tokens.
    for name in ("acceptance_rate", "mean_acceptance_length", "tokens_per_target_pass"):
        here, there = ([c[name] for c in r["comparisons"] if c["workload"] == "count"] for r in (local, served.report))
        assert here == there, name


def test_a_verdict_can_be_computed_again_from_the_evidence_alone(local: dict[str, Any], place: Path) -> None:
    folder = place / "local"
    offer = JobOffer.model_validate_json((folder / "job.json").read_bytes())
    workloads = {p.workload: builtin()[p.workload] for p in offer.spec.points}
    raw = {
        attempt.name.rsplit(".", 1)[0]: {f.name: f.read_bytes() for f in attempt.iterdir() if f.name in FILES | {SECOND_LOOK}}
        for attempt in sorted((folder / "attempts").iterdir())
    }
    again = compare.analyse_job(
        offer.spec,
        offer.plan,
        [measure.measure_attempt(files, offer.spec, workloads) for files in raw.values()],
        [],
        compare.JobFacts(hashes_verified=True, n_hashes=len(local["evidence"])),
        workloads=workloads,
        answers_read=[quality.read_answers(raw[t.id], offer.spec, t) for t in offer.plan.trials],
    )
    stored = JobAnalysis.model_validate_json((folder / "analysis.json").read_bytes())
    assert again.comparisons == stored.comparisons
