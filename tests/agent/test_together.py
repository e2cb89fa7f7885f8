"""Trials whose requests run together, on the real engine: what they leave, what is measured of it, and how they end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from specagent import evidence
from specagent.load import Closed, records_of
from specagent.together import batches
from speccore import measure, records
from speccore.engines import openai_stream
from speccore.measurement import value_of
from speccore.plan import plan_job
from speccore.protocol import Running
from speccore.spec import ExperimentSpec
from speccore.window import load_of
from speccore.workload import Item, Workload

from tests.agent.conftest import make_spec
from tests.agent.loads import answer, requests, run
from tests.replay import ReplayServer

ALONE = {"workload": "numbers", "max_tokens": 24, "probes": 2}
FOUR = {"workload": "numbers", "max_tokens": 24, "concurrency": 4}
KEY = "numbers/c4/ctx0/t0"


@pytest.fixture
def workload() -> Workload:
    items = [Item(id=f"n{a}", prompt=f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n") for a in range(10, 48)]
    return Workload(name="numbers", version=1, title="Numbers", items=items[8:], warmup=items[:8])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No engine may outlive a test."""
    yield
    deadline = time.monotonic() + 3
    while engine_pids():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def engine_pids() -> list[int]:
    return [p.pid for p in psutil.Process().children(recursive=True) if "llama-server" in p.name()]


def under_load(*points: dict[str, object], **engine: object) -> ExperimentSpec:
    settings = {"context": 512, "slots": 4, "start_timeout_s": 30, "probe_timeout_s": 20}
    return make_spec(points=list(points) or [ALONE, FOUR], engine=settings | engine)


def lines(folder: Path, name: str, model: type) -> list:
    return [model.model_validate_json(line) for line in (folder / name).read_text().splitlines()]


def in_flight(streams: list[records.StreamRecord], at_s: float) -> int:
    return sum(s.sent_at_s <= at_s < s.closed_at_s for s in streams)


class TestOrder:
    def test_what_runs_together_comes_together(self, workload: Workload) -> None:
        spec = under_load(ALONE, FOUR, {"workload": "numbers", "max_tokens": 9, "sampling": {"temperature": 0.5}})
        spec = spec.model_copy(update={"warmup": spec.warmup.model_copy(update={"requests": 5})})
        (trial, *_) = plan_job(spec, {"numbers": workload}).trials
        warmup = batches(spec, trial.warmup)
        assert sorted(len(plans) for _, plans in warmup) == [1] * (len(trial.warmup) - 4) + [4]
        assert {p.id for _, plans in warmup for p in plans} == {w.id for w in trial.warmup}
        assert all(len(plans) == 4 for point, plans in warmup if point.concurrency == 4)
        probes = batches(spec, trial.probes)
        assert [p for _, plans in probes for p in plans] == trial.probes
        assert sorted((point.concurrency, len(plans)) for point, plans in probes) == [(1, 1)] * 4 + [(4, 24)]

    def test_without_a_load_nothing_changes(self, workload: Workload) -> None:
        spec = under_load(ALONE)
        (trial, *_) = plan_job(spec, {"numbers": workload}).trials
        assert batches(spec, trial.probes) == [(spec.points[0], [p]) for p in trial.probes]
        assert batches(spec, []) == []


def test_requests_run_together_and_leave_their_evidence(job: Callable) -> None:
    ran = job(under_load())
    assert ran.run().outcome == "completed"
    for report, folder in ran.sink.done:
        plan = next(t for t in ran.offer.plan.trials if t.id == report.trial)
        streams = lines(folder, records.RECORDS, records.StreamRecord)
        assert sorted(s.probe for s in streams) == sorted(p.id for p in (*plan.warmup, *plan.probes))
        assert {s.seed for s in streams if not s.warmup} == {p.seed for p in plan.probes}
        assert all(not s.failure and sum(e.tokens for e in s.events) == 24 for s in streams)

        load = [s for s in streams if s.point == KEY and not s.warmup]
        assert len(load) == 24
        seen = [in_flight(load, s.sent_at_s) for s in load]
        assert (seen[:4], max(seen)) == ([1, 2, 3, 4], 4)  # as many as asked for, and never more
        warm = [s for s in streams if s.point == KEY and s.warmup]
        assert (len(warm), max(in_flight(warm, s.sent_at_s) for s in warm)) == (4, 4)
        alone = [s for s in streams if s.point != KEY and not s.warmup]
        assert all(in_flight(streams, s.sent_at_s) == 1 for s in alone)

        snapshots = lines(folder, records.METRICS, records.MetricsSnapshot)
        around = [(s.when, s.at_s) for s in snapshots if not s.probe]
        assert [when for when, _ in around] == ["before", "after"]  # one window around the load, none for its requests
        assert around[0][1] < min(s.sent_at_s for s in load)
        assert around[1][1] > max(s.closed_at_s for s in load)
        assert {s.probe for s in snapshots if s.probe} == {p.id for p in plan.probes if p.point != KEY}


