"""Blocks that were torn apart are run whole once more; pausing; no clock that somebody sets has a say."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from specagent import blocks, local
from speccore.errors import EngineError
from speccore.inventory import HostInventory
from speccore.protocol import AttemptReport


class Ticking(blocks.Elapsed):
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def pass_minutes(self, minutes: float) -> None:
        self.at += timedelta(minutes=minutes)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def inventory(host) -> HostInventory:
    return host.inventory


@pytest.fixture
def account(job: Callable, spec_with: Callable, inventory: HostInventory, clock: Ticking):
    """Two blocks of two arms, and a way to end trials."""
    offer = job(spec_with(blocks=2)).offer

    def make(**changes: object) -> blocks.Blocks:
        return blocks.Blocks(offer.model_copy(update=changes), inventory, clock)

    make.offer = offer
    return make


def end(account: blocks.Blocks, clock: Ticking, *, minutes: float = 1, error: EngineError | None = None) -> str:
    trial = account.left()[0]
    clock.pass_minutes(minutes)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    report = AttemptReport(
        attempt_id="a",
        job_id="j",
        lease=1,
        trial=trial.id,
        n=1,
        outcome="failed" if error else "ok",
        error=error.body() if error else None,
        boot_id="b",
        started_at=started,
        ended_at=started + timedelta(minutes=minutes),
        evidence=[],
    )
    account.attempt_ended(trial, report)
    return trial.id


def test_a_gap_of_ten_minutes_runs_the_block_whole_once_more(account: Callable, clock: Ticking) -> None:
    held = account()
    first = end(held, clock)
    clock.pass_minutes(9)
    assert (len(held.left()), held.run_of(1)) == (3, 1)
    clock.pass_minutes(2)
    assert [t.id for t in held.left()][:1] == [first]
    assert (len(held.left()), held.run_of(1), held.run_of(2)) == (4, 2, 1)
    assert "10 minutes" in held.note(1) or "11 minutes" in held.note(1)
    assert held.note(2) == ""


def test_a_finished_block_stays_as_it_is(account: Callable, clock: Ticking) -> None:
    held = account()
    end(held, clock)
    end(held, clock)
    clock.pass_minutes(60)
    assert {t.block for t in held.left()} == {2}
    assert held.run_of(1) == 1


def test_long_trials_and_long_failures_are_no_gap(account: Callable, clock: Ticking) -> None:
    """Else an arm that takes long to fail would tear its block again and again, for ever."""
    held = account()
    end(held, clock, minutes=45)
    end(held, clock, minutes=45, error=_retryable())
    end(held, clock, minutes=45)
    assert {t.block for t in held.left()} == {2}
    assert held.run_of(1) == 1


def _retryable() -> EngineError:
    class Passing(EngineError):
        retry = True

    return Passing("once")


def test_the_run_that_the_server_counts_goes_on(account: Callable, clock: Ticking) -> None:
    first = account.offer.plan.trials[0].id
    held = account(block_runs={1: 3}, done_trials=[first])
    assert (held.run_of(1), len(held.left())) == (3, 3)
    clock.pass_minutes(11)
    assert (len(held.left()), held.run_of(1)) == (4, 4)


def test_a_wall_clock_that_is_set_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    elapsed = blocks.Elapsed()
    before = elapsed.now()

    class Set(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(1999, 1, 1, tzinfo=tz)

    monkeypatch.setattr(blocks, "datetime", Set)
    assert timedelta() <= elapsed.now() - before < timedelta(seconds=5)


def test_a_job_whose_machine_slept_runs_the_block_anew_and_counts_one_run(job: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = job()
    slept: list[float] = []
    real_take = ran.sink.attempt

    def take_and_sleep(done: object) -> None:
        real_take(done)
        slept[:] = slept or [660.0]

    monkeypatch.setattr(blocks, "_boot_clock", lambda: time.clock_gettime(time.CLOCK_BOOTTIME) + sum(slept))
    ran.sink.attempt = take_and_sleep
    assert ran.run().outcome == "completed"
    first, second = (t.id for t in ran.offer.plan.trials)
    assert [(r.trial, r.block_run, r.n) for r, _ in ran.sink.done] == [(first, 1, 1), (first, 2, 2), (second, 2, 1)]
    assert any("block 1 is run whole once more" in r.note for r in ran.said)
    analysis = local.analyse(ran.offer, ran.workloads, ran.sink)
    counted = local.counted(ran.offer, ran.sink)
    assert [r.trial for r, _ in counted] == [first, second]
    assert analysis is not None


def test_a_job_with_nothing_left_ends_though_it_shall_rest(job: Callable) -> None:
    ran = job()
    ran.offer = ran.offer.model_copy(update={"done_trials": [t.id for t in ran.offer.plan.trials]})
    ran.rest.set()
    assert ran.run().outcome == "completed"


def test_a_job_rests_between_trials_and_goes_on(job: Callable) -> None:
    ran = job()
    real_take, n_rests = ran.sink.attempt, []

    def take_and_rest(done: object) -> None:
        real_take(done)
        if not n_rests:
            ran.rest.set()

    ran.sink.attempt = take_and_rest
    said = ran.said.append

    def tell(running) -> None:
        said(running)
        if running.phase == "paused":
            n_rests.append(time.monotonic())
            if len(n_rests) == 3:
                ran.rest.clear()

    ran.tell = tell
    assert ran.run().outcome == "completed"
    assert len(n_rests) == 3
    assert len(ran.sink.done) == 2
    phases = [r.phase for r in ran.said]
    assert phases[phases.index("paused") - 1] == "ended"  # never in the middle of a trial
