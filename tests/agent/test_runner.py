"""Jobs on the real engine with the demo's small models: the evidence they leave, and each way in which they can fail."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from specagent import evidence, runner
from specagent.attempt_files import AttemptDone
from specagent.config import Config, ModelEntry
from specagent.filecache import FileCache
from specagent.inventory import Host, take_inventory
from specagent.runtimes import Runtime
from specagent.starting import start_of
from speccore import engines, measure, records
from speccore.errors import ModelFileMissing, PlanDiffers
from speccore.inventory import RuntimeInfo
from speccore.measurement import value_of

from tests.agent.ggufs import make_draft_of_another_vocabulary, make_headless

LOGS = Path(__file__).resolve().parents[1] / "logs" / "llamacpp"


@pytest.fixture(autouse=True)
def nothing_left() -> object:
    """No process below this one may outlive a test."""
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + 3
    while left := [p for p in psutil.Process().children(recursive=True) if p.pid not in before]:
        assert time.monotonic() < deadline, [" ".join(p.cmdline()) for p in left]
        time.sleep(0.05)


def lines(folder: Path, name: str, model: type) -> list:
    return [model.model_validate_json(line) for line in (folder / name).read_text().splitlines()]


def test_every_evidence_file_is_there_and_says_what_was_done(job: Callable, host: Host) -> None:
    ran = job()
    finished = ran.run()
    assert finished.outcome == "completed"
    assert [r.trial for r, _ in ran.sink.done] == [t.id for t in ran.offer.plan.trials]
    for report, folder in ran.sink.done:
        plan = next(t for t in ran.offer.plan.trials if t.id == report.trial)
        assert report.outcome == "ok"
        assert report.boot_id == host.inventory.boot_id
        asked_again = report.trial == "b1-off"
        assert {ref.name for ref in report.evidence} == set(evidence.KINDS) - {records.CONTINUATIONS, records.FIT} - (
            set() if asked_again else {records.SECOND_LOOK}
        )
        assert list(report.evidence) == evidence.refs(folder)
        assert [ref.name for ref in report.evidence if ref.private] == [records.TEXTS] + [records.SECOND_LOOK] * asked_again
        assert set(report.durations_s) == {"start", "warmup", "probe", "stop"} | ({"look"} if asked_again else set())

        launch = records.Launch.model_validate_json((folder / records.LAUNCH).read_text())
        assert (launch.exit_code, launch.stopped_by) == (0, "agent")
        assert launch.healthy_after_s
        assert launch.props["model_path"] == host.inventory.models[0].path
        assert ("--spec-type" in launch.argv) == (plan.arm == "draft-3")
        assert not psutil.pid_exists(launch.pid)

        manifest = records.Manifest.model_validate_json((folder / records.MANIFEST).read_text())
        assert manifest.target_hash == ran.offer.target_hash
        assert manifest.draft_hash == ran.offer.draft_hashes.get(plan.arm, "")
        assert manifest.workloads == ran.offer.plan.workloads
        assert "libllama-server-impl.so" in manifest.runtime

        streams = lines(folder, records.RECORDS, records.StreamRecord)
        assert [s.probe for s in streams] == [p.id for p in (*plan.warmup, *plan.probes)]
        assert [s.warmup for s in streams] == [True, False, False]
        assert [s.seed for s in streams] == [p.seed for p in (*plan.warmup, *plan.probes)]
        assert all(not s.failure and sum(e.tokens for e in s.events) == 16 for s in streams)
        for stream in streams:
            ats = [e.at_s for e in stream.events]
            assert stream.connected_at_s < stream.sent_at_s < ats[0]
            assert ats == sorted(ats)

        texts = lines(folder, records.TEXTS, records.TextRecord)
        assert [t.probe for t in texts] == [s.probe for s in streams]
        assert all(len(t.texts) == len(t.ids) == len(s.events) for t, s in zip(texts, streams))

        snapshots = lines(folder, records.METRICS, records.MetricsSnapshot)
        assert [(s.when, s.probe) for s in snapshots] == [(when, p.id) for p in plan.probes for when in ("before", "after")]
        assert all(s.status == 200 and "llamacpp:" in s.text for s in snapshots)
        samples = lines(folder, records.SAMPLES, records.Sample)
        assert sum(s.phase == "probing" for s in samples) >= len(plan.probes)
        assert next(s for s in samples if s.phase == "warm-up").pss_bytes
        assert all(s.rss_bytes and s.rss_bytes > 10_000_000 for s in samples if s.phase in ("warm-up", "probing"))
        assert all(s.rss_bytes != 0 for s in samples)  # before it runs and after its end there is no memory to speak of
        # the thread, which may look in the middle of a request (it alone tells the load), never walks the engine's pages
        assert {s.pss_bytes is None for s in samples if s.cpu_percent is not None} <= {True}
        assert sum(bool(s.pss_bytes) for s in samples if s.phase == "probing") == len(plan.probes)

        summary = records.AttemptSummary.model_validate_json((folder / records.ATTEMPT).read_text())
        again = ["asking again"] if asked_again else []
        assert [name for name, _ in summary.phases] == ["starting", "warm-up", "probing", *again, "stopping", "ended"]
        assert summary.leftover_pids == []
    assert {s.phase for s in ran.said} >= {"starting", "warm-up", "probing", "stopping"}
    assert not (ran.out / "work").exists() or not list((ran.out / "work").iterdir())


def test_arms_of_a_block_answer_the_same_prompts_alike(job: Callable) -> None:
    ran = job()
    ran.run()
    by_arm = []
    for report, folder in ran.sink.done:
        measured = measure.measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
        assert all(p.ok or p.failure_message for p in measured.probes)
        assert measured.engaged is (None if report.trial.endswith("off") else True)
        by_arm.append({s.item: s.ids_sha256 for s in lines(folder, records.RECORDS, records.StreamRecord)})
    assert by_arm[0] == by_arm[1]  # greedy, so speculation changes nothing


def test_a_model_that_went_away_after_the_inventory(job: Callable, host: Host) -> None:
    ran = job()
    Path(host.inventory.models[0].path).unlink()
    with pytest.raises(ModelFileMissing, match=r"target\.gguf"):
        ran.run()


def test_a_model_that_goes_away_between_trials(job: Callable, host: Host) -> None:
    ran = job()
    real_take = ran.sink.attempt

    def take_and_remove(done: object) -> None:
        real_take(done)
        Path(host.inventory.models[0].path).unlink(missing_ok=True)

    ran.sink.attempt = take_and_remove
    assert ran.run().outcome == "completed"  # one block: nothing is given up by one failure
    first, second = (r for r, _ in ran.sink.done)
    assert first.outcome == "ok"
    assert (second.outcome, second.error.code, second.error.retry) == ("failed", "model_file_missing", False)
    assert {ref.name for ref in second.evidence} >= {records.ATTEMPT, records.MANIFEST, records.RECORDS}


def test_an_engine_that_exits_at_start_gives_its_logs_reason(job: Callable, spec_with: Callable, host: Host) -> None:
    """The inventory takes the target for one with a head for mtp; its engine finds none."""
    arms = [{"name": "off", "mode": "off"}, {"name": "mtp", "mode": "mtp", "draft_limit": 2}]
    target, *others = host.inventory.models
    models = [target.model_copy(update={"has_mtp": True}), *others]
    ran = job(spec_with(arms=arms, blocks=3), replace(host, inventory=host.inventory.model_copy(update={"models": models})))
    assert ran.run().outcome == "completed"
    failed = [(r, f) for r, f in ran.sink.done if r.outcome == "failed"]
    assert len(failed) == 2  # given up after two blocks, not tried again
    for report, folder in failed:
        said = (folder / records.LOG).read_text()  # the engine itself loses the end of its log now and then as it exits
        assert said
        assert report.error.code == ("head_missing" if "MTP layers" in said else "engine_exited_at_start")  # typed by what the log says
        assert report.error.details
        assert json.loads((folder / records.LAUNCH).read_text())["stopped_by"] == "itself"
    assert sum(r.outcome == "ok" for r, _ in ran.sink.done) == 3


def test_a_baseline_that_never_starts_fails_the_job(job: Callable, spec_with: Callable, config: Config) -> None:
    broken = Path(config.models[0].path)
    head = broken.read_bytes()
    broken.write_bytes(head[: len(head) // 2])  # metadata whole, tensors cut off
    host = take_inventory(config, FileCache(config.state_dir / "other.json"))
    assert [m.alias for m in host.inventory.models] == ["draft"]
    assert any("target" in p for p in host.inventory.problems)
    other = Config.model_validate(
        config.model_dump() | {"models": [ModelEntry(alias="target", path=make_headless(broken.with_name("headless.gguf")))]}
    )
    ran = job(
        spec_with(arms=[{"name": "off", "mode": "off"}, {"name": "ngram", "mode": "ngram-simple"}], blocks=3),
        take_inventory(other, FileCache(config.state_dir / "third.json")),
    )
    finished = ran.run()
    assert finished.outcome == "failed"
    assert finished.error.code == "engine_exited_at_start"


def never_healthy(host: Host, folder: Path) -> Host:
    """A fake engine, so named: it answers --help and --version as recorded, and never opens its port."""
    script = folder / "fake-llama-server-that-never-binds"
    body = folder / "never_binds.py"
    body.write_text(
        "import sys, time\n"
        f"if '--help' in sys.argv: print(open({str(LOGS / 'b10434.help.txt')!r}).read()); sys.exit()\n"
        "print('loading, for ever', flush=True)\ntime.sleep(600)\n"
    )
    # Not the interpreter itself in the first line: the kernel cuts that at a space, and a clone may lie in a path with one.
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(body))} "$@"\n')
    script.chmod(0o755)
    info = RuntimeInfo(
        engine="llama-server",
        version="fake",
        manifest_hash="f" * 64,
        executable=str(script),
        capabilities=engines.engine("llama-server").capabilities((LOGS / "b10434.help.txt").read_text()),
    )
    inventory = host.inventory.model_copy(update={"runtimes": [info]})
    return Host(inventory, [Runtime(info)], host.gpus, host.cache)


def test_an_engine_that_never_becomes_healthy(job: Callable, host: Host, spec_with: Callable, tmp_path: Path) -> None:
    engine = {"context": 512, "start_timeout_s": 0.6}
    ran = job(spec_with(engine=engine, blocks=2), never_healthy(host, tmp_path))
    finished = ran.run()
    assert finished.outcome == "failed"
    assert finished.error.code == "engine_not_healthy"
    baseline = [r for r, _ in ran.sink.done if r.trial.endswith("off")]
    assert [r.n for r in baseline][:2] == [1, 2]  # a retry can help, so there was one
    report, folder = ran.sink.done[0]
    assert "0.6 s" in report.error.message
    assert (folder / records.LOG).read_text() == "loading, for ever\n"


class InTheMiddle:
    """Acts once, as soon as the job says that it probes."""

    def __init__(self, ran: object, act: Callable[[], None]) -> None:
        self._ran, self._act, self._done = ran, act, False
        self._was = ran.said.append

    def append(self, running: object) -> None:
        self._was(running)
        if running.phase == "probing" and running.probe == 2 and not self._done:
            self._done = True
            self._act()


def engine_pids() -> list[int]:
    return [p.pid for p in psutil.Process().children(recursive=True) if "llama-server" in p.name()]


def test_an_engine_that_dies_in_the_middle_is_tried_again(job: Callable) -> None:
    ran = job()
    ran.said = InTheMiddle(ran, lambda: os.kill(engine_pids()[0], signal.SIGKILL))
    assert ran.run().outcome == "completed"
    dead, *others = ran.sink.done
    report, folder = dead
    assert (report.outcome, report.error.code, report.n) == ("failed", "engine_died", 1)
    assert report.error.details["exit_code"] == -9
    assert report.error.details["log_tail"]
    again = [r for r, _ in others if r.trial == report.trial]
    assert [(r.outcome, r.n) for r in again] == [("ok", 2)]
    streams = lines(folder, records.RECORDS, records.StreamRecord)
    assert [bool(s.failure) for s in streams] == [False, False, True]  # what went well before is kept
    launch = records.Launch.model_validate_json((folder / records.LAUNCH).read_text())
    assert (launch.exit_code, launch.stopped_by) == (-9, "itself")


def test_an_engine_that_hangs_is_stopped_and_named(job: Callable, spec_with: Callable) -> None:
    """A stopped process hears nothing, not even /metrics: the probe's limit ends it."""
    ran = job(spec_with(engine={"context": 512, "probe_timeout_s": 0.7}))
    ran.said = InTheMiddle(ran, lambda: os.kill(engine_pids()[0], signal.SIGSTOP))
    ran.run()
    report, _ = ran.sink.done[0]
    assert (report.outcome, report.error.code) == ("failed", "probe_stalled")


