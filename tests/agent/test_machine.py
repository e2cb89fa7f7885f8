"""The agent's decisions as a table of state, event, and what follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
from specagent.machine import (
    EXIT_FAILED,
    Held,
    JobEnded,
    Polled,
    PollFailed,
    PollIn,
    Quit,
    QuitAsked,
    RestJob,
    SendInventory,
    StartJob,
    State,
    StopJob,
    step,
)
from speccore.errors import EngineError
from speccore.protocol import Finished, JobOffer, JobPlan, PollReply

from tests.agent.conftest import make_spec

OFFER = JobOffer(
    job_id="j1",
    experiment_id="e1",
    lease=1,
    lease_token="t",
    spec=make_spec(),
    plan=JobPlan(seed=1, trials=[], workloads={}),
    runtime_hash="r",
    target_hash="m",
    device_uuids=["d"],
)
WORKING = State(job=Held("j1", 1))
COMPLETED = Finished(job_id="j1", lease=1, outcome="completed")
CANCELLED = Finished(job_id="j1", lease=1, outcome="cancelled")


def polled(**reply: object) -> Polled:
    return Polled(PollReply.model_validate(reply))


def test_an_idle_agent_takes_the_job_and_beats_faster() -> None:
    state, effects = step(State(), Polled(PollReply(job=OFFER, poll_after_s=2)))
    assert state.job == Held("j1", 1)
    assert effects == [StartJob(OFFER), PollIn(2)]


def test_an_idle_agent_waits_as_told_with_jitter() -> None:
    state, effects = step(State(), polled(poll_after_s=10))
    assert state == State()
    assert effects == [PollIn(10, jitter=0.2)]


def test_a_running_agent_beats_every_two_seconds_whatever_it_is_told() -> None:
    assert step(WORKING, polled(poll_after_s=60))[1] == [PollIn(2)]


def test_a_job_that_runs_is_not_started_twice() -> None:
    """A lost reply: the server offers again what it thinks was not received."""
    state, effects = step(WORKING, Polled(PollReply(job=OFFER.model_copy(update={"lease": 2}))))
    assert state == WORKING
    assert not any(isinstance(e, StartJob) for e in effects)


def test_a_finished_job_that_is_offered_again_is_not_run_again() -> None:
    state = State(finished=(COMPLETED,))
    assert step(state, Polled(PollReply(job=OFFER)))[0].job is None


def test_the_last_word_is_repeated_until_acknowledged() -> None:
    state, effects = step(WORKING, JobEnded(COMPLETED))
    assert state.finished == (COMPLETED,)
    assert effects == [PollIn(0)]
    state, effects = step(state, polled())
    assert state.finished == (COMPLETED,)
    assert effects[0].seconds < 1
    state, _ = step(state, polled(acknowledged=["other"]))
    assert state.finished == (COMPLETED,)
    state, _ = step(state, polled(acknowledged=["j1"]))
    assert state.finished == ()


def test_cancel_stops_the_job_once_and_reports_it() -> None:
    state, effects = step(WORKING, polled(cancel=["j1"]))
    assert StopJob("j1") in effects
    state, effects = step(state, polled(cancel=["j1"]))
    assert StopJob("j1") not in effects
    state, _ = step(state, JobEnded(CANCELLED))
    assert state.finished == (CANCELLED,)


def test_cancel_of_another_job_changes_nothing() -> None:
    assert step(WORKING, polled(cancel=["j2"]))[0] == WORKING


def test_quitting_stops_the_job_and_leaves_it_to_be_offered_again() -> None:
    state, effects = step(WORKING, QuitAsked())
    assert effects == [StopJob("j1")]
    assert step(state, QuitAsked())[1] == []
    state, effects = step(state, JobEnded(CANCELLED))
    assert effects == [Quit(0)]
    assert state.finished == ()  # cancelled by nobody: the server keeps it for our return


def test_quitting_while_a_cancelled_job_ends_still_waits_for_it() -> None:
    state, _ = step(WORKING, polled(cancel=["j1"]))
    state, effects = step(state, QuitAsked())
    assert effects == []
    assert step(state, JobEnded(CANCELLED))[1] == [Quit(0)]


def test_an_idle_agent_quits_at_once_and_takes_no_job_afterwards() -> None:
    state, effects = step(State(), QuitAsked())
    assert effects == [Quit(0)]
    assert step(state, Polled(PollReply(job=OFFER)))[0].job is None


def test_failed_polls_wait_longer_and_longer_and_a_good_one_resets() -> None:
    state, waits = WORKING, []
    for _ in range(8):
        state, (effect,) = step(state, PollFailed("no route"))
        waits.append(effect.seconds)
    assert waits == sorted(waits)
    assert waits[0] <= 1
    assert waits[-1] == 30
    assert state.job == WORKING.job  # the work goes on without the server
    assert step(state, polled())[0].n_failures == 0


def test_a_refused_token_stops_the_job_and_quits_with_the_reason() -> None:
    state, effects = step(WORKING, PollFailed("unknown token", final=True))
    assert effects[0] == StopJob("j1")
    assert effects[1].seconds > 0  # while the job stops, the server is not asked without a pause
    again, (wait,) = step(state, PollFailed("unknown token", final=True))
    assert wait.seconds > effects[1].seconds
    assert step(again, JobEnded(CANCELLED))[1] == [Quit(EXIT_FAILED, "unknown token")]
    assert step(State(), PollFailed("unknown token", final=True))[1] == [Quit(EXIT_FAILED, "unknown token")]


def test_the_inventory_is_sent_when_asked_for_and_the_next_poll_comes_soon() -> None:
    _, effects = step(State(), polled(send_inventory=True, poll_after_s=10))
    assert effects[0] == SendInventory()
    assert effects[1].seconds < 1


def test_a_draining_host_takes_no_new_job_until_it_is_over() -> None:
    state, _ = step(State(), Polled(PollReply(job=OFFER, drain=True)))
    assert state.job is None
    assert state.draining
    assert step(state, Polled(PollReply(job=OFFER)))[0].job is not None


@pytest.mark.parametrize("error", [None, EngineError("it broke").body()])
def test_once_takes_one_job_reports_it_and_quits(error: object) -> None:
    state, effects = step(State(once=True), Polled(PollReply(job=OFFER)))
    assert not any(isinstance(e, Quit) for e in effects)
    ended = COMPLETED if error is None else COMPLETED.model_copy(update={"outcome": "failed", "error": error})
    state, _ = step(state, JobEnded(ended))
    state, effects = step(state, Polled(PollReply(job=OFFER.model_copy(update={"job_id": "j2"}))))
    assert state.job is None
    assert not any(isinstance(e, Quit) for e in effects)  # its last word is not acknowledged yet
    assert isinstance(step(state, polled(acknowledged=["j1"]))[1][-1], Quit)


def test_once_with_no_job_quits_but_first_sends_its_inventory() -> None:
    state, effects = step(State(once=True), polled(send_inventory=True))
    assert not any(isinstance(e, Quit) for e in effects)
    assert step(state, polled())[1] == [Quit(0, "no job waits for this host")]


def test_a_step_never_changes_the_state_it_was_given() -> None:
    state = replace(WORKING, finished=(COMPLETED,))
    step(state, polled(cancel=["j1"], acknowledged=["j1"]))
    assert state == replace(WORKING, finished=(COMPLETED,))


def test_a_pause_is_told_once_and_ends_when_the_job_is_no_longer_named() -> None:
    state, effects = step(WORKING, polled(pause=["j1"]))
    assert effects[0] == RestJob("j1", resting=True)
    state, effects = step(state, polled(pause=["j1"]))
    assert not any(isinstance(e, RestJob) for e in effects)
    state, effects = step(state, polled(pause=["other"]))
    assert effects[0] == RestJob("j1", resting=False)
    assert state == WORKING


def test_a_paused_job_can_be_cancelled() -> None:
    state, _ = step(WORKING, polled(pause=["j1"]))
    state, effects = step(state, polled(pause=["j1"], cancel=["j1"]))
    assert effects[0] == StopJob("j1")


def test_while_earlier_results_are_on_their_way_no_job_begins_and_once_does_not_quit() -> None:
    state, effects = step(State(once=True), Polled(PollReply(job=OFFER), delivering=True))
    assert state.job is None
    assert effects == [PollIn(2)]
    state, effects = step(state, Polled(PollReply(job=OFFER)))
    assert effects[0] == StartJob(OFFER)
