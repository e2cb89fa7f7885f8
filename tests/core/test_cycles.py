"""Cycles from per-token timings: recorded answers, made-up ones, and counts that no engine can have produced."""

from __future__ import annotations

import pytest
from speccore.cycles import Cycle, accepted_by_position, conditional, cycles, impossible, survival
from speccore.records import StreamEvent

from tests.core.recordings import LLAMA, read, record
from tests.core.streams import cycling, stream_of


def test_each_move_of_the_engines_clock_is_a_cycle() -> None:
    steps = cycles(cycling([(4, 2, 3, 10.0), (4, 0, 1, 12.0), (0, 0, 1, 8.0)]))
    assert steps is not None
    assert [(c.drafted, c.accepted, c.committed, c.emitted, round(c.ms, 3)) for c in steps] == [
        (4, 2, 3, 3, 10.0),
        (4, 0, 1, 1, 12.0),
        (0, 0, 1, 1, 8.0),
    ]
    assert impossible(steps) == []


def test_a_stream_without_timings_has_no_cycles_rather_than_none_of_length_zero() -> None:
    assert cycles(stream_of([(50, 1), (60, 3)])) is None
    assert cycles(stream_of([])) is None


def test_an_answer_of_the_prefills_token_alone_has_no_cycle() -> None:
    assert cycles(cycling([])) == []


@pytest.mark.parametrize(
    ("case", "n"),
    [("b10434-draft4-lv4", 0), ("b11434-draft4-lv4", 0), ("b10434-ngram-simple-lv4", 0), ("b11434-ngram-mod-and-draft-lv4", 0)],
)
def test_cycles_of_recorded_answers_add_up_to_the_engines_own_counts(case: str, n: int) -> None:
    r = record(case, n)
    steps, timings = cycles(r), r.final["timings"]
    assert steps is not None
    assert impossible(steps) == []
    assert sum(c.drafted for c in steps) == timings["draft_n"]
    assert sum(c.accepted for c in steps) == timings["draft_n_accepted"]
    assert sum(c.emitted for c in steps) == timings["predicted_n"] - 1
    assert sum(c.ms for c in steps) == pytest.approx(timings["predicted_ms"], abs=0.01)
    logged = LLAMA.log_requests(read(f"{case}.log"))[n]
    assert sum(c.drafted > 0 for c in steps) == logged.verify_steps
    by_position = accepted_by_position([c.accepted for c in steps], [c.drafted for c in steps])
    rates = survival(by_position, logged.verify_steps)
    assert rates[: len(logged.rate_by_position)] == pytest.approx(logged.rate_by_position, abs=0.0006)


def test_positions_survive_and_are_conditional() -> None:
    accepted, drafted = [4, 2, 0, 1, 3], [4, 4, 4, 4, 4]
    by_position = accepted_by_position(accepted, drafted)
    assert by_position == [4, 3, 2, 1]
    assert survival(by_position, 5) == [4 / 5, 3 / 5, 2 / 5, 1 / 5]
    assert conditional(by_position, 5) == [4 / 5, 3 / 4, 2 / 3, 1 / 2]
    assert conditional([2, 0, 0], 4) == [0.5, 0.0]  # nothing was tried behind a position that nobody reached
    assert conditional([], 4) == []
    assert accepted_by_position([], []) == []


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ([Cycle(4, 5, 6, 10.0, False)], "cycle 1 of the stream accepted 5 of 4 drafted tokens"),
        ([Cycle(-4, 0, 1, 10.0, False)], "cycle 1 of the stream runs backwards"),
        ([Cycle(4, 1, 2, -3.0, False)], "cycle 1 of the stream runs backwards"),
        ([Cycle(4, 1, 1, 10.0, False), Cycle(4, 0, 1, 10.0, False)], "cycle 1 of the stream sent 1 tokens after accepting 1"),
        ([Cycle(4, 1, 3, 10.0, False)], "cycle 1 of the stream sent 3 tokens after accepting 1"),
    ],
)
def test_impossible_cycles_are_named(steps: list[Cycle], said: str) -> None:
    assert len(impossible(steps)) == 1
    assert said in impossible(steps)[0]


def test_the_last_cycle_may_send_less_than_it_made_and_fused_ones_more() -> None:
    assert impossible([Cycle(4, 3, 4, 10.0, False), Cycle(4, 3, 2, 10.0, False)]) == []
    assert impossible([Cycle(8, 0, 3, 10.0, True), Cycle(4, 0, 1, 10.0, False)]) == []


def test_counts_that_run_backwards_fail_the_probe() -> None:
    r = cycling([(4, 2, 3, 10.0), (4, 1, 2, 10.0), (4, 0, 1, 10.0)])
    events = [e.model_copy(update={"draft_n": 2}) if e.predicted_n and e.predicted_n >= 7 else e for e in r.events]
    found = LLAMA.probe_counts(r.model_copy(update={"events": events}), 1, off=False, metrics=None, log=None).disagreements
    assert any("runs backwards" in d for d in found)


def test_events_without_counts_between_counted_ones_change_nothing() -> None:
    r = cycling([(4, 2, 3, 10.0), (4, 0, 1, 12.0)])
    more = [r.events[0], StreamEvent(at_s=0.051, tokens=0), *r.events[1:]]
    assert cycles(r.model_copy(update={"events": more})) == cycles(r)