def test_a_stop_ends_the_job_keeps_the_attempt_and_leaves_nothing(job: Callable, spec_with: Callable) -> None:
    ran = job(spec_with(points=[{"workload": "numbers", "max_tokens": 400, "probes": 4}]))
    ran.said = InTheMiddle(ran, ran.stop.set)
    assert ran.run().outcome == "cancelled"
    ((report, folder),) = ran.sink.done
    assert report.outcome == "cancelled"
    assert (folder / records.RECORDS).read_text()
    assert engine_pids() == []


def test_a_draft_of_another_vocabulary_is_measured_as_not_engaged(job: Callable, config: Config, spec_with: Callable) -> None:
    other = Path(config.models[1].path).with_name("other.gguf")
    make_draft_of_another_vocabulary(Path(config.models[1].path), other)
    both = Config.model_validate(config.model_dump() | {"models": [*config.models, ModelEntry(alias="other", path=other)]})
    arms = [{"name": "off", "mode": "off"}, {"name": "alien", "mode": "draft", "draft_model": "other", "draft_limit": 3}]
    host = take_inventory(both, FileCache(config.state_dir / "files.json"))
    unread = [m.model_copy(update={"tokenizer": None}) for m in host.inventory.models]  # else it would be refused beforehand
    host.inventory = host.inventory.model_copy(update={"models": unread})
    ran = job(spec_with(arms=arms), host)
    assert ran.run().outcome == "completed"
    report, folder = next((r, f) for r, f in ran.sink.done if r.trial == "b1-alien")
    assert report.outcome == "ok"  # today's server starts and answers all the same
    measured = measure.measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
    assert measured.engaged is False
    assert "vocab" in measured.engaged_why
    assert all(value_of(p.counters.drafted) is None or value_of(p.counters.drafted) == 0 for p in measured.probes)


