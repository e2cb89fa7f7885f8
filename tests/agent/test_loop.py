"""The whole agent against a server behind a replaced network: jobs, lost messages, cancelling, quitting; the engine is real."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil
import pytest
from specagent import local
from specagent.client import Client
from specagent.inventory import Host
from specagent.loop import Loop
from specagent.spool import Spool
from speccore.protocol import JobOffer
from speccore.workload import Workload

from tests.agent.fake_server import FakeServer


@pytest.fixture
def offer(host: Host, workload: Workload, spec_with: Callable) -> Callable[..., JobOffer]:
    def make(**changes: object) -> JobOffer:
        made = local.make_offer(spec_with(**changes), host, {workload.name: workload})
        return made.model_copy(update={"lease": 1, "lease_token": "lease-secret", "experiment_id": "e"})

    return make


@pytest.fixture
def loop(fake_server: FakeServer, host: Host, tmp_path: Path) -> Callable[..., Loop]:
    def make(*, once: bool = True, token: str = "agent-token") -> Loop:
        client = Client("https://specweb.test", token, transport=fake_server.transport, sleep=lambda seconds: None)
        return Loop(client, Spool(tmp_path / "state" / "spool"), lambda: host, once=once)

    return make


def engines() -> list[str]:
    """Engines and their keepers below this process; the databases of other tests are there too."""
    names = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            command = " ".join(process.cmdline())
            if "llama-server" in command or "keeper" in command:
                names.append(command)
    return names


def when(condition: Callable[[], bool], act: Callable[[], None]) -> threading.Thread:
    def wait() -> None:
        deadline = time.monotonic() + 30
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


LONG = {"points": [{"workload": "numbers", "max_tokens": 400, "probes": 4}], "blocks": 2}


def test_a_job_from_offer_to_acknowledgement(fake_server: FakeServer, loop: Callable, offer: Callable, host: Host) -> None:
    job = offer()
    fake_server.offers.append(job)
    assert loop().run() == (0, "")
    assert [i.inventory for i in fake_server.inventories] == [host.inventory]
    assert sorted(r.trial for r in fake_server.reports.values()) == sorted(t.id for t in job.plan.trials)
    assert all(r.outcome == "ok" and r.lease == 1 for r in fake_server.reports.values())
    assert [(f.job_id, f.outcome) for f in fake_server.finished] == [(job.job_id, "completed")]
    assert all(ref.sha256 in fake_server.blobs for r in fake_server.reports.values() for ref in r.evidence)
    assert engines() == []


def test_no_job_is_no_error(fake_server: FakeServer, loop: Callable) -> None:
    assert loop().run() == (0, "no job waits for this host")
    assert len(fake_server.inventories) == 1


def test_results_are_there_before_the_last_word(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    fake_server.offers.append(offer())
    n_reports_at_last_word: list[int] = []

    def watch(request: httpx.Request) -> None:
        if request.url.path.endswith("/poll") and b'"outcome"' in request.content:
            n_reports_at_last_word.append(len(fake_server.reports))

    fake_server.faults.append(watch)
    loop().run()
    assert n_reports_at_last_word[0] == 2


def test_a_job_that_can_not_be_prepared_fails_with_its_reason(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    fake_server.offers.append(offer().model_copy(update={"commands": {"off": ["llama-server", "--other"]}}))
    loop().run()
    (finished,) = fake_server.finished
    assert (finished.outcome, finished.error.code) == ("failed", "command_differs")
    assert fake_server.reports == {}


def test_lost_replies_heal(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    """Each second answer is lost after the server acted on it."""
    fake_server.offers.append(offer())
    n = 0

    def lose(request: httpx.Request) -> None:
        nonlocal n
        n += 1
        if n % 2 == 0 and not request.url.path.endswith("/poll"):
            raise httpx.ReadTimeout("lost", request=request)

    fake_server.faults.append(lose)
    assert loop().run()[0] == 0
    assert len(fake_server.reports) == 2
    assert fake_server.finished[-1].outcome == "completed"


def test_the_last_word_is_repeated_until_it_is_heard(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    fake_server.offers.append(offer())
    fake_server.acknowledges = False

    def hear_at_last(request: httpx.Request) -> None:
        if sum(bool(p.finished) for p in fake_server.polls) >= 3:
            fake_server.acknowledges = True

    fake_server.faults.append(hear_at_last)
    assert loop().run() == (0, "")
    assert sum(bool(p.finished) for p in fake_server.polls) >= 4
    assert len(fake_server.reports) == 2  # and the job was not run again


def test_cancelling_stops_the_engine_and_says_so(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(**LONG)
    fake_server.offers.append(job)
    thread = when(lambda: any(p.running and p.running.phase for p in fake_server.polls), lambda: fake_server.cancel.append(job.job_id))
    assert loop().run()[0] == 0
    thread.join()
    assert [f.outcome for f in fake_server.finished] == ["cancelled"]
    assert engines() == []
    assert len(fake_server.reports) < len(job.plan.trials)


def test_quitting_in_a_job_leaves_it_for_the_next_start(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(**LONG)
    fake_server.offers.append(job)
    agent = loop(once=False)
    thread = when(lambda: len(fake_server.reports) >= 1, agent.quit)
    assert agent.run() == (0, "")
    thread.join()
    assert fake_server.finished == []
    assert engines() == []
    done = {r.trial for r in fake_server.reports.values() if r.outcome == "ok"}
    # the server offers the rest under a new lease
    fake_server.offers = [job.model_copy(update={"lease": 2, "done_trials": sorted(done)})]
    assert loop().run()[0] == 0
    assert [f.outcome for f in fake_server.finished] == ["completed"]
    ok = [r.trial for r in fake_server.reports.values() if r.outcome == "ok"]
    assert sorted(ok) == sorted(t.id for t in job.plan.trials)  # each trial once
    numbers = {(r.trial, r.n) for r in fake_server.reports.values()}
    assert len(numbers) == len(fake_server.reports)  # no attempt number twice, though the agent was started anew


def test_a_server_that_is_away_during_the_job_gets_all_of_it_later(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    fake_server.offers.append(offer())
    away_until: list[float] = []

    def away(request: httpx.Request) -> None:
        if request.url.path.endswith(("/poll", "/inventory")) or "/workloads/" in request.url.path:
            return
        away_until[:] = away_until or [time.monotonic() + 0.5]
        if time.monotonic() < away_until[0]:
            raise httpx.ConnectError("away", request=request)

    fake_server.faults.append(away)
    assert loop().run()[0] == 0
    assert len(fake_server.reports) == 2


def test_what_an_earlier_agent_left_is_sent_first(fake_server: FakeServer, loop: Callable, job: Callable, tmp_path: Path) -> None:
    ran = job()
    spool = Spool(tmp_path / "state" / "spool")
    ran.sink.attempt = lambda done: spool.store(done, "lease-secret")
    ran.run()
    loop().run()
    assert len(fake_server.reports) == 2
    kinds = [path.split("/")[0] for _, path in fake_server.requests]
    assert kinds.index("attempts") < kinds.index("poll")


def test_a_refused_token_ends_the_agent_with_the_reason(fake_server: FakeServer, loop: Callable) -> None:
    code, message = loop(once=False, token="revoked").run()
    assert code == 3
    assert "unknown token" in message


def test_heartbeats_tell_what_is_done(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(points=LONG["points"])
    fake_server.offers.append(job)
    loop().run()
    told = [p.running for p in fake_server.polls if p.running]
    assert told
    assert {r.job_id for r in told} == {job.job_id}
    assert any(r.trial and r.attempt for r in told)