def test_the_load_is_measured_and_adds_up(job: Callable) -> None:
    ran = job(under_load(ALONE, FOUR | {"max_tokens": 128}))  # long enough for all four to decode at once
    ran.run()
    for report, folder in ran.sink.done:
        m = measure.measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
        assert m.problems == []
        assert m.disagreements == []  # the engine's own counters, over all requests of the load
        (load,) = m.loads
        assert (load.point, load.concurrency, load.n_requests) == (KEY, 4, 24)
        assert load.window_s is not None
        observed, rate = value_of(load.observed_concurrency), value_of(load.tokens_per_s)
        assert observed is not None
        assert rate is not None
        assert 1 < observed <= 4
        streams = [s for s in lines(folder, records.RECORDS, records.StreamRecord) if s.point == KEY and not s.warmup]
        sent, ended = min(s.sent_at_s for s in streams), max(s.closed_at_s for s in streams)
        assert sent < load.window_s[0] < load.window_s[1] < ended
        assert rate * (load.window_s[1] - load.window_s[0]) <= 24 * 128  # no more than all tokens there were
        probes = [p for p in m.probes if not p.warmup]
        assert all(p.ok for p in probes), [p.failure_message for p in probes if not p.ok]
        if report.trial.endswith("draft-3"):
            assert m.engaged
            assert all(value_of(p.counters.drafted) for p in probes)


@pytest.mark.parametrize(("concurrency", "tokens"), [(2, 10), (4, 10), (8, 20)])
def test_a_server_of_known_speed_is_measured_as_such(concurrency: int, tokens: int) -> None:
    """Every answer takes 400 ms from its request, so each of the lanes brings its tokens in that time, over and over."""
    with ReplayServer(answer(400, tokens)) as server:
        result = run(server, requests(6 * concurrency), Closed(concurrency))
    streams = [record.model_copy(update={"point": KEY}) for record, _ in records_of(result, openai_stream)]
    load = load_of(KEY, concurrency, list(enumerate(streams, 1)))
    rate, observed, scripted = value_of(load.tokens_per_s), value_of(load.observed_concurrency), concurrency * tokens / 0.4
    assert rate is not None
    assert observed is not None
    # A busy machine takes longer, and some time goes by between an answer's end and the next request; never is it faster.
    assert 0.7 * scripted < rate < 1.1 * scripted
    assert 0.9 * concurrency < observed <= concurrency


def test_people_see_how_far_the_load_is(job: Callable) -> None:
    ran = job(under_load(FOUR))
    ran.run()
    first = ran.offer.plan.trials[0].id
    told = [(s.probe, s.n_probes) for s in ran.said if s.phase == "probing" and s.trial == first and s.probe]
    assert told == [(n, 24) for n in range(1, 25)]


class AtProbe:
    """Acts once, when the n-th probe of a trial is about to be sent."""

    def __init__(self, ran: object, n: int, act: Callable[[], None]) -> None:
        self._was, self._n, self._act, self._done = ran.said.append, n, act, False

    def append(self, running: Running) -> None:
        self._was(running)
        if running.phase == "probing" and running.probe == self._n and not self._done:
            self._done = True
            self._act()


def test_an_engine_that_dies_under_load_is_tried_again(job: Callable) -> None:
    ran = job(under_load(FOUR))
    ran.said = AtProbe(ran, 10, lambda: os.kill(engine_pids()[0], signal.SIGKILL))
    assert ran.run().outcome == "completed"
    (report, folder), *others = ran.sink.done
    assert (report.outcome, report.error.code, report.n) == ("failed", "engine_died", 1)
    assert [(r.outcome, r.n) for r, _ in others if r.trial == report.trial] == [("ok", 2)]
    streams = [s for s in lines(folder, records.RECORDS, records.StreamRecord) if not s.warmup]
    assert any(not s.failure for s in streams)  # what went well before is kept
    assert any(s.failure for s in streams)


def test_an_engine_that_hangs_under_load_costs_one_limit_of_time(job: Callable) -> None:
    ran = job(under_load(FOUR, probe_timeout_s=0.7))
    ran.said = AtProbe(ran, 10, lambda: os.kill(engine_pids()[0], signal.SIGSTOP))
    ran.run()
    report, folder = ran.sink.done[0]
    assert (report.outcome, report.error.code) == ("failed", "probe_stalled")
    streams = [s for s in lines(folder, records.RECORDS, records.StreamRecord) if not s.warmup]
    stalled = [s for s in streams if s.failure == "probe_stalled"]
    assert 1 <= len(stalled) <= 4  # those under way; the fourteen behind them were not sent into the void
    assert len(streams) <= 14


def test_a_stop_under_load_ends_at_once_and_keeps_what_there_is(job: Callable) -> None:
    ran = job(under_load(FOUR | {"max_tokens": 400}, context=1024))
    ran.said = AtProbe(ran, 6, ran.stop.set)
    assert ran.run().outcome == "cancelled"
    ((report, folder),) = ran.sink.done
    assert report.outcome == "cancelled"
    assert (folder / records.RECORDS).read_text()
    summary = json.loads((folder / records.ATTEMPT).read_text())
    assert summary["leftover_pids"] == []