def test_commands_that_differ_from_the_preview_refuse_the_job(job: Callable) -> None:
    ran = job()
    dialect = engines.engine("llama-server")
    info = ran.host.runtimes[0].info
    arm_args = {"allowed_flags": ran.host.inventory.allowed_flags, "threads": 1}
    commands = {
        a.name: dialect.render(ran.offer.spec.engine, a, info.capabilities, engines.SYMBOLIC, **arm_args).argv for a in ran.offer.spec.arms
    }
    ran.offer = ran.offer.model_copy(update={"commands": commands})
    runner.prepare(ran.offer, ran.workloads, ran.host)
    ran.offer = ran.offer.model_copy(update={"commands": commands | {"off": [*commands["off"], "--mlock"]}})
    with pytest.raises(PlanDiffers, match="'off'"):
        ran.run()


def test_trials_that_are_done_are_not_run_again(job: Callable) -> None:
    ran = job()
    first, second = (t.id for t in ran.offer.plan.trials)
    ran.offer = ran.offer.model_copy(update={"done_trials": [first]})
    assert ran.run().outcome == "completed"
    assert [r.trial for r, _ in ran.sink.done] == [second]


def test_a_sink_that_fails_fails_the_job_with_its_reason(job: Callable) -> None:
    ran = job()

    def broken(done: AttemptDone) -> None:
        raise OSError(5, "Input/output error")

    ran.sink.attempt = broken
    finished = ran.run()
    assert (finished.outcome, finished.error.code) == ("failed", "host_error")
    assert "Input/output error" in finished.error.message


def test_two_jobs_after_each_other_share_no_port(job: Callable) -> None:
    ran = job()
    ran.run()
    ports = [json.loads((f / records.LAUNCH).read_text())["port"] for _, f in ran.sink.done]
    assert all(1024 < port < 65536 for port in ports)
    assert threading.active_count() < 10


def test_a_secret_of_the_environment_reaches_the_engine_and_no_evidence(job: Callable, host: Host) -> None:
    ran = job()
    prepared = runner.prepare(ran.offer, ran.workloads, host)
    secret = replace(prepared, runtime=replace(prepared.runtime, env={**prepared.runtime.env, "MY_API_KEY": "s3cret", "GGML_CUDA": "1"}))
    start = start_of(secret, "off")
    assert start.env["MY_API_KEY"] == "s3cret"
    assert start.shown["env"]["GGML_CUDA"] == "1"
    assert "MY_API_KEY" in start.shown["env"]
    assert "s3cret" not in json.dumps(start.shown)
