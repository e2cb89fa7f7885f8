"""The whole agent against a server behind a replaced network: jobs, lost messages, cancelling, quitting; the engine is real."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import psutil
import pytest
from specagent import local, processes
from specagent import loop as loop_module
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
    assert abs(datetime.now(UTC) - fake_server.polls[0].sent_at) < timedelta(minutes=1)


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


def test_a_job_rests_between_trials_while_the_server_says_so(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(**LONG)
    fake_server.offers.append(job)
    fake_server.pause.append(job.job_id)
    paused = lambda: [p for p in fake_server.polls if p.running and p.running.phase == "paused"]  # noqa: E731
    n_reports: list[int] = []

    def resume() -> None:
        n_reports.append(len(fake_server.reports))
        fake_server.pause.clear()

    thread = when(lambda: len(paused()) >= 3, resume)
    assert loop().run()[0] == 0
    thread.join()
    assert n_reports[0] <= 1  # the trial that ran when the word came, and no other
    assert paused()[0].running.lease == 1
    assert len(fake_server.reports) == len(job.plan.trials)
    assert fake_server.finished[-1].outcome == "completed"


def seconds_to_cancel(fake_server: FakeServer, agent: Loop, job_id: str, phase: str) -> float:
    """From the word on the server to the agent's last word there."""
    asked: list[float] = []

    def cancel() -> None:
        asked.append(time.monotonic())
        fake_server.cancel.append(job_id)

    def end(request: httpx.Request) -> None:
        if b'"cancelled"' in request.content and len(asked) == 1:
            asked.append(time.monotonic())

    fake_server.faults.append(end)
    thread = when(lambda: any(p.running and p.running.phase == phase for p in fake_server.polls), cancel)
    assert agent.run()[0] == 0
    thread.join()
    assert [f.outcome for f in fake_server.finished] == ["cancelled"]
    assert engines() == []
    return asked[1] - asked[0]


