"""Early looks on the agent's side: a run that decides by itself, one that is told by its server, and one that hears nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from specagent import local, looks
from specagent.client import Client
from specagent.inventory import Host
from specagent.looks import ServerLooks
from specagent.loop import Loop
from specagent.machine import Held, Polled, State, TellLooked, step
from specagent.push import read_folder
from specagent.spool import Spool
from speccore.measurement import JobAnalysis
from speccore.protocol import JobOffer, Looked, PollReply
from speccore.selfrun import RunIndex, RunInvalid, RunUpload, read_run
from speccore.workload import Workload

from tests.agent.commands import call
from tests.agent.fake_server import FakeServer

#: On free text nearly every draft of 16 tokens is wrong and costs 17 passes of a model: many times slower, on any machine.
SLOW = {
    "arms": [{"name": "off", "mode": "off"}, {"name": "draft-16", "mode": "draft", "draft_model": "draft", "draft_limit": 16, "p_min": 0}],
    "points": [{"workload": "free-text", "sampling": {"temperature": 1.5}, "max_tokens": 48, "probes": 2}],
    "warmup": {"mode": "fixed"},
    "blocks": 10,
    "sequential": True,
}


@pytest.fixture
def offer(host: Host, workload: Workload, spec_with: Callable) -> Callable[..., JobOffer]:
    def make(**changes: object) -> JobOffer:
        made = local.make_offer(spec_with(**({"blocks": 5, "sequential": True} | changes)), host, {workload.name: workload})
        return made.model_copy(update={"lease": 1, "lease_token": "lease-secret", "experiment_id": "e"})

    return make


@pytest.fixture
def loop(fake_server: FakeServer, host: Host, tmp_path: Path) -> Callable[[], Loop]:
    def make() -> Loop:
        client = Client("https://specweb.test", "agent-token", transport=fake_server.transport, sleep=lambda seconds: None)
        return Loop(client, Spool(tmp_path / "state" / "spool"), lambda: host, once=True)

    return make


class TestAlone:
    def test_an_arm_that_its_evidence_decides_is_not_started_again(
        self, config_file: Path, experiment: Callable[..., Path], tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        ran = call("run", experiment(**SLOW), "--config", config_file, "--out", out)
        assert ran.returncode == 0, ran.stderr
        index = RunIndex.model_validate_json((out / "run.json").read_bytes())
        after = index.decided["draft-16"]
        assert after in (3, 5, 7)
        assert (index.outcome, index.n_blocks, len(index.attempts)) == ("completed", after, 2 * after)
        assert f"draft-16 is decided after block {after}: look" in ran.stderr
        assert f"({20 - 2 * after} starts spared)" in ran.stderr
        analysis = JobAnalysis.model_validate_json((out / "analysis.json").read_bytes())
        (c,) = analysis.comparisons
        assert c.look is not None
        assert (c.look.decided, c.look.n_blocks, c.look.n_planned) == (True, after, 10)
        assert next(check.state for check in analysis.checks if check.name == "early looks") == "passed"
        report = (out / "report.md").read_text()
        assert f"{after} blocks of 10 planned bought intervals of" in report
        assert f"not started again: draft-16 after block {after}." in report
        assert "95 % interval" not in report.split("## ")[1].split("<details>")[0]

        again = call("run", "--resume", out, "--config", config_file)  # nothing is left of it
        assert again.returncode == 0, again.stderr
        assert RunIndex.model_validate_json((out / "run.json").read_bytes()).attempts == index.attempts

        folder = read_folder(out)
        upload = folder.run
        assert upload.index.decided == {"draft-16": after}
        self.refuses_what_no_look_decided(out, tmp_path)

    def refuses_what_no_look_decided(self, out: Path, tmp_path: Path) -> None:
        def sent(**index: object) -> RunUpload:
            run = json.loads((out / "run.json").read_text()) | index
            reports = [json.loads((out / "attempts" / f"{a['trial']}.{a['n']}" / "report.json").read_text()) for a in run["attempts"]]
            documents = {name: json.loads((out / f"{name}.json").read_text()) for name in ("job", "inventory", "workloads")}
            return RunUpload(run=RunIndex.model_validate(run), reports=reports, **documents)

        read_run(sent())
        with pytest.raises(RunInvalid, match="trials without an attempt that decides them: b"):
            read_run(sent(decided={}))
        with pytest.raises(RunInvalid, match="arm 'off' was left out as decided after block 5: early looks decide arms with speculation"):
            read_run(sent(decided={"off": 5}))
        with pytest.raises(RunInvalid, match="the first look is after block 3"):
            read_run(sent(decided={"draft-16": 2}))


class TestServed:
    def test_an_arm_that_the_server_says_is_decided_is_not_started_again(
        self, fake_server: FakeServer, loop: Callable, offer: Callable
    ) -> None:
        job = offer()

        def looked() -> Looked | None:
            seen = {r.trial for r in fake_server.reports.values()}
            whole = {t.id for t in job.plan.trials if t.block <= 3} <= seen
            return Looked(job_id=job.job_id, after_block=3, decided={"draft-3": 3}) if whole else None

        fake_server.looked = looked
        fake_server.offers.append(job)
        assert loop().run() == (0, "")
        assert sorted(r.trial for r in fake_server.reports.values()) == sorted(t.id for t in job.plan.trials if t.block <= 3)
        assert [f.outcome for f in fake_server.finished] == ["completed"]

    def test_without_a_word_the_job_goes_on_and_runs_all_trials(
        self, fake_server: FakeServer, loop: Callable, offer: Callable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(looks, "WAIT_S", 0.5)
        job = offer(blocks=4, points=[{"workload": "numbers", "max_tokens": 4, "probes": 1}])
        fake_server.looked = lambda: Looked(job_id="another", after_block=3, decided={"draft-3": 1})
        fake_server.offers.append(job)
        assert loop().run() == (0, "")
        assert len(fake_server.reports) == len(job.plan.trials)
        assert "looking" in {p.running.phase for p in fake_server.polls if p.running}

    def test_cancelled_while_it_waits_for_the_word_it_starts_no_engine(
        self, fake_server: FakeServer, loop: Callable, offer: Callable
    ) -> None:
        job = offer(blocks=4, points=[{"workload": "numbers", "max_tokens": 4, "probes": 1}])

        def looked() -> Looked | None:
            if any(p.running and p.running.phase == "looking" for p in fake_server.polls):
                fake_server.cancel.append(job.job_id)
            return None

        fake_server.looked = looked
        fake_server.offers.append(job)
        assert loop().run() == (0, "")
        assert sorted(r.trial for r in fake_server.reports.values()) == sorted(t.id for t in job.plan.trials if t.block <= 3)
        assert [f.outcome for f in fake_server.finished] == ["cancelled"]

    def test_what_was_decided_under_an_earlier_lease_comes_with_the_offer(
        self, fake_server: FakeServer, loop: Callable, offer: Callable
    ) -> None:
        job = offer()
        done = [t.id for t in job.plan.trials if t.block <= 4]
        fake_server.offers.append(job.model_copy(update={"done_trials": done, "looked_after": 3, "decided": {"draft-3": 3}}))
        assert loop().run() == (0, "")
        assert fake_server.reports == {}
        assert [f.outcome for f in fake_server.finished] == ["completed"]


class TestWaiting:
    def test_it_ends_with_the_word(self, offer: Callable) -> None:
        job = offer()
        waits = ServerLooks(job, threading.Event(), wait_s=60)
        threading.Timer(0.2, waits.tell, [Looked(job_id=job.job_id, after_block=3, decided={"draft-3": 3})]).start()
        waits.after(3)
        assert waits.decided == {"draft-3": 3}
        waits.after(3)  # no second wait for what is known

    @pytest.mark.parametrize("why", ["away", "stopped", "too long"])
    def test_it_ends_without_one(self, offer: Callable, why: str) -> None:
        stop = threading.Event()
        if why == "stopped":
            stop.set()
        waits = ServerLooks(offer(), stop, lambda: why == "away", wait_s=0.2 if why == "too long" else 60)
        waits.after(3)
        assert waits.decided == {}

    def test_only_the_word_on_the_own_job_is_heard(self) -> None:
        word = Looked(job_id="j1", after_block=3, decided={"draft-3": 3})
        at_work = State(job=Held("j1", 1))
        assert TellLooked(word) in step(at_work, Polled(PollReply(looked=word)))[1]
        assert not any(isinstance(e, TellLooked) for e in step(at_work, Polled(PollReply(looked=Looked(job_id="j2"))))[1])
        assert not any(isinstance(e, TellLooked) for e in step(State(), Polled(PollReply(looked=word)))[1])
