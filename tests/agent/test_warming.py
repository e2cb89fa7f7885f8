"""Warm-up until the speed has settled, prompts asked before on purpose, and requests by the clock: on the real engine and on a scripted one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from specagent import evidence
from specagent.asking import Address
from specagent.together import Plan, run_batch
from specagent.warming import warm_up
from speccore import engines, measure, records
from speccore.dealing import settlings
from speccore.measurement import value_of
from speccore.pace_checks import warmup_settled
from speccore.plan import plan_job
from speccore.spec import ExperimentSpec, Point
from speccore.workload import Item, Workload

from tests.agent.conftest import make_spec
from tests.agent.loads import answer
from tests.replay import ReplayServer, Script

COUNT: dict[str, object] = {"workload": "numbers", "max_tokens": 24, "probes": 2}
SETTLED = {"mode": "settled", "most": 8}


@pytest.fixture
def workload() -> Workload:
    items = [Item(id=f"n{a}", prompt=f"Count from {a} to {a + 79}:\n{a}\n{a + 1}\n") for a in range(10, 80)]
    return Workload(name="numbers", version=1, title="Numbers", items=items[30:], warmup=items[:30])


def lines(folder: Path, name: str, model: type) -> list:
    return [model.model_validate_json(line) for line in (folder / name).read_text().splitlines()]


def test_a_warm_point_and_requests_by_the_clock_on_a_settled_engine(job: Callable) -> None:
    points = [COUNT | {"warm": True}, COUNT | {"rate_per_s": 20}]
    engine = {"context": 512, "slots": 2, "prefix_cache": True, "start_timeout_s": 30, "probe_timeout_s": 20}
    ran = job(make_spec(points=points, warmup=SETTLED, engine=engine))
    assert ran.run().outcome == "completed"
    warm, clock = (p.key for p in ran.offer.spec.points)
    due: dict[str, list[float]] = {}
    for report, folder in ran.sink.done:
        plan = next(t for t in ran.offer.plan.trials if t.id == report.trial)
        streams = lines(folder, records.RECORDS, records.StreamRecord)
        m = measure.measure_attempt(evidence.read(folder), ran.offer.spec, ran.workloads)
        assert m.problems == []
        # Warm-up: at each point at least two windows, at most what was planned, and none after it had settled.
        assert {s.point for s in m.settlings} == {warm, clock}
        for s in m.settlings:
            asked = [r for r in streams if r.point == s.point and r.warmup and not r.ahead]
            assert 6 <= s.n == len(asked) <= 8
            assert s.windows_ms is not None
            assert s.settled or s.n == 8
        # The warm point: the same prompts again, and the engine has kept them.
        ahead = [r for r in streams if r.ahead]
        repeats = [r for r in streams if r.point == warm and not r.warmup]
        assert [r.item for r in ahead] == [r.item for r in repeats] == [p.item for p in plan.probes if p.point == warm]
        assert max(r.closed_at_s for r in ahead) < min(r.sent_at_s for r in repeats)
        hits = {p.probe: value_of(p.cache_hit_tokens) for p in m.probes if p.point == warm and not p.warmup}
        assert all(hits.values()), hits
        # By the clock: each sent when it was due, whether or not the one before was answered.
        sent = [r for r in streams if r.point == clock and not r.warmup]
        assert len(sent) == 24
        assert all(r.scheduled_at_s is not None and r.scheduled_at_s <= r.sent_at_s for r in sent)
        first = min(r.scheduled_at_s for r in sent)
        due[report.trial] = [r.scheduled_at_s - first for r in sent]
        assert all(r.scheduled_at_s is None for r in streams if r.point != clock or r.warmup)
        (load,) = m.loads
        assert (load.point, load.n_requests, load.rate_per_s) == (clock, 24, 20)
        assert value_of(load.observed_concurrency)
        snapshots = lines(folder, records.METRICS, records.MetricsSnapshot)
        assert [s.when for s in snapshots if not s.probe] == ["before", "after"]
    off, draft = due.values()
    assert off == pytest.approx(draft, abs=1e-6)  # all arms of a block meet the same arrivals


def asking(port: int, stop: threading.Event, seen: list[records.StreamRecord]) -> Callable[[Point, Sequence[Plan]], Any]:
    """Sends warm-up to a scripted engine and keeps what comes back."""
    dialect = engines.engine("llama-server")
    t0 = time.monotonic()

    def ask(point: Point, plans: Sequence[Plan]) -> list[records.StreamRecord]:
        probed = run_batch(dialect, Address("127.0.0.1", port), point, [(p, p.item) for p in plans], t0=t0, timeout_s=10, stop=stop)
        seen.extend(p.record for p in probed)
        return [p.record for p in probed]

    return ask


def warmed(spec: ExperimentSpec, work: Workload, scripts: Sequence[Script]) -> list[records.StreamRecord]:
    """Records of the warm-up of the first trial, the n-th request of which gets the n-th script."""
    seen: list[records.StreamRecord] = []
    workloads = {work.name: work}
    trial = plan_job(spec, workloads).trials[0]
    with ReplayServer(scripts) as server:
        warm_up(spec, workloads, trial.warmup, asking(server.port, threading.Event(), seen))
    return seen


def test_an_engine_that_gets_ever_slower_never_settles_and_the_check_names_the_start(workload: Workload) -> None:
    """Each answer takes half as long again as the one before: no two windows can agree, however busy the machine is."""
    spec = make_spec(points=[COUNT], warmup={"mode": "settled"})
    seen = warmed(spec, workload, [answer(20 * 1.5**i, 5) for i in range(10)])
    assert len(seen) == 10  # as many as may be asked, and no more
    (found,) = settlings(spec, {"numbers": workload}, seen)
    assert (found.n, found.settled) == (10, False)
    assert found.windows_ms is not None
    assert found.windows_ms[0] < found.windows_ms[1]
    check = warmup_settled({"b1-off": found})
    assert check.state == "failed"
    assert check.sentence.startswith("the speed had not settled when timing began in 1 of 1 start, first b1-off: after 10 requests")


def test_a_steady_engine_with_a_slow_start_settles_and_asks_no_more(workload: Workload) -> None:
    """The first answers take four times as long; then all are alike, as far as a busy machine lets them."""
    spec = make_spec(points=[COUNT], warmup={"mode": "settled", "most": 20})
    seen = warmed(spec, workload, [answer(1600, 5)] * 2 + [answer(400, 5)] * 20)
    (found,) = settlings(spec, {"numbers": workload}, seen)
    assert found.settled
    assert 7 < found.n < 20  # the slow ones have to leave both windows first


def test_several_at_once_warm_up_in_batches_of_as_many(workload: Workload) -> None:
    spec = make_spec(points=[COUNT | {"concurrency": 4}], warmup={"mode": "settled"}, engine={"slots": 4})
    seen = warmed(spec, workload, [answer(400, 5)] * 12)
    assert len(seen) in (8, 12)
    for batch in (seen[i : i + 4] for i in range(0, len(seen), 4)):
        assert max(r.sent_at_s for r in batch) < min(r.closed_at_s for r in batch)  # at once
    starts = sorted(r.sent_at_s for r in seen)
    assert starts[4] > min(r.closed_at_s for r in seen)  # the next batch after the first