def test_a_cancel_takes_less_than_five_seconds(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(**LONG)
    fake_server.offers.append(job)
    assert seconds_to_cancel(fake_server, loop(), job.job_id, "probing") < 5


def test_a_cancel_of_a_paused_job(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer(**LONG)
    fake_server.offers.append(job)
    fake_server.pause.append(job.job_id)
    assert seconds_to_cancel(fake_server, loop(), job.job_id, "paused") < 5


def test_a_cancel_while_the_upload_hangs(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    """The server takes polls and no files; what waits stays in the spool and goes out when it takes them again."""
    job = offer()
    fake_server.offers.append(job)
    fake_server.faults.append(lambda r: httpx.Response(503, text="busy") if "/blobs/" in r.url.path and not fake_server.finished else None)
    assert seconds_to_cancel(fake_server, loop(), job.job_id, "uploading") < 5
    assert {r.trial for r in fake_server.reports.values()} <= {t.id for t in job.plan.trials}


def test_a_long_outage_while_measuring_costs_nothing(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    """From the first trial on nothing reaches the server, until all is measured."""
    job = offer(**LONG)
    fake_server.offers.append(job)
    agent = loop()
    measured = lambda: len(agent._spool.waiting()) == len(job.plan.trials)  # noqa: E731
    back: list[bool] = []

    def away(request: httpx.Request) -> None:
        if fake_server.polls and fake_server.polls[-1].running and not back:
            if measured():
                back.append(True)
            else:
                raise httpx.ConnectError("away", request=request)

    fake_server.faults.append(away)
    assert agent.run()[0] == 0
    assert back
    reports = list(fake_server.reports.values())
    assert sorted(r.trial for r in reports) == sorted(t.id for t in job.plan.trials)
    assert {(r.lease, r.outcome, r.block_run, r.n) for r in reports} == {(1, "ok", 1, 1)}
    assert [f.outcome for f in fake_server.finished] == ["completed"]


def test_results_that_take_long_to_deliver_keep_their_lease_and_the_host_alive(
    fake_server: FakeServer, loop: Callable, job: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent that was started anew has results of an earlier lease; it polls as their holder until they are there."""
    monkeypatch.setattr(loop_module, "_DELIVER_FIRST_S", 0.1)
    ran = job()
    spool = Spool(tmp_path / "state" / "spool")
    ran.sink.attempt = lambda done: spool.store(done, "lease-secret")
    ran.run()
    late = lambda: [p for p in fake_server.polls if p.running and p.running.phase == "uploading"]  # noqa: E731
    fake_server.faults.append(lambda r: httpx.Response(503, text="busy") if "/blobs/" in r.url.path and len(late()) < 2 else None)
    assert loop().run()[0] == 0
    assert len(fake_server.reports) == 2
    assert {(p.running.job_id, p.running.lease) for p in late()} == {(ran.offer.job_id, ran.offer.lease)}
    assert "on their way" in late()[0].running.note


def test_heartbeats_show_the_end_of_the_log(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    fake_server.offers.append(offer(**LONG))
    loop().run()
    tails = [p.running.log_tail for p in fake_server.polls if p.running and p.running.phase == "probing"]
    assert any(tails)
    assert all(len(tail) <= 20 and all(len(line) <= 300 for line in tail) for tail in tails)


def test_a_drained_host_finishes_its_job_and_takes_no_other(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    first, second = offer(), offer()
    fake_server.offers += [first, second]
    agent = loop(once=False)

    def drain_at_work(request: httpx.Request) -> None:
        if fake_server.polls and fake_server.polls[-1].running:
            fake_server.drain = True

    fake_server.faults.append(drain_at_work)
    thread = when(lambda: len([p for p in fake_server.polls if not p.running and not p.finished]) >= 4, agent.quit)
    assert agent.run()[0] == 0
    thread.join()
    assert [f.job_id for f in fake_server.finished] == [first.job_id]
    assert {r.job_id for r in fake_server.reports.values()} == {first.job_id}


def test_a_start_ends_what_an_earlier_agent_left_running(loop: Callable, host: Host) -> None:
    left = subprocess.Popen(["sleep", "60"], start_new_session=True)
    assert host.engine_records
    host.engine_records.mkdir(parents=True)
    record = {"attempt": "", "boot_id": processes.boot_id(), "agent": [1, 1], "engine": [left.pid, processes.start_time(left.pid)]}
    (host.engine_records / "attempt.json").write_text(json.dumps(record))
    assert loop().run()[0] == 0
    assert left.wait(5) == -signal.SIGKILL
    assert list(host.engine_records.iterdir()) == []


def test_a_server_that_is_restarted_while_a_job_is_prepared_costs_no_job(
    fake_server: FakeServer, loop: Callable, offer: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "_ASK_AGAIN_S", 0.05)
    fake_server.offers.append(offer())
    n = 0

    def away(request: httpx.Request) -> None:
        nonlocal n
        if "/workloads/" in request.url.path and n < 10:
            n += 1
            raise httpx.ConnectError("refused", request=request)

    fake_server.faults.append(away)
    assert loop().run()[0] == 0
    assert n == 10
    assert [f.outcome for f in fake_server.finished] == ["completed"]


def test_a_job_can_be_cancelled_while_what_it_needs_is_asked_for(fake_server: FakeServer, loop: Callable, offer: Callable) -> None:
    job = offer()
    fake_server.offers.append(job)
    fake_server.cancel.append(job.job_id)
    fake_server.faults.append(lambda request: httpx.Response(502) if "/workloads/" in request.url.path else None)
    began = time.monotonic()
    assert loop().run()[0] == 0
    assert time.monotonic() - began < 10
    assert [f.outcome for f in fake_server.finished] == ["cancelled"]


def test_a_fault_of_the_agent_leaves_no_job_without_a_heartbeat(
    fake_server: FakeServer, loop: Callable, offer: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_server.offers.append(offer(**LONG))
    agent = loop()

    def broken(spool: Spool) -> int:
        if any(p.running for p in fake_server.polls):
            raise OSError("input/output error")
        return 0

    monkeypatch.setattr(Spool, "n_bytes", broken)
    with pytest.raises(OSError, match="input/output"):
        agent.run()
    assert [t for t in threading.enumerate() if t.name == "runner"] == []
    assert engines() == []
